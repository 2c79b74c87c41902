"""Which memories matter now: near the question, important, recent, of a lasting kind."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from ..errors import check_number, refuse
from ..segment import Segment
from .fusion import default_scorer, finite
from .protocol import Scorer

KINDS: Mapping[str, float] = {
    "core": 100,
    "explicit": 90,
    "preference": 90,
    "fact": 80,
    "decision": 80,
    "project": 75,
    "experience": 70,
}
"""How much a memory's kind counts, 0 to 100."""
UNKNOWN_PRIORITY, UNKNOWN_KIND = 50, 70
"""Importance of a memory that states no priority, and of one of another kind or of none."""
OVER_RETRIEVE = 50
"""So many of the nearest memories compete; the others come after them."""
_SAME = 1e-12
"""Values no further apart are equal but for rounding."""
_LEAST_WEIGHT = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryWeights:
    """How much each part of the ranking counts.

    Args:
        similarity: nearness to the question.
        priority: the memory's own importance.
        recency: how lately it was written.
        kind: what kind of memory it is.
        half_life_days: after this many days recency counts half.
        kinds: importance of each kind, 0 to 100.
    """

    similarity: float = 0.4
    priority: float = 0.3
    recency: float = 0.2
    kind: float = 0.1
    half_life_days: float = 30.0
    kinds: Mapping[str, float] = field(default_factory=lambda: KINDS)

    def __post_init__(self) -> None:
        problems: list[str] = []
        for name in ("similarity", "priority", "recency", "kind"):
            check_number(name, getattr(self, name), problems, allowed="0 or more")
        check_number("half_life_days", self.half_life_days, problems, allowed="more than 0", above=True)
        refuse(problems)


class MemoryScorer:
    """Rates memories by 0.4 similarity + 0.3 priority + 0.2 recency + 0.1 kind, each part from 0 to 1.

    Similarity is stretched to fill 0 to 1 over the given memories.

    Args:
        weights: how much each part counts.
        similarity: rates nearness to the question; None takes the default mix of words and meaning.
        now: the moment recency counts from; None takes the newest memory's.
    """

    def __init__(
        self,
        weights: MemoryWeights | None = None,
        *,
        similarity: Scorer | None = None,
        now: datetime | None = None,
    ) -> None:
        self.weights = weights or MemoryWeights()
        self.similarity = similarity
        self._now = now

    def score(self, query: str, segments: Sequence[Segment]) -> list[float]:
        """Returns one score for each memory, 0 to 1."""
        weights = self.weights
        total = weights.similarity + weights.priority + weights.recency + weights.kind or 1.0
        near = finite((self.similarity or default_scorer()).score(query, segments))
        low, high = min(near, default=0.0), max(near, default=0.0)
        span = high - low if high - low > _SAME else math.inf
        worth = self._worth(segments)
        return [
            (weights.similarity * (score - low) / span + value) / total
            for score, value in zip(near, worth, strict=True)
        ]

    def shifts(self, near: Sequence[float], segments: Sequence[Segment]) -> list[float]:
        """Returns what to add to each nearness so that the sums rank as the formula does.

        Memories behind the `OVER_RETRIEVE` nearest are shifted behind all of these, unless they are of kind
        "core". Where no memory differs from another in priority, date or kind, nothing is shifted.
        """
        worth = self._worth(segments)
        most, least = max(worth, default=0.0), min(worth, default=0.0)
        if most - least <= _SAME:
            return [0.0] * len(segments)
        span = max(near) - min(near)
        span = span if span > _SAME else 1.0
        unit = span / max(self.weights.similarity, _LEAST_WEIGHT)
        behind = unit * (most - least) + 2 * span
        nearest = set(sorted(range(len(near)), key=lambda i: -near[i])[:OVER_RETRIEVE])
        return [
            unit * (value - most) - (0.0 if i in nearest or segments[i].kind == "core" else behind)
            for i, value in enumerate(worth)
        ]

    def _worth(self, segments: Sequence[Segment]) -> list[float]:
        """Returns what priority, recency and kind give each memory, weighed."""
        weights = self.weights
        worth = []
        for segment, days in zip(segments, self._ages_in_days(segments), strict=True):
            priority = UNKNOWN_PRIORITY if segment.priority is None else segment.priority
            kind = weights.kinds.get(segment.kind or "", UNKNOWN_KIND)
            recency = 0.5 ** (days / weights.half_life_days)
            worth.append(
                weights.priority * _share(priority) + weights.recency * recency + weights.kind * _share(kind)
            )
        return worth

    def _ages_in_days(self, segments: Sequence[Segment]) -> list[float]:
        moments = [_utc(s.created_at) for s in segments if s.created_at is not None]
        if self._now is None and not moments:
            return [0.0] * len(segments)
        now = _utc(self._now) if self._now is not None else max(moments)
        # A memory without a date counts as old as the oldest dated one: not knowing is no reason to go first.
        oldest = min(moments, default=now)
        ages = [now - (_utc(s.created_at) if s.created_at is not None else oldest) for s in segments]
        return [max(0.0, age / timedelta(days=1)) for age in ages]


def _share(value: float) -> float:
    return min(max(value / 100, 0.0), 1.0)


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment
