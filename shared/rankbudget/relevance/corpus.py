"""Word statistics of a list of texts, built once and kept while memory lasts.

Scoring the same segments against the next question costs only the question: texts are analysed once each (`word_counts`) and lists of
texts are indexed once each (`TermIndex.of`). Both caches are bounded by the characters they hold on to.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import pairwise
from threading import Lock
from typing import Generic, TypeVar

from ..segment import Segment
from .words import content_terms, content_words, grams, raw_words, stem, terms

__all__ = ["BoundedCache", "TermIndex", "scored_text", "scored_texts", "word_counts"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Keeps the values used last, up to a total size; safe to use from many threads.

    Args:
        max_size: the sum of sizes it may hold.
        size: the size of one entry, by its key.

    Example:
        >>> cache = BoundedCache(max_size=4, size=len)
        >>> [cache.get(key, str.upper) for key in ("abc", "d", "ef")]
        ['ABC', 'D', 'EF']
        >>> cache.keys()
        ['d', 'ef']
    """

    def __init__(self, *, max_size: int, size: Callable[[K], int]) -> None:
        self._max_size = max_size
        self._size = size
        self._held: OrderedDict[K, V] = OrderedDict()
        self._total = 0
        self._lock = Lock()

    def get(self, key: K, make: Callable[[K], V]) -> V:
        """Returns the value of `key`, made on first use; two threads may both make it, one result is kept."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
        value = make(key)
        with self._lock:
            if key not in self._held:
                self._held[key] = value
                self._total += self._size(key)
                while self._total > self._max_size and len(self._held) > 1:
                    old, _ = self._held.popitem(last=False)
                    self._total -= self._size(old)
        return value

    def holds(self, key: K) -> bool:
        """Returns whether the value of `key` is at hand."""
        with self._lock:
            return key in self._held

    def forget(self, key: K) -> None:
        """Drops the value of `key`, if it is held."""
        with self._lock:
            if self._held.pop(key, None) is not None:
                self._total -= self._size(key)

    def keys(self) -> list[K]:
        """Returns the keys it holds, the one used longest ago first."""
        with self._lock:
            return list(self._held)


def word_counts(text: str) -> dict[str, int]:
    """Returns how often each unstemmed word stands in a text.

    Example:
        >>> word_counts("to be or not to be")
        {'to': 2, 'be': 2, 'or': 1, 'not': 1}
    """
    return _WORD_COUNTS.get(text, lambda text: dict(Counter(raw_words(text))))


_WORD_COUNTS: BoundedCache[str, dict[str, int]] = BoundedCache(max_size=8_000_000, size=lambda text: len(text) + 64)


class TermIndex:
    """Which texts hold which words, stems and word pieces.

    Example:
        >>> index = TermIndex.of(("the budget of the project", "a cat", "budgets"))
        >>> [round(x, 2) for x in index.bm25("Which budget?")]
        [0.35, 0.0, 0.63]
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.size = len(texts)
        self._texts = tuple(texts)
        self._lines: list[str | None] = [None] * len(texts)
        postings: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self.lengths: list[int] = []
        for i, text in enumerate(texts):
            counts = word_counts(text)
            self.lengths.append(sum(counts.values()))
            for word, n in counts.items():
                postings[word].append((i, n))
        self.words: dict[str, list[tuple[int, int]]] = dict(postings)
        # Characters stand for word pieces: near enough to say which text is long, and known without a look.
        self._gram_lengths = [len(text) for text in texts]
        self._stems: dict[str, list[str]] | None = None
        self._grams: dict[str, list[str]] | None = None
        self._weights: dict[tuple[str, float, float, str], list[tuple[int, float]]] = {}

    @classmethod
    def of(cls, texts: tuple[str, ...]) -> TermIndex:
        """Returns the index of these texts, from the cache when they were indexed before."""
        return _INDEXES.get(texts, cls)

    def bm25(self, query: str, *, k1: float = 1.2, b: float = 0.75) -> list[float]:
        """Returns the BM25 score of each text over stemmed words."""
        return self._rate(Counter(content_terms(query)), self.stems, self.lengths, ("stem", k1, b))

    def gram_bm25(self, query: str, *, k1: float = 1.2, b: float = 0.75) -> list[float]:
        """Returns the BM25 score of each text over 4-character pieces of words: finds inflections, compounds and typing errors."""
        pieces = self.grams
        wanted = Counter([gram for word in content_words(query) for gram in grams(word)])
        return self._rate(wanted, pieces, self._gram_lengths, ("gram", k1, b))

    def pairs(self, query: str) -> list[float]:
        """Returns the summed weight of the pairs of neighbouring query words that stand side by side in each text, function words included.

        Example:
            >>> index = TermIndex.of(("father of the bride", "the bride of his father", "a cat"))
            >>> [round(x, 2) for x in index.pairs("Father of whom?")]
            [0.98, 0.0, 0.0]
        """
        scores = [0.0] * self.size
        words = terms(query)
        for first, second in sorted(set(pairwise(words))):
            if first in self.stems and second in self.stems:
                both = self.counts(self.stems[first]).keys() & self.counts(self.stems[second]).keys()
                holders = [i for i in sorted(both) if f" {first} {second} " in self._line(i)]
                for i in holders:
                    scores[i] += self.idf(len(holders))
        return scores

    def _line(self, i: int) -> str:
        """Returns the stems of a text in order, a space around each."""
        if self._lines[i] is None:
            self._lines[i] = f" {' '.join(terms(self._texts[i]))} "
        return self._lines[i] or ""

    def idf(self, holders: int) -> float:
        """Returns the weight of a term that stands in `holders` texts; rare terms weigh more."""
        return math.log(1 + (self.size - holders + 0.5) / (holders + 0.5))

    @property
    def stems(self) -> dict[str, list[str]]:
        """The unstemmed words of each stem."""
        if self._stems is None:
            found: dict[str, list[str]] = {}
            for word in self.words:
                found.setdefault(stem(word), []).append(word)
            self._stems = found
        return self._stems

    @property
    def grams(self) -> dict[str, list[str]]:
        """The unstemmed words of each 4-character piece."""
        if self._grams is None:
            found: defaultdict[str, list[str]] = defaultdict(list)
            for word in self.words:
                for piece in grams(word):
                    found[piece].append(word)
            self._grams = dict(found)
        return self._grams

    def counts(self, words: Iterable[str]) -> dict[int, int]:
        """Returns how often any of these unstemmed words stands in each text that has one."""
        found: dict[int, int] = {}
        for word in words:
            for i, n in self.words.get(word, ()):
                found[i] = found.get(i, 0) + n
        return found

    def _rate(self, wanted: Counter[str], index: dict[str, list[str]], lengths: list[int], kind: tuple[str, float, float]) -> list[float]:
        scores = [0.0] * self.size
        for term, times in wanted.items():
            if term in index:
                for i, weight in self._weights.get((*kind, term)) or self._weigh(term, index[term], lengths, kind):
                    scores[i] += times * weight
        return scores

    def _weigh(self, term: str, words: list[str], lengths: list[int], kind: tuple[str, float, float]) -> list[tuple[int, float]]:
        """Returns what a term adds to each text that holds it; kept for the next question that has the term."""
        _, k1, b = kind
        holders = self.counts(words)
        weight = self.idf(len(holders)) * (k1 + 1)
        scale = k1 * b / (sum(lengths) / max(1, self.size) or 1.0)
        base = k1 * (1 - b)
        found = [(i, weight * n / (n + base + scale * lengths[i])) for i, n in holders.items()]
        key = (*kind, term)
        self._weights[key] = found
        return found


_INDEXES: BoundedCache[tuple[str, ...], TermIndex] = BoundedCache(max_size=4_000_000, size=lambda texts: sum(map(len, texts)) + 64)


def scored_text(segment: Segment) -> str:
    """Returns what scorers read: the text, led by its title where the text does not open with it.

    Example:
        >>> scored_text(Segment(id="a", title="Refunds", text="Within 30 days."))
        'Refunds: Within 30 days.'
    """
    if segment.title and not segment.text.startswith(segment.title):
        return f"{segment.title}: {segment.text}"
    return segment.text


def scored_texts(segments: Sequence[Segment]) -> tuple[str, ...]:
    """Returns what scorers read of each segment; equal tuples find the same cached statistics."""
    return tuple([scored_text(segment) for segment in segments])
