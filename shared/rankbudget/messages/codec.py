"""How the core reads a host's messages without importing the host.

A codec sees each message in one neutral form, the OpenAI-style dict of `counting/protocol.py`, so that
counting, pairing and cutting are written once. `DictCodec` is the codec of plain dicts; each adapter has its
own in `_convert.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any, Protocol

from ..errors import MessageError

__all__ = [
    "KNOWN_ROLES",
    "PINNED_ROLES",
    "Codec",
    "DictCodec",
    "answered_in",
    "answers_of",
    "block_text",
    "content_text",
    "finished",
    "replace_text",
]

PINNED_ROLES = frozenset({"system", "developer"})
"""Roles that are never cut and stay where they are."""
KNOWN_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
"""All roles the core knows."""
_ROLE = itemgetter("role")
_PLAIN = 2
"""Keys of the plain message: role and content."""
_LEGACY_ROLES = {
    "function": "tool",
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "chatbot": "assistant",
}


class Codec(Protocol):
    """Reads and copies a host's messages.

    Rules:
        1. A message is never changed; edited messages are copies that say so.
        2. `role` answers system, developer, user, assistant or tool; `roles` the same, or a role as the host
           writes it, which is then looked up one by one: ten thousand roles are read on every call.
        3. `call_ids` lists the tool calls a message asks for, from every place the host keeps them, each
           once, in order.
        4. `to_dict` holds all that is sent to the model and nothing that is not.
        5. It may also have `kinds(messages, start) -> set[str]`, the set of `roles` from a position on, where
           that is faster than each role.
        6. It may also have `answers(message) -> tuple[str, ...]`, the ids of the calls that a user message
           answers with tool results among its content blocks, where that is faster than reading them from the
           neutral form. Its role stays user.
    """

    def role(self, message: Any) -> str:
        """Returns the role; raises MessageError where there is none."""
        ...

    def roles(self, messages: Sequence[Any]) -> list[str]:
        """Returns all roles in one fast pass."""
        ...

    def to_dict(self, message: Any) -> Mapping[str, Any]:
        """Returns the neutral form."""
        ...

    def call_ids(self, message: Any) -> tuple[str, ...]:
        """Returns the ids of the tool calls the message asks for."""
        ...

    def result_id(self, message: Any) -> str | None:
        """Returns the id of the call a tool result answers."""
        ...

    def message_id(self, message: Any) -> str | None:
        """Returns the host's own id of the message, where it has one."""
        ...

    def fingerprints(self, messages: Sequence[Any]) -> list[Hashable]:
        """Returns for each message a text, or a tuple of texts, that is equal exactly while its content is; one fast pass."""
        ...

    def with_text(self, message: Any, text: str) -> Any:
        """Returns a copy whose plain text is `text`: other content blocks stay, stale usage goes, the copy is marked as edited."""
        ...

    def make(self, role: str, text: str, *, origin: str) -> Any:
        """Returns a new host message marked as inserted by `origin` ("summary", "context", ...)."""
        ...

    def copy(self, message: Any) -> Any:
        """Returns a deep enough copy that editing it leaves the original alone."""
        ...


