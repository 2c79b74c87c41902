"""Evidence first: what most likely answers the question, whole where whole texts fit, their best sentences where few would.

Documents are rated by `relevance/evidence.py`, turns of a conversation (segments with a role) by `relevance/turns.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..counting.protocol import TokenCounter
from ..errors import BudgetConfigError
from ..relevance.evidence import rate_documents, rate_sentences
from ..relevance.fusion import default_scorer, normalised
from ..relevance.protocol import Scorer
from ..relevance.sentences import split_sentences
from ..relevance.turns import TurnScorer
from ..segment import Decision, Segment
from .enough import Enough, Rated
from .packing import Order, check_order, in_order, members, pinned_groups, whole
from .protocol import Cost, Fit, plain_cost
from .sentence_packing import SHORTEST_CUT, SentencePacking

__all__ = ["Evidence", "Packed", "Rater"]

WHOLE_FROM, WHOLE_TURNS_FROM = 5, 6
"""Whole texts from so many that fit on average; below, sentences: documents, turns of a conversation. Measured in the quality benchmark."""
MUCH_LEFT = 0.1
"""Share of the limit from which what whole texts left over is filled with sentences."""
TURN_ODDS = (-5.0, 0.9)
"""Base and slope from a turn's score to the log-odds that it holds evidence."""
SENTENCE_SLOPE = 0.3
"""What a sentence of a turn, or of a segment with a score of its own, loses per spread it falls behind the best of its segment."""
OWN_SCORE_ODDS = (-2.0, 1.5)
"""The same for normalised scores a caller brings."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A fit, and the share of all expected evidence it holds, 0 to 1; only worked out where a share was asked for, else 1."""

    fit: Fit
    expected: float


