"""What is left of a broken conversation: the rules providers set, written down a second time for the checker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..messages.codec import Codec, DictCodec

__all__ = [
    "answers",
    "is_broken",
    "least_messages",
    "pairing_errors",
    "part",
    "repaired",
    "unanswered_results",
    "waiting_from",
]

_SYSTEM = ("system", "developer")


def answers(message: Any, codec: Codec | None = None) -> list[str | None]:
    """Returns the ids of the calls a message answers: a tool message one, a user message those of the tool results among its blocks.

    Example:
        >>> answers({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "42"}]})
        ['c1']
    """
    codec = codec or DictCodec()
    role = codec.role(message)
    if role == "tool":
        return [codec.result_id(message)]
    content = codec.to_dict(message).get("content") if role == "user" else None
    blocks = (
        [block for block in content if isinstance(block, Mapping)]
        if isinstance(content, (list, tuple))
        else []
    )
    return [str(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"]


def part(message: Any, codec: Codec | None = None) -> str:
    """Returns the part a message plays: its role, but "tool" for a user message that holds tool results.

    Example:
        >>> part({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1"}]}), part({"role": "user", "content": "hi"})
        ('tool', 'user')
    """
    codec = codec or DictCodec()
    return "tool" if answers(message, codec) else codec.role(message)


def repaired(messages: Sequence[Any], codec: Codec | None = None) -> list[Any]:
    """Returns the messages a valid conversation keeps, the same objects.

    A call without all its results goes with the results it has, unless nothing follows it; results nobody asked for go; where there is a user message,
    what an assistant said before the first one goes. System messages and empty messages stay where they are.

    Example:
        >>> broken = [{"role": "user", "content": "hi"}, {"role": "tool", "tool_call_id": "x", "content": "nobody asked"}]
        >>> [m["role"] for m in repaired(broken)]
        ['user']
    """
    codec = codec or DictCodec()
    roles = [part(m, codec) for m in messages]
    keep = [True] * len(messages)
    at = 0
    while at < len(messages):
        if roles[at] == "tool":  # a result that follows no call; batches skip over theirs below
            keep[at] = False
            at += 1
            continue
        asked = list(codec.call_ids(messages[at])) if roles[at] == "assistant" else []
        at += 1
        if not asked:
            continue
        start = at - 1
        missing: set[str | None] = set(asked)
        while at < len(messages) and roles[at] == "tool":
            answered = answers(messages[at], codec)
            keep[at] = missing >= set(answered) and len(answered) == len(set(answered))
            missing -= set(answered) if keep[at] else set()
            at += 1
        if missing and at < len(messages):
            keep[start:at] = [False] * (at - start)
    if "user" in roles:
        first = roles.index("user")
        for i in range(first):
            keep[i] = keep[i] and roles[i] in _SYSTEM
    return [m for m, stays in zip(messages, keep, strict=True) if stays]


def is_broken(messages: Sequence[Any], codec: Codec | None = None) -> bool:
    """Returns whether some message has to go before this is a valid conversation."""
    return len(repaired(messages, codec)) != len(messages)


def pairing_errors(messages: Sequence[Any], codec: Codec | None = None) -> list[str]:
    """Returns what a provider would say about the tool calls of a conversation; a call still waiting at the very end is allowed.

    Example:
        >>> pairing_errors([{"role": "tool", "tool_call_id": "c1", "content": "late"}])
        ["result 'c1' at 0 follows no call that asks for it"]
    """
    codec = codec or DictCodec()
    errors: list[str] = []
    missing: list[str | None] = []
    for position, message in enumerate(messages):
        if part(message, codec) == "tool":
            for answered in answers(message, codec):
                if answered in missing:
                    missing.remove(answered)
                else:
                    errors.append(f"result {answered!r} at {position} follows no call that asks for it")
            continue
        if missing:
            errors.append(f"calls {missing!r} before {position} have no result")
        missing = list(codec.call_ids(message)) if codec.role(message) == "assistant" else []
    return errors


def waiting_from(messages: Sequence[Any], codec: Codec | None = None) -> int:
    """Returns the position of a call at the very end that still waits for a result, or the number of messages when none does.

    Example:
        >>> waiting_from([{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]}])
        1
    """
    codec = codec or DictCodec()
    at = len(messages)
    results: set[str | None] = set()
    while at and part(messages[at - 1], codec) == "tool":
        at -= 1
        results.update(answers(messages[at], codec))
    if at and codec.role(messages[at - 1]) == "assistant" and set(codec.call_ids(messages[at - 1])) - results:
        return at - 1
    return len(messages)


def least_messages(messages: Sequence[Any], codec: Codec | None = None) -> list[Mapping[str, Any]]:
    """Returns, in neutral form, what must stay of a valid conversation: system messages, the question, a tool batch at the very end.

    Such a batch waits for results, or has them all and waits for the model. Where nobody asked anything, the newest answer or tool batch stands for the question.

    Example:
        >>> [m["content"] for m in least_messages([{"role": role, "content": role} for role in ("system", "user", "assistant", "user")])]
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
    """Returns the call with its results at the very end of a valid conversation, system messages apart; nothing where something else ends it.

    Example:
        >>> call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]}
        >>> chat = [{"role": "user", "content": "hi"}, call, {"role": "tool", "tool_call_id": "c1", "content": "42"}]
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
