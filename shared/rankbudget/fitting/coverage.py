"""Chooses pieces that together hold the most worth for their tokens, where every worth counts once.

Greedy, several times: by gain per token, with the price weighed little, some, much and fully; the choice that holds most wins. A piece that
already lost its worth to others is looked at again only when it comes to the top, so that a thousand pieces cost little more than sorting.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence

__all__ = ["POWERS", "cover"]

POWERS = (0.25, 0.5, 0.75, 1.0)
"""Gain is divided by tokens to this power: 0 would ignore the price, 1 prefers many short pieces."""
_NEWEST = 1e-3
"""What the newest piece is worth when it holds nothing new; older ones less."""


def cover(
    prices: Sequence[int], holds: Sequence[Sequence[int]], worth: Sequence[float], opens: Sequence[int], kept: Iterable[int], room: int
) -> list[int]:
    """Returns the pieces to keep beside those already kept, in the order they were chosen.

    Args:
        prices: tokens of each piece, oldest piece first.
        holds: the values each piece holds.
        worth: what each value is worth, once.
        opens: for each piece the piece that has to come before it when nothing that opens is kept before it; itself when it needs none.
        kept: pieces that stay in any case; they are paid for.
        room: tokens for the others.

    Example:
        Two cheap pieces hold more than the dear one, and the second brings the piece that opens its turn.

        >>> cover([50, 5, 8], [[0], [], [0, 1]], [1.0, 1.0], [0, 1, 1], [], 20)
        [1, 2]
    """
    best: tuple[float, list[int]] = (-1.0, [])
    base = _Shelf(prices, holds, worth, opens, kept)
    for power in POWERS:
        shelf = base.copy()
        chosen = shelf.fill(room, power)
        if shelf.worth > best[0] + 1e-9:
            best = (shelf.worth, chosen)
    return best[1]


class _Shelf:
    """What is kept so far, and what each other piece would still add."""

    def __init__(
        self, prices: Sequence[int], holds: Sequence[Sequence[int]], worth: Sequence[float], opens: Sequence[int], kept: Iterable[int]
    ) -> None:
        self._prices, self._holds, self._worth, self._opens = prices, holds, worth, opens
        self._holders: list[list[int]] = [[] for _ in worth]
        for piece, values in enumerate(holds):
            for value in values:
                self._holders[value].append(piece)
        self._gains = [sum([worth[value] for value in values]) for values in holds]
        self._had = bytearray(len(worth))
        self._in = bytearray(len(prices))
        self._opening = len(prices)
        """The oldest kept piece that may open: what comes after needs no other."""
        self.worth = 0.0
        for piece in kept:
            self._take(piece)

    def copy(self) -> _Shelf:
        """Returns a shelf of its own with the same pieces on it."""
        new = object.__new__(_Shelf)
        vars(new).update(vars(self), _gains=self._gains[:], _had=self._had[:], _in=self._in[:])
        return new

    def fill(self, room: int, power: float) -> list[int]:
        """Keeps what adds most for its price until nothing more fits; returns it."""
        chosen: list[int] = []
        heap = [(-self._rate(piece, power), -piece) for piece in range(len(self._prices)) if not self._in[piece]]
        heapq.heapify(heap)
        while heap:
            rate, piece = heapq.heappop(heap)
            piece = -piece
            if self._in[piece]:
                continue
            added = self._with_opening(piece)
            price = sum([self._prices[one] for one in added])
            if price > room:
                continue
            now = -self._rate(piece, power)
            if now > rate + 1e-12:
                heapq.heappush(heap, (now, -piece))
                continue
            room -= price
            before = self._opening
            for one in added:
                self._take(one)
            chosen += added
            for cheaper in range(self._opening + 1, before):  # these need nothing to open any more
                if not self._in[cheaper]:
                    heapq.heappush(heap, (-self._rate(cheaper, power), -cheaper))
        return chosen

    def _with_opening(self, piece: int) -> list[int]:
        opener = self._opens[piece]
        return [piece] if opener == piece or self._opening < piece else [opener, piece]

    def _rate(self, piece: int, power: float) -> float:
        gain, price = self._gains[piece], self._prices[piece]
        opener = self._opens[piece]
        if opener != piece and self._opening > piece:
            both = set(self._holds[piece]).intersection(self._holds[opener])
            gain += self._gains[opener] - sum([self._worth[value] for value in sorted(both) if not self._had[value]])
            price += self._prices[opener]
        return (gain + _NEWEST / (len(self._prices) - piece)) / math.pow(max(1, price), power)

    def _take(self, piece: int) -> None:
        self._in[piece] = 1
        if self._opens[piece] == piece:
            self._opening = min(self._opening, piece)
        for value in self._holds[piece]:
            if not self._had[value]:
                self._had[value] = 1
                self.worth += self._worth[value]
                for holder in self._holders[value]:
                    self._gains[holder] -= self._worth[value]