class Evidence:
    """Keeps what most likely holds the answer: whole segments where about five or more would fit, else their best sentences.

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
        return self.pack(segments, limit=limit, counter=counter, block=block, query=query, cost=cost).fit

    def pack(
        self,
        segments: Sequence[Segment],
        *,
        limit: int,
        counter: TokenCounter,
        block: str,
        query: str = "",
        cost: Cost | None = None,
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
        rater = self._rater(query, segments)
        free = [groups[g] for g in range(len(groups)) if g not in must]
        sentences = self._compress and not complete
        by_sentence = sentences and _few_fit(packing.room, free, costs, turns=rater.turns)
        if by_sentence:
            enough = Enough(rater.rated_sentences, rater.sentences, self._keep, packing)
        else:
            enough = Enough(rater.rated, [[odds] for odds in rater.documents], self._keep, packing)
            _take_whole(packing, free, rater.documents, enough)
            sentences = (
                sentences and packing.room > max(limit * MUCH_LEFT, SHORTEST_CUT) and not enough.reached()
            )
            if sentences:
                enough.split(rater.rated_sentences, rater.sentences)
        if sentences:
            _take_sentences(packing, free, rater, enough)
            packing.shrink(rater.sentences)
        order = in_order(packing.used(), rater.documents, self._order)
        return Packed(packing.result(block, order, enough.left_out()), enough.share())

    def _rater(self, query: str, segments: Sequence[Segment]) -> Rater:
        return Rater(query, segments, self._scorer or default_scorer())


class Rater:
    """Rates segments, and their sentences when somebody asks: few questions need them."""

    def __init__(self, query: str, segments: Sequence[Segment], scorer: Scorer) -> None:
        self._query = query
        self._segments = segments
        self._scorer = scorer
        self._given = [segment.score for segment in segments if segment.score is not None]
        self._sentences: list[list[float]] | None = None
        self._documents: list[float] | None = None
        self.turns = bool(segments) and all(segment.role for segment in segments)
        self.rated: Rated = (
            "scores" if len(self._given) == len(segments) else "turns" if self.turns else "documents"
        )
        self.rated_sentences: Rated = "sentences" if self.rated == "documents" else self.rated

    @property
    def documents(self) -> list[float]:
        """Log-odds that each segment holds evidence."""
        if self._documents is None:
            if self.rated == "scores":
                base, slope = OWN_SCORE_ODDS
                self._documents = [base + slope * score for score in normalised(self._given)]
            elif self.rated == "turns":
                base, slope = TURN_ODDS
                scores = TurnScorer(self._scorer).score(self._query, self._segments)
                self._documents = [base + slope * score for score in scores]
            else:
                self._documents = rate_documents(self._query, self._segments, self._scorer)
        return self._documents

    @property
    def sentences(self) -> list[list[float]]:
        """Log-odds that each sentence of each segment holds evidence."""
        if self._sentences is None:
            if self.rated != "documents":
                self._sentences = self._below(self.documents)
            else:
                self._sentences = rate_sentences(self._query, self._segments, self._scorer)
        return self._sentences

    def _below(self, odds: Sequence[float]) -> list[list[float]]:
        """Returns sentences rated like their segment, less what they fall behind its best."""
        texts = [split_sentences(segment.text) for segment in self._segments]
        flat = [
            Segment(id=str(j), text=text)
            for j, text in enumerate([text for pieces in texts for text in pieces])
        ]
        alone = len(flat) == len(texts)
        own: Iterator[float] = iter(
            [0.0] * len(flat) if alone else normalised(self._scorer.score(self._query, flat))
        )
        found = []
        for rating, pieces in zip(odds, texts, strict=True):
            near = [next(own) for _ in pieces]
            best = max(near, default=0.0)
            found.append([rating + SENTENCE_SLOPE * (score - best) for score in near])
        return found


def _take_whole(
    packing: SentencePacking, free: Sequence[Sequence[int]], odds: Sequence[float], enough: Enough
) -> None:
    best = [max([odds[i] for i in group]) for group in free]
    for g in sorted(range(len(free)), key=lambda g: (-best[g], g)):
        if enough.reached():
            return
        group = free[g]
        if packing.fits(group) and not (len(group) == 1 and packing.repeats(group[0])):
            packing.keep_whole(group)
            for i in group:
                enough.took(i)


def _take_sentences(
    packing: SentencePacking, free: Sequence[Sequence[int]], rater: Rater, enough: Enough
) -> None:
    pieces: list[tuple[float, int, int]] = []
    for g, group in enumerate(free):
        if group[0] in packing.settled:
            continue
        if len(group) == 1:
            pieces += [(-rating, g, j) for j, rating in enumerate(rater.sentences[group[0]])]
        else:
            pieces.append((-max([rater.documents[i] for i in group]), g, -1))
    for _, g, j in sorted(pieces):
        if packing.room < 1 or enough.reached():
            return
        i = free[g][0]
        if j >= 0:
            packing.take(i, j)
            enough.took(i, j)
        elif packing.fits(free[g]):
            packing.keep_whole(free[g])
            for member in free[g]:
                enough.took(member)


def _few_fit(room: int, free: Sequence[Sequence[int]], costs: Sequence[int], *, turns: bool) -> bool:
    total = sum([costs[i] for group in free for i in group])
    return bool(free) and room * len(free) < (WHOLE_TURNS_FROM if turns else WHOLE_FROM) * total


def _everything(segments: Sequence[Segment], costs: Sequence[int], block: str) -> Fit:
    return Fit(
        pieces=tuple([whole(segment, cost) for segment, cost in zip(segments, costs, strict=True)]),
        tokens=sum(costs),
        decisions=tuple([_kept(segment, block, cost) for segment, cost in zip(segments, costs, strict=True)]),
    )


def _kept(segment: Segment, block: str, cost: int) -> Decision:
    reason = "pinned" if segment.pinned else "fits"
    return Decision(segment_id=segment.id, block=block, action="kept", reason=reason, before=cost, after=cost)
