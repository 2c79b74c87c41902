"""Candidates in shells, the nearest first: no shell, and no order in it, depends on how many are wanted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import nlargest
from itertools import zip_longest
from operator import itemgetter
from typing import Any

from ..fitting.protocol import Fit, FitStrategy, plain_cost
from ..relevance.asking import queries_of
from ..relevance.memories import OVER_RETRIEVE, MemoryScorer, MemoryWeights
from ..relevance.protocol import Scorer
from ..segment import Block, Scope, Segment
from .memory import Memory, utc
from .protocol import MemoryBackend, Near

_LETTERS, _TAGS = 8, 3
"""Characters of a token, and tokens of tags around a memory: surely more, and fewer, than they are."""
_WIDER = 4
"""Each search has so many times the candidates of the one before."""
_AHEAD = 1e-9
"""Memories that are lifted are so far apart, and before the next one."""
_ALWAYS, _LASTING = 20, 10
"""So many stay before those that always matter; so many of these rise."""
_BEHIND = "It comes after nearer memories that have no room, so that a larger budget keeps no less."


def shells_of(
    backend: MemoryBackend,
    query: str,
    reader: Scope,
    now: datetime,
    most: int,
    enough: Callable[[Sequence[Memory]], bool],
) -> list[Near]:
    """Returns the candidates of ever wider searches, each without those of the one before.

    The candidates are those for each of `queries_of`. The last search is the first whose candidates are
    `enough`, or at least `most`, or all that there are.
    """
    shells: list[Near] = []
    known: set[str] = set()
    limit = OVER_RETRIEVE
    while True:
        asked = [backend.near(one, reader, limit, now) for one in queries_of(query)]
        found = {memory.id: memory for some in asked[::-1] for memory in some}
        places = [place for some in asked for place in named_in(some).items()]
        named = dict(sorted(places, key=itemgetter(1), reverse=True))  # the best place of each counts
        shells.append(Near([memory for name, memory in found.items() if name not in known], named))
        known.update(found)
        if len(found) < limit or limit >= most or enough(list(found.values())):
            return shells
        limit *= _WIDER


def named_in(found: Sequence[Memory]) -> Mapping[str, int]:
    """Returns how many others may come before each of the few that have a rare word of the question."""
    return getattr(found, "named", {})


def matters_always(memory: Memory) -> bool:
    """Returns whether a memory competes for each prompt, as `ALWAYS` says it in SQL."""
    return memory.static or memory.kind in {"core", "preference"}


def fills(room: int) -> Callable[[Sequence[Memory | Segment]], bool]:
    """Returns what says whether memories have more than so many tokens."""
    return lambda some: sum([len(one.text) for one in some]) >= _LETTERS * (room - _TAGS * len(some))


class Formula(MemoryScorer):
    """Rates as `MemoryScorer` does; the few that have a rare word of the question come third at least.

    Those with a rare number come first: it says which of many alike are meant.

    What many memories have in common with a question would hide them from a search by meaning and by words.
    Some that always matter come behind twenty others and these at most: they need not be near.
    """

    def __init__(
        self, found: Sequence[Memory], weights: MemoryWeights | None, near: Scorer | None, now: datetime
    ) -> None:
        super().__init__(weights, similarity=near, now=now)
        self._named = named_in(found)
        self._always = frozenset([one.segment().id for one in found if matters_always(one)])

    def score(self, query: str, segments: Sequence[Segment]) -> list[float]:
        """Returns one score for each memory."""
        return self._placed(super().score(query, segments), segments)

    def shifts(self, near: Sequence[float], segments: Sequence[Segment]) -> list[float]:
        """Returns what to add to each nearness so that the sums rank as the formula does."""
        rated = [a + b for a, b in zip(near, super().shifts(near, segments), strict=True)]
        return [a - b for a, b in zip(self._placed(rated, segments), near, strict=True)]

    def _placed(self, ratings: list[float], segments: Sequence[Segment]) -> list[float]:
        always = [i for i, segment in enumerate(segments) if segment.id in self._always]
        ratings = _lifted(ratings, nlargest(_LASTING, always, key=ratings.__getitem__), _ALWAYS)
        places = [self._named.get(segment.id) for segment in segments]
        for most in sorted({most for most in places if most is not None}, reverse=True):
            ratings = _lifted(ratings, [i for i, place in enumerate(places) if place == most], most)
        return ratings


def _lifted(ratings: list[float], few: Sequence[int], better: int) -> list[float]:
    """Returns ratings by which some of these come, in their order, behind so many better others at most."""
    others = nlargest(better + 1, [ratings[i] for i in set(range(len(ratings))).difference(few)])
    if len(others) <= better:
        return ratings
    places = {i: others[-1] + n * _AHEAD for n, i in enumerate(sorted(few, key=ratings.__getitem__), 1)}
    return [max(rating, places.get(i, rating)) for i, rating in enumerate(ratings)]


@dataclass(frozen=True, slots=True)
class _InTurn:
    """Packs blocks one after the other: each has the room that those before it leave when all are kept."""

    strategies: Sequence[FitStrategy]
    turns: Mapping[str, int]  # the block of each segment, by its id

    def fit(self, segments: Sequence[Segment], *, limit: int, **options: Any) -> Fit:
        """Returns pieces that cost at most `limit`."""
        parts: list[list[Segment]] = [[] for _ in self.strategies]
        for segment in segments:
            parts[self.turns[segment.id]].append(segment)
        fits: list[Fit] = []
        left = limit
        for strategy, part in zip(self.strategies, parts, strict=True):
            fits.append(strategy.fit(part, limit=left, **options))
            left -= fits[-1].tokens
            if sum([piece.whole for piece in fits[-1].pieces]) < len(part):
                break
        reasons = {segment.id: ("", _BEHIND) for part in parts[len(fits) :] for segment in part}
        for fit in fits:
            reasons |= fit.reasons
        kept = {id(piece.segment): piece for fit in fits for piece in fit.pieces}
        return Fit(
            pieces=tuple([kept[id(segment)] for segment in segments if id(segment) in kept]),
            tokens=limit - left,
            reasons=reasons,
            needed=lambda: self._needed(parts, fits, options),
        )

    def _needed(
        self, parts: Sequence[Sequence[Segment]], fits: Sequence[Fit], options: Mapping[str, Any]
    ) -> dict[str, int]:
        """Returns the smallest limit that keeps something of each dropped segment, by its id."""
        price = options["cost"] or plain_cost(options["counter"])
        found: dict[str, int] = {}
        before = 0
        for strategy, part, fit in zip_longest(self.strategies, parts, fits):
            least = (fit or strategy.fit(part, limit=0, **options)).needed()
            found |= {name: before + tokens for name, tokens in least.items()}
            before += sum([price(segment, segment.text) for segment in part])
        return found


def in_turn(blocks: Iterator[Block], room: int) -> Block:
    """Returns blocks as one that packs all of the first before the second; as many as may have a place."""
    taken: list[Block] = []
    segments: list[Segment] = []
    for block in blocks:
        taken.append(block)
        segments += block.segments
        if fills(room)(segments):
            break
    if len(taken) == 1:
        return taken[0]
    turns = {segment.id: i for i, block in enumerate(taken) for segment in block.segments}
    return Block(
        name=taken[0].name,
        segments=sorted(segments, key=_age),
        strategy=_InTurn([block.strategy for block in taken], turns),
    )


def _age(segment: Segment) -> float:
    """Returns what puts the oldest first, as a search does."""
    return utc(segment.created_at).timestamp() if segment.created_at else math.inf
