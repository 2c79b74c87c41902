"""How likely each document, and each sentence of it, holds evidence for the question."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..segment import Segment
from .bridges import mentions, share_named, title_words
from .corpus import BoundedCache, TermIndex, scored_texts
from .fusion import normalised
from .protocol import Scorer
from .question import plain_question
from .sentences import split_sentences
from .words import raw_words

__all__ = ["rate_documents", "rate_sentences"]

NEAR, STRENGTH, BRIDGED = 0.6, 2.29, 8.0
"""Of documents: nearness; 1 for the surest, less for others; a strong one that names it."""
TITLED = 3.0
"""What a title that the question names adds to a document's nearness."""
BEHIND, LEADS_ON, WORDS, DOCUMENT = 0.16, 2.39, -0.28, 0.38
"""Of sentences: nearness behind the best one; titles named in a strong document; length; the
rating of the document."""


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
    titled = [share_named(title_words(title), asked) for title in titles]
    sure = [score + TITLED * share for score, share in zip(near, titled, strict=True)]
    top = max(sure, default=0.0)
    strength = [math.exp(rating - top) for rating in sure]
    sentences, owners = _SPLITS.get(tuple([segment.text for segment in segments]), _split)
    bridged, leads_on = [0.0] * len(segments), [0.0] * len(owners)
    for target, named in enumerate(mentions(titles, scored_texts(sentences), owners)):
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
