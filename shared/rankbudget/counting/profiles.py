"""What a provider or a chat template demands of a conversation, and the conversation it accepts.

OpenAI takes system messages anywhere and neighbours of one role; many others do not. A `RenderingProfile` says what is demanded,
`apply_profile` returns messages that obey it. Nothing is lost: texts are moved and joined, never left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .protocol import Message

__all__ = ["PROFILES", "RenderingProfile", "apply_profile", "profile_for"]

_SYSTEM = frozenset({"system", "developer"})
_RESULTS = frozenset({"tool", "function"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderingProfile:
    r"""Says what a conversation must look like.

    Args:
        system: where system messages may stand: "anywhere"; "first", later ones are moved to the front; "user", there is no such role and their
            text opens the next user message.
        one_system: several system messages in a row become one.
        alternate: neighbours of one role become one message; tool results stay apart, their calls name them.
        tool_role: whether calls and results have a place of their own; otherwise they are written as text.
        joiner: what stands between texts that become one.

    Example:
        >>> strict = RenderingProfile(system="user", alternate=True)
        >>> apply_profile([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}], strict)
        [{'role': 'user', 'content': 'Be brief.\n\nHi'}]
    """

    system: Literal["anywhere", "first", "user"] = "anywhere"
    one_system: bool = False
    alternate: bool = False
    tool_role: bool = True
    joiner: str = "\n\n"

    @property
    def free(self) -> bool:
        """Whether every conversation is accepted as it is."""
        return self.system == "anywhere" and not self.one_system and not self.alternate and self.tool_role


PROFILES: dict[str, RenderingProfile] = {
    "openai": RenderingProfile(),
    "anthropic": RenderingProfile(system="first", one_system=True, alternate=True),
    "google": RenderingProfile(system="first", one_system=True, alternate=True),
    "mistral": RenderingProfile(system="first", one_system=True, alternate=True),
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
    """Returns the profile of a model by its name; names nobody knows are served as OpenAI's.

    Example:
        >>> profile_for("claude-sonnet-4-5") is PROFILES["anthropic"]
        True
    """
    lowered = model.lower()
    found = next((provider for start, provider in _BY_NAME.items() if start in lowered), "openai")
    return PROFILES.get(lowered, PROFILES[found])


def apply_profile(messages: Sequence[Message], profile: RenderingProfile) -> list[Message]:
    """Returns messages that obey a profile; what needs no change is the same object, and applying twice changes nothing more.

    Args:
        messages: neutral messages; they are not changed.
        profile: what is demanded.
    """
    result = list(messages)
    if not profile.tool_role:
        result = [_without_tools(message) for message in result]
    if profile.system == "first":
        result = [m for m in result if _role(m) in _SYSTEM] + [m for m in result if _role(m) not in _SYSTEM]
    elif profile.system == "user":
        result = _systems_into_users(result, profile.joiner)
    if profile.one_system:
        result = _joined(result, _SYSTEM, profile.joiner)
    if profile.alternate:
        result = _joined(result, frozenset({"user", "assistant"}), profile.joiner)
    return result


def join_contents(first: Any, second: Any, joiner: str) -> Any:
    """Returns one content of two: texts joined, blocks in a row, nothing where there was nothing."""
    if not first or not second:
        return first or second
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}{joiner}{second}"
    return [*_blocks(first), *_blocks(second)]


def _joined(messages: Iterable[Message], roles: frozenset[str], joiner: str) -> list[Message]:
    """Returns the messages with neighbours of one of these roles made one."""
    result: list[Message] = []
    for message in messages:
        last = result[-1] if result else None
        if last is None or _role(message) not in roles or not _together(last, message, roles):
            result.append(message)
            continue
        merged = {**last, "content": join_contents(last.get("content"), message.get("content"), joiner)}
        if message.get("tool_calls"):
            merged["tool_calls"] = list(message["tool_calls"])
        result[-1] = merged
    return result


def _together(last: Message, message: Message, roles: frozenset[str]) -> bool:
    """Returns whether two neighbours are one speaker's; a message that calls tools ends its turn."""
    same = _role(last) == _role(message) or (roles is _SYSTEM and _role(last) in _SYSTEM)
    return same and not last.get("tool_calls")


def _systems_into_users(messages: Sequence[Message], joiner: str) -> list[Message]:
    """Returns the messages with every system text at the start of the user message after it, or in one of its own."""
    result: list[Message] = []
    waiting: Any = None
    for message in messages:
        if _role(message) in _SYSTEM:
            waiting = join_contents(waiting, message.get("content"), joiner)
        elif waiting and _role(message) == "user":
            result.append({**message, "content": join_contents(waiting, message.get("content"), joiner)})
            waiting = None
        elif (
            waiting and _role(message) not in _RESULTS
        ):  # results stay with their call: the text waits until they are through
            result += [{"role": "user", "content": waiting}, message]
            waiting = None
        else:
            result.append(message)
    return [*result, {"role": "user", "content": waiting}] if waiting else result


def _without_tools(message: Message) -> Message:
    """Returns a message whose calls or result are plain text."""
    if _role(message) in _RESULTS:
        return {"role": "user", "content": join_contents("Tool result:", message.get("content"), "\n")}
    calls = message.get("tool_calls")
    if not calls:
        return message
    written = [call.get("function", call) if isinstance(call, Mapping) else call for call in calls]
    text = "\n".join(f"Tool call: {json.dumps(call, ensure_ascii=False, default=str)}" for call in written)
    plain = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**plain, "content": join_contents(message.get("content"), text, "\n")}


def _role(message: Message) -> str:
    return str(message.get("role") or "")


def _blocks(content: Any) -> list[Any]:
    return (
        [{"type": "text", "text": content}]
        if isinstance(content, str)
        else list(content)
        if isinstance(content, (list, tuple))
        else [content]
    )
