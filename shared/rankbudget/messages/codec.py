"""How the core reads a host's messages without importing the host: as OpenAI-style dicts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import deepcopy
from itertools import islice
from operator import itemgetter
from typing import Any, Protocol

from ..counting.blocks import (
    ROLES,
    THOUGHTS,
    as_block,
    block_text,
    blocks_of,
    call_reference,
    called_in,
    content_key,
    in_turn,
    is_result,
    kind_of,
    paired,
    results_in,
    with_results,
    without_answered,
)
from ..errors import MessageError, adapter_hint
from .texts import replace_text

PINNED_ROLES = frozenset({"system", "developer"})
"""Roles that are never cut and stay where they are."""
KNOWN_ROLES = frozenset({*PINNED_ROLES, "user", "assistant", "tool"})
_ROLE = itemgetter("role")
_PLAIN = 2
"""Keys of the plain message: role and content."""
_NEVER_NULL = frozenset({*PINNED_ROLES, "tool"})
"""Providers' words for roles whose content may not be null; that of "function" may be."""
_SAID = ("text", "thinking", "reasoning", "refusal")
"""Fields of content blocks that hold a text."""
_BARE = frozenset({"type", "text", "cache_control", "annotations", "citations", "logprobs"})
"""Fields of a text block that say nothing without its text."""
_ASSISTANT_ITEMS = frozenset({"reasoning", "mcp_approval_request", "mcp_list_tools", "compaction"})


class Codec(Protocol):
    """Reads and copies a host's messages.

    Rules:
        1. A message is never changed; edited messages are copies that say so.
        2. `role` answers system, developer, user, assistant or tool, and raises MessageError for anything
           else; `roles` the same in one fast pass, or a role as the host writes it.
        3. `call_ids` lists a reference to each tool call a message asks for, from every place the host keeps
           them, each once, in order: its id, or the name of its function where it has none
           (`call_reference`). `result_id` refers to a call the same way; `paired` pairs both.
        4. `to_dict` holds all that is sent to the model and nothing that is not.
        5. It may also have `kinds(messages, start) -> set[str]`, the set of `roles` from a position on,
           `answers(message) -> tuple[str, ...]`, the calls that results among a message's content blocks
           answer, `with_results(message, belong)`, a copy without those of them that do not belong,
           `goes_on(message) -> bool`, whether an answer goes on in the next message,
           `check(message, position)`, which raises MessageError for content that no provider reads, and
           `with_ids(message, old, new)`, a copy in which the calls of these references, or the one that
           is answered, have new ids, each place of a message in the order of `call_ids`, and
           `without_blanks(message)`, the message itself, or a copy without blank texts beside other blocks.
    """

    def role(self, message: Any) -> str:
        """Returns the role of `message` (rule 2)."""

    def roles(self, messages: Sequence[Any]) -> list[str]:
        """Returns the role of each of `messages` (rule 2)."""

    def to_dict(self, message: Any) -> Mapping[str, Any]:
        """Returns `message` as an OpenAI-style dict (rule 4)."""

    def call_ids(self, message: Any) -> tuple[str, ...]:
        """Returns references to the tool calls that `message` asks for (rule 3)."""

    def result_id(self, message: Any) -> str | None:
        """Returns the reference to the call that `message` answers (rule 3)."""

    def message_id(self, message: Any) -> str | None:
        """Returns the host's own id of `message`, where it has one."""

    def fingerprints(self, messages: Sequence[Any]) -> list[Hashable]:
        """Returns for each of `messages` a text or a tuple of texts that changes with its content."""

    def with_text(self, message: Any, text: str | Sequence[str]) -> Any:
        """Returns a copy of `message` marked as edited with another `text`, or one for each of its texts.

        Other blocks stay; stale usage goes.
        """

    def make(self, role: str, text: str, *, origin: str) -> Any:
        """Returns a new message of `role` and `text`, marked as inserted by `origin` ("summary", ...)."""

    def copy(self, message: Any) -> Any:
        """Returns a copy of `message`, deep enough that editing it leaves the original alone."""


