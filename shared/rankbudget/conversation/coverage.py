"""Chooses pieces that together hold the most worth for their tokens, where every worth counts once.

Greedy, several times: by gain per token, with the price weighed little, some, much and fully; the choice that holds most wins. Where pieces are
few, again with each piece that could open everything kept from the start, then with any one piece beside what opens the best choice so far: greedy
takes the dear opener of a rich piece, and the room for two others is gone. A piece that already lost its worth to others is looked at again only
when it comes to the top, so that a thousand pieces cost little more than sorting.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

__all__ = ["EFFORT", "POWERS", "cover"]

POWERS = (0.25, 0.5, 0.75, 1.0)
"""Gain is divided by tokens to this power: 0 would ignore the price, 1 prefers many short pieces."""
AGAIN = POWERS[::2]
"""The powers of a choice that starts with something: half as many find as much."""
EFFORT = 1_200
"""Pieces looked at in choices that start with something: sixty starts where there are ten pieces, two where there are 300, none from 601 on."""
_NEWEST = 1e-3
"""What the newest piece is worth when it holds nothing new; older ones less."""


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
        opens: for each piece the piece that has to come before it when nothing that opens is kept before it; itself when it needs none.
        kept: pieces that stay in any case; they are paid for.
        room: tokens for the others.

    Example:
        Two cheap pieces hold more than the dear one, and the second brings the piece that opens its turn.

        >>> cover([50, 5, 8], [[0], [], [0, 1]], [1.0, 1.0], [0, 1, 1], [], 20)
        [1, 2]
    """
    base = _Shelf(prices, holds, worth, opens, kept)
    best = _Best()
    best.improve(base, room, [], POWERS)
    complete = sum(worth) - 1e-9
    for first in islice(_starts(base, room, best), EFFORT // len(AGAIN) // max(1, len(prices))):
        if best.worth >= complete:
            break
        best.improve(base, room, first, AGAIN)
    return best.pieces


def _starts(base: _Shelf, room: int, best: _Best) -> Iterator[list[int]]:
    """Yields what a choice may start with: each piece that could open everything, then one piece beside what opens the best choice so far."""
    for opener in base.openers(room):
        yield [opener]
    opening = base.opener_of(best.pieces)
    shelf = base.copy()
    for piece in shelf.openable(room - shelf.keep(opening)):
        yield [*opening, piece]


class _Best:
    """The choice that holds most so far."""

    def __init__(self) -> None:
        self.worth = -1.0
        self.pieces: list[int] = []

    def improve(self, base: _Shelf, room: int, first: list[int], powers: Sequence[float]) -> None:
        """Keeps the first pieces and fills the room once for each power; the best of that takes the place of what holds less."""
        start = base.copy()
        left = room - start.keep(first)
        for power in powers:
            shelf = start.copy()
            pieces = first + shelf.fill(left, power)
            if shelf.worth > self.worth + 1e-9:
                self.worth, self.pieces = shelf.worth, pieces


class _Shelf:
    """What is kept so far, and what each other piece would still add."""

    def __init__(
        self,
        prices: Sequence[int],
        holds: Sequence[Sequence[int]],
        worth: Sequence[float],
        opens: Sequence[int],
        kept: Iterable[int],
    ) -> None:
        self._prices, self._holds, self._worth, self._opens = prices, holds, worth, opens
        self._holders: list[list[int]] = [[] for _ in worth]
        for piece, values in enumerate(holds):
            for value in values:
                self._holders[value].append(piece)
        self._gains = [sum([worth[value] for value in values]) for values in holds]
        self._shared = [
            sorted({*holds[n]}.intersection(holds[opener])) if opener != n else []
            for n, opener in enumerate(opens)
        ]
        """What a piece and its opener both hold."""
        self._had = bytearray(len(worth))
        self._in = bytearray(len(prices))
        self._opening = len(prices)
        """The oldest kept piece that may open: what comes after needs no other."""
        self.worth = 0.0
        self.keep(kept)

    def copy(self) -> _Shelf:
        """Returns a shelf of its own with the same pieces on it."""
        new = object.__new__(_Shelf)
        vars(new).update(vars(self), _gains=self._gains[:], _had=self._had[:], _in=self._in[:])
        return new

    def keep(self, pieces: Iterable[int]) -> int:
        """Keeps pieces without asking whether they fit; returns their price."""
        price = 0
        for piece in pieces:
            self._take(piece)
            price += self._prices[piece]
        return price

    def openers(self, room: int) -> list[int]:
        """Returns the pieces that could open everything kept so far and fit, cheapest first."""
        found = [
            piece
            for piece in range(self._opening)
            if self._opens[piece] == piece and self._prices[piece] <= room
        ]
        return sorted(found, key=self._prices.__getitem__)

    def opener_of(self, pieces: Iterable[int]) -> list[int]:
        """Returns the piece among these that opens them and everything kept so far; none where a kept one does."""
        opener = min([piece for piece in pieces if self._opens[piece] == piece], default=self._opening)
        return [opener] if opener < self._opening else []

    def openable(self, room: int) -> list[int]:
        """Returns the pieces that fit and need nothing to open, what adds most for its price first."""
        needless = [
            piece for piece, opener in enumerate(self._opens) if opener == piece or self._opening < piece
        ]
        found = [piece for piece in needless if not self._in[piece] and self._prices[piece] <= room]
        return sorted(found, key=lambda piece: -self._rate(piece, AGAIN[-1]))

    def fill(self, room: int, power: float) -> list[int]:
        """Keeps what adds most for its price until nothing more fits; returns it."""
        chosen: list[int] = []
        heap = [
            (-self._rate(piece, power), -piece)
            for piece, price in enumerate(self._prices)
            if price <= room and not self._in[piece]
        ]
        heapq.heapify(heap)
        cheapest = min(self._prices, default=0)
        while heap and cheapest <= room:
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
            gain += self._gains[opener] - sum(
                [self._worth[value] for value in self._shared[piece] if not self._had[value]]
            )
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
