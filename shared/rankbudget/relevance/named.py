"""What a question names in a text: a line says its own words, and what is said above it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import reduce
from operator import or_

from .tree import NONE

SHORT = 12
"""Lines of a record that is one thing: what each of them says counts for all."""
_NEARLY = 0.9
"""Share of what the best record says that another one says at least that is named, too."""
_FEW = 3
"""One in so many records may be named by a question."""
_MOST_KINDS = 100
"""Records that say less than another one are left out, unless more ways to say it were found."""


def bits_of(holders: Iterable[Iterable[int]], size: int) -> list[int]:
    """Returns which words each of so many pieces has, as bits, given the pieces that have each word."""
    found = [0] * size
    for n, held in enumerate(holders):
        for i in held:
            found[i] |= 1 << n
    return found


def weigher(weights: Sequence[float]) -> Callable[[int], float]:
    """Returns what adds up the weights of words that are given as bits."""
    known = {0: 0.0}

    def weigh(words: int) -> float:
        if words not in known:
            known[words] = math.fsum([weights[n] for n in range(words.bit_length()) if words >> n & 1])
        return known[words]

    return weigh


class Named:
    """Says which records, rows, sections and lines a question names.

    A record is an opener with the few lines right inside it; of more lines each is one. It says its own
    words, those of all that it is inside of, and those of the short records around it: as the name of a
    customer for the address. What is said above a record counts twice: others may refer to the one that is
    named.

    Args:
        parents: what each piece is inside of.
        holders: the pieces that have each word of the question.
        ratings: of equal records the one with the best of these comes first.
        titles: what all of a text is inside of, which counts once: the next chunk of it has no title.
    """

    def __init__(
        self,
        parents: Sequence[int],
        holders: Mapping[str, Iterable[int]],
        ratings: Sequence[float] = (),
        titles: Container[int] = (),
    ) -> None:
        self.parents = parents
        self.own = bits_of(holders.values(), len(parents))
        openers = set(parents)
        self.lines: dict[int, list[int]] = {}
        for i, parent in enumerate(parents):
            if i not in openers:
                self.lines.setdefault(parent, []).append(i)
        self._over, self._said = {NONE: 0}, {NONE: 0}
        for i, parent in enumerate(parents):
            if i in openers:
                self._over[i] = self._over[parent] | (0 if i in titles else self.own[i])
                self._said[i] = reduce(
                    or_, [self.own[k] for k in self._few(i)], self._said[parent] | self.own[i]
                )
        records: list[list[int]] = []
        for parent, lines in self.lines.items():
            records += [lines] if self._few(parent) else [[i] for i in lines]
        times = [0] * len(holders)
        for said, count in Counter([self.said(record[0]) for record in records]).items():
            for n in range(said.bit_length()):
                times[n] += count if said >> n & 1 else 0
        self.weight = weigher([1 / max(1, n) for n in times])
        self.records = self._best(records, ratings)

    def said(self, i: int) -> int:
        """Returns what is said by a line and around it, as bits."""
        return self.own[i] | self._said[self.parents[i]]

    def over(self, i: int) -> int:
        """Returns what is said above a line."""
        return self._over[self.parents[i]]

    def around(self, i: int) -> list[int]:
        """Returns what a line is inside of, the nearest first, and lines there that say what was asked."""
        above, found = [], list[int]()
        while (i := self.parents[i]) != NONE:
            above.append(i)
            found += self._few(i) if len(above) > 1 else ()
        return [*above, *[k for k in found if self.own[k]]]

    def _few(self, i: int) -> Sequence[int]:
        lines = self.lines.get(i, ())
        return lines if i != NONE and len(lines) <= SHORT else ()

    def _adds(self, record: Sequence[int]) -> bool:
        """Returns whether a record says something itself, or is the first one inside of what says it."""
        i, parent = record[0], self.parents[record[0]]
        return bool(self.own[i] & ~self._over[parent]) or self.lines[parent][0] == i

    def _best(self, records: list[list[int]], ratings: Sequence[float]) -> list[list[int]]:
        """Returns the records that are named, the best first, and in each the lines that say most first."""
        above = [self.weight(self.over(record[0])) for record in records]
        worth = [
            self.weight(self.said(record[0])) + over for record, over in zip(records, above, strict=True)
        ]
        least = _NEARLY * max(worth, default=0.0)
        best = [n for n in range(len(records)) if 0 < least <= worth[n] and self._adds(records[n])]
        kinds = {self.said(records[n][0]) for n in best}
        for kind in kinds if len(kinds) <= _MOST_KINDS else ():
            best = [n for n in best if (said := self.said(records[n][0])) == kind or said & kind != said]
        most = max(1, len(records) // _FEW)
        if len(best) > most:  # a name is above the lines of its record
            least = _NEARLY * max([above[n] for n in best])
            best = [n for n in best if 0 < least <= above[n]]
        if len(best) > most:
            return []

        def rating(i: int) -> float:
            return ratings[i] if ratings else 0.0

        def line(i: int) -> tuple[float, float, int]:
            return -self.weight(self.own[i]), -rating(i), i

        def record(n: int) -> tuple[float, float, float, float]:
            own = max([self.weight(self.own[i]) for i in records[n]])
            return -worth[n], -above[n], -own, -max(map(rating, records[n]))

        return [sorted(records[n], key=line) for n in sorted(best, key=record)]
