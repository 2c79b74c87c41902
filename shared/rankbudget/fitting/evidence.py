"""Evidence first: what most likely answers the question, whole texts or their best sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..counting.protocol import TokenCounter
from ..errors import BudgetConfigError
from ..relevance.protocol import Scorer
from ..segment import Segment
from .block import fit_block
from .enough import Enough
from .packing import Order, check_order, in_order
from .protocol import Cost, Fit, Group, plain_cost, whole
from .rater import Rater
from .sentence_packing import SHORTEST_CUT, SentencePacking

__all__ = ["Evidence", "Packed"]

WHOLE_FROM, WHOLE_TURNS_FROM = 5, 6
"""Whole documents, and whole turns, from so many that fit on average; below, sentences."""
MUCH_LEFT = 0.1
"""Share of the limit from which what whole texts left over is filled with sentences."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A fit, and the share of all expected evidence it holds, 0 to 1; 1 where no share was asked for."""

    fit: Fit
    expected: float


class Evidence:
    """Keeps what most likely holds the answer: whole segments where about five would fit, else sentences.

    Room that is left takes sentences of segments that did not fit whole, and the start of the next best
    sentence. What is kept of a segment is its own words in their order.

    Args:
        scorer: rates segments that have no score of their own; None takes the default mix.
        compress: allows sentences and cut sentences; False keeps whole segments only.
        dedup: leaves out near-duplicates of kept segments when not everything fits.
        order: "original", "edges" (the best at both ends) or "score".
        keep_evidence: stops when this share of the expected evidence is kept, 0 to 1; None fills the limit.

    Example:
        >>> from rankbudget import counter_for
        >>> segments = [
        ...     Segment(id="a", text="Cats sleep a lot. A refund takes ten days. Dogs bark."),
        ...     Segment(id="b", text="The moon is far away. Stars are further."),
        ... ]
        >>> counter = counter_for("o200k_base")
        >>> question = "How long does a refund take?"
        >>> fit = Evidence().fit(segments, limit=8, counter=counter, block="knowledge", query=question)
        >>> [(piece.segment.id, piece.rendition.text) for piece in fit.pieces]
        [('a', 'A refund takes ten days.')]
    """

    def __init__(
        self,
        *,
        scorer: Scorer | None = None,
        compress: bool = True,
        dedup: bool = True,
        order: Order = "original",
        keep_evidence: float | None = None,
    ) -> None:
        check_order(order)
        if keep_evidence is not None and not 0 < keep_evidence <= 1:
            msg = f"keep_evidence must be more than 0 and at most 1, or None (got {keep_evidence!r})."
            raise BudgetConfigError(msg)
        self._scorer = scorer
        self._compress = compress
        self._dedup = dedup
        self._order: Order = order
        self._keep = keep_evidence

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
        """Returns pieces that cost at most `limit`."""
        del block  # what stays does not depend on the block's name
        price = cost or plain_cost(counter)
        costs = [price(segment, segment.text) for segment in segments]
        complete = sum(costs) <= limit
        if complete and self._keep is None and self._order == "original":
            pieces = tuple([whole(segment, tokens) for segment, tokens in zip(segments, costs, strict=True)])
            return Fit(pieces=pieces, tokens=sum(costs))
        packing = SentencePacking(segments, costs, price, counter, limit, dedup=self._dedup and not complete)
        rater = self._rater(query, segments)
        enough = _pack(packing, rater, self._keep, sentences=self._compress and not complete)
        order = in_order(packing.used(), rater.documents, self._order)
        return packing.result(order, enough.reason(), enough.share())

    def pack(self, segments: Sequence[Segment], **given: Any) -> Packed:
        """Returns what `fit_block` returns, and the share of the expected evidence in it."""
        fit = fit_block(segments, strategy=self, **given)
        return Packed(fit, fit.share)

    def _rater(self, query: str, segments: Sequence[Segment]) -> Rater:
        return Rater(query, segments, self._scorer)


def _pack(packing: SentencePacking, rater: Rater, keep: float | None, *, sentences: bool) -> Enough:
    """Takes whole segments or sentences, the likeliest first; returns how much of the evidence is in."""
    if sentences and packing.few_fit(WHOLE_TURNS_FROM if rater.turns else WHOLE_FROM):
        enough = Enough(rater.rated_sentences, rater.sentences, keep, packing)
    else:
        enough = Enough(rater.rated, [[odds] for odds in rater.documents], keep, packing)
        _take_whole(packing, rater.documents, enough)
        left = packing.room > max(packing.limit * MUCH_LEFT, SHORTEST_CUT)
        sentences = sentences and left and not enough.reached()
        if sentences:
            enough.split(rater.rated_sentences, rater.sentences)
    if sentences:
        _take_sentences(packing, rater, enough)
        packing.shrink(rater.sentences)
    return enough


def _take_whole(packing: SentencePacking, odds: Sequence[float], enough: Enough) -> None:
    for i in sorted(range(len(odds)), key=lambda i: (-odds[i], i)):
        if enough.reached():
            return
        if packing.fits(i) and not packing.repeats(i):
            packing.keep_whole(i)
            enough.took(i)


def _take_sentences(packing: SentencePacking, rater: Rater, enough: Enough) -> None:
    pieces: list[tuple[float, int, int]] = []
    for i, segment in enumerate(packing.segments):
        if i in packing.settled:
            continue
        if isinstance(segment, Group):
            pieces.append((-rater.documents[i], i, -1))
        else:
            pieces += [(-rating, i, j) for j, rating in enumerate(rater.sentences[i])]
    for _, i, j in sorted(pieces):
        if packing.room < 1 or enough.reached():
            return
        if j >= 0:
            packing.take(i, j)
            enough.took(i, j)
        elif packing.fits(i):
            packing.keep_whole(i)
            enough.took(i)
