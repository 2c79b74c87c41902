"""How likely each document, and each sentence of it, holds evidence for the question."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Sequence

from ..segment import Segment
from .corpus import BoundedCache, TermIndex, scored_texts
from .fusion import normalised
from .protocol import Scorer
from .question import plain_question
from .sentences import split_sentences
from .stopwords import STOP_WORDS
from .words import raw_words

__all__ = ["rate_documents", "rate_sentences"]

NEAR, STRENGTH, BRIDGED = 0.6, 2.29, 8.0
"""Of documents: nearness; 1 for the surest, less for others; a strong one that names it."""
TITLED = 3.0
"""What a title that the question names adds to a document's nearness."""
BEHIND, LEADS_ON, WORDS, DOCUMENT = 0.16, 2.39, -0.28, 0.38
"""Of sentences: nearness behind the best one; titles named in a strong document; length; the
rating of the document."""
ENOUGH = 0.66
"""Share of a title's words that names it: "Peter Thiel" names "Peter Andreas Thiel"."""
RARE = 100
"""Texts that may hold a word for it to tell one title from others."""
_LETTERS = 4
Titles = tuple[str | None, ...]
Mentions = list[list[tuple[int, float]]]
"""For each title, positions of sentences and the share of its words that they have."""


def rate_documents(query: str, segments: Sequence[Segment], scorer: Scorer) -> list[float]:
    """Returns how likely each document holds evidence for the query; higher is likelier."""
    return _rated_documents(query, segments, scorer)[0]


def rate_sentences(query: str, segments: Sequence[Segment], scorer: Scorer) -> list[list[float]]:
    """Returns how likely each sentence of each document holds evidence for the query."""
    documents, leads_on = _rated_documents(query, segments, scorer)
    sentences, owners = _SPLITS.get(tuple([segment.text for segment in segments]), _split)
    near = normalised(scorer.score(query, sentences))
    best = max(near, default=0.0)
    lengths = TermIndex.of(scored_texts(sentences)).lengths
    ratings: list[list[float]] = [[] for _ in segments]
    for j, owner in enumerate(owners):
        own = BEHIND * (near[j] - best) + LEADS_ON * leads_on[j] + WORDS * math.log(max(1, lengths[j]))
        ratings[owner].append(own + DOCUMENT * documents[owner])
    return ratings


def _rated_documents(
    query: str, segments: Sequence[Segment], scorer: Scorer
) -> tuple[list[float], list[float]]:
    """Returns the ratings of documents, and how strongly each sentence names another one, 0 to 1."""
    texts = scored_texts(segments)
    titles = tuple([segment.title for segment in segments])
    near = normalised(scorer.score(query, segments))
    asked = set(raw_words(plain_question(query, texts))) if any(titles) else set()
    titled = [_share_named(_title_words(title), asked) for title in titles]
    sure = [score + TITLED * share for score, share in zip(near, titled, strict=True)]
    top = max(sure, default=0.0)
    strength = [math.exp(rating - top) for rating in sure]
    sentences, owners = _SPLITS.get(tuple([segment.text for segment in segments]), _split)
    bridged, leads_on = [0.0] * len(segments), [0.0] * len(owners)
    for target, named in enumerate(_mentions(titles, scored_texts(sentences), owners)):
        for j, share in named:
            strong = share * strength[owners[j]]
            leads_on[j] = max(leads_on[j], strong)
            bridged[target] = max(bridged[target], strong * (1 - titled[target]))
    ratings = [NEAR * near[d] + STRENGTH * strength[d] + BRIDGED * bridged[d] for d in range(len(segments))]
    return ratings, leads_on


def _split(texts: tuple[str, ...]) -> tuple[tuple[Segment, ...], tuple[int, ...]]:
    """Returns the sentences of all texts, and the text of each."""
    pieces = [(owner, piece) for owner, text in enumerate(texts) for piece in split_sentences(text)]
    sentences = [Segment(id=str(j), text=piece) for j, (_, piece) in enumerate(pieces)]
    return tuple(sentences), tuple([owner for owner, _ in pieces])


_SPLITS: BoundedCache[tuple[str, ...], tuple[tuple[Segment, ...], tuple[int, ...]]] = BoundedCache(
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


def _mentions(titles: Titles, sentences: tuple[str, ...], owners: tuple[int, ...]) -> Mentions:
    """Returns for each title the sentences of other documents that name it.

    A title that several documents have names none of them, nor does one of words that most texts hold.
    """
    return _MENTIONS.get((titles, sentences, owners), _look_for)


def _look_for(key: tuple[Titles, tuple[str, ...], tuple[int, ...]]) -> Mentions:
    titles, sentences, owners = key
    index = TermIndex.of(sentences)
    words = [_title_words(title) for title in titles]
    times = Counter(words)
    found: Mentions = []
    for document, title in enumerate(words):
        rare = [index.holders(word) for word in title if len(index.holders(word)) <= RARE]
        near = {i for holders in rare for i, _ in holders if owners[i] != document and times[title] == 1}
        shares = [(i, _share_named(title, index.words[i])) for i in near]
        found.append([(i, share) for i, share in shares if share])
    return found


_MENTIONS: BoundedCache[tuple[Titles, tuple[str, ...], tuple[int, ...]], Mentions] = BoundedCache(
    max_size=4_000_000, size=lambda key: sum(map(len, key[1])) + 64
)
