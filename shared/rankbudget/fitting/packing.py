"""What packing by relevance needs beside ratings: doubles, and the order of what is kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

from ..errors import BudgetConfigError
from ..relevance.corpus import BoundedCache, word_counts
from ..segment import Segment

__all__ = ["Doubles", "Order", "check_order", "in_order"]

Order = Literal["original", "edges", "score"]
"""original: as given. edges: the best at both ends, where models read best. score: best first."""
NEAR = 0.9
"""Share of common words from which two texts say the same."""
SHORT_TURN = 12
"""Words up to which a turn of a conversation is never a double: "Yeah." is new each time."""


class Doubles:
    """Finds texts that repeat a kept one; a short turn of a conversation, such as "Yes.", is new every time.

    Example:
        >>> doubles = Doubles()
        >>> doubles.keep(Segment(id="a", text="The tea is hot."))
        >>> [doubles.of(Segment(id="b", text=text)) for text in ("the TEA is hot!", "Tea is cold.")]
        ['a', None]
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


def check_order(order: str) -> None:
    """Raises an error that lists the orders there are."""
    if order not in get_args(Order):
        msg = f"order must be one of {', '.join(get_args(Order))} (got {order!r})."
        raise BudgetConfigError(msg)


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
