"""Relevance by shared words: BM25 over stems or pieces of words, the cosine of tf-idf, the share of words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from ..segment import Segment
from .corpus import TermIndex, scored_texts
from .words import content_terms


class Bm25Scorer:
    """Rates a segment by BM25 over stemmed words: rare shared words count most, repeats less."""

    def score(self, query: str, segments: Sequence[Segment]) -> list[float]:
        """Returns one score for each segment."""
        return TermIndex.of(scored_texts(segments)).bm25(query)


class GramScorer:
    """Rates a segment by BM25 over four-character pieces of words, so inflections and compounds match."""

    def score(self, query: str, segments: Sequence[Segment]) -> list[float]:
        """Returns one score for each segment."""
        return TermIndex.of(scored_texts(segments)).gram_bm25(query)


class TfidfScorer:
    """Rates a segment by the cosine between its tf-idf vector and the query's, 0 to 1."""

    def score(self, query: str, segments: Sequence[Segment]) -> list[float]:
        """Returns one score for each segment."""
        index = TermIndex.of(scored_texts(segments))
        asked = Counter(content_terms(query))
        products, squares, length = [0.0] * index.size, [0.0] * index.size, 0.0
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


class KeywordScorer:
    """Rates a segment by the share of the query's different words that occur in it, 0 to 1."""

    def score(self, query: str, segments: Sequence[Segment]) -> list[float]:
        """Returns one score for each segment."""
        index = TermIndex.of(scored_texts(segments))
        holders = [index.with_stem(term) for term in dict.fromkeys(content_terms(query))]
        return [sum([i in texts for texts in holders]) / max(1, len(holders)) for i in range(index.size)]
