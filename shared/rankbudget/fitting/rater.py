"""Rates the segments of a block, and their sentences, for packing by relevance."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ..relevance.evidence import rate_documents, rate_sentences
from ..relevance.fusion import default_scorer, normalised
from ..relevance.memories import MemoryScorer
from ..relevance.protocol import Scorer
from ..relevance.sentences import split_sentences
from ..relevance.turns import TurnScorer
from ..segment import Segment

__all__ = ["Rater"]

TURN_ODDS = (-5.0, 0.9)
"""Base and slope from a turn's score to the log-odds that it holds evidence."""
OWN_SCORE_ODDS = (-2.0, 1.5)
"""The same for normalised scores a caller brings."""
SENTENCE_SLOPE = 0.3
"""What a sentence of a turn or a scored segment loses per spread it falls behind the best of its segment."""


class Rater:
    """Rates segments when asked, and their sentences only then: few questions need them.

    Args:
        query: the question.
        segments: what is rated.
        scorer: rates segments that have no score of their own; None takes the default mix.
        ranking: shifts the ratings so that they rank as memories; None leaves them.
        by_score: takes the scorer's ratings as they are.
    """

    def __init__(
        self,
        query: str,
        segments: Sequence[Segment],
        scorer: Scorer | None,
        *,
        ranking: MemoryScorer | None = None,
        by_score: bool = False,
    ) -> None:
        self._query = query
        self._segments = segments
        self._scorer = scorer or default_scorer()
        self._ranking = ranking
        self._by_score = by_score
        given = [segment.score for segment in segments if segment.score is not None]
        self._given = given if len(given) == len(segments) else None
        self._turns = self._given is None and all(segment.role for segment in segments)

    @cached_property
    def documents(self) -> list[float]:
        """Log-odds that each segment holds evidence."""
        near = self._near()
        shifts = self._shifts(near)
        return [rating + shift for rating, shift in zip(near, shifts, strict=True)]

    @cached_property
    def sentences(self) -> list[list[float]]:
        """Log-odds that each sentence of each segment holds evidence, by itself and by its segment."""
        texts = [split_sentences(segment.text) for segment in self._segments]
        if all(len(pieces) == 1 for pieces in texts):
            return [[rating] for rating in self.documents]
        if self._given is None and not self._turns:
            rows = rate_sentences(self._query, self._segments, self._scorer)
            shifts = self._shifts([max(row) for row in rows])
            return [[rating + shift for rating in row] for row, shift in zip(rows, shifts, strict=True)]
        flat = [Segment(id=str(i), text=text) for i, pieces in enumerate(texts) for text in pieces]
        near = iter(normalised(self._scorer.score(self._query, flat)))
        found = []
        for rating, pieces in zip(self.documents, texts, strict=True):
            own = [next(near) for _ in pieces]
            found.append([rating + SENTENCE_SLOPE * (score - max(own)) for score in own])
        return found

    def _near(self) -> list[float]:
        if self._given is not None:
            base, slope = OWN_SCORE_ODDS
            return [base + slope * score for score in normalised(self._given)]
        if self._by_score:
            return self._scorer.score(self._query, self._segments)
        if self._turns:
            base, slope = TURN_ODDS
            scores = TurnScorer(self._scorer).score(self._query, self._segments)
            return [base + slope * score for score in scores]
        return rate_documents(self._query, self._segments, self._scorer)

    def _shifts(self, near: Sequence[float]) -> list[float]:
        return self._ranking.shifts(near, self._segments) if self._ranking else [0.0] * len(near)
