"""Best first: whole segments by relevance, skipping what does not fit and going on."""

from __future__ import annotations

from collections.abc import Sequence

from ..relevance.protocol import Scorer
from ..segment import Segment
from .evidence import Evidence, Order
from .rater import Rater

__all__ = ["BestFirst"]


class BestFirst(Evidence):
    """Keeps whole segments, the most relevant first.

    A segment that does not fit is skipped, and a less relevant, shorter one after it may still be kept. Texts
    that repeat another one come last.

    Args:
        scorer: rates segments that have no score of their own; None takes the default mix.
        dedup: keeps texts that repeat another one only where everything else fits.
        order: "original", "edges" (the best at both ends) or "score".

    Example:
        >>> from rankbudget import counter_for
        >>> segments = [
        ...     Segment(id="a", text="one", score=1),
        ...     Segment(id="b", text="two " * 50, score=9),
        ...     Segment(id="c", text="ten", score=5),
        ... ]
        >>> fit = BestFirst().fit(segments, limit=4, counter=counter_for("o200k_base"), block="knowledge")
        >>> [piece.segment.id for piece in fit.pieces], fit.tokens
        (['a', 'c'], 4)
    """

    def __init__(
        self, *, scorer: Scorer | None = None, dedup: bool = True, order: Order = "original"
    ) -> None:
        super().__init__(scorer=scorer, compress=False, dedup=dedup, order=order)

    def _rater(self, query: str, segments: Sequence[Segment]) -> Rater:
        return Rater(query, segments, self._scorer, by_score=True)
