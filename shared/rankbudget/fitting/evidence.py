"""Evidence first: what most likely answers the question, whole where whole texts fit, their best sentences where few would.

Documents are rated by `relevance/evidence.py`, turns of a conversation (segments with a role) by `relevance/turns.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..counting.protocol import TokenCounter
from ..errors import BudgetConfigError
from ..relevance.evidence import Ratings, probability, rate_sentences
from ..relevance.fusion import default_scorer, normalised
from ..relevance.protocol import Scorer
from ..relevance.sentences import split_sentences
from ..relevance.turns import TurnScorer
from ..segment import Decision, Segment
from .packing import Order, check_order, in_order, members, pinned_groups, whole
from .protocol import Cost, Fit, plain_cost
from .sentence_packing import SentencePacking

__all__ = ["Evidence", "Packed"]

WHOLE_FROM = 6
"""Whole texts from so many that fit on average; below, sentences. Measured: sentences win under about six, whole texts above."""
MUCH_LEFT = 0.1
"""Share of the limit from which what whole texts left over is filled with sentences."""
TURN_ODDS = (-5.0, 0.9)
"""Base and slope from a turn's score to the log-odds that it holds evidence."""
OWN_SCORE_ODDS = (-2.0, 1.5)
"""The same for normalised scores a caller brings."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A fit, and the share of all expected evidence it holds, 0 to 1."""

    fit: Fit
    expected: float


