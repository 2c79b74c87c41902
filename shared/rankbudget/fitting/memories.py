"""Memories: packed like evidence, ranked by nearness, importance, recency and kind together."""

from __future__ import annotations

from collections.abc import Sequence

from ..relevance.memories import MemoryScorer
from ..relevance.protocol import Scorer
from ..segment import Segment
from .evidence import Evidence, Order
from .rater import Rater

__all__ = ["Memories"]


class Memories(Evidence):
    """Keeps the memories that matter now, by the formula of `MemoryScorer`.

    What `Evidence` would rank by is the similarity; memories that state no priority, date or kind are kept
    exactly as `Evidence` keeps them. Where every memory comes with a score of its own, that is the similarity.
    Of more than fifty memories the nearest to the question compete for the room, and all of kind "core"; the
    others take what is left.

    Args:
        scorer: rates nearness; a `MemoryScorer` brings its own weights; None takes the default mix.
        compress: allows sentences and cut sentences; False keeps whole segments only.
        dedup: leaves out near-duplicates of kept segments when not everything fits.
        order: "original", "edges" (the best at both ends) or "score".

    Example:
        >>> from datetime import datetime
        >>> from rankbudget import counter_for
        >>> old, new = datetime(2024, 5, 1), datetime(2025, 6, 1)
        >>> memories = [
        ...     Segment(id="trip", text="Ann had green tea in London.", priority=10, created_at=old),
        ...     Segment(id="health", text="Ann cannot drink black tea.", priority=100, created_at=new),
        ... ]
        >>> counter, question = counter_for("o200k_base"), "Which tea did Ann have in London?"
        >>> fit = Memories().fit(memories, limit=8, counter=counter, block="memory", query=question)
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
        return _MemoryRater(query, segments, self._scorer, self._ranking)


class _MemoryRater(Rater):
    """Rates as evidence and adds what makes the ratings rank as the formula does."""

    def __init__(
        self, query: str, segments: Sequence[Segment], scorer: Scorer | None, ranking: MemoryScorer
    ) -> None:
        super().__init__(query, segments, scorer)
        self._memories = segments
        self._ranking = ranking

    def _rate_documents(self) -> list[float]:
        near = super()._rate_documents()
        shifts = self._ranking.shifts(near, self._memories)
        return [rating + shift for rating, shift in zip(near, shifts, strict=True)]

    def _rate_sentences(self) -> list[list[float]]:
        """Rates the sentences of each memory; the best sentence of a memory stands for its nearness."""
        rows = super()._rate_sentences()
        if self.rated != "documents":  # sentences of turns go by their turn, which is ranked already
            return rows
        lowest = min([max(row) for row in rows if row], default=0.0)
        shifts = self._ranking.shifts([max(row, default=lowest) for row in rows], self._memories)
        return [[rating + shift for rating in row] for row, shift in zip(rows, shifts, strict=True)]
