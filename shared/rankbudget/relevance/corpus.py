"""Word statistics of texts, made once and kept in caches that are bounded by characters."""

from __future__ import annotations

import math
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from threading import Lock
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from ..segment import Segment
from .words import content_terms, content_words, grams, keys_in, raw_words, stem, times_of_key

K1, B = 1.2, 0.75
"""How soon repeats of a word stop counting, and what a long text pays for its length: as usual for BM25."""
ONE_IN = 100
"""One text in so many, or one alone, may have what is rare."""
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_SLICE = 100_000
"""Characters of a long text whose words are listed at once: a list takes twelve times the text's memory."""
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Keeps the values used last, up to a total size; safe to use from many threads.

    Args:
        max_size: the sum of sizes it may hold.
        size: the size of one entry, by its key.
        value_size: what its value adds to that, where the key does not tell.
    """

    def __init__(
        self, *, max_size: int, size: Callable[[K], int], value_size: Callable[[V], int] = lambda _: 0
    ) -> None:
        self._max_size = max_size
        self._size, self._value_size = size, value_size
        self._held: OrderedDict[K, V] = OrderedDict()
        self._total = 0
        self._lock = Lock()

    def get(self, key: K, make: Callable[[K], V]) -> V:
        """Returns the value of `key`, made on first use; two threads may both make it."""
        value = self.find(key)
        if value is None:
            value = make(key)
            self.keep(key, value)
        return value

    def find(self, key: K) -> V | None:
        """Returns the value of `key`, None where there is none."""
        with self._lock:
            value = self._held.get(key)
            if value is not None:
                self._held.move_to_end(key)
            return value

    def keep(self, key: K, value: V) -> None:
        """Keeps a value, and forgets what was used longest ago while all is too large."""
        with self._lock:
            if key in self._held:
                self._total -= self._size(key) + self._value_size(self._held.pop(key))
            self._total += self._size(key) + self._value_size(value)
            self._held[key] = value
            while self._total > self._max_size and len(self._held) > 1:
                old, forgotten = self._held.popitem(last=False)
                self._total -= self._size(old) + self._value_size(forgotten)


def word_counts(text: str) -> Mapping[str, int]:
    """Returns how often each unstemmed word occurs in a text."""
    return _WORDS.get(text, _analyse)


def _analyse(text: str) -> Mapping[str, int]:
    counts: dict[str, int] = {}  # plain: garbage collection passes over it, and most texts are short
    start, size = 0, len(text)
    while start < size:
        stop = text.find(" ", start + _SLICE) if size - start > _SLICE else size
        stop = stop if stop > 0 else size
        for word in raw_words(text[start:stop]):
            counts[word] = counts.get(word, 0) + 1
        start = stop
    return counts


_WORDS: BoundedCache[str, Mapping[str, int]] = BoundedCache(
    max_size=8_000_000, size=lambda text: 2 * len(text) + 64
)


class TermIndex:
    """Which texts hold which words, stems and word pieces.

    Args:
        texts: what is searched.
        parts: indexes of parts that these texts are made of, if there are any, and the text that each part is
            of: then no text is read again, what it holds is the sum of what its parts hold.
    """

    def __init__(self, texts: Sequence[str], parts: Sequence[Parts] = ()) -> None:
        self.size = len(texts)
        self._texts, self._parts = texts, parts
        # Markup can be found, but says nothing.
        markup = {i: _TAG.findall(text) for i, text in enumerate(texts) if "</" in text}
        self.lengths = self.word_totals[:]
        # Characters instead of word pieces: near enough to say which text is long, and known without a look.
        self._gram_lengths = list(map(len, texts))
        for i, tags in markup.items():
            self.lengths[i] -= len(raw_words(" ".join(tags)))
            self._gram_lengths[i] -= len("".join(tags))
        self._stems: dict[str, Mapping[int, int]] = {}
        self._keys: dict[str, Mapping[int, int]] = {}
        self._pieces: dict[str, Mapping[int, int]] = {}

    @classmethod
    def of(cls, texts: tuple[str, ...], parts: Callable[[], Sequence[Parts]] = tuple) -> TermIndex:
        """Returns the index of these texts: one that is remembered or still in use, else a new one."""
        found = _INDEXES.find(texts) or _IN_USE.get(texts)
        if found is None:
            found = _IN_USE[texts] = cls(texts, parts())
            _INDEXES.keep(texts, found)
        return found

    @cached_property
    def word_totals(self) -> list[int]:
        """How many words each text has, those of its markup included."""
        if not self._parts:
            return [sum(counts.values()) for counts in self.words]
        found = [0] * self.size
        for index, owners in self._parts:
            for owner, size in zip(owners, index.word_totals, strict=True):
                found[owner] += size
        return found

    @cached_property
    def words(self) -> Sequence[Mapping[str, int]]:
        """How often each unstemmed word occurs in each text."""
        if not self._parts:
            return [word_counts(text) for text in self._texts]
        found: list[dict[str, int]] = [{} for _ in self._texts]
        for index, owners in self._parts:
            for owner, counts in zip(owners, index.words, strict=True):
                own = found[owner]
                for word, n in counts.items():
                    own[word] = own.get(word, 0) + n
        return found

    def bm25(self, query: str) -> list[float]:
        """Returns the BM25 score of each text over stemmed words, and over keys that few texts have."""
        terms = Counter(content_terms(query))
        few = max(1, self.size // ONE_IN)
        keys = [held for held in map(self.with_key, keys_in(query)) if len(held) <= few]
        found = [*map(self.with_stem, terms), *keys]
        return self._rate([*terms.values(), *[1] * len(keys)], found, self.lengths)

    def gram_bm25(self, query: str) -> list[float]:
        """Returns the BM25 score of each text over pieces of words: inflections and compounds match."""
        pieces = Counter([gram for word in content_words(query) for gram in grams(word)])
        return self._rate(pieces.values(), self.with_pieces(tuple(pieces)), self._gram_lengths)

    def idf(self, holders: int) -> float:
        """Returns the weight of a term that occurs in `holders` texts; rare terms weigh more."""
        return math.log(1 + (self.size - holders + 0.5) / (holders + 0.5))

    @cached_property
    def stems(self) -> Mapping[str, Sequence[str]]:
        """The unstemmed words of each stem; to look for few of them, ask `words_of`."""
        found: dict[str, list[str]] = {}
        for word in self._vocabulary:
            found.setdefault(stem(word), []).append(word)
        return found

    def words_of(self, term: str) -> list[str]:
        """Returns the unstemmed words of one stem: they begin as it does, its last letter apart."""
        return [word for word in self._words_with(f"_{term[:-1] or term}") if stem(word) == term]

    @cached_property
    def _vocabulary(self) -> Mapping[str, None]:
        return dict.fromkeys(chain.from_iterable(self.words))

    @cached_property
    def _marked(self) -> str:
        """All words in one text, marked as `grams` marks them: it is searched faster than each of them."""
        return f"_{'__'.join(self._vocabulary)}_"

    def _words_with(self, piece: str) -> list[str]:
        """Returns the words that have a piece, which may begin or end with a mark."""
        marked, found = self._marked, []
        place = marked.find(piece)
        while place >= 0:
            end = marked.find("_", place + 1)
            start = place if piece[0] == "_" else marked.rfind("_", 0, place)
            found.append(marked[start + 1 : end])
            place = marked.find(piece, end + 1)
        return found

    @cached_property
    def _holders(self) -> Mapping[str, Sequence[tuple[int, int]]]:
        found: dict[str, list[tuple[int, int]]] = {}
        for i, counts in enumerate(self.words):
            for word, n in counts.items():
                found.setdefault(word, []).append((i, n))
        return found

    @cached_property
    def alike(self) -> Mapping[tuple[str, int], Sequence[str]]:
        """The unstemmed words of each first letter and length."""
        found: dict[tuple[str, int], list[str]] = {}
        for word in self._vocabulary:
            found.setdefault((word[0], len(word)), []).append(word)
        return found

    def holders(self, word: str) -> Sequence[tuple[int, int]]:
        """Returns the texts that hold an unstemmed word, and how often; the first call indexes all."""
        return self._holders.get(word, ())

    def counts(self, words: Iterable[str]) -> dict[int, int]:
        """Returns how often any of these unstemmed words occurs in each text that has one."""
        found: dict[int, int] = {}
        for word in words:
            for i, n in self.holders(word):
                found[i] = found.get(i, 0) + n
        return found

    def with_stem(self, term: str) -> Mapping[int, int]:
        """Returns how often a stemmed word occurs in each text that has it; for few words."""
        found = self._stems.get(term)
        if found is None:
            found = self._sums([index.with_stem(term) for index, _ in self._parts])
            words = [] if self._parts else self.words_of(term)
            if len(words) == 1:
                found = {i: held[word] for word in words for i, held in enumerate(self.words) if word in held}
            elif words:
                counts = [sum([held.get(word, 0) for word in words]) for held in self.words]
                found = {i: n for i, n in enumerate(counts) if n}
            if found:
                self._stems[term] = found  # kept for the next question that has the term
        return found

    def with_key(self, key: str) -> Mapping[int, int]:
        """Returns how often a key of `keys_in` occurs as a whole in each text that has it; for few keys."""
        found = self._keys.get(key)
        if found is None:
            if self._parts:
                found = self._sums([index.with_key(key) for index, _ in self._parts])
            else:
                words = set(raw_words(key))
                known = words <= self._vocabulary.keys()  # a pasted question has many keys
                near = [i for i, held in enumerate(self.words) if words <= held.keys()] if known else []
                times = [(i, times_of_key(key, self._texts[i])) for i in near]
                found = {i: n for i, n in times if n}
            if found:
                self._keys[key] = found
        return found

    def with_pieces(self, pieces: Sequence[str]) -> list[Mapping[int, int]]:
        """Returns how often each piece occurs in the texts that have it; all texts are read once."""
        new = [piece for piece in pieces if piece not in self._pieces]
        if new and self._parts:
            rows = [index.with_pieces(new) for index, _ in self._parts]
            found = [self._sums(held) for held in zip(*rows, strict=True)]
        else:
            found = self._found_pieces(new)
        self._pieces.update({piece: held for piece, held in zip(new, found, strict=True) if held})
        return [self._pieces.get(piece, {}) for piece in pieces]

    def _sums(self, held: Sequence[Mapping[int, int]]) -> dict[int, int]:
        """Returns how often something occurs in each text, from how often in each part."""
        found: dict[int, int] = {}
        for (_, owners), counts in zip(self._parts, held, strict=True):
            for j, n in counts.items():
                owner = owners[j]
                found[owner] = found.get(owner, 0) + n
        return found

    def _found_pieces(self, pieces: Sequence[str]) -> list[dict[int, int]]:
        having: dict[str, list[tuple[dict[int, int], int]]] = {}
        found: list[dict[int, int]] = []
        for piece in pieces:
            texts: dict[int, int] = {}
            found.append(texts)
            for word in self._words_with(piece):
                times = word.count(piece) or 1  # one with a mark is there once
                having.setdefault(word, []).append((texts, times))
        for i, held in enumerate(self.words) if having else ():
            for word in having.keys() & held.keys():
                n = held[word]
                for texts, times in having[word]:
                    texts[i] = texts.get(i, 0) + n * times
        return found

    def _rate(
        self, wanted: Iterable[int], found: Iterable[Mapping[int, int]], lengths: Sequence[int]
    ) -> list[float]:
        """Returns the sum of what each term adds to each text that holds it."""
        scores = [0.0] * self.size
        scale = K1 * B / (sum(lengths) / max(1, self.size) or 1.0)
        base = K1 * (1 - B)
        longer = [scale * length for length in lengths]
        for times, holders in zip(wanted, found, strict=True):
            weight = self.idf(len(holders)) * (K1 + 1)
            for i, n in holders.items():
                scores[i] += times * (weight * n / (n + base + longer[i]))
        return scores


Parts = tuple[TermIndex, Sequence[int]]
_INDEXES: BoundedCache[tuple[str, ...], TermIndex] = BoundedCache(
    max_size=4_000_000, size=lambda texts: sum(map(len, texts)) + 64
)
_IN_USE: WeakValueDictionary[tuple[str, ...], TermIndex] = WeakValueDictionary()
"""Of many texts the cache holds one index at a time; who needs it more than once holds it so long."""


def scored_texts(segments: Sequence[Segment]) -> tuple[str, ...]:
    """Returns what scorers read of each segment: its text, led by what is beside it and by its title."""
    return tuple([f"{lead_of(s)}{s.text}" if s.title or s.beside else s.text for s in segments])


def lead_of(segment: Segment) -> str:
    """Returns what scorers read before a segment's text: its title, where nothing else begins with it."""
    lead = f"{segment.beside}\n" if segment.beside else ""
    title = segment.title
    told = not title or title in segment.beside or f"{lead}{segment.text}".startswith(title)
    return lead if told else f"{title}: {lead}"
