"""Relevance by shared words: BM25 over stems or pieces of words, the cosine of tf-idf, the share of words."""

from __future__ import annotations

import math
from collections import Counter

from .corpus import TermIndex, TextScorer
from .words import content_terms

__all__ = ["Bm25Scorer", "GramScorer", "KeywordScorer", "TfidfScorer"]


class Bm25Scorer(TextScorer):
    """Rates a segment by BM25 over stemmed words: rare shared words count most, repeats less.

    Example:
        >>> from rankbudget import Segment
        >>> texts = "the budget of the project", "a cat", "budgets"
        >>> segments = [Segment(id=text, text=text) for text in texts]
        >>> [round(score, 2) for score in Bm25Scorer().score("Which budget?", segments)]
        [0.35, 0.0, 0.63]
    """

    def score_texts(self, query: str, texts: tuple[str, ...]) -> list[float]:
        """Returns one score for each text."""
        return TermIndex.of(texts).bm25(query)


class GramScorer(TextScorer):
    """Rates a segment by BM25 over four-character pieces of words, so inflections and compounds match.

    Example:
        >>> from rankbudget import Segment
        >>> segments = [Segment(id="a", text="Energiepolitik"), Segment(id="b", text="Haushalt")]
        >>> [score > 0 for score in GramScorer().score("Politik der Energien", segments)]
        [True, False]
    """

    def score_texts(self, query: str, texts: tuple[str, ...]) -> list[float]:
        """Returns one score for each text."""
        return TermIndex.of(texts).gram_bm25(query)


class TfidfScorer(TextScorer):
    """Rates a segment by the cosine between its tf-idf vector and the query's, 0 to 1.

    Example:
        >>> from rankbudget import Segment
        >>> segments = [Segment(id=text, text=text) for text in ("refund", "refund days", "hello")]
        >>> [round(score, 2) for score in TfidfScorer().score("refunds?", segments)]
        [1.0, 0.43, 0.0]
    """

    def score_texts(self, query: str, texts: tuple[str, ...]) -> list[float]:
        """Returns one score for each text."""
        index = TermIndex.of(texts)
        asked = Counter(content_terms(query))
        products, squares, length = [0.0] * len(texts), [0.0] * len(texts), 0.0
        for term in {**index.stems, **asked}:
            holders = index.with_stem(term)
            weight = index.idf(len(holders))
            wanted = weight * (1 + math.log(asked[term])) if term in asked else 0.0
            length += wanted * wanted
            for i, n in holders.items():
                own = weight * (1 + math.log(n))
                products[i] += wanted * own
                squares[i] += own * own
        return [
            p / math.sqrt(square * length) if p else 0.0 for p, square in zip(products, squares, strict=True)
        ]


class KeywordScorer(TextScorer):
    """Rates a segment by the share of the query's different words that stand in it, 0 to 1.

    Example:
        >>> from rankbudget import Segment
        >>> texts = "Refunds take ten days.", "A refund is free.", "Hello."
        >>> segments = [Segment(id=text, text=text) for text in texts]
        >>> KeywordScorer().score("Is a refund free?", segments)
        [0.5, 1.0, 0.0]
    """

    def score_texts(self, query: str, texts: tuple[str, ...]) -> list[float]:
        """Returns one score for each text."""
        holders = [TermIndex.of(texts).with_stem(term) for term in set(content_terms(query))]
        return [sum([i in texts_ for texts_ in holders]) / max(1, len(holders)) for i in range(len(texts))]
