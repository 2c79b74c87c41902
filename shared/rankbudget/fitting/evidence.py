"""Packing by relevance: the best sentences of all texts, whole texts only, or memories by their worth."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from heapq import heappop, heappush
from itertools import accumulate, chain
from typing import Any, Literal, get_args

from ..counting.protocol import TokenCounter
from ..errors import BudgetConfigError, shown
from ..relevance.asking import queries_of, rated_for
from ..relevance.corpus import scored_texts
from ..relevance.evidence import Sentences, rate_documents, rate_sentences, rate_sentences_of, word_shares
from ..relevance.fusion import default_scorer, finite, normalised, ratings_of
from ..relevance.memories import MemoryScorer
from ..relevance.protocol import Scorer
from ..relevance.records import with_records
from ..relevance.turns import TurnScorer
from ..segment import Segment
from .doubles import find_doubles
from .packing import WHOLE, Packing, Unit, Units
from .protocol import Cost, Fit, Group, plain_cost, whole

Order = Literal["original", "edges", "score"]
"""original: as given. edges: the best at both ends, where models read best. score: best first."""
SENTENCE_SLOPE = 0.3
"""What a sentence of a turn loses per spread it falls behind the best of its segment."""

CLOSE = 0.05
"""Spread of a host's scores, as a share of their mean, below which they tell texts apart the less."""
NAMED = 3.0
"""What all words of the question in a text count beside scores of the host, in spreads of these scores.

Half of the words count a quarter of that: other texts of a good retriever have some of them, too.
"""
COSTLY, BYTES = 64, 5
"""Tokens that a segment may have more than others beside its text, as tags; bytes of a token."""


class Evidence:
    """Keeps what most likely holds the answer: the best sentences of all texts.

    All sentences are in one order, and as many as fit are kept, so a larger limit keeps no less. The first
    sentence that does not fit is cut at a word's end. What is kept of a segment is its own words in their
    order. Of small records alike, the one that the question names comes first, and what several of them say
    comes behind what names its record. Texts that repeat another one come last.

    Args:
        scorer: rates segments that have no score of their own; None takes the default mix. Beside scores of
            their own the words of the question count.
        compress: allows sentences and cut sentences; False keeps whole segments only and goes on behind one
            that does not fit, so a larger limit may drop a small text for a better, large one.
        dedup: keeps texts that repeat another one only where everything else fits.
        order: "original", "edges" (the best at both ends) or "score".

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

    _ranking: MemoryScorer | None = None

    def __init__(
        self,
        *,
        scorer: Scorer | None = None,
        compress: bool = True,
        dedup: bool = True,
        order: Order = "original",
    ) -> None:
        if order not in get_args(Order):
            msg = f"order must be one of {', '.join(get_args(Order))} (got {order!r})."
            raise BudgetConfigError(msg)
        if scorer is not None and not hasattr(scorer, "score"):
            msg = f"scorer must be a Scorer, as Bm25Scorer() (got {shown(scorer)})."
            raise BudgetConfigError(msg)
        self._scorer = scorer
        self._compress = compress
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
        """Returns pieces that cost at most `limit`."""
        del block  # what stays does not depend on the block's name
        price = cost or plain_cost(counter)
        rater = _Rater(query, segments, self._scorer or default_scorer(), self._ranking)
        if all(total <= limit for total in accumulate(price(s, s.text) for s in segments)):
            given = [segments[i] for i in _in_order(range(len(segments)), rater, self._order)]
            pieces = tuple([whole(s, price(s, s.text)) for s in given])
            return Fit(pieces=pieces, tokens=sum([piece.rendition.tokens for piece in pieces]))
        units = _ranked(rater, segments, price, compress=self._compress)
        ranked = (i for i, _ in units())
        twins = find_doubles(segments, ranked, rater.split.by_text) if self._dedup else {}
        if twins:
            units = [*(u for u in units() if u[0] not in twins), *((i, WHOLE) for i in twins)].__iter__
        skip, sentences = (0, rater.split.by_text) if self._compress else (len(segments) - len(twins), ())
        packing = Packing(segments, sentences, price, counter, units, limit, skip=skip)
        kept, reasons = packing.pieces, packing.reasons()
        shown = {segments[i].id for i in kept}
        for i, twin in twins.items():
            if twin in shown and i not in kept:
                reasons[segments[i].id] = "duplicate", f"says what {twin!r} says"
        return Fit(
            pieces=tuple([kept[i] for i in _in_order(kept, rater, self._order)]),
            tokens=sum([piece.rendition.tokens for piece in kept.values()]),
            reasons=reasons,
            needed=packing.needed,
        )


class BestFirst(Evidence):
    """Keeps whole segments, the most relevant first.

    A segment that does not fit is skipped, and a less relevant, shorter one after it may still be kept. Texts
    that repeat another one come last.

    Args:
        options: `scorer`, `dedup` and `order`, as of `Evidence`.

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

    def __init__(self, **options: Any) -> None:
        super().__init__(compress=False, **options)


class Memories(Evidence):
    """Keeps the memories that matter now, by the formula of `MemoryScorer`.

    What `Evidence` would rank by is the similarity; memories that state no priority, date or kind are kept
    exactly as `Evidence` keeps them. Where all memories come with a score, that is the similarity. Of more
    than fifty memories the nearest to the question compete for the room, and all of kind "core"; the others
    take what is left.

    Args:
        scorer: rates nearness; a `MemoryScorer` brings its own weights; None takes the default mix.
        options: `compress`, `dedup` and `order`, as of `Evidence`.
    """

    def __init__(self, *, scorer: Scorer | None = None, **options: Any) -> None:
        self._ranking = scorer if isinstance(scorer, MemoryScorer) else MemoryScorer(similarity=scorer)
        super().__init__(scorer=self._ranking.similarity, **options)


def _ranked(rater: _Rater, segments: Sequence[Segment], price: Cost, *, compress: bool) -> Units:
    """Returns what yields all sentences, the best first; groups, or without `compress` all, are whole."""
    rated: list[tuple[float, int, int]] = []
    for i, segment in enumerate(segments):
        if isinstance(segment, Group) or not compress:
            rated.append((-rater.documents[i], i, WHOLE))
        else:
            rated += [(-rating, i, j) for j, rating in enumerate(rater.sentences[i])]
    units = [(i, j) for _, i, j in sorted(rated)]
    if not compress:  # one without room is skipped
        return units.__iter__
    uncut = [price(s, s.text if isinstance(s, Group) else "") for s in segments]
    if max(uncut) <= min(uncut) + COSTLY:
        return units.__iter__
    pieces = zip(segments, rater.split.by_text, strict=True)
    sizes = [[0] if isinstance(segment, Group) else [*map(_tokens, own)] for segment, own in pieces]
    return partial(_behind_as_much, units, uncut, sizes)


def _behind_as_much(
    units: Sequence[Unit], uncut: Sequence[int], sizes: Sequence[Sequence[int]]
) -> Iterator[Unit]:
    """Yields the units, those of a costly segment behind as many tokens: one without room ends the packing.

    Of each segment `uncut` tokens cannot be cut, and its sentences have `sizes`. It is costly if `uncut` is
    more than the least of any by `COSTLY` tokens and all its text, or by twice `COSTLY`. It comes where as
    many tokens are behind it, too, or last: where all others fit, none is dropped for it.
    """
    texts, least = [sum(own) for own in sizes], min(uncut)
    pairs = zip(uncut, texts, strict=True)
    behind = [own if own - least > min(max(COSTLY, text), 2 * COSTLY) else 0 for own, text in pairs]
    places: dict[int, list[int]] = {}
    for place, (i, _) in enumerate(units):
        places.setdefault(i, []).append(place)
    waiting = sorted(places, key=lambda i: -behind[i])  # the least costly at the end
    opened: list[int] = []  # a heap of places that are next
    unpaid, spent, end = dict(enumerate(uncut)), 0, 0
    while opened or waiting:
        most = min(spent, end - spent)
        if not opened:
            most = behind[waiting[-1]] + COSTLY
            end = spent + sum([uncut[i] + texts[i] for i in waiting if behind[i] <= most])
        while waiting and behind[waiting[-1]] <= most:
            for place in places[waiting.pop()]:
                heappush(opened, place)
        i, j = units[heappop(opened)]
        yield i, j
        spent += unpaid.pop(i, 0) + sizes[i][j]


