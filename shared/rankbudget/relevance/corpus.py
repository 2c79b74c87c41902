"""Word statistics of a list of texts, built once and kept while memory lasts.

Scoring the same segments against the next question costs only the question: texts are analysed once each
(`word_counts`) and lists of texts are indexed once each (`TermIndex.of`). Both caches are bounded by the
characters they hold on to.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar

from ..segment import Segment
from .words import content_terms, content_words, grams, raw_words, stem

__all__ = ["BoundedCache", "TermIndex", "scored_text", "scored_texts", "word_counts"]

K1, B = 1.2, 0.75
"""How soon repeats of a word stop counting, and how much a long text pays for its length: the usual values of
BM25."""
LOOKS = 5
"""Looks into a text for a word that cost as much as listing one word of one text."""
SCANS = 200
"""Pieces to look for in all texts before all pieces are listed; a question has some thirty."""
QUESTIONS = 12
"""Score lists that are kept, two for each question."""
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


def word_counts(text: str) -> Mapping[str, int]:
    """Returns how often each unstemmed word stands in a text.

    Example:
        >>> dict(word_counts("to be or not to be"))
        {'to': 2, 'be': 2, 'or': 1, 'not': 1}
    """
    return _analysed(text).counts


@dataclass(frozen=True, slots=True)
class _Words:
    counts: Mapping[str, int]
    row: str
    """All words in order, marked as `grams` marks them: what is between two marks is one word."""


def _analysed(text: str) -> _Words:
    return _WORDS.get(text, _analyse)


def _analyse(text: str) -> _Words:
    words = raw_words(text)
    return _Words(Counter(words), f"_{'__'.join(words)}_")


_WORDS: BoundedCache[str, _Words] = BoundedCache(max_size=8_000_000, size=lambda text: 2 * len(text) + 64)


class TermIndex:
    """Which texts hold which words, stems and word pieces.

    Example:
        >>> index = TermIndex.of(("the budget of the project", "a cat", "budgets"))
        >>> [round(x, 2) for x in index.bm25("Which budget?")]
        [0.35, 0.0, 0.63]
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.size = len(texts)
        analysed = [_analysed(text) for text in texts]
        self._counts = [words.counts for words in analysed]
        self._rows = [words.row for words in analysed]
        self.lengths: list[int] = [sum(counts.values()) for counts in self._counts]
        # Characters stand for word pieces: near enough to say which text is long, and known without a look.
        self._gram_lengths = [len(text) for text in texts]
        self._looks = LOOKS * sum(map(len, self._counts))
        self._scans = SCANS
        self._holders: dict[str, list[tuple[int, int]]] = {}
        self._listed = False
        self._stems: dict[str, list[str]] | None = None
        self._grams: dict[str, list[str]] | None = None
        self._weights: dict[tuple[str, str], list[tuple[int, float]]] = {}
        self._asked: dict[str, list[float]] = {}

    @classmethod
    def of(cls, texts: tuple[str, ...]) -> TermIndex:
        """Returns the index of these texts, from the cache when they were indexed before."""
        return _INDEXES.get(texts, cls)

    def bm25(self, query: str) -> list[float]:
        """Returns the BM25 score of each text over stemmed words."""
        return self._once(
            f"stem {query}",
            lambda: self._rate("stem", Counter(content_terms(query)), self._with_stem, self.lengths),
        )

    def gram_bm25(self, query: str) -> list[float]:
        """Returns the BM25 score of each text over pieces of words: inflections and compounds match."""

        def rate() -> list[float]:
            wanted = Counter([gram for word in content_words(query) for gram in grams(word)])
            return self._rate("gram", wanted, self._with_piece, self._gram_lengths)

        return self._once(f"gram {query}", rate)

    def _once(self, key: str, rate: Callable[[], list[float]]) -> list[float]:
        """Remembers scores: several raters, and every turn of an agent, ask the same question."""
        found = self._asked.get(key)
        if found is None:
            if len(self._asked) >= QUESTIONS:
                self._asked = {}
            found = self._asked[key] = rate()
        return found[:]

    def idf(self, holders: int) -> float:
        """Returns the weight of a term that stands in `holders` texts; rare terms weigh more."""
        return math.log(1 + (self.size - holders + 0.5) / (holders + 0.5))

    @property
    def stems(self) -> dict[str, list[str]]:
        """The unstemmed words of each stem."""
        if self._stems is None:
            found: dict[str, list[str]] = {}
            for word in set().union(*self._counts):
                found.setdefault(stem(word), []).append(word)
            self._stems = found
        return self._stems

    def holders(self, word: str) -> Sequence[tuple[int, int]]:
        """Returns the texts that hold an unstemmed word, and how often.

        Each word is looked up when first asked for, until that cost as much as listing all.
        """
        found = self._holders.get(word)
        if found is None and not self._listed:
            self._looks -= self.size
            found = self._holders[word] = [
                (i, counts[word]) for i, counts in enumerate(self._counts) if word in counts
            ]
            if self._looks <= 0:
                self._holders = self._list_all()
                self._listed = True  # only now: until then another thread looks for itself
        return found or ()

    def _list_all(self) -> dict[str, list[tuple[int, int]]]:
        found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for i, counts in enumerate(self._counts):
            for word, n in counts.items():
                found[word].append((i, n))
        return dict(found)

    def counts(self, words: Iterable[str]) -> dict[int, int]:
        """Returns how often any of these unstemmed words stands in each text that has one."""
        found: dict[int, int] = {}
        for word in words:
            for i, n in self.holders(word):
                found[i] = found.get(i, 0) + n
        return found

    def _with_stem(self, term: str) -> dict[int, int]:
        return self.counts(self.stems.get(term, ()))

    def _with_piece(self, piece: str) -> dict[int, int]:
        """Returns how often a piece stands in each text; pieces are listed once many were asked for."""
        if self._scans > 0:
            self._scans -= 1
            return {i: n for i, row in enumerate(self._rows) if (n := row.count(piece))}
        if self._grams is None:
            self._grams = self._list_grams()
        return self.counts(self._grams.get(piece, ()))

    def _list_grams(self) -> dict[str, list[str]]:
        found: defaultdict[str, list[str]] = defaultdict(list)
        for word in set().union(*self._counts):
            marked = f"_{word}_"
            for piece in set(grams(word)):
                found[piece] += [word] * marked.count(piece)
        return dict(found)

    def _rate(
        self, kind: str, wanted: Counter[str], find: Callable[[str], dict[int, int]], lengths: list[int]
    ) -> list[float]:
        scores = [0.0] * self.size
        for term, times in wanted.items():
            weights = self._weights.get((kind, term))
            if weights is None:
                weights = self._weigh(find(term), lengths)
                if weights:  # kept for the next question that has the term
                    self._weights[kind, term] = weights
            for i, weight in weights:
                scores[i] += times * weight
        return scores

    def _weigh(self, holders: dict[int, int], lengths: list[int]) -> list[tuple[int, float]]:
        """Returns what a term adds to each text that holds it."""
        weight = self.idf(len(holders)) * (K1 + 1)
        scale = K1 * B / (sum(lengths) / max(1, self.size) or 1.0)
        base = K1 * (1 - B)
        return [(i, weight * n / (n + base + scale * lengths[i])) for i, n in holders.items()]


_INDEXES: BoundedCache[tuple[str, ...], TermIndex] = BoundedCache(
    max_size=4_000_000, size=lambda texts: sum(map(len, texts)) + 64
)


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
