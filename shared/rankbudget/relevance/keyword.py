"""Relevance as the share of the query's words a text holds: the scorer that is easiest to explain."""

from __future__ import annotations

from collections.abc import Sequence

from ..segment import Segment
from .corpus import TermIndex, scored_texts
from .words import content_terms

__all__ = ["KeywordScorer"]


class KeywordScorer:
    """Rates a segment by the share of the query's different words that stand in it, 0 to 1.

    Example:
        >>> texts = "Refunds take ten days.", "A refund is free.", "Hello."
        >>> segments = [Segment(id=text, text=text) for text in texts]
        >>> KeywordScorer().score("Is a refund free?", segments)
        [0.5, 1.0, 0.0]
    """

    def score(self, query: str, segments: Sequence[Segment]) -> list[float]:
        """Returns one score for each segment."""
        wanted = set(content_terms(query))
        index = TermIndex.of(scored_texts(segments))
        found = [0] * len(segments)
        for term in wanted:
            for i in index.counts(index.stems.get(term, ())):
                found[i] += 1
        return [n / len(wanted) for n in found] if wanted else [0.0] * len(segments)
