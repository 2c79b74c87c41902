"""Relevance from several scorers at once, each brought to mean 0 and spread 1 before they are mixed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from ..errors import BudgetError, counted, shown
from ..segment import Segment
from .corpus import scored_texts
from .embedding import EmbeddingScorer, missing_reason
from .lexical import Bm25Scorer, GramScorer
from .protocol import Scorer
from .question import plain_question

DEFAULT_WEIGHTS = (1.0, 0.75, 1.0)
"""Of words, word pieces and meaning; chosen on the development questions of the quality benchmark."""
MANY, MUCH, POOL = 2_000, 2_000_000, 500
"""Segments, or characters, above which only the best 500 by words are rated by everything."""


def normalised(scores: Sequence[float]) -> list[float]:
    """Returns the scores with mean 0 and spread 1; equal scores all become 0."""
    if not scores:
        return []
    scores = finite(scores)
    mean = math.fsum(scores) / len(scores)
    apart = [score - mean for score in scores]
    spread = math.sqrt(math.fsum([gap * gap for gap in apart]) / len(scores))
    if spread <= 1e-9 * max(1.0, abs(mean)):
        return [0.0] * len(scores)
    return [gap / spread for gap in apart]


def ratings_of(scorer: Scorer, query: str, segments: Sequence[Segment]) -> list[float]:
    """Returns a scorer's scores, brought to mean 0 and spread 1.

    Raises:
        BudgetError: the scorer did not return one score for each segment.
    """
    scores = scorer.score(query, segments)
    got = len(scores) if hasattr(scores, "__len__") else shown(scores)
    if got != len(segments):
        msg = f"a {type(scorer).__name__} must return {counted(len(segments), 'score')} (got {got})"
        raise BudgetError(msg)
    return normalised(scores)


def finite(scores: Sequence[float]) -> Sequence[float]:
    """Returns scores with infinity as the best finite one, and what is no number as the worst."""
    known = [score for score in scores if math.isfinite(score)]
    if len(known) == len(scores):
        return scores
    low, high = min(known, default=0.0), max(known, default=0.0)
    return [score if math.isfinite(score) else high if score > 0 else low for score in scores]


class FusionScorer:
    """Rates a segment by the weighted sum of several normalised scores.

    Args:
        parts: scorers and their weights; None takes words, word pieces and, with wordllama, meaning.
    """

    def __init__(self, parts: Sequence[tuple[Scorer, float]] | None = None) -> None:
        self._default = parts is None
        if parts is None:
            words, pieces, meaning = DEFAULT_WEIGHTS
            parts = [(Bm25Scorer(), words), (GramScorer(), pieces)]
            if missing_reason() is None:
                parts.append((EmbeddingScorer(), meaning))
        self.parts = tuple(parts)

    def score(self, query: str, segments: Sequence[Segment]) -> list[float]:
        """Returns one score for each segment."""
        if not query.strip():
            return [0.0] * len(segments)
        if self._default:
            query = plain_question(query, scored_texts(segments))
            if len(segments) > MANY or sum([len(segment.text) for segment in segments]) > MUCH:
                return self._in_two_steps(query, segments)
        return self._mixed(query, segments)

    def _mixed(self, query: str, segments: Sequence[Segment]) -> list[float]:
        total = [0.0] * len(segments)
        for scorer, weight in self.parts:
            scores = ratings_of(scorer, query, segments)
            total = [before + weight * score for before, score in zip(total, scores, strict=True)]
        return total

    def _in_two_steps(self, query: str, segments: Sequence[Segment]) -> list[float]:
        """Rates many texts by words alone, and the best of them by everything, above all others."""
        words = normalised(Bm25Scorer().score(query, segments))
        pool: list[int] = []
        size = 0
        for i in sorted(range(len(segments)), key=lambda i: -words[i])[:POOL]:
            size += len(segments[i].text)
            if pool and size > MUCH:
                break
            pool.append(i)
        close = self._mixed(query, [segments[i] for i in pool])
        lift = max(words) - min(close)
        for i, score in zip(pool, close, strict=True):
            words[i] = score + lift
        return words


@lru_cache(maxsize=1)
def default_scorer() -> FusionScorer:
    """Returns the shared default: words, word pieces and, where wordllama is installed, meaning."""
    return FusionScorer()
