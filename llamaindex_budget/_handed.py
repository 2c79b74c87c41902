"""Which messages memory blocks were handed: one fingerprint of each, which holds no content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from llama_index.core.base.llms.types import ChatMessage

from rankbudget.adapters import Plan, digest_of

from ._codec import CODEC, PINNED


def prints_of(messages: Sequence[ChatMessage]) -> list[str]:
    """Returns a fingerprint of each message, the same in every process."""
    return [digest_of([found]).hex() for found in CODEC.fingerprints(messages)]


def spoken(messages: Iterable[ChatMessage]) -> list[ChatMessage]:
    """Returns what blocks may be handed of messages: all but instructions."""
    return [m for m in messages if m.role not in PINNED]


def left_out(plan: Plan, stored: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Returns what a plan leaves out whole: older exchanges, and steps inside those that it keeps."""
    kept = set(map(id, plan.history))
    return spoken(m for at, m in enumerate(stored) if id(m) not in kept and at not in plan.edits)


def beyond(known: Sequence[str], now: Sequence[str]) -> list[int]:
    """Returns the positions of what `now` has more than `known`; of equal ones the last."""
    held = Counter(known)
    new = []
    for at, one in enumerate(now):
        if held[one]:
            held[one] -= 1
        else:
            new.append(at)
    return new
