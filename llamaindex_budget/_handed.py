"""Which messages memory blocks were handed: fingerprints in the order of the chat, which hold no content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher

from llama_index.core.base.llms.types import ChatMessage

from rankbudget.adapters import Plan, digest_of

from ._codec import CODEC, PINNED


def prints_of(messages: Sequence[ChatMessage]) -> list[str]:
    """Returns a fingerprint of each message, the same in every process."""
    return [digest_of([found]).hex() for found in CODEC.fingerprints(messages)]


def spoken(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Returns what blocks may be handed of messages: all but instructions."""
    return [m for m in messages if m.role not in PINNED]


def left_out(plan: Plan, stored: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Returns what is older than the first message that a plan keeps as it is."""
    kept = {id(m) for m in plan.history if m.role not in PINNED}
    return spoken(stored[: next((i for i, m in enumerate(stored) if id(m) in kept), None)])


def unlike(known: Sequence[str], now: Sequence[str]) -> list[tuple[slice, slice]]:
    """Returns where two lists differ: what only `known` has, and what `now` has in its place.

    Between the ends that are equal, many messages with the same words are no landmarks: the time would grow
    with the square of their number. At worst, such messages are handed on again.
    """
    same = _alike(known, now)
    end = min(_alike(known[::-1], now[::-1]), len(known) - same, len(now) - same)
    inner = known[same : len(known) - end], now[same : len(now) - end]
    found = SequenceMatcher(None, *inner).get_opcodes()
    return [
        (slice(same + a, same + b), slice(same + c, same + d)) for tag, a, b, c, d in found if tag != "equal"
    ]


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """Returns how many marks at the start of two lists are equal."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def with_new(known: Sequence[str], now: Sequence[str]) -> tuple[list[str], list[int]]:
    """Returns `known` with what only `now` has in its place, and the positions of that."""
    merged: list[str] = []
    new: list[int] = []
    at = 0
    for gone, fresh in unlike(known, now):
        merged += [*known[at : gone.stop], *now[fresh]]
        new += range(fresh.start, fresh.stop)
        at = gone.stop
    return [*merged, *known[at:]], new


def without(known: Sequence[str], taken_back: Sequence[str]) -> list[str]:
    """Returns `known` without some, of equal ones the newest."""
    open_ones = Counter(taken_back)
    left: list[str] = []
    for one in reversed(known):
        if open_ones[one]:
            open_ones[one] -= 1
        else:
            left.append(one)
    return left[::-1]
