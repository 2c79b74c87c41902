"""Relevance of labelled examples: a label that fits the question lifts all its examples.

One lucky match does not decide. The examples most like the question vote with the best three of their label, and where vectors are at hand a
ridge regression over all examples says which label the question most likely has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..segment import Segment
from .corpus import BoundedCache, scored_texts
from .embedding import Embedder, EmbeddingScorer, default_embedder, missing_reason
from .fusion import FusionScorer, default_scorer, normalised
from .protocol import Scorer

if TYPE_CHECKING:
    from .embedding import Vectors

__all__ = ["LabelScorer"]

BEST_OF_LABEL = 3
LABEL_WEIGHT, LIKELY_WEIGHT = 2.0, 2.0
RIDGE = 10.0
"""How strongly the regression is held back; 3 to 10 rate alike on the development questions."""


class LabelScorer:
    """Rates examples by themselves, the best three of their label, and how likely their label is; segments without a label by themselves.

    Args:
        scorer: rates single examples; None takes the default mix of words and meaning.

    Example:
        >>> from rankbudget.relevance.bm25 import Bm25Scorer
        >>> examples = [
        ...     Segment(id="1", text="Where is my parcel?", label="shipping"),
        ...     Segment(id="2", text="Is my parcel on its way?", label="shipping"),
        ...     Segment(id="3", text="My money back, please", label="refund"),
        ... ]
        >>> scores = LabelScorer(Bm25Scorer()).score("Has the parcel left?", examples)
        >>> scores.index(min(scores))
        2
    """

    def __init__(self, scorer: Scorer | None = None) -> None:
        self._scorer = scorer

    def score(self, query: str, segments: Sequence[Segment]) -> list[float]:
        """Returns one score for each example."""
        scorer = self._scorer or default_scorer()
        shown = [Segment(id=s.id, text=_with_label(s), title=s.title) for s in segments]
        found = normalised(scorer.score(query, shown))
        labels = [segment.label for segment in segments]
        if not query.strip() or not any(labels):
            return found
        best: dict[str, list[float]] = {}
        for label, score in zip(labels, found, strict=True):
            if label:
                best.setdefault(label, []).append(score)
        names = list(best)
        votes = normalised([_mean(sorted(scores, reverse=True)[:BEST_OF_LABEL]) for scores in best.values()])
        likely = self._likely(scorer, query, scored_texts(segments), tuple(labels), names)
        lift = {name: LABEL_WEIGHT * vote + LIKELY_WEIGHT * odds for name, vote, odds in zip(names, votes, likely, strict=True)}
        return [score + lift.get(label or "", 0.0) for label, score in zip(labels, found, strict=True)]

    def _likely(
        self, scorer: Scorer, query: str, texts: tuple[str, ...], labels: tuple[str | None, ...], names: Sequence[str]
    ) -> list[float]:
        embedder = _embedder_of(scorer)
        if embedder is None or len(names) < 2:  # noqa: PLR2004 - one label is as likely as itself
            return [0.0] * len(names)
        middle, weights = _REGRESSIONS.get((id(embedder), texts, labels), lambda _: _regression(embedder.vectors(texts), labels, names))
        guess: list[float] = ((embedder.vectors((query,))[0] - middle) @ weights).tolist()
        return normalised(guess)


def _with_label(segment: Segment) -> str:
    label = segment.label
    return segment.text if not label or label in segment.text else f"{segment.text}\n{label}"


def _mean(scores: Sequence[float]) -> float:
    return sum(scores) / len(scores)


def _embedder_of(scorer: Scorer) -> Embedder | None:
    if isinstance(scorer, EmbeddingScorer):
        return scorer.embedder
    if isinstance(scorer, FusionScorer) and any(isinstance(part, EmbeddingScorer) for part, _ in scorer.parts):
        return next(part.embedder for part, _ in scorer.parts if isinstance(part, EmbeddingScorer))
    return default_embedder() if missing_reason() is None else None


def _regression(vectors: Vectors, labels: tuple[str | None, ...], names: Sequence[str]) -> tuple[Vectors, Vectors]:
    """Returns the middle of the vectors and the weights that turn a vector into a rating of each label."""
    import numpy as np

    known = [i for i, label in enumerate(labels) if label]
    rows = vectors[known].astype(np.float64)
    middle = rows.mean(axis=0)
    rows = rows - middle
    column = {name: n for n, name in enumerate(names)}
    target = np.full((len(known), len(names)), -1 / len(names))
    for row, i in enumerate(known):
        target[row, column[labels[i] or ""]] += 1
    weights = np.linalg.solve(rows.T @ rows + RIDGE * np.eye(rows.shape[1]), rows.T @ target)
    return middle.astype(np.float32), weights.astype(np.float32)


_REGRESSIONS: BoundedCache[tuple[int, tuple[str, ...], tuple[str | None, ...]], tuple[Vectors, Vectors]] = BoundedCache(
    max_size=4_000_000, size=lambda key: sum(map(len, key[1])) + 64
)
