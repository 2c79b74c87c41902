"""How many more tokens bring a dropped piece back: found by fitting the same request with more room."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

__all__ = ["Kept", "Needs", "Thresholds"]

Kept = frozenset[tuple[str, str]]
"""Block and id of every piece that is in a prompt."""

Thresholds = Mapping[tuple[str, str], int]
"""Tokens more by block and id."""

_LEAST_REFITS, _MOST_PIECES = 64, 150_000
"""Refits of one report, however many pieces there are; and pieces that all refits together may fit again."""


class Needs:
    """Answers for each dropped piece of one plan; every answer was tried out, one token less too.

    Args:
        kept: what the plan keeps.
        refit: what it would keep with so many more tokens.
        known: thresholds that need no refit, and first guesses at others, by block and id.
        size: how many pieces the plan decided on.
        most: more tokens than the whole input needs, whatever share of them a block gets.
    """

    def __init__(
        self,
        kept: Callable[[], Kept],
        refit: Callable[[int], Kept],
        known: Callable[[], tuple[Thresholds, Thresholds]],
        *,
        size: int,
        most: int,
    ) -> None:
        self._refit = refit
        self._kept = kept
        self._known = known
        self._tried: dict[int, Kept] = {}
        self._left = max(_LEAST_REFITS, _MOST_PIECES // max(1, size))
        self._most = most

    def tokens(self, block: str, segment_id: str) -> int | None:
        """Returns how many more tokens the prompt needs for a piece; 0 if no number helps, None if unknown."""
        piece = (block, segment_id)
        thresholds, expected = self._given
        if piece in thresholds:
            return thresholds[piece]
        if not self._tried:
            self._tried = {0: self._kept(), self._most: self._refit(self._most)}
        if piece not in self._tried[self._most]:
            return 0
        high = min(n for n, kept in self._tried.items() if piece in kept)
        low = max(n for n in self._tried if n < high)
        guess = expected.get(piece, 0)
        guesses = [guess - 1, guess]
        while high - low > 1:
            if not self._left:
                return None
            self._left -= 1
            guesses = [n for n in guesses if low < n < high]
            middle = guesses.pop() if guesses else _between(low, high)
            self._tried[middle] = self._refit(middle)
            if piece in self._tried[middle]:
                high = middle
            else:
                low = middle
        return high

    @cached_property
    def _given(self) -> tuple[Thresholds, Thresholds]:
        return self._known()


def _between(low: int, high: int) -> int:
    """Returns where to look next: close to `low` while nothing is known of how far to go."""
    return min((low + high) // 2, 2 * low + 64)
