"""Relevance by BM25: rare shared words count most, repeats less, long texts pay for their length."""

from __future__ import annotations

from collections.abc import Sequence

from ..segment import Segment
from .corpus import TermIndex, scored_texts

__all__ = ["Bm25Scorer", "GramScorer"]


class Bm25Scorer:
    """Rates a segment by BM25 over stemmed words; scripts without spaces count by character pairs.

    Example:
        >>> texts = "the budget of the project", "a cat", "budgets"
        >>> segments = [Segment(id=text, text=text) for text in texts]
        >>> [round(score, 2) for score in Bm25Scorer().score("Which budget?", segments)]
        [0.35, 0.0, 0.63]
    """

    def score(self, query: str, segments: Sequence[Segment]) -> list[float]:
        """Returns one score for each segment."""
        return self.score_texts(query, scored_texts(segments))

    def score_texts(self, query: str, texts: tuple[str, ...]) -> list[float]:
        """Returns one score for each text."""
        return TermIndex.of(texts).bm25(query)


class GramScorer(Bm25Scorer):
    """Rates a segment by BM25 over four-character pieces of words, so inflections and compounds match.

    Example:
        >>> segments = [Segment(id="a", text="Energiepolitik"), Segment(id="b", text="Haushalt")]
        >>> [score > 0 for score in GramScorer().score("Politik der Energien", segments)]
        [True, False]
    """

    def score_texts(self, query: str, texts: tuple[str, ...]) -> list[float]:
        """Returns one score for each text."""
        return TermIndex.of(texts).gram_bm25(query)
