"""How likely each document, and each sentence of it, holds evidence for the question, as log-odds.

A document is rated by its words and meaning, its title, and the sentences of others that name it; a sentence
by itself, by its document and by what it leads to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..segment import Segment
from .bridges import mentions, share_named, title_words
from .corpus import BoundedCache, TermIndex, scored_texts
from .fusion import normalised
from .protocol import Scorer
from .question import plain_question
from .sentences import split_sentences
from .words import raw_words

__all__ = ["rate_documents", "rate_sentences"]

BASE, NEAR, STRENGTH, BRIDGED = -0.16, 0.6, 2.29, 8.0
"""Of documents: what all have; nearness; 1 for the surest, less for others; a strong one that names it."""
TITLED = 3.0
"""What a title that the question names adds to a document's nearness."""
SENTENCE_BASE, BEHIND, LEADS_ON, WORDS, DOCUMENT = -2.08, 0.16, 2.39, -0.28, 0.38
"""Of sentences: what all have; nearness behind the best one; titles named in a strong document; length; the
rating of the document."""


def rate_documents(query: str, segments: Sequence[Segment], scorer: Scorer) -> list[float]:
    """Returns the log-odds that a document holds evidence for the query."""
    return _rated_documents(query, segments, scorer)[0]


def rate_sentences(query: str, segments: Sequence[Segment], scorer: Scorer) -> list[list[float]]:
    """Returns the log-odds that each sentence of each document holds evidence for the query."""
    documents, leads_on = _rated_documents(query, segments, scorer)
    split = _SPLITS.get(tuple([segment.text for segment in segments]), _split)
    near = normalised(scorer.score(query, split.sentences))
    best = max(near, default=0.0)
    ratings: list[list[float]] = [[] for _ in segments]
    for j, owner in enumerate(split.owners):
        own = BEHIND * (near[j] - best) + LEADS_ON * leads_on[j] + WORDS * math.log(max(1, split.lengths[j]))
        ratings[owner].append(SENTENCE_BASE + own + DOCUMENT * documents[owner])
    return ratings


def _rated_documents(
    query: str, segments: Sequence[Segment], scorer: Scorer
) -> tuple[list[float], list[float]]:
    """Returns the log-odds of documents, and how strongly each sentence names another one, 0 to 1."""
    texts = scored_texts(segments)
    titles = tuple([segment.title for segment in segments])
    near = normalised(scorer.score(query, segments))
    asked = set(raw_words(plain_question(query, texts))) if any(titles) else set()
    titled = [share_named(title_words(title), asked) for title in titles]
    sure = [score + TITLED * share for score, share in zip(near, titled, strict=True)]
    top = max(sure, default=0.0)
    strength = [math.exp(rating - top) for rating in sure]
    split = _SPLITS.get(tuple([segment.text for segment in segments]), _split)
    bridged, leads_on = [0.0] * len(segments), [0.0] * len(split.owners)
    for target, named in enumerate(mentions(titles, split.texts, split.owners)):
        for j, share in named:
            strong = share * strength[split.owners[j]]
            leads_on[j] = max(leads_on[j], strong)
            bridged[target] = max(bridged[target], strong * (1 - titled[target]))
    ratings = [
        BASE + NEAR * near[d] + STRENGTH * strength[d] + BRIDGED * bridged[d] for d in range(len(segments))
    ]
    return ratings, leads_on


@dataclass(frozen=True, slots=True)
class _Split:
    texts: tuple[str, ...]
    sentences: tuple[Segment, ...]
    owners: tuple[int, ...]
    lengths: tuple[int, ...]


def _split(texts: tuple[str, ...]) -> _Split:
    found: list[str] = []
    owners: list[int] = []
    for owner, text in enumerate(texts):
        sentences = split_sentences(text)
        found.extend(sentences)
        owners.extend([owner] * len(sentences))
    return _Split(
        texts=tuple(found),
        sentences=tuple([Segment(id=str(j), text=text) for j, text in enumerate(found)]),
        owners=tuple(owners),
        lengths=tuple(TermIndex.of(tuple(found)).lengths),
    )


_SPLITS: BoundedCache[tuple[str, ...], _Split] = BoundedCache(
    max_size=4_000_000, size=lambda texts: 2 * sum(map(len, texts)) + 64
)
