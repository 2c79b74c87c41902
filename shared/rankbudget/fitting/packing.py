"""What the strategies that pack by relevance share: groups, pins, doubles, order, and the words of their decisions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from ..errors import BudgetConfigError, BudgetExceededError
from ..relevance.corpus import BoundedCache, word_counts
from ..segment import Decision, Rendition, Segment
from .protocol import Piece

__all__ = ["Doubles", "Order", "check_order", "dropped", "in_order", "members", "pinned_groups", "whole"]

Order = Literal["original", "edges", "score"]
"""original: as given. edges: the best at both ends, where models read best. score: best first."""
NEAR = 0.9
"""Share of common words from which two texts say the same."""
SHORT_TURN = 12
"""Words up to which a turn of a conversation is never a double: "Yeah." answers another question each time, and costs next to nothing."""


def check_order(order: str) -> None:
    """Raises an error that lists the orders there are."""
    if order not in get_args(Order):
        msg = f"order is {order!r}, allowed: {', '.join(get_args(Order))}"
        raise BudgetConfigError(msg)


def members(segments: Sequence[Segment]) -> list[list[int]]:
    """Returns the positions that live or die together, in the order of their first member.

    Example:
        >>> members([Segment(id="a", text="", group="g"), Segment(id="b", text=""), Segment(id="c", text="", group="g")])
        [[0, 2], [1]]
    """
    found: dict[str | int, list[int]] = {}
    for i, segment in enumerate(segments):
        found.setdefault(i if segment.group is None else segment.group, []).append(i)
    return list(found.values())


def pinned_groups(
    segments: Sequence[Segment],
    groups: Sequence[Sequence[int]],
    costs: Mapping[int, int] | Sequence[int],
    limit: int,
    block: str,
) -> set[int]:
    """Returns the indexes of the groups that must stay; raises when they need more than `limit`."""
    found = {g for g, group in enumerate(groups) if any(segments[i].pinned for i in group)}
    needed = sum(costs[i] for g in found for i in groups[g])
    if needed > limit:
        names = [segment.id for segment in segments if segment.pinned]
        msg = (
            f"pinned segments of block {block!r} need {needed} tokens, allowed: {limit}; "
            f"give the block {needed - limit} more or unpin some of {names[:10]!r}"
        )
        raise BudgetExceededError(msg, limit=limit, needed=needed, blocks={block: needed})
    return found


class Doubles:
    """Notices a text that says what a kept one says already; a short turn of a conversation, such as "Yes.", is new every time.

    Example:
        >>> doubles = Doubles()
        >>> doubles.keep(Segment(id="a", text="The tea is hot."))
        >>> doubles.of(Segment(id="b", text="the TEA is hot!")), doubles.of(Segment(id="c", text="Tea is cold."))
        ('a', None)
    """

    def __init__(self) -> None:
        self._kept: dict[int, list[tuple[str, frozenset[str]]]] = {}

    def keep(self, segment: Segment) -> None:
        """Remembers a kept segment."""
        words = _word_set(segment.text)
        self._kept.setdefault(len(words), []).append((segment.id, words))

    def of(self, segment: Segment) -> str | None:
        """Returns the id of the kept segment this one repeats, None when it is new."""
        if segment.role and sum(word_counts(segment.text).values()) <= SHORT_TURN:
            return None
        words = _word_set(segment.text)
        for size in range(math.ceil(NEAR * len(words)), int(len(words) / NEAR) + 1):
            for name, others in self._kept.get(size, ()):
                common = len(words & others)
                if common and common >= NEAR * (len(words) + size - common):
                    return name
        return None


def _word_set(text: str) -> frozenset[str]:
    return _WORD_SETS.get(text, lambda text: frozenset(word_counts(text)))


_WORD_SETS: BoundedCache[str, frozenset[str]] = BoundedCache(
    max_size=4_000_000, size=lambda text: len(text) + 64
)


def in_order(kept: Sequence[int], scores: Sequence[float], order: Order) -> list[int]:
    """Returns kept positions in the order asked for.

    Example:
        >>> in_order([0, 1, 2, 3], [4.0, 1.0, 3.0, 2.0], "edges")
        [0, 3, 1, 2]
    """
    if order == "original":
        return sorted(kept)
    best = sorted(kept, key=lambda i: (-scores[i], i))
    return best if order == "score" else best[::2] + best[1::2][::-1]


def whole(segment: Segment, tokens: int) -> Piece:
    """Returns the segment as it is."""
    return Piece(segment, Rendition(kind="whole", text=segment.text, tokens=tokens))


def dropped(segment: Segment, block: str, tokens: int, reason: str, detail: str = "") -> Decision:
    """Returns the decision on a segment that is not in the prompt."""
    return Decision(
        segment_id=segment.id,
        block=block,
        action="trimmed",
        reason=reason,
        before=tokens,
        after=0,
        detail=detail,
    )
