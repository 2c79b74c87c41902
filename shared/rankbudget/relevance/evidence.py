"""How likely each document, and each sentence of it, holds evidence for the question."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, wraps
from itertools import chain, islice
from typing import Any, TypeVar, cast

import regex

from ..segment import Segment
from .corpus import ONE_IN, BoundedCache, TermIndex, lead_of, scored_texts
from .fusion import default_scorer, ratings_of
from .long_lines import LONGEST
from .named import bits_of, weigher
from .protocol import Scorer
from .question import plain_question
from .records import Traces, below_names
from .sentences import parts_of
from .stopwords import STOP_WORDS
from .tree import NONE, Tree, joined, tree_of
from .troubles import traces_in
from .turns import exchanges_of
from .words import content_terms, keys_in, names_one, raw_words, stem

T = TypeVar("T")
Rate = Callable[[str, Sequence[Segment], Scorer], T]

NEAR, STRENGTH, BRIDGED = 0.6, 2.29, 8.0
"""Of documents: nearness; 1 for the surest, less for others; a strong one that names it."""
TITLED = 3.0
"""What a title that the question names adds to a document's nearness."""
NEARNESS, LEADS_ON, WORDS, DOCUMENT = 0.16, 2.39, -0.28, 0.38
"""Of sentences: nearness; titles named in a strong document; length; the rating of the document."""
FEWEST_WORDS = 6
"""A shorter sentence counts as of this length: a list of single words says less than a sentence does."""
ENOUGH = 0.66
"""Share of a title's words that names it: "Peter Thiel" names "Peter Andreas Thiel"."""
SHORT = 256
"""Characters of a text that says one thing: a note, a row, an entry."""
RARE = 100
"""Texts that may hold a word for it to tell one title from others."""
MOST_ASKED = 0.9
"""Share of the question that a direct match says with a word that five sentences have, or one in 100.

Where one alone has it, or one in 100, `ENOUGH` of what the title does not say.
"""
SEVERAL = 5
"""Sentences that may have a word that tells them from others, where they are few in all."""
FEWEST = 2
"""Words of a question of which all can be said."""
SAID, TOGETHER = 1.0, 0.5
"""Ranks of a direct match, and of a short text that is one: a single row of it may be named."""
SHORT_ONE_IN = 4
"""No more than one in so many of the texts may say all of it, where these are few, and never the only one."""
_HEAD = re.compile(r"(?:(?:[^|\t\d]*[|\t]){2}|(?:[^,;\d]*[,;](?! )){2})[^\d]*\Z")
"""The names of columns: a row without numbers."""
_AHEAD = 0.01
_LETTERS = 4
_NO_NAME = regex.compile(r"\A\W*\p{Lu}\p{Ll}+|\b\p{Ll}+\b")
"""Words in lower case, and one that may have its capital because it is the first of its sentence."""


def _once(rate: Rate[T]) -> Rate[T]:
    """Makes the default scorer rate the same texts for the same question once."""

    @wraps(rate)
    def remembered(query: str, segments: Sequence[Segment], scorer: Scorer) -> T:
        if scorer is not default_scorer():
            return rate(query, segments, scorer)
        key = rate.__name__, query, scored_texts(segments), tuple([segment.title for segment in segments])
        return cast("T", _RATED.get(key, lambda _: rate(query, segments, scorer)))

    return remembered


_RATED: BoundedCache[tuple[str, str, tuple[str, ...], tuple[str | None, ...]], Any] = BoundedCache(
    max_size=4_000_000, size=lambda key: 2 * sum(map(len, key[2])) + len(key[1]) + 64
)


@_once
def rate_documents(query: str, segments: Sequence[Segment], scorer: Scorer) -> list[float]:
    """Returns how likely each document holds evidence for the query; higher is likelier."""
    split = Sentences.of(segments)
    held = split.indexes(segments)
    ranks = list(map(max, split.rows(_direct_matches(query, segments, split))))
    rated = _in_tiers(_rated_documents(query, segments, scorer, split)[0], ranks)
    del held
    return rated


