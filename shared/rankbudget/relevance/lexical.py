"""Relevance by shared words: BM25 over stems or pieces of words, the cosine of tf-idf, the share of words."""

from __future__ import annotations

import math
from collections import Counter

from .corpus import TermIndex, TextScorer
from .words import content_terms


class Bm25Scorer(TextScorer):
    """Rates a segment by BM25 over stemmed words: rare shared words count most, repeats less."""

    def score_texts(self, query: str, texts: tuple[str, ...]) -> list[float]:
        """Returns one score for each text."""
        return TermIndex.of(texts).bm25(query)


class GramScorer(TextScorer):
    """Rates a segment by BM25 over four-character pieces of words, so inflections and compounds match."""

    def score_texts(self, query: str, texts: tuple[str, ...]) -> list[float]:
        """Returns one score for each text."""
        return TermIndex.of(texts).gram_bm25(query)


class TfidfScorer(TextScorer):
    """Rates a segment by the cosine between its tf-idf vector and the query's, 0 to 1."""

    def score_texts(self, query: str, texts: tuple[str, ...]) -> list[float]:
        """Returns one score for each text."""
        index = TermIndex.of(texts)
        asked = Counter(content_terms(query))
        products, squares, length = [0.0] * len(texts), [0.0] * len(texts), 0.0
        for term, words in {**dict.fromkeys(asked, ()), **index.stems}.items():
            holders = index.counts(words)
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
    """Rates a segment by the share of the query's different words that occur in it, 0 to 1."""

    def score_texts(self, query: str, texts: tuple[str, ...]) -> list[float]:
        """Returns one score for each text."""
        holders = [TermIndex.of(texts).with_stem(term) for term in set(content_terms(query))]
        return [sum([i in texts_ for texts_ in holders]) / max(1, len(holders)) for i in range(len(texts))]
