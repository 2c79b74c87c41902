"""Rates the segments of a block, and their sentences, for packing by relevance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..relevance.evidence import rate_documents, rate_sentences
from ..relevance.fusion import default_scorer, normalised
from ..relevance.protocol import Scorer
from ..relevance.sentences import split_sentences
from ..relevance.turns import TurnScorer
from ..segment import Segment

__all__ = ["Rater"]

Rated = Literal["documents", "turns", "scores"]
"""What is rated: documents, turns (segments with a role), or segments with a score."""
TURN_ODDS = (-5.0, 0.9)
"""Base and slope from a turn's score to the log-odds that it holds evidence."""
OWN_SCORE_ODDS = (-2.0, 1.5)
"""The same for normalised scores a caller brings."""
SENTENCE_SLOPE = 0.3
"""What a sentence of a turn or a scored segment loses per spread it falls behind the best of its segment."""


class Rater:
    """Rates segments when somebody asks, and their sentences only then: few questions need them.

    Args:
        query: the question.
        segments: what is rated.
        scorer: rates segments that have no score of their own; None takes the default mix.
        by_score: takes the scorer's ratings as they are.
    """

    def __init__(
        self, query: str, segments: Sequence[Segment], scorer: Scorer | None, *, by_score: bool = False
    ) -> None:
        self._query = query
        self._segments = segments
        self._scorer = scorer or default_scorer()
        self._by_score = by_score
        self._given = [segment.score for segment in segments if segment.score is not None]
        self._documents: list[float] | None = None
        self._sentences: list[list[float]] | None = None
        self.rated: Rated = "turns" if all(segment.role for segment in segments) else "documents"
        if len(self._given) == len(segments):
            self.rated = "scores"

    @property
    def documents(self) -> list[float]:
        """Log-odds that each segment holds evidence."""
        if self._documents is None:
            self._documents = self._rate_documents()
        return self._documents

    @property
    def sentences(self) -> list[list[float]]:
        """Log-odds that each sentence of each segment holds evidence."""
        if self._sentences is None:
            self._sentences = self._rate_sentences()
        return self._sentences

    def _rate_documents(self) -> list[float]:
        if self.rated == "scores":
            base, slope = OWN_SCORE_ODDS
            return [base + slope * score for score in normalised(self._given)]
        if self._by_score:
            return self._scorer.score(self._query, self._segments)
        if self.rated == "turns":
            base, slope = TURN_ODDS
            scores = TurnScorer(self._scorer).score(self._query, self._segments)
            return [base + slope * score for score in scores]
        return rate_documents(self._query, self._segments, self._scorer)

    def _rate_sentences(self) -> list[list[float]]:
        """Rates sentences of documents by themselves, others by their segment and their place in it."""
        if self.rated == "documents":
            return rate_sentences(self._query, self._segments, self._scorer)
        texts = [split_sentences(segment.text) for segment in self._segments]
        flat = [Segment(id=str(i), text=text) for i, pieces in enumerate(texts) for text in pieces]
        near = [0.0] * len(flat)
        if len(flat) > len(texts):
            near = normalised(self._scorer.score(self._query, flat))
        found = []
        start = 0
        for rating, pieces in zip(self.documents, texts, strict=True):
            own = near[start : start + len(pieces)]
            start += len(pieces)
            best = max(own, default=0.0)
            found.append([rating + SENTENCE_SLOPE * (score - best) for score in own])
        return found