class DictCodec:
    """Reads dicts in the shapes of OpenAI (chat messages and Responses items), Anthropic, Gemini and Ollama.

    Example:
        >>> DictCodec().call_ids({"role": "assistant", "tool_calls": [{"id": "c1", "name": "f"}]})
        ('c1',)
    """

    sends_as_given = True  # clients of other hosts give calls and results the ids that a provider needs

    def role(self, message: Any) -> str:
        try:
            role = message["role"]
        except (TypeError, KeyError, IndexError):
            role = None
        if role is None:
            kind = kind_of(message)  # an item of OpenAI's Responses API
            says = kind.endswith("_call") or kind in _ASSISTANT_ITEMS
            role = "tool" if is_result(kind) else "assistant" if says else None
        if isinstance(role, str) and role in ROLES:
            return ROLES[role]
        seen = f" in {sorted(message)!r}" if isinstance(message, Mapping) else f" of {type(message).__name__}"
        msg = (
            f"the 'role' of a message must be {', '.join(sorted(KNOWN_ROLES))} or a host's name of these "
            f"(got {role!r}{seen}).{adapter_hint(message)}"
        )
        raise MessageError(msg)

    def roles(self, messages: Sequence[Any]) -> list[str]:
        try:
            return list(map(_ROLE, messages))
        except (TypeError, KeyError, IndexError):
            return [self.role(m) for m in messages]

    def kinds(self, messages: Sequence[Any], start: int) -> set[str]:
        """Returns which roles `messages` have from position `start` on, without a copy of the list."""
        try:
            return set(map(_ROLE, islice(messages, start, None)))
        except (TypeError, KeyError, IndexError):
            return {self.role(m) for m in islice(messages, start, None)}

    def to_dict(self, message: Any) -> Mapping[str, Any]:
        if message.get("role") is None:  # an item of the Responses API
            if self.role(message) == "assistant":
                return {"role": "assistant", "content": [message]}
            answered, held = self.result_id(message), message.get("output") or [message]
            return {"role": "tool", "content": held, "tool_call_id": answered}
        calls = message.get("tool_calls")
        plain = not calls or all(isinstance(call, Mapping) for call in _calls_beside(message))
        if plain and message.get("parts") is None:
            return message  # type: ignore[no-any-return]  # a dict is its own neutral form
        neutral = {key: value for key, value in message.items() if key != "parts"}
        neutral |= {"role": self.role(message), "content": _content(message)}
        return neutral if plain else {**neutral, "tool_calls": [as_block(call) for call in calls]}

    def call_ids(self, message: Any) -> tuple[str, ...]:
        content = message.get("content")
        if content.__class__ is str and "tool_calls" not in message and "function_call" not in message:
            return ()  # most messages
        beside = [call_reference(as_block(call)) for call in _calls_beside(message)]
        if not beside and isinstance(message.get("function_call"), Mapping):  # older than tool calls
            beside = [call_reference(message["function_call"])]
        inside = called_in(_content(message)) if self.role(message) == "assistant" else ()
        return (*beside, *without_answered(inside, beside)) if beside else inside

    def result_id(self, message: Any) -> str | None:
        found = message.get("tool_call_id") or message.get("call_id")
        if found:
            return str(found)
        name = message.get("name") or message.get("tool_name")
        answered = results_in(_content(message)) if not name else ()
        return answered[0] if answered else call_reference({"name": name})

    def answers(self, message: Any) -> tuple[str, ...]:
        """Returns the calls that `message`, the user's or the assistant's next, answers in its content."""
        if message.get("content").__class__ is str or message.get("tool_call_id"):
            return ()
        return results_in(_content(message))

    def with_results(self, message: Any, belong: Sequence[bool]) -> Any:
        """Returns a copy of `message` without those of the results in its content that do not `belong`."""
        return {**message, content_key(message): with_results(_content(message), belong)}

    def goes_on(self, message: Any) -> bool:
        """Returns whether `message` is one of several items of an answer, as in OpenAI's Responses API."""
        return message.get("role") is None

    def check(self, message: Any, position: int) -> None:
        """Raises MessageError for content of `message` that no provider reads, and names its `position`."""
        content = _content(message)
        if content.__class__ is str or (content is None and message.get("role") not in _NEVER_NULL):
            return
        blocks = blocks_of(content)
        role = self.role(message)
        readable = all(map(_is_readable, blocks))
        if isinstance(content, Mapping):  # one block and no list: only its type says that it is one
            readable = readable and "type" in content
        if readable and (blocks or role in ("user", "assistant")):
            return
        msg = (
            f"content must be a text or a list of content blocks (got {content!r:.80} in message {position}, "
            f"role {role}). Give the text, or a block such as {{'type': 'text', 'text': ...}}."
        )
        raise MessageError(msg)

    def message_id(self, message: Any) -> str | None:
        found = message.get("id")
        return found if isinstance(found, str) else None

    def fingerprints(self, messages: Sequence[Any]) -> list[Hashable]:
        return [
            (m["role"], text)
            if len(m) == _PLAIN and type(text := m.get("content")) is str and "role" in m
            else repr(m)
            for m in messages
        ]

    def with_text(self, message: Any, text: str | Sequence[str]) -> Any:
        key = content_key(message)
        edited = {**message, key: replace_text(message.get(key), text)}
        edited.pop("usage", None)
        return edited

    def without_blanks(self, message: Any) -> Any:
        """Returns `message`, or a copy without the blank text blocks that providers refuse beside others."""
        key = content_key(message)
        content = message.get(key)
        if not isinstance(content, (list, tuple)) or self.role(message) == "tool":
            return message
        left = [block for block in content if not _is_bare_blank(block)]
        if len(left) == len(content) or (not left and not message.get("tool_calls")):
            return message
        return {**message, key: left or ""}  # OpenAI answers 400 to an empty list

    def with_ids(self, message: Any, old: Sequence[str], new: Sequence[str]) -> Any:
        """Returns a copy of `message` with the ids `new` for the calls of the references `old`, in order."""
        if self.role(message) == "tool" and message.get("role") is not None:
            return {**message, "tool_call_id": new[0]}
        if not message.get("tool_calls"):
            return message
        field, calls = in_turn(old, new), map(as_block, _calls_beside(message))
        return {**message, "tool_calls": [{**call, **field(call)} for call in calls]}

    def make(self, role: str, text: str, *, origin: str) -> Any:  # noqa: ARG002 - dicts have no place for it
        return {"role": role, "content": text}

    def copy(self, message: Any) -> Any:
        return deepcopy(message)


