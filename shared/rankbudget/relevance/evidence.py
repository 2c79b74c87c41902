"""How likely each sentence of each document holds evidence for the question, as log-odds.

Two steps: a document is rated by its words, meaning, title and bridges; a sentence by itself and by its document. The weights are those of
two logistic regressions over questions with known evidence, so that the probabilities kept over all probabilities is the share of the
evidence that may be expected in the prompt.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..segment import Segment
from .bm25 import GramScorer
from .bridges import Mentions, share_named
from .corpus import BoundedCache, TermIndex
from .fusion import normalised
from .protocol import Scorer
from .sentences import split_sentences
from .words import raw_words

__all__ = ["DOCUMENT_WEIGHTS", "SENTENCE_WEIGHTS", "Features", "Ratings", "features", "probability", "rate_sentences"]

DOCUMENT_WEIGHTS = {
    "base": 1.992, "pieces": 0.604, "behind": 0.46, "titled": 1.992, "bridged": 4.471, "best_sentence": 0.457, "documents": -1.713,
    "names_titled": -2.883,
}  # fmt: skip
SENTENCE_WEIGHTS = {
    "base": 0.232, "behind": 0.441, "opening": 0.186, "tiny": -0.65, "leads_on": 1.321, "names_titled": -0.965, "number": 0.272,
    "sentences": -0.598, "document": 0.456,
}  # fmt: skip
_TINY = 2
_TITLED, _BEST = 3.0, 0.5
_ASKS_NUMBER = re.compile(
    r"\b(when|how (many|much|long|old|often|far)|year|date|percent|percentage|number|born|die|died|age|cu[aá]nd[oa]|cu[aá]nt[oa]s?|año|wann|"
    r"wie ?viele?|jahr|когда|сколько|году?|год|quand|combien|متى|كم|عام|سنة)\b|多少|几|年|何时|什么时候|いつ|いくつ",
    re.IGNORECASE,
)
_DIGIT = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class Ratings:
    """Log-odds of evidence: of each document, and of each of its sentences."""

    documents: list[float]
    sentences: list[list[float]]
    texts: list[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Features:
    """What ratings are made of: a row per document, a row per sentence without its document's rating, and whose sentence it is."""

    documents: list[dict[str, float]]
    sentences: list[dict[str, float]]
    owners: Sequence[int]


def rate_sentences(query: str, segments: Sequence[Segment], scorer: Scorer) -> Ratings:
    """Returns the log-odds that a document, and each of its sentences, holds evidence for the query.

    Example:
        >>> from rankbudget.relevance.bm25 import Bm25Scorer
        >>> segments = [
        ...     Segment(id="a", title="Arrival", text="Arrival was directed by Jean Dupont. It was long."),
        ...     Segment(id="b", title="Jean Dupont", text="Jean Dupont comes from Quebec."),
        ...     Segment(id="c", title="Film", text="A film was shot in Rome by a large crew."),
        ... ]
        >>> ratings = rate_sentences("Where does the director of Arrival come from?", segments, Bm25Scorer())
        >>> ratings.documents[1] > ratings.documents[2]
        True
    """
    found = features(query, segments, scorer)
    documents = [_weighed(DOCUMENT_WEIGHTS, row) for row in found.documents]
    sentences: list[list[float]] = [[] for _ in segments]
    for row, owner in zip(found.sentences, found.owners, strict=True):
        row["document"] = documents[owner]
        sentences[owner].append(_weighed(SENTENCE_WEIGHTS, row))
    return Ratings(documents, sentences, [split_sentences(segment.text) for segment in segments])


def probability(log_odds: float) -> float:
    """Returns the probability of log-odds.

    Example:
        >>> probability(0.0), round(probability(2.2), 2)
        (0.5, 0.9)
    """
    return 1 / (1 + math.exp(-max(-500.0, log_odds)))


def features(query: str, segments: Sequence[Segment], scorer: Scorer) -> Features:
    """Returns what ratings are made of."""
    split = _SPLITS.get(tuple([segment.text for segment in segments]), _split)
    near = normalised(scorer.score(query, segments))
    pieces = normalised(GramScorer().score(query, segments))
    sentence_near = normalised(scorer.score(query, split.sentences))
    best_sentence = [max(sentence_near[a:b], default=0.0) for a, b in split.spans]
    mentions = Mentions.between(tuple(segment.title for segment in segments), split.texts, split.owners)
    asked = set(raw_words(query))
    titled = [share_named(title, sum(word in asked for word in title)) for title in mentions.titles]
    strength = _strengths([n + _BEST * b + _TITLED * t for n, b, t in zip(near, best_sentence, titled, strict=True)])

    bridged = [0.0] * len(segments)
    names_titled = [0.0] * len(segments)
    leads_on = [0.0] * len(split.texts)
    sentence_names = [0.0] * len(split.texts)
    for target, sentences in enumerate(mentions.of):
        for j, share in sentences:
            owner = split.owners[j]
            bridged[target] = max(bridged[target], share * strength[owner] * (1 - titled[target]))
            leads_on[j] = max(leads_on[j], share * strength[owner])
            sentence_names[j] = max(sentence_names[j], share * titled[target])
            names_titled[owner] = max(names_titled[owner], share * titled[target] * (1 - titled[owner]))

    top, best = max(near, default=0.0), max(sentence_near, default=0.0)
    number = bool(_ASKS_NUMBER.search(query))
    documents = [
        {
            "pieces": pieces[d],
            "behind": near[d] - top,
            "titled": titled[d],
            "bridged": bridged[d],
            "best_sentence": best_sentence[d],
            "documents": math.log(len(segments)),
            "names_titled": names_titled[d],
        }
        for d in range(len(segments))
    ]
    sentence_rows = [
        {
            "behind": sentence_near[j] - best,
            "opening": float(j == split.spans[d][0]),
            "tiny": float(split.lengths[j] <= _TINY),
            "leads_on": leads_on[j],
            "names_titled": sentence_names[j],
            "number": float(number and split.digits[j]),
            "sentences": math.log(split.spans[d][1] - split.spans[d][0]),
        }
        for j, d in enumerate(split.owners)
    ]
    return Features(documents, sentence_rows, split.owners)


@dataclass(frozen=True, slots=True)
class _Split:
    texts: tuple[str, ...]
    sentences: tuple[Segment, ...]
    owners: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    lengths: tuple[int, ...]
    digits: tuple[bool, ...]


def _split(texts: tuple[str, ...]) -> _Split:
    found: list[str] = []
    owners: list[int] = []
    spans: list[tuple[int, int]] = []
    for owner, text in enumerate(texts):
        sentences = split_sentences(text)
        spans.append((len(found), len(found) + len(sentences)))
        found.extend(sentences)
        owners.extend([owner] * len(sentences))
    return _Split(
        texts=tuple(found),
        sentences=tuple(Segment(id=str(j), text=text) for j, text in enumerate(found)),
        owners=tuple(owners),
        spans=tuple(spans),
        lengths=tuple(TermIndex.of(tuple(found)).lengths),
        digits=tuple(bool(_DIGIT.search(text)) for text in found),
    )


_SPLITS: BoundedCache[tuple[str, ...], _Split] = BoundedCache(max_size=4_000_000, size=lambda texts: 2 * sum(map(len, texts)) + 64)


def _strengths(ratings: Sequence[float]) -> list[float]:
    top = max(ratings, default=0.0)
    return [math.exp(rating - top) for rating in ratings]


def _weighed(weights: Mapping[str, float], row: Mapping[str, float]) -> float:
    return weights["base"] + sum([weights[name] * value for name, value in row.items()])
