"""Chooses pieces that together hold the most worth for their tokens; every value counts once.

One greedy pass: the piece that adds most for its price comes next. A piece whose values others brought
meanwhile is rated again only when it comes to the top, so a thousand pieces cost little more than sorting.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

__all__ = ["cover"]

POWER = 0.4
"""Gain is divided by tokens to this power: 0 would ignore the price, 1 prefers many short pieces."""
NEWEST = 0.2
"""What the newest piece is worth beside its values; older ones are worth less and less."""


def cover(
    prices: Sequence[int],
    holds: Sequence[Sequence[int]],
    worth: Sequence[float],
    opens: Sequence[int],
    kept: Iterable[int],
    room: int,
) -> list[int]:
    """Returns the pieces to keep beside those already kept, in the order they were chosen.

    Args:
        prices: tokens of each piece, oldest piece first.
        holds: the values each piece holds.
        worth: what each value is worth, once.
        opens: for each piece the piece that has to come before it when nothing that opens is kept before it;
            itself when it needs none.
        kept: pieces that stay in any case; they are paid for.
        room: tokens for the others.

    Example:
        Two cheap pieces hold more than the expensive one; the second brings the piece that opens its turn.

        >>> cover([50, 5, 8], [[0], [], [0, 1]], [1.0, 1.0], [0, 1, 1], [], 20)
        [1, 2]
    """
    state = _Cover(prices, holds, worth, opens)
    for piece in kept:
        state.take(piece)
    ranking = [(-state.rate(piece), -piece) for piece in range(len(prices)) if piece not in state.taken]
    heapq.heapify(ranking)
    chosen: list[int] = []
    while ranking and room >= 0:
        rate, piece = heapq.heappop(ranking)
        piece = -piece
        added = [] if piece in state.taken else state.with_opener(piece)
        price = sum([prices[one] for one in added])
        if not added or price > room:
            continue
        now = -state.rate(piece)
        if now > rate + 1e-12:
            heapq.heappush(ranking, (now, -piece))
            continue
        before = state.opening
        for one in added:
            state.take(one)
        room -= price
        chosen += added
        for freed in range(state.opening + 1, before):  # these need nothing to open any more
            if freed not in state.taken:
                heapq.heappush(ranking, (-state.rate(freed), -freed))
    return chosen


class _Cover:
    """What is taken so far, and what each other piece would still add."""

    def __init__(
        self,
        prices: Sequence[int],
        holds: Sequence[Sequence[int]],
        worth: Sequence[float],
        opens: Sequence[int],
    ) -> None:
        self._prices, self._holds, self._worth, self._opens = prices, holds, worth, opens
        self._had: set[int] = set()
        self.taken: set[int] = set()
        self.opening = len(prices)
        """The oldest taken piece that opens: what comes after it needs no other."""

    def take(self, piece: int) -> None:
        self.taken.add(piece)
        self._had.update(self._holds[piece])
        if self._opens[piece] == piece:
            self.opening = min(self.opening, piece)

    def with_opener(self, piece: int) -> list[int]:
        """Returns the piece, and before it the piece that opens where that is needed."""
        opener = self._opens[piece]
        return [piece] if opener == piece or self.opening < piece else [opener, piece]

    def rate(self, piece: int) -> float:
        """Returns what taking a piece adds, for its price."""
        added = self.with_opener(piece)
        fresh = {value for one in added for value in self._holds[one]} - self._had
        gain = sum([self._worth[value] for value in sorted(fresh)])
        price = sum([self._prices[one] for one in added])
        return float((gain + NEWEST / (len(self._prices) - piece)) / max(1, price) ** POWER)