class Evidence:
    """Keeps what most likely holds the answer: whole segments where at least six would fit, else their best sentences.

    Room that is left takes sentences of segments that did not fit whole, and the start of the next best sentence. What is kept of a segment
    is its own words in their order; a segment kept in full is the same object. Pinned segments come first, groups are never split.

    Args:
        scorer: rates segments that have no score of their own; None takes the default mix of words and meaning.
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
        >>> fit = Evidence().fit(segments, limit=8, counter=counter_for("o200k_base"), block="knowledge", query="How long does a refund take?")
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
            msg = f"keep_evidence is {keep_evidence!r}, allowed: more than 0, at most 1, or None"
            raise BudgetConfigError(msg)
        self._scorer = scorer
        self._compress = compress
        self._dedup = dedup
        self._order: Order = order
        self._keep = keep_evidence

    def fit(
        self, segments: Sequence[Segment], *, limit: int, counter: TokenCounter, block: str, query: str = "", cost: Cost | None = None
    ) -> Fit:
        """Returns pieces that cost at most `limit`."""
        return self.pack(segments, limit=limit, counter=counter, block=block, query=query, cost=cost).fit

    def pack(
        self, segments: Sequence[Segment], *, limit: int, counter: TokenCounter, block: str, query: str = "", cost: Cost | None = None
    ) -> Packed:
        """Returns what `fit` returns and the share of the expected evidence in it."""
        price = cost or plain_cost(counter)
        costs = [price(segment, segment.text) for segment in segments]
        groups = members(segments)
        must = pinned_groups(segments, groups, costs, limit, block)
        complete = sum(costs) <= limit
        if complete and self._keep is None and self._order == "original":
            return Packed(_everything(segments, costs, block), 1.0)
        packing = SentencePacking(segments, costs, price, counter, limit, dedup=self._dedup and not complete)
        for g in sorted(must):
            packing.keep_whole(groups[g])
        ratings = self._rate(query, segments)
        free = [groups[g] for g in range(len(groups)) if g not in must]
        enough = _Enough(ratings, self._keep, packing)
        sentences = self._compress and not complete
        if not (sentences and _few_fit(packing.room, free, costs)):
            _take_whole(packing, free, ratings, enough)
            sentences = sentences and packing.room > limit * MUCH_LEFT
        if sentences:
            _take_sentences(packing, free, ratings, enough)
        packing.shrink(ratings.sentences)
        order = in_order(packing.used(), ratings.documents, self._order)
        return Packed(packing.result(block, order, enough.left_out()), enough.share())

    def _rate(self, query: str, segments: Sequence[Segment]) -> Ratings:
        scorer = self._scorer or default_scorer()
        given = [segment.score for segment in segments if segment.score is not None]
        if segments and len(given) == len(segments):
            base, slope = OWN_SCORE_ODDS
            return _rated_by([base + slope * score for score in normalised(given)], query, segments, scorer)
        if segments and all(segment.role for segment in segments):
            base, slope = TURN_ODDS
            return _rated_by([base + slope * score for score in TurnScorer(scorer).score(query, segments)], query, segments, scorer)
        return rate_sentences(query, segments, scorer)


def _take_whole(packing: SentencePacking, free: Sequence[Sequence[int]], ratings: Ratings, enough: _Enough) -> None:
    best = [max([max(ratings.sentences[i], default=0.0) for i in group]) for group in free]
    for g in sorted(range(len(free)), key=lambda g: (-best[g], g)):
        if enough.reached():
            return
        group = free[g]
        if packing.fits(group) and not (len(group) == 1 and packing.repeats(group[0])):
            packing.keep_whole(group)


def _take_sentences(packing: SentencePacking, free: Sequence[Sequence[int]], ratings: Ratings, enough: _Enough) -> None:
    pieces: list[tuple[float, int, int]] = []
    for g, group in enumerate(free):
        if group[0] in packing.settled:
            continue
        if len(group) == 1:
            pieces += [(-rating, g, j) for j, rating in enumerate(ratings.sentences[group[0]])]
        else:
            pieces.append((-max([max(ratings.sentences[i], default=0.0) for i in group]), g, -1))
    for _, g, j in sorted(pieces):
        if enough.reached() or packing.room < 1:
            return
        i = free[g][0]
        if j < 0:
            if packing.fits(free[g]):
                packing.keep_whole(free[g])
        elif i not in packing.settled and not packing.repeats(i):
            packing.take(i, j, ratings.texts[i])


class _Enough:
    """Says when the share of the expected evidence that was asked for is in."""

    def __init__(self, ratings: Ratings, floor: float | None, packing: SentencePacking) -> None:
        self._floor = floor
        self._packing = packing
        self._weights = [[probability(rating) for rating in row] for row in ratings.sentences]
        self._said_yes = False

    def reached(self) -> bool:
        self._said_yes = self._floor is not None and self.share() >= self._floor
        return self._said_yes

    def share(self) -> float:
        return self._packing.kept_share(self._weights)

    def left_out(self) -> dict[str, str]:
        if not self._said_yes:
            return {}
        return {"reason": "enough", "detail": f"{self.share():.0%} of the expected evidence is kept without it, asked for: {self._floor:.0%}"}


def _rated_by(odds: list[float], query: str, segments: Sequence[Segment], scorer: Scorer) -> Ratings:
    """Returns ratings whose sentences follow the segment's rating, and stand out by their own."""
    texts = [split_sentences(segment.text) for segment in segments]
    flat = [Segment(id=str(j), text=text) for j, text in enumerate(text for pieces in texts for text in pieces)]
    own: Iterator[float] = iter(normalised(scorer.score(query, flat)) if len(flat) > len(segments) else [0.0] * len(flat))
    sentences = []
    for rating, pieces in zip(odds, texts, strict=True):
        near = [next(own) for _ in pieces]
        sentences.append([rating + score - max(near) for score in near])
    return Ratings(odds, sentences, texts)


def _few_fit(room: int, free: Sequence[Sequence[int]], costs: Sequence[int]) -> bool:
    each = [sum(costs[i] for i in group) for group in free]
    return bool(each) and room * len(each) < WHOLE_FROM * sum(each)


def _everything(segments: Sequence[Segment], costs: Sequence[int], block: str) -> Fit:
    return Fit(
        pieces=tuple([whole(segment, cost) for segment, cost in zip(segments, costs, strict=True)]),
        tokens=sum(costs),
        decisions=tuple([_kept(segment, block, cost) for segment, cost in zip(segments, costs, strict=True)]),
    )


def _kept(segment: Segment, block: str, cost: int) -> Decision:
    reason = "pinned" if segment.pinned else "fits"
    return Decision(segment_id=segment.id, block=block, action="kept", reason=reason, before=cost, after=cost)
