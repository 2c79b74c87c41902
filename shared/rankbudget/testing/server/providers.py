"""What providers refuse: the rules for a chat request, one set for each family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

__all__ = ["ALTERNATING", "ANTHROPIC", "OPENAI", "PROVIDERS", "Provider", "problems_of"]

_SYSTEM = ("system", "developer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """The rules of one family of providers.

    Args:
        name: the part of a model's name before "@".
        roles: roles a message may have.
        first_user: the first message that is not a system message must be the user's.
        late_system: system messages may stand after other messages.
        empty_text: a message may have no text.
        alternate: user and assistant must take turns, tool results counting with the user.
        system_messages: most system messages; None is any number.
        blocks: content blocks a message may hold.
    """

    name: str
    roles: frozenset[str] = frozenset({"system", "developer", "user", "assistant", "tool"})
    first_user: bool = False
    late_system: bool = True
    empty_text: bool = True
    alternate: bool = False
    system_messages: int | None = None
    blocks: frozenset[str] = frozenset({"text", "image_url", "input_audio", "file", "refusal"})


OPENAI = Provider(name="openai")
"""Any opening, system messages anywhere, empty strings allowed."""
ANTHROPIC = Provider(
    name="anthropic",
    first_user=True,
    late_system=False,
    empty_text=False,
    blocks=frozenset(
        {"text", "image_url", "input_audio", "file", "thinking", "redacted_thinking", "tool_use"}
    ),
)
"""Opens with the user; system text first only; no empty text; thinking first in its message."""
ALTERNATING = Provider(
    name="alternating", first_user=True, late_system=False, alternate=True, system_messages=1
)
"""As many open models' templates: at most one system message, then strictly user, assistant, user."""
PROVIDERS: Mapping[str, Provider] = {p.name: p for p in (OPENAI, ANTHROPIC, ALTERNATING)}


def problems_of(messages: Sequence[Mapping[str, Any]], provider: Provider = OPENAI) -> list[str]:
    """Returns what a provider would refuse about a conversation, in order; nothing when it is valid.

    Example:
        >>> result = {"role": "tool", "tool_call_id": "c1", "content": "found"}
        >>> problems = problems_of([{"role": "user", "content": "hi"}, result])
        >>> for part in problems[0].split("; "):
        ...     print(part)
        messages.1: role 'tool' must be a response to a preceding message with 'tool_calls'
        no call 'c1' is open
    """
    if not messages:
        return ["messages: [] is too short"]
    return [*_shapes(messages, provider), *_pairing(messages), *_order(messages, provider)]


def _shapes(messages: Sequence[Mapping[str, Any]], provider: Provider) -> Iterator[str]:
    for i, message in enumerate(messages):
        if message.get("role") not in provider.roles:
            yield f"messages.{i}.role: {message.get('role')!r} is not one of {sorted(provider.roles)}"
        yield from _content(i, message, provider)
        yield from _calls(i, message)


def _content(i: int, message: Mapping[str, Any], provider: Provider) -> Iterator[str]:
    content, calls = message.get("content"), message.get("tool_calls")
    if isinstance(content, list):
        yield from _blocks(i, content, provider)
    elif isinstance(content, str):
        if not provider.empty_text and not content.strip() and not calls:
            yield f"messages.{i}.content: text content must be non-empty"
    elif content is not None:
        yield f"messages.{i}.content: expected a string or an array, got {type(content).__name__}"
    elif message.get("role") != "assistant" or not calls:
        yield f"messages.{i}.content: expected a string or an array, got null"


def _calls(i: int, message: Mapping[str, Any]) -> Iterator[str]:
    calls = message.get("tool_calls")
    if calls is not None and not calls:
        yield f"messages.{i}.tool_calls: [] is too short"
    for n, call in enumerate(calls or ()):
        function = call.get("function") or {}
        complete = call.get("id") and function.get("name") and isinstance(function.get("arguments"), str)
        if not complete:
            yield f"messages.{i}.tool_calls.{n}: needs an id, a function name and arguments in a string"


def _blocks(i: int, content: Sequence[Any], provider: Provider) -> Iterator[str]:
    if not content:
        yield f"messages.{i}.content: [] is too short"
    kinds = [block.get("type") if isinstance(block, Mapping) else type(block).__name__ for block in content]
    for n, kind in enumerate(kinds):
        if kind not in provider.blocks:
            yield f"messages.{i}.content.{n}: {kind!r} is not one of {sorted(provider.blocks)}"
        if kind == "text" and not provider.empty_text and not str(content[n].get("text") or "").strip():
            yield f"messages.{i}.content.{n}: text content blocks must be non-empty"
        if kind == "thinking" and not content[n].get("signature"):
            yield f"messages.{i}.content.{n}: thinking needs its signature"
    thoughts = [n for n, kind in enumerate(kinds) if kind in ("thinking", "redacted_thinking")]
    if thoughts and thoughts != list(range(len(thoughts))):
        yield f"messages.{i}.content: thinking blocks must come before all others"


def _pairing(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    open_calls: list[str] = []
    for i, message in enumerate(messages):
        if message.get("role") == "tool":
            answered = message.get("tool_call_id")
            if answered in open_calls:
                open_calls.remove(answered)
            else:
                yield (
                    f"messages.{i}: role 'tool' must be a response to a preceding message with 'tool_calls';"
                    f" no call {answered!r} is open"
                )
            continue
        if open_calls:
            yield _unanswered(i, open_calls)
        open_calls = [str(call.get("id")) for call in message.get("tool_calls") or ()]
    if open_calls:
        yield _unanswered(len(messages), open_calls)


def _unanswered(at: int, calls: Sequence[str]) -> str:
    return (
        f"messages.{at}: 'tool_calls' must be followed by tool messages responding to each;"
        f" {calls!r} have no response"
    )


def _order(messages: Sequence[Mapping[str, Any]], provider: Provider) -> Iterator[str]:
    roles = [message.get("role") for message in messages]
    others = [(i, role) for i, role in enumerate(roles) if role not in _SYSTEM]
    if provider.first_user and others and others[0][1] != "user":
        yield f"messages.{others[0][0]}: first message must use the 'user' role"
    if not provider.late_system and others:
        for i in range(others[0][0], len(roles)):
            if roles[i] in _SYSTEM:
                yield f"messages.{i}: a system message must come before all other messages"
    most = provider.system_messages
    if most is not None and sum(role in _SYSTEM for role in roles) > most:
        yield f"messages: at most {most} system message is allowed"
    if provider.alternate:
        yield from _alternation(others)


def _alternation(others: Sequence[tuple[int, Any]]) -> Iterator[str]:
    sides = [("user" if role == "tool" else role, role, i) for i, role in others]
    for before, now in pairwise(sides):
        if before[0] == now[0] and not before[1] == now[1] == "tool":
            yield f"messages.{now[2]}: conversation roles must alternate user/assistant/user/assistant"