def _tokens(text: str) -> int:
    """Returns about how many tokens a text has, in any script, hardly ever too many; counting is slow."""
    return len(text.encode("utf-8", "replace")) // BYTES


def _in_order(kept: Iterable[int], rater: _Rater, order: Order) -> list[int]:
    """Returns kept positions in the order asked for."""
    if order == "original":
        return sorted(kept)
    best = sorted(kept, key=lambda i: (-rater.documents[i], i))
    return best if order == "score" else best[::2] + best[1::2][::-1]


def _apart(given: Sequence[float]) -> list[float]:
    """Returns a host's scores with mean 0 and spread 1, less where they are nearly equal for their size."""
    given = finite(given)
    mean, spread = statistics.fmean(given), statistics.pstdev(given)
    scale = min(1.0, spread / (CLOSE * abs(mean))) if mean else 1.0
    return [scale * score for score in normalised(given)]


@dataclass(eq=False)
class _Rater:
    """Rates segments when asked, and their sentences only then: few questions need them."""

    query: str
    segments: Sequence[Segment]
    scorer: Scorer
    ranking: MemoryScorer | None

    @cached_property
    def given(self) -> list[float]:
        """The segments' own scores, where all have one that tells them apart."""
        scores = [segment.score for segment in self.segments if segment.score is not None]
        return scores if len(scores) == len(self.segments) and len(set(scores)) > 1 else []

    @cached_property
    def turns(self) -> bool:
        """Whether they are turns of a conversation without scores."""
        return not self.given and all(segment.role for segment in self.segments)

    @cached_property
    def documents(self) -> list[float]:
        """How likely each segment holds evidence."""
        shifts = self._shifts(self.near)
        return [rating + shift for rating, shift in zip(self.near, shifts, strict=True)]

    @cached_property
    def near(self) -> list[float]:
        """How near each segment is to the question, by its own score or by its text."""
        return self._with_own(self.given) if self.given else rated_for(self.query, self._rate)

    def _rate(self, query: str) -> list[float]:
        if self.turns:
            return TurnScorer(self.scorer).score(query, self.segments)
        return rate_documents(query, self.segments, self.scorer)

    def _rate_sentences(self, query: str) -> list[float]:
        if self.turns:
            return ratings_of(self.scorer, query, self.split.all)
        if self.given:
            rows = rate_sentences_of(query, self.segments, self.scorer, self.near)
        else:
            rows = rate_sentences(query, self.segments, self.scorer)
        return list(chain.from_iterable(rows))

    def _with_own(self, given: list[float]) -> list[float]:
        """Returns the host's scores with the question's words as a second signal; those of memories alone."""
        if self.ranking is not None:
            return normalised(given)
        shares = word_shares(queries_of(self.query)[0], scored_texts(self.segments))
        return [score + NAMED * share**2 for score, share in zip(_apart(given), shares, strict=True)]

    @cached_property
    def split(self) -> Sentences:
        """The sentences of all segments: held, as a cache does not keep those of many."""
        return Sentences.of(self.segments)

    @cached_property
    def sentences(self) -> list[list[float]]:
        """How likely each sentence of each segment holds evidence, by itself and by its segment."""
        texts = self.split.by_text
        if all(len(pieces) == 1 for pieces in texts):
            return [[rating] for rating in self.documents]
        held = self.split.indexes(self.segments)  # while all that follows asks for them
        rows = self.split.rows(rated_for(self.query, self._rate_sentences))
        if self.turns:
            rated = zip(self.documents, rows, map(max, rows), strict=True)
            rows = [[d + SENTENCE_SLOPE * (near - best) for near in row] for d, row, best in rated]
        elif self.ranking is not None:
            shifts = self._shifts(list(map(max, rows)))
            rows = [[rating + shift for rating in row] for row, shift in zip(rows, shifts, strict=True)]
        asked, split = queries_of(self.query)[0], self.split
        return with_records(asked, texts, split.trees, split.names, split.traces, rows, held[0])

    def _shifts(self, near: Sequence[float]) -> list[float]:
        return self.ranking.shifts(near, self.segments) if self.ranking else [0.0] * len(near)
