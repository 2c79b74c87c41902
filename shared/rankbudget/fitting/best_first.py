"""Best first: whole segments by relevance, skipping what does not fit and going on."""

from __future__ import annotations

from collections.abc import Sequence

from ..counting.protocol import TokenCounter
from ..relevance.fusion import default_scorer
from ..relevance.protocol import Scorer
from ..segment import Decision, Segment
from .packing import Doubles, Order, check_order, dropped, in_order, members, pinned_groups, whole
from .protocol import Cost, Fit, plain_cost

__all__ = ["BestFirst", "scores_of"]


class BestFirst:
    """Keeps whole segments, the most relevant first; a group counts as its most relevant member.

    A segment that does not fit is skipped and a less relevant, shorter one after it may still be kept. Texts that repeat a kept one are
    left out when not everything fits. Pinned segments are placed first.

    Args:
        scorer: rates segments that have no score of their own; None takes the default mix of words and meaning.
        dedup: leaves out near-duplicates of kept segments.
        order: "original", "edges" (the best at both ends) or "score".

    Example:
        >>> from rankbudget import counter_for
        >>> segments = [Segment(id="a", text="one", score=1), Segment(id="b", text="two " * 50, score=9), Segment(id="c", text="ten", score=5)]
        >>> fit = BestFirst().fit(segments, limit=4, counter=counter_for("o200k_base"), block="knowledge")
        >>> [piece.segment.id for piece in fit.pieces], fit.tokens
        (['a', 'c'], 4)
        >>> [(decision.segment_id, decision.reason) for decision in fit.decisions]
        [('a', 'fits'), ('b', 'too_large'), ('c', 'fits')]
    """

    def __init__(
        self, *, scorer: Scorer | None = None, dedup: bool = True, order: Order = "original"
    ) -> None:
        check_order(order)
        self._scorer = scorer
        self._dedup = dedup
        self._order: Order = order

    def fit(
        self,
        segments: Sequence[Segment],
        *,
        limit: int,
        counter: TokenCounter,
        block: str,
        query: str = "",
        cost: Cost | None = None,
    ) -> Fit:
        """Returns the most relevant segments that cost at most `limit`."""
        price = cost or plain_cost(counter)
        costs = [price(segment, segment.text) for segment in segments]
        groups = members(segments)
        must = pinned_groups(segments, groups, costs, limit, block)
        complete = sum(costs) <= limit
        scores = (
            [0.0] * len(segments)
            if complete and self._order == "original"
            else scores_of(segments, query, self._scorer)
        )
        room = limit
        kept: list[int] = []
        reasons: dict[int, tuple[str, str]] = {}
        doubles = Doubles() if self._dedup and not complete else None
        ranking = sorted(
            range(len(groups)), key=lambda g: (g not in must, -max(scores[i] for i in groups[g]), g)
        )
        for g in ranking:
            wanted = sum(costs[i] for i in groups[g])
            if g not in must:
                if wanted > room:
                    why = "too_large" if wanted > limit else "no_room"
                    reasons.update(dict.fromkeys(groups[g], (why, f"needs {wanted} tokens, {room} are left")))
                    continue
                if (
                    doubles is not None
                    and len(groups[g]) == 1
                    and (twin := doubles.of(segments[groups[g][0]]))
                ):
                    reasons[groups[g][0]] = ("duplicate", f"says what {twin!r} says")
                    continue
            kept.extend(groups[g])
            room -= wanted
            if doubles is not None:
                for i in groups[g]:
                    doubles.keep(segments[i])
        decisions = tuple(
            dropped(segment, block, costs[i], *reasons[i])
            if i in reasons
            else Decision(
                segment_id=segment.id,
                block=block,
                action="kept",
                reason="pinned" if segment.pinned else "fits",
                before=costs[i],
                after=costs[i],
            )
            for i, segment in enumerate(segments)
        )
        pieces = tuple(whole(segments[i], costs[i]) for i in in_order(kept, scores, self._order))
        return Fit(pieces=pieces, tokens=limit - room, decisions=decisions)


def scores_of(segments: Sequence[Segment], query: str, scorer: Scorer | None) -> list[float]:
    """Returns the scores to pack by: the segments' own where all have one; else the scorer's; else the default's."""
    given = [segment.score for segment in segments if segment.score is not None]
    if len(given) == len(segments):
        return given
    return (scorer or default_scorer()).score(query, segments)
