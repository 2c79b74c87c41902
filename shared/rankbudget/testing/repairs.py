"""What is left of a broken conversation: the providers' rules, written a second time for the checker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..messages.codec import Codec, DictCodec, answers_of
from ..messages.texts import content_text

__all__ = [
    "answers",
    "is_broken",
    "least_messages",
    "mended",
    "pairing_errors",
    "part",
    "repaired",
    "says_nothing",
    "take",
    "unanswered_results",
    "waiting_from",
]

_SYSTEM = ("system", "developer")


def answers(message: Any, codec: Codec | None = None) -> list[str | None]:
    """Returns the calls a message answers: a tool message one, any other those of the results in its content.

    Example:
        >>> result = {"type": "tool_result", "tool_use_id": "c1", "content": "42"}
        >>> answers({"role": "user", "content": [result]})
        ['c1']
    """
    codec = codec or DictCodec()
    inside: list[str | None] = list(answers_of(codec)(message))
    return inside or ([codec.result_id(message)] if codec.role(message) == "tool" else [])


def part(message: Any, codec: Codec | None = None) -> str:
    """Returns the part a message plays: its role, but "tool" for a message that answers calls.

    Example:
        >>> result = {"type": "tool_result", "tool_use_id": "c1"}
        >>> part({"role": "user", "content": [result]}), part({"role": "user", "content": "hi"})
        ('tool', 'user')
    """
    codec = codec or DictCodec()
    return "tool" if answers(message, codec) else codec.role(message)


def says_nothing(message: Any, codec: Codec | None = None) -> bool:
    """Returns whether a message but a result has no calls, no results, only blanks and thinking.

    Example:
        >>> [says_nothing({"role": role, "content": " "}) for role in ("assistant", "user")]
        [True, True]
    """
    codec = codec or DictCodec()
    if codec.role(message) not in ("assistant", "user", *_SYSTEM):
        return False
    if codec.call_ids(message) or answers(message, codec):
        return False
    neutral = codec.to_dict(message)
    content = neutral.get("content") or []
    left = [b for b in (content if isinstance(content, list) else [content]) if not _is_thinking(b)]
    return not neutral.get("refusal") and not any(content_text([b]).strip() or _is_atom(b) for b in left)


def _is_thinking(block: Any) -> bool:
    return isinstance(block, Mapping) and (
        block.get("type") in ("thinking", "redacted_thinking", "reasoning") or block.get("thought") is True
    )


def _is_atom(block: Any) -> bool:
    return isinstance(block, Mapping) and "text" not in block


def take(missing: list[str], answered: Sequence[str | None]) -> bool:
    """Removes the calls that results answer, by id, by name, then in order; says whether each has one.

    Example:
        >>> missing = ["function:f", "function:f"]
        >>> take(missing, ["f"]), missing
        (True, ['function:f'])
    """
    left = list(missing)
    for answer in answered:
        own = (answer or "").removeprefix("function:")
        same = [call for call in left if call == answer]
        same = same or [call for call in left if own and call.removeprefix("function:") == own]
        named = (answer or "").startswith("function:")
        fitting = [c for c in left if not own or c == "function:" or c.startswith("function:") != named]
        chosen = same or [c for c in fitting if "approval:" not in f"{c} {answer}"]
        if not chosen:
            return False
        left.remove(chosen[0])
    missing[:] = left
    return True


def mended(messages: Sequence[Any], codec: Codec | None = None) -> list[Any]:
    """Returns of each message what a valid conversation keeps: itself, a copy without some results, or None.

    A call without all its results goes with the results it has, unless nothing follows it; results of no
    call go, what else is in their messages stays; so does a message that says nothing;
    where there is a user message, what an assistant said before the first one goes.

    Example:
        >>> orphan = {"type": "tool_result", "tool_use_id": "x", "content": "of no call"}
        >>> asked = {"role": "user", "content": [orphan, {"type": "text", "text": "How long?"}]}
        >>> mended([asked, {"role": "user", "content": [orphan]}])
        [{'role': 'user', 'content': [{'type': 'text', 'text': 'How long?'}]}, None]
    """
    codec = codec or DictCodec()
    roles = [part(m, codec) for m in messages]
    left = [None if says_nothing(m, codec) else m for m in messages]
    at = 0
    while at < len(messages):
        if roles[at] == "tool":  # results that follow no call; batches skip over theirs below
            left[at] = _with_results(messages[at], [], codec)
            at += 1
            continue
        missing = list(codec.call_ids(messages[at])) if roles[at] == "assistant" else []
        start, at = at, at + 1
        if not missing:
            continue
        while at < len(messages) and roles[at] == "tool":
            belong = [take(missing, [one]) for one in answers(messages[at], codec)]
            if not any(belong) and _says_more(messages[at], codec):
                break
            left[at] = _with_results(messages[at], belong, codec)
            at += 1
        if missing and at < len(messages):
            mixed = [i for i in range(start + 1, at) if _says_more(messages[i], codec)]
            at = min([at, *mixed])
            left[start:at] = [None] * (at - start)
    return _opened(left, codec)


def _opened(left: list[Any], codec: Codec) -> list[Any]:
    """Returns what is left without what comes before the first question."""
    kinds = ["" if m is None else part(m, codec) for m in left]
    first = kinds.index("user") if "user" in kinds else 0
    return [m if i >= first or kinds[i] in _SYSTEM else None for i, m in enumerate(left)]


def _with_results(message: Any, belong: Sequence[bool], codec: Codec) -> Any:
    """Returns a message with those of its results that `belong`, or None where it says nothing without."""
    answered = answers(message, codec)
    if len(belong) == len(answered) and all(belong):
        return message
    if codec.role(message) == "tool" and not any(belong):
        return None
    remove = getattr(codec, "with_results", None)
    rest = remove(message, [*belong] or [False] * len(answered)) if remove is not None else None
    return None if rest is None or says_nothing(rest, codec) else rest


def _says_more(message: Any, codec: Codec) -> bool:
    """Returns whether a message holds more than the results in it."""
    return _with_results(message, [], codec) is not None


def repaired(messages: Sequence[Any], codec: Codec | None = None) -> list[Any]:
    """Returns the messages a valid conversation keeps, as `mended` says; whole ones are the same objects.

    Example:
        >>> orphan = {"role": "tool", "tool_call_id": "x", "content": "of no call"}
        >>> len(repaired([{"role": "user", "content": "hi"}, orphan])), len(repaired([orphan]))
        (1, 0)
    """
    return [m for m in mended(messages, codec) if m is not None]


def is_broken(messages: Sequence[Any], codec: Codec | None = None) -> bool:
    """Returns whether some message, or a part of one, has to go before this is a valid conversation."""
    return any(left is not given for left, given in zip(mended(messages, codec), messages, strict=True))


def pairing_errors(messages: Sequence[Any], codec: Codec | None = None) -> list[str]:
    """Returns what a provider would say about the tool calls of a conversation.

    A call still waiting at the very end is allowed.

    Example:
        >>> pairing_errors([{"role": "tool", "tool_call_id": "c1", "content": "late"}])
        ["result 'c1' at 0 follows no call that asks for it"]
    """
    codec = codec or DictCodec()
    errors: list[str] = []
    missing: list[str] = []
    for position, message in enumerate(messages):
        if part(message, codec) == "tool":
            errors += [
                f"result {answered!r} at {position} follows no call that asks for it"
                for answered in answers(message, codec)
                if not take(missing, [answered])
            ]
            continue
        if missing:
            errors.append(f"calls {missing!r} before {position} have no result")
        missing = list(codec.call_ids(message)) if codec.role(message) == "assistant" else []
    return errors


def waiting_from(messages: Sequence[Any], codec: Codec | None = None) -> int:
    """Returns the position of a call at the very end that waits for a result, else the number of messages.

    Example:
        >>> call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]}
        >>> waiting_from([{"role": "user", "content": "hi"}, call])
        1
    """
    codec = codec or DictCodec()
    at = len(messages)
    while at and part(messages[at - 1], codec) == "tool":
        at -= 1
    if at and codec.role(messages[at - 1]) == "assistant":
        missing = list(codec.call_ids(messages[at - 1]))
        for message in messages[at:]:
            take(missing, answers(message, codec))
        return at - 1 if missing else len(messages)
    return len(messages)


def least_messages(messages: Sequence[Any], codec: Codec | None = None) -> list[Mapping[str, Any]]:
    """Returns what must stay of a conversation, in neutral form: system messages, question, last batch.

    Such a batch waits for results, or has them all and waits for the model. Without a question, the newest
    answer or tool batch takes its place.

    Example:
        >>> chat = [{"role": role, "content": role} for role in ("system", "user", "assistant", "user")]
        >>> [m["content"] for m in least_messages(chat)]
        ['system', 'user']
    """
    codec = codec or DictCodec()
    roles = [part(m, codec) for m in messages]
    waiting = waiting_from(messages, codec)
    asked = len(roles) - 1 - roles[::-1].index("user") if "user" in roles else -1
    stays = [m for i, m in enumerate(messages) if roles[i] in _SYSTEM or i == asked or i >= waiting]
    if waiting >= len(messages):
        stays += _newest_unit(messages, codec) if asked < 0 else unanswered_results(messages, codec)
    return [codec.to_dict(m) for m in stays]


def unanswered_results(messages: Sequence[Any], codec: Codec | None = None) -> list[Any]:
    """Returns the call and its results that end a valid conversation, system messages apart, if they do.

    Example:
        >>> call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]}
        >>> result = {"role": "tool", "tool_call_id": "c1", "content": "42"}
        >>> chat = [{"role": "user", "content": "hi"}, call, result]
        >>> [m["role"] for m in unanswered_results(chat)]
        ['assistant', 'tool']
    """
    codec = codec or DictCodec()
    newest = _newest_unit(messages, codec)
    return newest if newest and part(newest[-1], codec) == "tool" else []


def _newest_unit(messages: Sequence[Any], codec: Codec) -> list[Any]:
    unit: list[Any] = []
    for message in reversed(messages):
        role = part(message, codec)
        if role in _SYSTEM:
            if unit:
                break
            continue
        unit.insert(0, message)
        if role != "tool":
            break
    return unit
