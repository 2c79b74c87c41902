"""What a provider or a chat template demands of a conversation, and the conversation it accepts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..errors import BudgetConfigError, did_you_mean
from .blocks import CONTENTS, ROLES, as_block, block_text, blocks_of, content_key, kind_of
from .models import is_known, near_models
from .protocol import Message

_SYSTEM = frozenset({"system", "developer"})
_JOINER = "\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderingProfile:
    r"""Says what a conversation must look like.

    Args:
        system: where system messages may be: "anywhere"; "first", later ones are moved to the front; "user",
            there is no such role and their text opens the next user message.
        one_system: several system messages in a row become one.
        alternate: neighbours of one role become one message; tool results stay apart, their calls name them.
        one_text: the text blocks of a message become one text, of which a template may show the first alone.
        no_developer: there is no such role, it becomes "system".
        answered: no question may follow results of tools: where messages are chosen by a query, steps whose
            answer is left out are left out, too.

    Example:
        >>> strict = RenderingProfile(system="user", alternate=True)
        >>> messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
        >>> apply_profile(messages, strict)
        [{'role': 'user', 'content': 'Be brief.\n\nHi'}]
    """

    system: Literal["anywhere", "first", "user"] = "anywhere"
    one_system: bool = False
    alternate: bool = False
    one_text: bool = False
    no_developer: bool = False
    answered: bool = False


_STRICT = RenderingProfile(system="first", one_system=True, alternate=True)
PROFILES: dict[str, RenderingProfile] = {
    "openai": RenderingProfile(),
    "anthropic": _STRICT,
    "google": _STRICT,
    "mistral": replace(_STRICT, answered=True),
    "alternating": RenderingProfile(system="user", one_system=True, alternate=True),
}
"""Profiles by provider; "alternating" is what the strictest chat templates want."""

_BY_NAME = {
    "claude": "anthropic",
    "gemini": "google",
    "gemma": "alternating",
    "mistral": "mistral",
    "mixtral": "alternating",
}


def profile_for(model: str) -> RenderingProfile:
    """Returns the profile of a provider or a known model by its name."""
    name = model.strip().lower()
    found = next((provider for part, provider in _BY_NAME.items() if part in name), "openai")
    if name not in PROFILES and found == "openai" and not is_known(name):
        hint = did_you_mean(name, PROFILES) or near_models(name) or f"; allowed: {', '.join(PROFILES)}"
        msg = f"profile must be a provider's or a known model's name (got {model!r}){hint}"
        raise BudgetConfigError(msg)
    return PROFILES.get(name, PROFILES[found])


def apply_profile(messages: Sequence[Message], profile: RenderingProfile) -> list[Message]:
    """Returns messages that obey a profile; what needs no change is the same object, none is mutated."""
    result = [in_profile(message, profile) for message in messages]
    if profile.system == "first":
        result.sort(key=lambda message: _role(message) not in _SYSTEM)
    elif profile.system == "user":
        result = _systems_into_users(result)
    if profile.one_system:
        result = _joined(result, [_SYSTEM])
    if profile.alternate:
        result = _joined(result, [{"user"}, {"assistant"}])
    return result


def in_profile(message: Message, profile: RenderingProfile) -> Message:
    """Returns what one message must be: its role, and its text blocks as one text; media stay blocks."""
    if profile.no_developer and message.get("role") == "developer":
        message = {**message, "role": "system"}
    content = message.get("content") if profile.one_text else None
    texts = list(map(block_text, content)) if isinstance(content, (list, tuple)) else []
    if not texts or None in texts:
        return message
    return {**message, "content": "\n".join(filter(None, texts))}


def join_contents(first: Any, second: Any, joiner: str = _JOINER) -> Any:
    """Returns one content of two: texts joined, blocks in a row."""
    if not first or not second:
        return first or second
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}{joiner}{second}"
    return [*as_blocks(first), *as_blocks(second)]


def _joined(messages: Iterable[Message], speakers: Sequence[Collection[str]]) -> list[Message]:
    """Returns the messages with neighbours of one of these speakers made one; a tool call ends its turn."""
    result: list[Message] = []
    for message in messages:
        last = result[-1] if result else None
        roles = next((roles for roles in speakers if _role(message) in roles), ())
        calls = last is not None and (last.get("tool_calls") or last.get("function_call"))
        if last is None or _role(last) not in roles or calls:
            result.append(message)
            continue
        merged = {**message, **{key: value for key, value in last.items() if value is not None}}
        if images := join_contents(last.get("images"), message.get("images")):
            merged["images"] = images
        key = content_key(last if _content(last) else message)
        result[-1] = _with_content(merged, key, _content(last), _content(message))
    return result


def _systems_into_users(messages: Sequence[Message]) -> list[Message]:
    """Returns the messages with every system text in the user message after it, or in one of its own."""
    result: list[Message] = []
    waiting: Any = None
    for message in messages:
        role = _role(message)
        if role in _SYSTEM:
            waiting = join_contents(waiting, _content(message))
        elif not waiting or role == "tool":  # results stay with their call: the text waits
            result.append(message)
        elif role == "user":
            result.append(_with_content(message, content_key(message), waiting, _content(message)))
            waiting = None
        else:
            result += [_said_beside(message, waiting), message]
            waiting = None
    return [*result, _said_beside(result[-1] if result else {}, waiting)] if waiting else result


def _said_beside(message: Message, content: Any) -> Message:
    """Returns a user message in the form of its neighbour."""
    return _with_content({"role": "user"}, "parts" if message.get("parts") else "content", content)


def _content(message: Message) -> Any:
    return message.get(content_key(message))


def _with_content(message: Message, key: str, *contents: Any) -> Message:
    """Returns a message whose content is all of these, under this key alone, in its form."""
    joined: Any = None
    for content in contents:
        joined = join_contents(joined, content)
    if joined and (key == "parts" or not isinstance(joined, str)):
        joined = [(_part if key == "parts" else _typed)(block) for block in as_blocks(joined)]
    made = {name: value for name, value in message.items() if name == key or name not in CONTENTS}
    return made if joined is None else {**made, key: joined}


def _part(block: Any) -> Any:
    """Returns a block as a part of Gemini's, whose texts have no type."""
    text = block_text(block)
    return block if text is None or (isinstance(block, Mapping) and not kind_of(block)) else {"text": text}


def _typed(block: Any) -> Any:
    """Returns a text part of Gemini's as a text block."""
    if isinstance(block, str):
        return {"type": "text", "text": block}
    return block if block_text(block) is None else as_block(block)


def _role(message: Message) -> str:
    role = str(message.get("role") or "")
    return ROLES.get(role, role)


def as_blocks(content: Any) -> list[Any]:
    """Returns a content as a list of blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(blocks_of(content))
