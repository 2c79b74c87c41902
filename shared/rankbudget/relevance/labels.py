"""Relevance of labelled examples: a label that fits the question lifts all its examples."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from ..segment import Segment
from .corpus import scored_texts
from .embedding import Embedder, EmbeddingScorer, default_embedder, missing_reason
from .fusion import FusionScorer, default_scorer, ratings_of
from .protocol import Scorer
from .question import plain_question

NEAREST, MIDDLE, NAME = 0.3, 1.2, 0.4
"""Weights of the three ratings."""
NEAREST_ALONE = 0.7
"""The weight of the best example where there are no vectors."""
LIFT = 2.0
"""What a label's log-odds count beside an example's own rating."""
_NOT_NAME = re.compile(r"[\W_]+")


class LabelScorer:
    """Rates examples by how likely their label is, then by themselves; no label counts as a middling one.

    A label is rated by its best example and, where vectors are at hand, by the middle of its examples and its
    name. `scorer` rates single examples, by default by words and meaning.
    """

    def __init__(self, scorer: Scorer | None = None) -> None:
        self._scorer = scorer

    def score(self, query: str, segments: Sequence[Segment]) -> list[float]:
        """Returns one score for each example."""
        own, odds = self._rated(query, segments)
        return [
            score + LIFT * odds.get(segment.label or "", 0.0)
            for score, segment in zip(own, segments, strict=True)
        ]

    def probabilities(self, query: str, segments: Sequence[Segment]) -> list[float]:
        """Returns for each example how likely its label is the question's."""
        _, odds = self._rated(query, segments)
        top = max(odds.values(), default=0.0)
        chances = {label: math.exp(rating - top) for label, rating in odds.items()}
        total = sum(chances.values()) or 1.0
        return [chances.get(segment.label or "", math.exp(-top)) / total for segment in segments]

    def _rated(self, query: str, segments: Sequence[Segment]) -> tuple[list[float], dict[str, float]]:
        """Returns the score of each example alone, and the log-odds of each label, against a middling one."""
        scorer = self._scorer or default_scorer()
        with_labels = [Segment(id=s.id, text=_with_label(s), title=s.title) for s in segments]
        own = ratings_of(scorer, query, with_labels)
        best: dict[str, float] = {}
        for segment, score in zip(segments, own, strict=True):
            if segment.label:
                best[segment.label] = max(best.get(segment.label, score), score)
        if not query.strip() or not best:
            return own, {}
        embedder = _embedder_of(scorer)
        ratings = [NEAREST_ALONE * near for near in best.values()]
        if embedder is not None:
            meant = _meant(embedder, query, segments, list(best))
            ratings = [NEAREST * near + score for near, score in zip(best.values(), meant, strict=True)]
        mean = sum(ratings) / len(ratings)
        return own, {label: rating - mean for label, rating in zip(best, ratings, strict=True)}


def _meant(embedder: Embedder, query: str, segments: Sequence[Segment], names: Sequence[str]) -> list[float]:
    """Returns how near the question is to the middle of each label's examples, and to its name."""
    import numpy as np

    texts = scored_texts(segments)
    asked = embedder.vectors((plain_question(query, texts),))[0]
    vectors = embedder.vectors(texts)
    column = {name: n for n, name in enumerate(names)}
    middles = np.zeros((len(names), vectors.shape[1]), dtype=np.float32)
    for segment, vector in zip(segments, vectors, strict=True):
        if segment.label:
            middles[column[segment.label]] += vector
    lengths = np.linalg.norm(middles, axis=1)
    called = embedder.vectors(tuple([_NOT_NAME.sub(" ", name).strip() or name for name in names]))
    near = np.nan_to_num(
        MIDDLE * (middles @ asked) / np.where(lengths > 0, lengths, 1.0) + NAME * (called @ asked)
    )
    spread = float((vectors @ asked).std()) or 1.0
    found: list[float] = ((near - near.mean()) / spread).tolist()
    return found


def _with_label(segment: Segment) -> str:
    label = segment.label
    return segment.text if not label or label in segment.text else f"{segment.text}\n{label}"


def _embedder_of(scorer: Scorer) -> Embedder | None:
    parts = [part for part, _ in scorer.parts] if isinstance(scorer, FusionScorer) else [scorer]
    own = next((part.embedder for part in parts if isinstance(part, EmbeddingScorer)), None)
    return own or (default_embedder() if missing_reason() is None else None)