@_once
def rate_sentences(query: str, segments: Sequence[Segment], scorer: Scorer) -> list[list[float]]:
    """Returns how likely each sentence of each document holds evidence for the query.

    What a sentence says of the question itself comes before what it leads to: direct matches are the first.
    """
    split = Sentences.of(segments)
    held = split.indexes(segments)
    documents, leads_on = _rated_documents(query, segments, scorer, split)
    flat = _rated_sentences(query, scorer, split, held[0], leads_on)
    flat = [rating + DOCUMENT * documents[owner] for rating, owner in zip(flat, split.owners, strict=True)]
    return split.rows(_in_tiers(flat, _direct_matches(query, segments, split)))


def rate_sentences_of(
    query: str, segments: Sequence[Segment], scorer: Scorer, rated: Sequence[float]
) -> list[list[float]]:
    """Returns the same where a host `rated` the documents: a usual best sentence is rated as its document.

    A document with a direct match comes first, as the match does, and the sentences of a short one are rated
    alike: a name does not stay without its record. Sentences do not fall behind the best of their own
    document: the sharper the line that names it matches, the sooner the line that answers would be dropped.
    """
    split = Sentences.of(segments)
    held = split.indexes(segments)
    long = any(len(segment.text) > SHORT for segment in segments)  # else none falls behind another
    flat = _rated_sentences(query, scorer, split, held[0]) if long else [0.0] * len(split.texts)
    matches = _direct_matches(query, segments, split)
    documents = _in_tiers(list(rated), list(map(max, split.rows(matches))))
    best = list(map(max, split.rows(flat)))
    usual = sum(best) / max(1, len(best))
    flat = [
        documents[i] + (rating - usual if len(segments[i].text) > SHORT else 0.0)
        for rating, i in zip(flat, split.owners, strict=True)
    ]
    return split.rows(_in_tiers(flat, matches))


def _rated_sentences(
    query: str, scorer: Scorer, split: Sentences, index: TermIndex, leads_on: Sequence[float] | None = None
) -> list[float]:
    """Returns how likely sentences hold evidence, whatever document they are of."""
    near = ratings_of(scorer, query, split.all)
    leads = leads_on or [0.0] * len(near)
    return [
        NEARNESS * near[j] + LEADS_ON * leads[j] + WORDS * math.log(max(FEWEST_WORDS, index.lengths[j]))
        for j in range(len(near))
    ]


def word_shares(query: str, texts: tuple[str, ...]) -> list[float]:
    """Returns which share of the question's words each text has, 0 to 1; rare words count more.

    Words that no text has do not count. Texts that differ in other words have the same share.
    """
    held = _asked_words(query, texts)
    found, total = [0.0] * len(texts), sum([weight for weight, _ in held.values()])
    for weight, holders in held.values():
        for i in holders:
            found[i] += weight / total
    return found


def _asked_words(query: str, texts: tuple[str, ...]) -> dict[str, tuple[float, Mapping[int, int]]]:
    """Returns the weight and the holders of each word and key of the question that any text has."""
    index, plain = TermIndex.of(texts), plain_question(query, texts)
    held = {term: index.with_stem(term) for term in dict.fromkeys(content_terms(plain))}
    held.update({key: index.with_key(key) for key in keys_in(plain)})
    return {term: (index.idf(len(holders)), holders) for term, holders in held.items() if holders}


