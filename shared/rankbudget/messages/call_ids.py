"""An id of its own for each tool call, shared by its result, where a host gave none or several share one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import chain, count, repeat
from typing import Any, NamedTuple

from ..counting.blocks import answered_call, call_reference, function_of, has_no_id
from .codec import Codec

_LETTERS = 9
"""What the strictest provider takes for an id: so many letters and digits."""


def with_clear_ids(
    codec: Codec, messages: Sequence[Any], *, first: int = 0, taken: Iterable[str] = ()
) -> Sequence[Any]:
    """Returns messages in which no two calls have one id, and each result names its call's.

    Only messages that need it are copies; the same sequence comes back where none does. An id follows from
    the place of its call, so what was sent before stays as it is when messages are added.

    Args:
        codec: reads them, and has `with_ids`.
        messages: one conversation, oldest first.
        first: the place of the first message.
        taken: what no id of a call may be.
    """
    if _are_clear(codec, messages, set(taken)):
        return messages  # nearly always, and of a long conversation at every call
    used, asked, made = set(taken), list[_Call](), dict[int, Any]()
    give: Any = codec
    for at, role in enumerate(codec.roles(messages)):
        message = messages[at]
        if role == "tool" and asked:
            reference = codec.result_id(message) or ""
            new = _answered(asked, reference)
            if new != reference and not has_no_id(new):
                made[at] = give.with_ids(message, [reference], [new])
        elif role != "tool":
            old = codec.call_ids(message) if codec.role(message) == "assistant" else ()
            place = first + at
            new_ids = _fresh(old, place, used)
            if new_ids != list(old):
                made[at] = give.with_ids(message, old, new_ids)
                new_ids = list(codec.call_ids(made[at]))  # an older form of a call has no place for an id
            used.update(new_ids)
            listed = codec.to_dict(message).get("tool_calls") or () if old else ()
            names = [str(function_of(call).get("name") or "") for call in listed]
            asked = list(map(_Call, old, new_ids, chain(names, repeat("")), repeat(place), count()))
    return [made.get(at, message) for at, message in enumerate(messages)] if made else messages


def _are_clear(codec: Codec, messages: Sequence[Any], used: set[str]) -> bool:
    """Returns whether each call has an id of its own, and each result behind it that of an open one."""
    waiting: set[str] = set()
    for role, message in zip(codec.roles(messages), messages, strict=True):
        if role == "tool" and waiting:
            reference = codec.result_id(message) or ""
            if reference not in waiting:
                return False
            waiting.discard(reference)
        elif role == "assistant":
            ids = codec.call_ids(message)
            waiting = set(ids)
            if len(waiting) < len(ids) or not used.isdisjoint(ids) or any(map(has_no_id, ids)):
                return False
            used.update(ids)
        elif role != "tool":
            waiting = set()
    return True


class _Call(NamedTuple):
    """A call without a result so far."""

    reference: str
    new: str
    name: str
    place: int
    number: int


def _answered(asked: list[_Call], reference: str) -> str:
    """Returns the id of the call that a result belongs to, which is no longer open; else its own."""
    by_id = [call for call in asked if call.reference == reference]
    # A host may answer by the name of a function what has an id by now.
    by_name = [c for c in asked if c.name and reference in {c.name, call_reference({"name": c.name})}]
    # Or by an id that was given before, in whose place the call was stored with another one.
    by_own = [c for c in asked if c.new == _made(reference, c.place, c.number)]
    found = answered_call([call.reference for call in asked], reference)
    call = next(iter([*by_id, *by_name, *by_own, *[c for c in asked if c.reference == found]]), None)
    if call is None:
        return reference
    asked.remove(call)
    return call.new


def _fresh(old: Sequence[str], place: int, used: set[str]) -> list[str]:
    """Returns the ids of the calls of one message: their own where they have one that no other call has."""
    new: list[str] = []
    for number, reference in enumerate(old):
        made, more = reference, number
        while made in used or made in new or has_no_id(made):
            made = _made(reference, place, more)
            more += len(old)
        new.append(made)
    return new


def _made(reference: str, place: int, number: int) -> str:
    """Returns an id for the call of a reference, which is one of several at a place."""
    own = "" if has_no_id(reference) else f":{reference}"
    return blake2b(f"{place}:{number}{own}".encode()).hexdigest()[:_LETTERS]
