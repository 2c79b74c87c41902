"""Memories: packed like evidence, ranked by nearness to the question, importance, recency and kind together."""

from __future__ import annotations

from collections.abc import Sequence

from ..relevance.fusion import default_scorer
from ..relevance.memories import MemoryScorer
from ..relevance.protocol import Scorer
from ..segment import Segment
from .evidence import Evidence, Rater
from .packing import Order

__all__ = ["Memories"]


class Memories(Evidence):
    """Keeps the memories that matter now, by the formula of `MemoryScorer`: 0.4 similarity + 0.3 priority + 0.2 recency + 0.1 kind.

    What `Evidence` would rank by is the similarity; memories that state no priority, date or kind are kept exactly as `Evidence` keeps them.
    Where every memory comes with a score of its own, that score ranks. Of more than fifty memories the nearest to the question compete for the
    room, and all of kind "core"; the others take what is left.

    Args:
        scorer: rates nearness to the question; a `MemoryScorer` brings its own weights; None takes the default mix of words and meaning.
        compress: allows sentences and cut sentences; False keeps whole segments only.
        dedup: leaves out near-duplicates of kept segments when not everything fits.
        order: "original", "edges" (the best at both ends) or "score".

    Example:
        >>> from datetime import datetime
        >>> from rankbudget import counter_for
        >>> memories = [
        ...     Segment(id="trip", text="Ann had green tea in London.", kind="experience", priority=10, created_at=datetime(2024, 5, 1)),
        ...     Segment(id="health", text="Ann cannot drink black tea.", kind="core", priority=100, created_at=datetime(2025, 6, 1)),
        ... ]
        >>> fit = Memories().fit(memories, limit=8, counter=counter_for("o200k_base"), block="memory", query="Which tea did Ann have in London?")
        >>> [piece.segment.id for piece in fit.pieces]
        ['health']
    """

    def __init__(
        self,
        *,
        scorer: Scorer | None = None,
        compress: bool = True,
        dedup: bool = True,
        order: Order = "original",
    ) -> None:
        self._ranking = scorer if isinstance(scorer, MemoryScorer) else MemoryScorer(similarity=scorer)
        super().__init__(scorer=self._ranking.similarity, compress=compress, dedup=dedup, order=order)

    def _rater(self, query: str, segments: Sequence[Segment]) -> Rater:
        return _MemoryRater(query, segments, self._scorer or default_scorer(), self._ranking)


class _MemoryRater(Rater):
    """Rates as evidence and adds what makes the ratings rank as the formula does; nothing is rated a second time."""

    def __init__(
        self, query: str, segments: Sequence[Segment], scorer: Scorer, ranking: MemoryScorer
    ) -> None:
        super().__init__(query, segments, scorer)
        self._memories = segments
        self._ranking = ranking
        self._ranked: list[float] | None = None
        self._ranked_sentences: list[list[float]] | None = None

    @property
    def documents(self) -> list[float]:
        """Ratings of the memories, by the formula."""
        if self._ranked is None:
            near = super().documents
            if self.rated != "scores":
                shifts = self._ranking.shifts(near, self._memories)
                near = [rating + shift for rating, shift in zip(near, shifts, strict=True)]
            self._ranked = near
        return self._ranked

    @property
    def sentences(self) -> list[list[float]]:
        """Ratings of the sentences of each memory; the best sentence of a memory stands for its nearness."""
        if self._ranked_sentences is None:
            rows = super().sentences
            if self.rated == "documents":  # sentences of turns go by their turn, which is ranked already
                lowest = min([max(row) for row in rows if row], default=0.0)
                shifts = self._ranking.shifts([max(row, default=lowest) for row in rows], self._memories)
                rows = [[rating + shift for rating in row] for row, shift in zip(rows, shifts, strict=True)]
            self._ranked_sentences = rows
        return self._ranked_sentences
