"""Selective: what matters stays whole, other segments are shortened, old filler goes.

The analysis needs no model: the newest segments, and those with a decision, a commitment, a correction, a
preference, names or numbers, are worth keeping whole; other segments become "[Earlier: ...]"; pleasantries
and doubles go first. A plan of your own overrules it, and holds even where everything fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from ..compression.extractive import extractive_summary
from ..compression.key_moments import find_moments, is_filler, weigh
from ..counting.protocol import TokenCounter
from ..errors import BudgetConfigError
from ..segment import Rendition, Segment
from .doubles import find_doubles
from .protocol import Cost, Fit, Group, Piece, members_of, plain_cost, whole

__all__ = ["Preservation", "Selective", "SelectivePlan", "plan_segments"]

Preservation = Literal["preserve_full", "summarize", "discard"]
_FATES: tuple[Preservation, ...] = get_args(Preservation)
_EARLIER = "[Earlier: {}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectivePlan:
    """What should become of which segments, by id; ids in no set are left to the analysis.

    Args:
        preserve_full: stay whole while there is room.
        summarize: appear as "[Earlier: ...]", also where there is room; shorter texts stay.
        discard: go, also where there is room, unless preserved; a group goes with any of its members.
    """

    preserve_full: frozenset[str] = frozenset()
    summarize: frozenset[str] = frozenset()
    discard: frozenset[str] = frozenset()

    @classmethod
    def of(cls, plan: Mapping[str, Iterable[str]]) -> SelectivePlan:
        """Returns the plan of a mapping with the keys "preserve_full", "summarize" and "discard".

        Example:
            >>> SelectivePlan.of({"discard": ["m1"]}).discard
            frozenset({'m1'})
        """
        unknown = sorted(set(plan) - set(_FATES))
        if unknown:
            allowed = ", ".join(_FATES)
            raise BudgetConfigError.of(
                [f"the plan must have the keys {allowed} (got {name!r})" for name in unknown]
            )
        sets = {name: frozenset(plan.get(name, ())) for name in _FATES}
        names = [name for ids in sets.values() for name in ids]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise BudgetConfigError.of(
                [f"the plan names {name!r} twice; give each id one fate" for name in twice]
            )
        return cls(**sets)

    def fate(self, segment: Segment) -> Preservation | None:
        """Returns what the plan says about a segment, for a group about its members; None for nothing."""
        ids = {member.id for member in members_of(segment)}
        if ids & self.preserve_full:
            return "preserve_full"
        if ids & self.discard:
            return "discard"
        return "summarize" if ids & self.summarize else None


def plan_segments(segments: Sequence[Segment], *, recent: int = 6, old: int = 50) -> SelectivePlan:
    """Returns the plan of the offline analysis.

    Args:
        segments: a conversation, oldest first.
        recent: newest segments that stay whole.
        old: filler further back than this many segments is discarded; nearer filler is summarized,
            pleasantries are always discarded.

    Example:
        >>> texts = "We decided to use JWT.", "Thanks!", "go on"
        >>> chat = [Segment(id=str(i), text=text) for i, text in enumerate(texts, start=1)]
        >>> plan = plan_segments(chat, recent=1)
        >>> sorted(plan.preserve_full), sorted(plan.discard)
        (['1', '3'], ['2'])
    """
    fates: dict[Preservation, set[str]] = {name: set() for name in _FATES}
    for i, segment in enumerate(segments):
        age = len(segments) - i
        moments = find_moments(segment.text)
        if age <= recent or moments - {"name", "number", "quote"} or len(moments) > 1:
            fates["preserve_full"].add(segment.id)
        elif is_filler(segment.text) or (age > old and not moments):
            fates["discard"].add(segment.id)
        else:
            fates["summarize"].add(segment.id)
    return SelectivePlan(**{name: frozenset(ids) for name, ids in fates.items()})


class Selective:
    """Preserves key moments, summarizes the rest, discards filler.

    When everything fits, only what a plan of yours discards or summarizes is touched. Otherwise what the
    plan preserves comes first, then the newest, then key moments by weight, then the rest in few words. A
    segment's own summary (`metadata["summary"]`) is used where there is one.

    Args:
        plan: fates by id that overrule the analysis.
        recent: newest segments that count as preserved.
        old: filler further back than this many segments is discarded.
        earlier_tokens: most tokens of one "[Earlier: ...]" text.

    Example:
        >>> from rankbudget.testing.fakes import WordCounter
        >>> chat = [Segment(id="1", text="Nice weather."), Segment(id="2", text="We decided to use JWT.")]
        >>> strategy = Selective(plan={"discard": ["1"]})
        >>> fit = strategy.fit(chat, limit=100, counter=WordCounter(), block="notes")
        >>> [piece.segment.id for piece in fit.pieces]
        ['2']
    """

    def __init__(
        self,
        *,
        plan: SelectivePlan | Mapping[str, Iterable[str]] | None = None,
        recent: int = 6,
        old: int = 50,
        earlier_tokens: int = 40,
    ) -> None:
        problems = [
            f"{name} must be 0 or more (got {value})"
            for name, value in (("recent", recent), ("old", old))
            if value < 0
        ]
        if problems:
            raise BudgetConfigError.of(problems)
        self.plan = plan if isinstance(plan, SelectivePlan) else SelectivePlan.of(plan or {})
        self.recent = recent
        self.old = old
        self.earlier_tokens = earlier_tokens

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
        """Returns the segments that fit, in their order, some as "[Earlier: ...]"."""
        del block, query  # what later turns depend on is judged by what was said, not by the next question
        work = _Selection(self, segments, limit, counter, cost or plain_cost(counter))
        if sum([work.costs[i] for i in work.left()]) <= limit:
            work.keep_all()
        else:
            work.keep_what_fits()
        pieces = tuple([work.pieces[i] for i in sorted(work.pieces)])
        return Fit(
            pieces=pieces,
            tokens=limit - work.room,
            reasons={segments[i].id: (reason, "") for i, reason in work.reasons.items()},
        )


class _Selection:
    """One fit: what is kept so far, and why, in positions."""

    def __init__(
        self, setup: Selective, segments: Sequence[Segment], limit: int, counter: TokenCounter, price: Cost
    ) -> None:
        self.setup = setup
        self.segments = segments
        self.room = limit
        self.counter = counter
        self.price = price
        self.costs = [price(segment, segment.text) for segment in segments]
        self.planned = [setup.plan.fate(segment) for segment in segments]
        self.pieces: dict[int, Piece] = {}
        self.reasons: dict[int, str] = {}
        for i, fate in enumerate(self.planned):
            if fate == "discard":
                self.reasons[i] = "discarded"

    def left(self) -> list[int]:
        """Returns the segments nothing is decided about."""
        return [i for i in range(len(self.segments)) if i not in self.reasons]

    def keep_all(self) -> None:
        """Keeps all that the plan does not discard; says shorter what it wants said shorter."""
        for i in self.left():
            long = self.costs[i] > self.setup.earlier_tokens
            short = long and self.planned[i] == "summarize" and self._say_shorter(i, self.costs[i] - 1)
            if not short:
                self._keep_whole(i, "fits")

    def keep_what_fits(self) -> None:
        """Keeps key moments whole, then says the rest in few words while there is room."""
        newest_first = range(len(self.segments) - 1, -1, -1)
        for i in find_doubles(self.segments, newest_first):
            self.reasons.setdefault(i, "duplicate")
        found = plan_segments(self.segments, recent=self.setup.recent, old=self.setup.old)
        fates = [
            planned or found.fate(segment) or "summarize"
            for planned, segment in zip(self.planned, self.segments, strict=True)
        ]
        moments = {i for i in self.left() if fates[i] == "preserve_full"}
        for i in sorted(moments, key=self._urgency):
            if self.costs[i] <= self.room:
                self._keep_whole(i, "key_moment")
        for i in sorted(self.left(), key=lambda i: (i not in moments, -i)):
            group = isinstance(self.segments[i], Group)
            if fates[i] == "discard":
                self.reasons[i] = "filler"
            elif self.costs[i] <= (self.room if group else min(self.room, self.setup.earlier_tokens)):
                self._keep_whole(i, "key_moment" if i in moments else "fits")
            elif not self._say_shorter(i, min(self.room, self.costs[i] - 1)):
                self.reasons[i] = "no_room"
            elif i in moments:
                self.reasons[i] = "key_moment"

    def _urgency(self, i: int) -> tuple[int, float, int]:
        if self.planned[i] == "preserve_full":
            return 0, 0.0, -i
        if len(self.segments) - i <= self.setup.recent:
            return 1, 0.0, -i
        return 2, -weigh(self.segments[i].text), -i

    def _keep_whole(self, i: int, reason: str) -> None:
        self._keep(i, whole(self.segments[i], self.costs[i]), reason)

    def _keep(self, i: int, piece: Piece, reason: str) -> None:
        self.pieces[i] = piece
        self.reasons[i] = reason
        self.room -= piece.rendition.tokens

    def _say_shorter(self, i: int, room: int) -> bool:
        """Keeps a segment in few words that cost at most `room`; False where nothing is left to say."""
        segment = self.segments[i]
        if isinstance(segment, Group) or segment.text.startswith(_EARLIER.format("").rstrip("]")):
            return False
        limit = min(self.setup.earlier_tokens, room - self.price(segment, _EARLIER.format("")))
        own = segment.metadata.get("summary")
        said = own if isinstance(own, str) and own.strip() else segment.text
        while limit > 0:
            text = extractive_summary(said, limit, self.counter)
            if not text.strip(" ."):
                return False
            shown = _EARLIER.format(text)
            tokens = self.price(segment, shown)
            if tokens <= room:
                rendition = Rendition(kind="summarized", text=shown, tokens=tokens)
                self._keep(i, Piece(segment, rendition), "filler")
                return True
            limit -= max(tokens - room, 1)
        return False
