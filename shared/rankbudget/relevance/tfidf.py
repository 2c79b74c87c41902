"""Relevance as the cosine of tf-idf vectors: long texts gain nothing by being long."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from ..segment import Segment
from .corpus import BoundedCache, TermIndex, scored_texts
from .words import content_terms

__all__ = ["TfidfScorer"]


class TfidfScorer:
    """Rates a segment by the cosine between its tf-idf vector and the query's, 0 to 1.

    Example:
        >>> segments = [Segment(id=text, text=text) for text in ("refund", "refund days", "hello")]
        >>> [round(score, 2) for score in TfidfScorer().score("refunds?", segments)]
        [1.0, 0.43, 0.0]
    """

    def score(self, query: str, segments: Sequence[Segment]) -> list[float]:
        """Returns one score for each segment."""
        texts = scored_texts(segments)
        index = TermIndex.of(texts)
        lengths = _LENGTHS.get(texts, lambda _: _vector_lengths(index))
        scores = [0.0] * len(segments)
        length = 0.0
        for term, times in Counter(content_terms(query)).items():
            holders = index.counts(index.stems.get(term, ()))
            weight = (1 + math.log(times)) * index.idf(len(holders))
            length += weight * weight
            for i, n in holders.items():
                scores[i] += weight * (1 + math.log(n)) * index.idf(len(holders))
        return [score / (lengths[i] * math.sqrt(length)) if score else 0.0 for i, score in enumerate(scores)]


def _vector_lengths(index: TermIndex) -> list[float]:
    squares = [0.0] * index.size
    for words in index.stems.values():
        holders = index.counts(words)
        idf = index.idf(len(holders))
        for i, n in holders.items():
            squares[i] += ((1 + math.log(n)) * idf) ** 2
    return [math.sqrt(square) for square in squares]


_LENGTHS: BoundedCache[tuple[str, ...], list[float]] = BoundedCache(
    max_size=4_000_000, size=lambda texts: sum(map(len, texts)) + 64
)
