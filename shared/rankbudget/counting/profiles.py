"""What a provider or a chat template demands of a conversation, and the conversation it accepts.

OpenAI takes system messages anywhere and neighbours of one role; many others do not. Texts are moved and
joined, never left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import BudgetConfigError, did_you_mean
from .models import is_known, near_models
from .protocol import Message

__all__ = ["PROFILES", "RenderingProfile", "apply_profile", "join_contents", "profile_for"]

_SYSTEM = frozenset({"system", "developer"})
_RESULTS = frozenset({"tool", "function"})
_JOINER = "\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderingProfile:
    r"""Says what a conversation must look like.

    Args:
        system: where system messages may be: "anywhere"; "first", later ones are moved to the front; "user",
            there is no such role and their text opens the next user message.
        one_system: several system messages in a row become one.
        alternate: neighbours of one role become one message; tool results stay apart, their calls name them.

    Example:
        >>> strict = RenderingProfile(system="user", alternate=True)
        >>> messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
        >>> apply_profile(messages, strict)
        [{'role': 'user', 'content': 'Be brief.\n\nHi'}]
    """

    system: Literal["anywhere", "first", "user"] = "anywhere"
    one_system: bool = False
    alternate: bool = False

    @property
    def free(self) -> bool:
        """Whether every conversation is accepted as it is."""
        return self.system == "anywhere" and not self.one_system and not self.alternate


_STRICT = RenderingProfile(system="first", one_system=True, alternate=True)
PROFILES: dict[str, RenderingProfile] = {
    "openai": RenderingProfile(),
    "anthropic": _STRICT,
    "google": _STRICT,
    "mistral": _STRICT,
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
    """Returns the profile of a provider or a model by its name.

    Raises:
        BudgetConfigError: the name is neither a profile nor a known model.
    """
    name = model.strip().lower()
    found = next((provider for part, provider in _BY_NAME.items() if part in name), None)
    if name not in PROFILES and found is None and not is_known(name):
        hint = did_you_mean(name, PROFILES) or near_models(name) or f"; allowed: {', '.join(PROFILES)}"
        msg = f"profile must be a provider's or a known model's name (got {model!r}){hint}"
        raise BudgetConfigError(msg)
    return PROFILES.get(name, PROFILES[found or "openai"])


def apply_profile(messages: Sequence[Message], profile: RenderingProfile) -> list[Message]:
    """Returns messages that obey a profile; what needs no change is the same object, none is mutated."""
    result = list(messages)
    if profile.system == "first":
        result.sort(key=lambda message: _role(message) not in _SYSTEM)
    elif profile.system == "user":
        result = _systems_into_users(result)
    if profile.one_system:
        result = _joined(result, [_SYSTEM])
    if profile.alternate:
        result = _joined(result, [{"user"}, {"assistant"}])
    return result


def join_contents(first: Any, second: Any, joiner: str = _JOINER) -> Any:
    """Returns one content of two: texts joined, blocks in a row."""
    if not first or not second:
        return first or second
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}{joiner}{second}"
    return [*_blocks(first), *_blocks(second)]


def _joined(messages: Iterable[Message], speakers: Sequence[Collection[str]]) -> list[Message]:
    """Returns the messages with neighbours of one of these speakers made one; a tool call ends its turn."""
    result: list[Message] = []
    for message in messages:
        last = result[-1] if result else None
        roles = next((roles for roles in speakers if _role(message) in roles), ())
        if last is None or _role(last) not in roles or last.get("tool_calls"):
            result.append(message)
            continue
        merged = {**last, "content": join_contents(last.get("content"), message.get("content"))}
        if message.get("tool_calls"):
            merged["tool_calls"] = list(message["tool_calls"])
        result[-1] = merged
    return result


def _systems_into_users(messages: Sequence[Message]) -> list[Message]:
    """Returns the messages with every system text in the user message after it, or in one of its own."""
    result: list[Message] = []
    waiting: Any = None
    for message in messages:
        role = _role(message)
        if role in _SYSTEM:
            waiting = join_contents(waiting, message.get("content"))
        elif not waiting or role in _RESULTS:  # results stay with their call: the text waits
            result.append(message)
        elif role == "user":
            result.append({**message, "content": join_contents(waiting, message.get("content"))})
            waiting = None
        else:
            result += [{"role": "user", "content": waiting}, message]
            waiting = None
    return [*result, {"role": "user", "content": waiting}] if waiting else result


def _role(message: Message) -> str:
    return str(message.get("role") or "")


def _blocks(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content) if isinstance(content, (list, tuple)) else [content]