def _direct_matches(query: str, segments: Sequence[Segment], split: Sentences) -> list[float]:
    """Returns the rank of each sentence: 0, or that of a direct match.

    A direct match has an id that is asked for, or a word that few have and, with what is said above it, most
    of what is asked; or it says all of that, as few do. The words of a document's title do not count in it:
    its first sentence has them, whatever is asked.
    """
    texts, owners = split.texts, split.owners
    held = _asked_words(query, texts)
    words = bits_of([holders for _, holders in held.values()], len(texts))
    titles = [set(map(stem, raw_words(segment.title or ""))) for segment in segments]
    titled = [sum([1 << n for n, term in enumerate(held) if term in title]) for title in titles]
    own = [said & ~titled[owner] for said, owner in zip(words, owners, strict=True)]
    weigh = weigher([weight for weight, _ in held.values()])
    said = [weigh(said) for said in _with_above(own, split.parents)]
    total = weigh((1 << len(held)) - 1)
    beside = [total - weigh(title) for title in titled]
    ranks, few = _saying_all(words, own, titled, segments, split), max(1, len(texts) // ONE_IN)
    for n, (term, (_, holders)) in enumerate(held.items()):
        times = len({texts[j] for j in holders})  # a sentence of two overlapping chunks is one
        named = times <= few and names_one(term)
        for j in holders if times <= max(few, SEVERAL) else ():
            enough = times <= few and said[j] >= ENOUGH * beside[owners[j]]
            if own[j] >> n & 1 and (named or enough or said[j] >= MOST_ASKED * total):
                ranks[j] = SAID
    return ranks


def _with_above(words: Sequence[int], parents: Sequence[int]) -> list[int]:
    """Returns words as bits with those of all that each sentence is inside of."""
    made: list[int] = []
    for said, parent in zip(words, parents, strict=True):
        made.append(said | (made[parent] if parent != NONE else 0))
    return made


def _all_said(words: Sequence[int], texts: Sequence[str]) -> int:
    """Returns all words that are said, but the names of columns: rows of another chunk say the rest."""
    every = 0
    for said, text in zip(words, texts, strict=True):
        every |= said if said.bit_count() > 1 or (said & ~every and not _HEAD.match(text)) else 0
    return every


def _saying_all(
    words: Sequence[int],
    own: Sequence[int],
    titled: Sequence[int],
    segments: Sequence[Segment],
    split: Sentences,
) -> list[float]:
    """Returns the ranks of the few sentences that say all that is asked, else of such short texts.

    Each of its words may be common.

    Args:
        words: those of the question that each sentence says, as bits.
        own: the same without those of its text's title.
        titled: the words of each text's title.
        segments: the texts.
        split: their sentences.
    """
    ranks, owners, rank, every = [0.0] * len(words), split.owners, SAID, _all_said(words, split.texts)
    if every.bit_count() < FEWEST:
        return ranks
    found = [j for j, said in enumerate(_with_above(words, split.parents)) if own[j] and not every & ~said]
    if found:
        few = len({split.texts[j] for j in found}) <= max(SEVERAL, len(words) // ONE_IN)
    else:
        together = list(titled)
        for j, owner in enumerate(owners):
            together[owner] |= own[j]
        short = {
            i for i, said in enumerate(together) if not every & ~said and len(segments[i].text) <= LONGEST
        }
        most = min(SEVERAL, max(1, len(segments) // SHORT_ONE_IN), len(segments) - 1)
        few = len({segments[i].text for i in short}) <= most
        found, rank = [j for j, owner in enumerate(owners) if words[j] and owner in short], TOGETHER
    for j in found if few else ():
        ranks[j] = rank
    return ranks


def _in_tiers(ratings: list[float], ranks: Sequence[float]) -> list[float]:
    """Returns ratings with those of a higher rank above all of lower ones, in their own order."""
    tiers: dict[float, list[int]] = {}
    for i, rank in enumerate(ranks):
        tiers.setdefault(rank, []).append(i)
    made, top = list(ratings), -math.inf
    for _, places in sorted(tiers.items()):
        lift = max(0.0, top - min([ratings[i] for i in places]) + _AHEAD)
        for i in places:
            made[i] += lift
        top = max([made[i] for i in places])
    return made


def _rated_documents(
    query: str, segments: Sequence[Segment], scorer: Scorer, split: Sentences
) -> tuple[list[float], list[float]]:
    """Returns the ratings of documents, and how strongly each sentence names another one, 0 to 1."""
    titles = [_title_words(segment.title) for segment in segments]
    asked = set(raw_words(plain_question(query, scored_texts(segments)))) if any(titles) else set()
    near = ratings_of(scorer, query, segments)
    titled = [_share_named(title, asked) for title in titles]
    sure = [score + TITLED * share for score, share in zip(near, titled, strict=True)]
    top = max(sure, default=0.0)
    strength = [math.exp(rating - top) for rating in sure]
    bridged, leads_on = [0.0] * len(segments), [0.0] * len(split.texts)
    for target, j, share in _mentions(titles, split.texts, split.owners):
        strong = share * strength[split.owners[j]]
        leads_on[j] = max(leads_on[j], strong)
        bridged[target] = max(bridged[target], strong * (1 - titled[target]))
    ratings = [NEAR * near[d] + STRENGTH * strength[d] + BRIDGED * bridged[d] for d in range(len(segments))]
    return ratings, leads_on


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sentence(Segment):
    """A part of a segment's text: that was checked, and there may be thousands."""

    def __post_init__(self) -> None:
        """Checks nothing."""


class Sentences:
    """The sentences of some texts, split once however many there are."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self.by_text = [parts_of(text) for text in texts]

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> Sentences:
        """Returns the sentences of these segments, from the cache when they were split before."""
        return _SPLITS.get(tuple([segment.text for segment in segments]), cls)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """All sentences in order."""
        return tuple(chain.from_iterable(self.by_text))

    @cached_property
    def all(self) -> tuple[Segment, ...]:
        """The same, to be rated."""
        return tuple([_Sentence(id=str(j), text=text) for j, text in enumerate(self.texts)])

    @cached_property
    def owners(self) -> list[int]:
        """The position of the text that each sentence is of."""
        return [i for i, pieces in enumerate(self.by_text) for _ in pieces]

    def rows(self, flat: Iterable[T]) -> list[list[T]]:
        """Returns what belongs to each sentence by text."""
        each = iter(flat)
        return [list(islice(each, len(pieces))) for pieces in self.by_text]

    @cached_property
    def traces(self) -> dict[int, Traces]:
        """The stack traces of the texts that have some."""
        found = ((i, list(traces_in(pieces))) for i, pieces in enumerate(self.by_text) if len(pieces) > 1)
        return {i: traces for i, traces in found if traces}

    @cached_property
    def trees(self) -> list[Tree]:
        """What each sentence of each text is inside of."""
        return [exchanges_of(pieces) or tree_of(pieces) for pieces in self.by_text]

    @cached_property
    def names(self) -> list[Sequence[int]]:
        """What says whose each sentence of each text is."""
        return below_names(self.by_text, self.trees)

    @cached_property
    def parents(self) -> list[int]:
        """The position of the sentence that each one is inside of."""
        return joined([tree.parents for tree in self.trees])

    def indexes(self, segments: Sequence[Segment]) -> tuple[TermIndex, TermIndex]:
        """Returns the index of all sentences and that of the segments: hold both while they are asked for."""
        own = TermIndex.of(self.texts)
        leads = tuple([lead_of(s) if s.title or s.beside else "" for s in segments])
        beside = [(TermIndex.of(leads), range(len(leads)))] if any(leads) else []
        return own, TermIndex.of(scored_texts(segments), lambda: [*beside, (own, self.owners)])


_SPLITS: BoundedCache[tuple[str, ...], Sentences] = BoundedCache(
    max_size=4_000_000, size=lambda texts: 2 * sum(map(len, texts)) + 64
)


def _title_words(title: str | None) -> tuple[str, ...]:
    """Returns the words that make a title recognisable, each once; none for a title of under four letters."""
    if not title:
        return ()
    words = raw_words(re.sub(r"\s*\([^)]*\)\s*$", "", title))
    kept = tuple(dict.fromkeys(word for word in words if word not in STOP_WORDS))
    return kept if sum(map(len, kept)) >= _LETTERS else ()


def _share_named(title: tuple[str, ...], said: Container[str]) -> float:
    """Returns the share of a title's words that are said, 0 when it is too small to mean the title."""
    hits = sum([word in said for word in title])
    if not title or hits < max(min(2, len(title)), ENOUGH * len(title)):
        return 0.0
    return hits / len(title)


def _mentions(
    titles: Sequence[tuple[str, ...]], sentences: tuple[str, ...], owners: Sequence[int]
) -> Iterator[tuple[int, int, float]]:
    """Yields each title, the sentences of other documents that name it, and the share of its words there.

    A title that several documents have names none of them, nor does one of words that most texts hold, nor
    ordinary words: "shipping" is no name of the page "Shipping", where "see Shipping" is.
    """
    if not any(titles):
        return
    index = TermIndex.of(sentences)
    times = Counter(titles)
    for target, title in enumerate(titles):
        rare = [index.holders(word) for word in title if len(index.holders(word)) <= RARE]
        near = {j for holders in rare for j, _ in holders if owners[j] != target and times[title] == 1}
        for j in near:
            share = _share_named(title, index.words[j])
            if share and not _names_in(sentences[j]).isdisjoint(title):
                yield target, j, share


@lru_cache(maxsize=1 << 12)
def _names_in(sentence: str) -> frozenset[str]:
    """Returns the words of a sentence that may be names: no name is written as an ordinary word is."""
    return frozenset(raw_words(_NO_NAME.sub(" ", sentence)))