class DictCodec:
    """Reads OpenAI-style dicts.

    Example:
        >>> codec = DictCodec()
        >>> codec.role({"role": "user", "content": "hi"})
        'user'
        >>> codec.call_ids({"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f"}}]})
        ('c1',)
    """

    def role(self, message: Any) -> str:
        try:
            role = message["role"]
        except (TypeError, KeyError, IndexError):
            role = None
        if isinstance(role, str):
            if role in KNOWN_ROLES:
                return str(role)
            if role in _LEGACY_ROLES:
                return _LEGACY_ROLES[role]
        seen = f"{sorted(message)!r}" if isinstance(message, Mapping) else f"{type(message).__name__}"
        msg = (
            f"a message has the role {role!r} (seen: {seen}); allowed: {', '.join(sorted(KNOWN_ROLES))}. "
            "Give every message a 'role' key with one of these."
        )
        raise MessageError(msg)

    def roles(self, messages: Sequence[Any]) -> list[str]:
        try:
            return list(map(_ROLE, messages))
        except (TypeError, KeyError, IndexError):
            return [self.role(m) for m in messages]

    def kinds(self, messages: Sequence[Any], start: int) -> set[str]:
        """Returns which roles there are from a position on; without a copy of the list, which would touch every message twice more."""
        try:
            return set(map(_ROLE, islice(messages, start, None)))
        except (TypeError, KeyError, IndexError):
            return {self.role(m) for m in islice(messages, start, None)}

    def to_dict(self, message: Any) -> Mapping[str, Any]:
        return message  # type: ignore[no-any-return]  # a dict is its own neutral form

    def call_ids(self, message: Any) -> tuple[str, ...]:
        content = message.get("content")
        if content.__class__ is str and "tool_calls" not in message:  # most messages
            return ()
        calls = message.get("tool_calls")
        if calls and not (
            isinstance(calls, (list, tuple)) and all(isinstance(call, Mapping) for call in calls)
        ):
            msg = f"a message has the tool_calls {calls!r:.80}; allowed: a list of dicts, each with the call's 'id' and its 'function'"
            raise MessageError(msg)
        ids = [str(call.get("id")) for call in calls or ()]
        if isinstance(content, list) and message["role"] == "assistant":
            ids += [
                str(b.get("id"))
                for b in content
                if isinstance(b, Mapping) and b.get("type") in ("tool_use", "tool_call")
            ]
        return tuple(dict.fromkeys(ids))

    def result_id(self, message: Any) -> str | None:
        found = message.get("tool_call_id")
        return None if found is None else str(found)

    def answers(self, message: Any) -> tuple[str, ...]:
        """Returns the ids of the calls that a user message answers in its content."""
        try:
            content = message["content"]
        except KeyError:
            return ()
        return () if content.__class__ is str else answered_in(content)

    def message_id(self, message: Any) -> str | None:
        found = message.get("id")
        return found if isinstance(found, str) else None

    def fingerprints(self, messages: Sequence[Any]) -> list[Hashable]:
        return [
            (m["role"], m["content"]) if len(m) == _PLAIN and type(m.get("content")) is str else repr(m)
            for m in messages
        ]

    def with_text(self, message: Any, text: str) -> Any:
        edited = {**message, "content": replace_text(message.get("content"), text)}
        edited.pop("usage", None)
        return edited

    def make(self, role: str, text: str, *, origin: str) -> Any:  # noqa: ARG002 - plain dicts have no place for a mark
        return {"role": role, "content": text}

    def copy(self, message: Any) -> Any:
        import copy

        return copy.deepcopy(message)


def finished(codec: Codec, messages: Sequence[Any]) -> bool:
    """Says whether a thread ends on a finished answer: what comes next is a new question.

    Example:
        >>> asked = [{"role": "user", "content": "hi"}]
        >>> finished(DictCodec(), asked), finished(DictCodec(), [*asked, {"role": "assistant", "content": "hello"}])
        (False, True)
    """
    for message in reversed(messages):
        role = codec.role(message)
        # A note after the question does not answer it; a result without its call is repaired away.
        if role not in PINNED_ROLES and role != "tool":
            return role == "assistant" and not codec.call_ids(message)
    return True


def answers_of(codec: Codec) -> Callable[[Any], tuple[str, ...]]:
    """Returns what says which calls a user message answers: the codec's own way, or the way through its neutral form."""
    own: Callable[[Any], tuple[str, ...]] | None = getattr(codec, "answers", None)
    return own if own is not None else partial(_answers, codec)


def _answers(codec: Codec, message: Any) -> tuple[str, ...]:
    return answered_in(codec.to_dict(message).get("content"))


def answered_in(content: Any) -> tuple[str, ...]:
    """Returns the ids of the calls that the tool results among content blocks answer, in order.

    Example:
        >>> answered_in([{"type": "tool_result", "tool_use_id": "c1", "content": "42"}, {"type": "text", "text": "there"}])
        ('c1',)
    """
    if not isinstance(content, (list, tuple)):
        return ()
    return tuple(
        [
            str(b.get("tool_use_id"))
            for b in content
            if isinstance(b, Mapping) and b.get("type") == "tool_result"
        ]
    )


def block_text(block: Any) -> str | None:
    """Returns the text of a text block, None for every other block."""
    if isinstance(block, str):
        return block
    if isinstance(block, Mapping) and block.get("type") in ("text", "input_text", "output_text"):
        text = block.get("text")
        return text if isinstance(text, str) else None
    return None


def content_text(content: Any) -> str:
    r"""Returns the plain text of a message's content; atomic blocks have none.

    Example:
        >>> content_text([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "b"}])
        'a\nb'
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, (list, tuple)):
        return block_text(content) or ""
    return "\n".join(text for block in content if (text := block_text(block)) is not None)


def replace_text(content: Any, text: str) -> Any:
    """Returns content whose plain text is `text` and whose atomic blocks are as they were, a list staying a list."""
    if not isinstance(content, (list, tuple)):
        return text
    blocks: list[Any] = []
    placed = False
    for block in content:
        if block_text(block) is None:
            blocks.append(block)
        elif not placed:
            blocks.append(text if isinstance(block, str) else {**block, "text": text})
            placed = True
    if not placed:
        blocks.append({"type": "text", "text": text})
    return blocks