def make_among(codec: Codec, messages: Sequence[Any], role: str, text: str, *, origin: str) -> Any:
    """Returns a new message in the form of the messages it is added to; Gemini takes none without parts."""
    made, last = codec.make(role, text, origin=origin), messages[-1] if messages else None
    if type(made) is dict and isinstance(last, Mapping) and last.get("parts") is not None:
        return {"role": role, "parts": [{"text": text}]}
    return made


def _content(message: Mapping[str, Any]) -> Any:
    """Returns the content blocks of a message; an item of the Responses API is one itself."""
    return message if message.get("role") is None else message.get(content_key(message))


def _is_readable(block: Any) -> bool:
    if block is None or isinstance(block, str):
        return True
    found = as_block(block)
    said = [found.get(key) for key in _SAID] if isinstance(found, Mapping) else [0]
    return not any(isinstance(text, (bytes, bytearray, int, float)) for text in said)


def _calls_beside(message: Mapping[str, Any]) -> Sequence[Any]:
    calls = message.get("tool_calls") or ()
    if not isinstance(calls, (list, tuple)) or not all(isinstance(as_block(c), Mapping) for c in calls):
        msg = f"tool_calls must be a list of dicts, each with an 'id' and a 'function' (got {calls!r:.80})."
        raise MessageError(msg)
    return calls


def finished(codec: Codec, messages: Sequence[Any]) -> bool:
    """Says whether a thread ends on a finished answer: what comes next is a new question."""
    following = "tool"  # a call at the very end waits for its results
    for message in reversed(messages):
        role, after = codec.role(message), following
        following = role
        # A note after the question does not answer it; a result without its call is repaired away.
        if role in PINNED_ROLES or role == "tool":
            continue
        if role == "assistant" and codec.call_ids(message):
            if after == "tool":
                return False
            continue  # without results it is repaired away
        if not says_nothing(codec.to_dict(message)):
            return role == "assistant"
    return True


def holds_results(codec: Codec, message: Any) -> bool:
    """Returns whether a message of the host or the user answers tool calls and so belongs behind them."""
    role = codec.role(message)
    return role == "tool" or (role == "user" and bool(answers_of(codec)(message)))


def waits(codec: Codec, messages: Sequence[Any]) -> bool:
    """Says whether a thread ends on a call that has not all its results."""
    answers, given = answers_of(codec), list[tuple[tuple[str | None, ...], bool]]()
    for message in reversed(messages):
        role = codec.role(message)
        calls = list(codec.call_ids(message)) if role == "assistant" else []
        for answered, says_more in reversed(given if calls else []):
            calls, belong = paired(calls, answered)
            if says_more and not any(belong):
                return False  # without its results it follows the call as a question
        found = answers(message) or ((codec.result_id(message),) if role == "tool" else ())
        if calls or not (found or role in PINNED_ROLES):
            return bool(calls)
        given += [(found, beside_results(codec, message) is not None)] if found else []
    return False


def beside_results(codec: Codec, message: Any) -> Any | None:
    """Returns a copy of a message without the results in its content; None where nothing else is in it."""
    answered, give = answers_of(codec)(message), getattr(codec, "with_results", None)
    if not answered or give is None or codec.role(message) == "tool":
        return None
    rest = give(message, [False] * len(answered))
    return None if says_nothing(codec.to_dict(rest)) and not codec.call_ids(rest) else rest


def answers_of(codec: Codec) -> Callable[[Any], tuple[str, ...]]:
    """Returns the reader of the calls that a message answers: the codec's own, or one of its neutral form."""
    own: Callable[[Any], tuple[str, ...]] | None = getattr(codec, "answers", None)
    return own if own is not None else lambda message: results_in(codec.to_dict(message).get("content"))


def says_nothing(neutral: Mapping[str, Any]) -> bool:
    """Returns whether a message has only blanks or thinking, which providers refuse."""
    content = neutral.get("content")
    if content.__class__ is str and content and not content.isspace():
        return False
    if any(neutral.get(key) for key in ("refusal", "audio", "images")):
        return False
    return all(_is_blank(as_block(block)) for block in blocks_of(content))


def _is_bare_blank(block: Any) -> bool:
    """Returns whether a block is a blank text and nothing else: one with a signature is sent as it came."""
    text = block_text(block)
    return (
        text is not None
        and not text.strip()
        and (isinstance(block, str) or _BARE.issuperset(as_block(block)))
    )


def _is_blank(block: Any) -> bool:
    if block is None or kind_of(block) in THOUGHTS:
        return True
    text = block_text(block)
    return text is not None and not text.strip()
