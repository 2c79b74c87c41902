"""Relevance of labelled examples: a label that fits the question lifts all its examples.

One lucky match does not decide. Four ratings say how likely a label is: its best example, its examples read
as one text, and, where vectors are at hand, the middle of its examples and its name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..segment import Segment
from .corpus import BoundedCache, TermIndex, scored_texts
from .embedding import Embedder, EmbeddingScorer, default_embedder, missing_reason
from .fusion import FusionScorer, default_scorer, normalised
from .protocol import Scorer
from .question import plain_question

if TYPE_CHECKING:
    from .embedding import Vectors

__all__ = ["LabelScorer"]

NEAREST, MIDDLE, TEXT, NAME = 0.15, 1.2, 0.16, 0.3
"""Weights of the four ratings."""
NEAREST_ALONE = 0.7
"""The weight of the best example where there are no vectors."""
LIFT = 2.0
"""What a label's log-odds count beside an example's own rating."""
_NOT_NAME = re.compile(r"[\W_]+")


class LabelScorer:
    """Rates examples by how likely their label is, then by themselves; no label counts as a middling one.

    Args:
        scorer: rates single examples; None takes the default mix of words and meaning.

    Example:
        >>> from rankbudget.relevance.lexical import Bm25Scorer
        >>> examples = [
        ...     Segment(id="1", text="Where is my parcel?", label="shipping"),
        ...     Segment(id="2", text="Is my parcel on its way?", label="shipping"),
        ...     Segment(id="3", text="My money back, please", label="refund"),
        ... ]
        >>> scorer = LabelScorer(Bm25Scorer())
        >>> scores = scorer.score("Has the parcel left?", examples)
        >>> scores.index(min(scores))
        2
        >>> chances = scorer.probabilities("Has the parcel left?", examples)
        >>> chances[0] == chances[1] > chances[2]
        True
    """

    def __init__(self, scorer: Scorer | None = None) -> None:
        self._scorer = scorer

    def score(self, query: str, segments: Sequence[Segment]) -> list[float]:
        """Returns one score for each example."""
        own = self._own(query, segments)
        odds = self._odds(query, segments, own)
        return [
            score + LIFT * odds.get(segment.label or "", 0.0)
            for score, segment in zip(own, segments, strict=True)
        ]

    def probabilities(self, query: str, segments: Sequence[Segment]) -> list[float]:
        """Returns for each example how likely its label is the question's."""
        odds = self._odds(query, segments, self._own(query, segments))
        if not odds:
            return [1.0] * len(segments)
        top = max(odds.values())
        chances = {label: math.exp(rating - top) for label, rating in odds.items()}
        total = sum(chances.values())
        return [chances.get(segment.label or "", math.exp(-top)) / total for segment in segments]

    def _own(self, query: str, segments: Sequence[Segment]) -> list[float]:
        scorer = self._scorer or default_scorer()
        return normalised(
            scorer.score(query, [Segment(id=s.id, text=_with_label(s), title=s.title) for s in segments])
        )

    def _odds(self, query: str, segments: Sequence[Segment], own: Sequence[float]) -> dict[str, float]:
        """Returns the log-odds of each label, against a middling one."""
        best: dict[str, float] = {}
        for segment, score in zip(segments, own, strict=True):
            if segment.label:
                best[segment.label] = max(best.get(segment.label, score), score)
        if not query.strip() or not best:
            return {}
        near = list(best.values())
        words = _words(query, segments, list(best))
        embedder = _embedder_of(self._scorer or default_scorer())
        if embedder is None:
            ratings = [NEAREST_ALONE * n + TEXT * t for n, t in zip(near, words, strict=True)]
        else:
            labels = tuple([segment.label for segment in segments])
            middle, name = _meaning(embedder, query, scored_texts(segments), labels, list(best))
            ratings = [
                NEAREST * n + MIDDLE * m + TEXT * t + NAME * called
                for n, m, t, called in zip(near, middle, words, name, strict=True)
            ]
        mean = sum(ratings) / len(ratings)
        return {label: rating - mean for label, rating in zip(best, ratings, strict=True)}


def _words(query: str, segments: Sequence[Segment], names: Sequence[str]) -> list[float]:
    """Returns how well the examples of each label answer the question when read as one text."""
    said: dict[str, list[str]] = {name: [] for name in names}
    for segment, text in zip(segments, scored_texts(segments), strict=True):
        if segment.label:
            said[segment.label].append(text)
    return TermIndex.of(tuple(["\n".join(texts) for texts in said.values()])).bm25(query)


def _meaning(
    embedder: Embedder,
    query: str,
    texts: tuple[str, ...],
    labels: tuple[str | None, ...],
    names: Sequence[str],
) -> tuple[list[float], list[float]]:
    """Returns how near the question is to the middle of each label's examples, and to its name."""
    asked = embedder.vectors((plain_question(query, texts),))[0]
    middles = _MIDDLES.get(
        (embedder, texts, labels), lambda _: _middles(embedder.vectors(texts), labels, names)
    )
    called = embedder.vectors(tuple([_NOT_NAME.sub(" ", name).strip() or name for name in names]))
    spread = float((embedder.vectors(texts) @ asked).std()) or 1.0
    return _apart((middles @ asked).tolist(), spread), _apart((called @ asked).tolist(), spread)


def _middles(vectors: Vectors, labels: tuple[str | None, ...], names: Sequence[str]) -> Vectors:
    """Returns the mean vector of each label's examples, at length 1."""
    import numpy as np

    column = {name: n for n, name in enumerate(names)}
    found = np.zeros((len(names), vectors.shape[1]), dtype=np.float32)
    for row, label in zip(vectors, labels, strict=True):
        if label:
            found[column[label]] += row
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    return np.asarray(found / np.where(lengths > 0, lengths, 1.0), dtype=np.float32)


def _apart(ratings: Sequence[float], spread: float) -> list[float]:
    known = [rating if math.isfinite(rating) else 0.0 for rating in ratings]
    mean = sum(known) / len(known)
    return [(rating - mean) / spread for rating in known]


def _with_label(segment: Segment) -> str:
    label = segment.label
    return segment.text if not label or label in segment.text else f"{segment.text}\n{label}"


def _embedder_of(scorer: Scorer) -> Embedder | None:
    if isinstance(scorer, EmbeddingScorer):
        return scorer.embedder
    if isinstance(scorer, FusionScorer) and any(
        isinstance(part, EmbeddingScorer) for part, _ in scorer.parts
    ):
        return next(part.embedder for part, _ in scorer.parts if isinstance(part, EmbeddingScorer))
    return default_embedder() if missing_reason() is None else None


_MIDDLES: BoundedCache[tuple[Embedder, tuple[str, ...], tuple[str | None, ...]], Vectors] = BoundedCache(
    max_size=4_000_000, size=lambda key: sum(map(len, key[1])) + 64
)
