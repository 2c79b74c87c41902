"""Chooses pieces that together hold the most worth for their tokens; every value counts once."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

POWER = 0.3
"""Gain is divided by tokens to this power: 0 would ignore the price, 1 prefers many short pieces."""
NEWEST = 0.2
"""What the newest piece is worth beside its values; older ones are worth less and less."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What can be kept: tokens, values held, number of newer units, the piece that must be kept with it."""

    price: int
    values: Sequence[int] = ()
    age: int = 0
    needs: int | None = None


def cover(pieces: Sequence[Piece], worth: Sequence[float], kept: Sequence[int], room: int) -> list[int]:
    """Returns the pieces to keep beside those already `kept` and paid for, in the order they were chosen.

    The piece that adds most worth for its price comes next. One whose values others brought meanwhile is
    rated again only when it comes to the top, so a thousand pieces cost little more than sorting.

    Example:
        Two cheap pieces hold more than the expensive one.

        >>> pieces = [Piece(50, [0], 2), Piece(5, [], 1), Piece(8, [0, 1], 0, needs=1)]
        >>> cover(pieces, [1.0, 1.0], [], 20)
        [1, 2]
    """
    state = _Cover(pieces, worth)
    for piece in kept:
        state.take(piece)
    ranking = [(-state.rate(piece), piece) for piece in range(len(pieces)) if piece not in state.taken]
    heapq.heapify(ranking)
    chosen: list[int] = []
    while ranking and room >= 0:
        rate, piece = heapq.heappop(ranking)
        added = [] if piece in state.taken else state.with_needed(piece)
        price = sum([pieces[one].price for one in added])
        if not added or price > room:
            continue
        now = -state.rate(piece)
        if now > rate + 1e-12:
            heapq.heappush(ranking, (now, piece))
            continue
        for one in added:
            state.take(one)
            for other in state.needing.get(one, ()):  # cheaper from now on
                heapq.heappush(ranking, (-state.rate(other), other))
        room -= price
        chosen += added
    return chosen


def take(
    pieces: Sequence[Piece], taken: list[int], order: Iterable[int], room: int, *, skip: bool = True
) -> int:
    """Adds pieces, each with what it needs, to those `taken`; the first misfit is skipped or the end."""
    known, used = set(taken), 0
    for n in order:
        added = _with_needed(pieces, n, known)
        price = sum([pieces[m].price for m in added])
        if used + price <= room:
            taken += added
            known.update(added)
            used += price
        elif not skip:
            break
    return used


def _with_needed(pieces: Sequence[Piece], piece: int, taken: set[int]) -> list[int]:
    """Returns a piece, and before it all that it needs, apart from what is taken."""
    found: list[int] = []
    at: int | None = piece
    while at is not None and at not in taken:
        found.insert(0, at)
        at = pieces[at].needs
    return found


class _Cover:
    """What is taken so far, and what each other piece would still add."""

    def __init__(self, pieces: Sequence[Piece], worth: Sequence[float]) -> None:
        self._pieces, self._worth = pieces, worth
        self._had: set[int] = set()
        self.taken: set[int] = set()
        self.needing: dict[int, list[int]] = {}
        for number, piece in enumerate(pieces):
            if piece.needs is not None:
                self.needing.setdefault(piece.needs, []).append(number)

    def take(self, piece: int) -> None:
        self.taken.add(piece)
        self._had.update(self._pieces[piece].values)

    def with_needed(self, piece: int) -> list[int]:
        return _with_needed(self._pieces, piece, self.taken)

    def rate(self, piece: int) -> float:
        """Returns what taking a piece adds, for its price."""
        added = [self._pieces[one] for one in self.with_needed(piece)]
        fresh = {value for one in added for value in one.values} - self._had
        gain = sum([self._worth[value] for value in sorted(fresh)])
        price = sum([one.price for one in added])
        return float((gain + NEWEST / (1 + self._pieces[piece].age)) / max(1, price) ** POWER)
