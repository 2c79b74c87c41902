"""How likely each document, and each sentence of it, holds evidence for the question, as log-odds.

A document is rated by its words, meaning, title and bridges; a sentence by itself and by its document.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..segment import Segment
from .bridges import Mentions, share_named
from .corpus import BoundedCache, TermIndex, scored_texts
from .fusion import normalised
from .protocol import Scorer
from .question import plain_question
from .sentences import split_sentences
from .words import raw_words

__all__ = ["DOCUMENT_WEIGHTS", "SENTENCE_WEIGHTS", "rate_documents", "rate_sentences"]

Row = dict[str, float]
DOCUMENT_WEIGHTS = {
    "base": -0.16, "near": 0.3, "pieces": 0.5, "strength": 2.29, "titled": 1.75, "bridged": 4.32,
    "names_titled": -2.09,
}  # fmt: skip
SENTENCE_WEIGHTS = {
    "base": -2.08, "behind": 0.16, "leads_on": 2.39, "names_titled": -0.94, "words": -0.28, "titled": 1.22,
    "bridged": 2.43, "document": 0.38,
}  # fmt: skip
_TITLED = 3.0
"""What a title named in the question adds to a document's nearness; `strength` is 1 for the surest one."""


def rate_documents(query: str, segments: Sequence[Segment], scorer: Scorer) -> list[float]:
    """Returns the log-odds that a document holds evidence for the query.

    Example:
        >>> from rankbudget.relevance.lexical import Bm25Scorer
        >>> segments = [
        ...     Segment(id="a", title="Arrival", text="Arrival was directed by Jean Dupont. It was long."),
        ...     Segment(id="b", title="Jean Dupont", text="Jean Dupont comes from Quebec."),
        ...     Segment(id="c", title="Film", text="A film was shot in Rome by a large crew."),
        ... ]
        >>> ratings = rate_documents("Where does the director of Arrival come from?", segments, Bm25Scorer())
        >>> ratings[0] > ratings[1] > ratings[2]
        True
    """
    return [_weighed(DOCUMENT_WEIGHTS, row) for row in document_features(query, segments, scorer)]


def rate_sentences(query: str, segments: Sequence[Segment], scorer: Scorer) -> list[list[float]]:
    """Returns the log-odds that each sentence of each document holds evidence for the query."""
    documents = document_features(query, segments, scorer)
    split = _SPLITS.get(tuple([segment.text for segment in segments]), _split)
    rated = [_weighed(DOCUMENT_WEIGHTS, row) for row in documents]
    ratings: list[list[float]] = [[] for _ in segments]
    rows = sentence_features(query, segments, scorer, documents, split)
    for row, owner in zip(rows, split.owners, strict=True):
        row["document"] = rated[owner]
        ratings[owner].append(_weighed(SENTENCE_WEIGHTS, row))
    return ratings


def sentence_features(
    query: str, segments: Sequence[Segment], scorer: Scorer, documents: Sequence[Row], split: _Split
) -> list[Row]:
    """Returns what the ratings of sentences are made of, without their document's rating."""
    near = normalised(scorer.score(query, split.sentences))
    mentions = Mentions.between(tuple([segment.title for segment in segments]), split.texts, split.owners)
    leads_on = [0.0] * len(split.texts)
    names_titled = [0.0] * len(split.texts)
    for target, named in enumerate(mentions.of):
        titled = documents[target]["titled"]
        for j, share in named:
            leads_on[j] = max(leads_on[j], share * documents[split.owners[j]]["strength"])
            names_titled[j] = max(names_titled[j], share * titled)
    best = max(near, default=0.0)
    return [
        {
            "behind": near[j] - best,
            "leads_on": leads_on[j],
            "names_titled": names_titled[j],
            "words": math.log(max(1, split.lengths[j])),
            "titled": documents[d]["titled"],
            "bridged": documents[d]["bridged"],
        }
        for j, d in enumerate(split.owners)
    ]


def document_features(query: str, segments: Sequence[Segment], scorer: Scorer) -> list[Row]:
    """Returns what the ratings of documents are made of."""
    texts = scored_texts(segments)
    near = normalised(scorer.score(query, segments))
    pieces = normalised(TermIndex.of(texts).gram_bm25(query))
    titles = tuple([segment.title for segment in segments])
    mentions = Mentions.between(titles, texts, tuple(range(len(segments))))
    asked = set(raw_words(plain_question(query, texts))) if any(mentions.titles) else set()
    titled = [share_named(title, sum([word in asked for word in title])) for title in mentions.titles]
    sure = [score + _TITLED * share for score, share in zip(near, titled, strict=True)]
    top = max(sure, default=0.0)
    strength = [math.exp(rating - top) for rating in sure]
    bridged, names_titled = [0.0] * len(segments), [0.0] * len(segments)
    for target, named in enumerate(mentions.of):
        for d, share in named:
            bridged[target] = max(bridged[target], share * strength[d] * (1 - titled[target]))
            names_titled[d] = max(names_titled[d], share * titled[target] * (1 - titled[d]))
    return [
        {
            "near": near[d],
            "pieces": pieces[d],
            "strength": strength[d],
            "titled": titled[d],
            "bridged": bridged[d],
            "names_titled": names_titled[d],
        }
        for d in range(len(segments))
    ]


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


def _weighed(weights: Mapping[str, float], row: Mapping[str, float]) -> float:
    return weights["base"] + sum([weight * row[name] for name, weight in weights.items() if name != "base"])
