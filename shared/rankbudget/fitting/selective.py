"""Selective: what matters stays whole, what does not is said in a few words, what is old and says nothing goes.

The analysis needs no model: the newest segments, and those with a decision, a commitment, a correction, a preference, names or numbers, are
worth keeping whole; other segments become "[Earlier: ...]"; pleasantries and repeats go first. A plan of your own overrules it, and holds
even where everything fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..compression.key_moments import find_moments, is_filler, weigh
from ..compression.summary import extractive_summary
from ..counting.protocol import TokenCounter
from ..errors import BudgetConfigError, BudgetExceededError
from ..relevance.words import raw_words
from ..segment import Decision, Rendition, Segment
from .protocol import Cost, Fit, Piece, plain_cost

__all__ = ["Preservation", "Selective", "SelectivePlan", "plan_segments"]

Preservation = Literal["preserve_full", "summarize", "discard"]
_ORDER: tuple[Preservation, ...] = ("preserve_full", "summarize", "discard")


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectivePlan:
    """What should become of which segments, by id; ids in no set are left to the analysis.

    Args:
        preserve_full: stay whole while there is room.
        summarize: appear as "[Earlier: ...]", also where there is room; texts no longer than that stay as they are.
        discard: go, also where there is room; what is pinned, or grouped with what is pinned or preserved, stays.
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
        unknown = sorted(set(plan) - set(_ORDER))
        if unknown:
            raise BudgetConfigError.of(
                [f"the plan has {name!r}, allowed: {', '.join(_ORDER)}" for name in unknown]
            )
        sets = {name: frozenset(plan.get(name, ())) for name in _ORDER}
        twice = sorted(
            (sets["preserve_full"] & sets["summarize"])
            | (sets["preserve_full"] & sets["discard"])
            | (sets["summarize"] & sets["discard"])
        )
        if twice:
            raise BudgetConfigError.of(
                [f"the plan names {name!r} twice; give each id one fate" for name in twice]
            )
        return cls(**sets)

    def fate(self, segment_id: str) -> Preservation | None:
        """Returns what the plan says about a segment, None when it says nothing."""
        if segment_id in self.preserve_full:
            return "preserve_full"
        if segment_id in self.summarize:
            return "summarize"
        return "discard" if segment_id in self.discard else None


def plan_segments(segments: Sequence[Segment], *, recent: int = 6, old: int = 50) -> SelectivePlan:
    """Returns the plan of the offline analysis.

    Args:
        segments: a conversation, oldest first.
        recent: newest segments that stay whole.
        old: filler further back than this many segments is discarded; nearer filler is summarized, pleasantries are always discarded.

    Example:
        >>> chat = [Segment(id="1", text="We decided to use JWT."), Segment(id="2", text="Thanks!"), Segment(id="3", text="go on")]
        >>> plan = plan_segments(chat, recent=1)
        >>> sorted(plan.preserve_full), sorted(plan.discard)
        (['1', '3'], ['2'])
    """
    fates: dict[Preservation, set[str]] = {name: set() for name in _ORDER}
    for i, segment in enumerate(segments):
        age = len(segments) - i
        moments = find_moments(segment.text)
        if age <= recent or segment.pinned or moments - {"name", "number", "quote"} or len(moments) > 1:
            fates["preserve_full"].add(segment.id)
        elif is_filler(segment.text) or (age > old and not moments):
            fates["discard"].add(segment.id)
        else:
            fates["summarize"].add(segment.id)
    return SelectivePlan(**{name: frozenset(ids) for name, ids in fates.items()})


@dataclass(slots=True)
class _State:
    """What is decided so far, in positions."""

    room: int
    gone: frozenset[int]
    pieces: dict[int, Piece] = field(default_factory=dict)
    merged: set[int] = field(default_factory=set)


class Selective:
    """Preserves key moments, summarizes the rest, discards filler.

    When everything fits, nothing is touched but what a plan of yours discards or summarizes. Otherwise, in this order: pinned segments; the newest ones; preserved ones by weight, whole; then
    what is left over as "[Earlier: ...]", preserved ones first. A segment's own summary (`metadata["summary"]`) is used where there is one.

    Args:
        plan: fates by id that overrule the analysis.
        recent: newest segments that count as preserved.
        old: filler further back than this many segments is discarded.
        earlier_tokens: most tokens of one "[Earlier: ...]" text.
        merge_share: neighbours of one role that share at least this part of their words are merged: the later one stays. None merges nothing.

    Example:
        >>> from rankbudget.testing.fakes import WordCounter
        >>> chat = [Segment(id="1", text="Nice weather."), Segment(id="2", text="We decided to use JWT.")]
        >>> fit = Selective(plan={"discard": ["1"]}).fit(chat, limit=100, counter=WordCounter(), block="notes")
        >>> [(decision.segment_id, decision.action, decision.reason) for decision in fit.decisions]
        [('1', 'trimmed', 'discarded'), ('2', 'kept', 'fits')]
    """

    def __init__(
        self,
        *,
        plan: SelectivePlan | Mapping[str, Iterable[str]] | None = None,
        recent: int = 6,
        old: int = 50,
        earlier_tokens: int = 40,
        merge_share: float | None = 0.85,
    ) -> None:
        problems = [
            f"{name} is {value}, allowed: 0 or more"
            for name, value in (("recent", recent), ("old", old))
            if value < 0
        ]
        if merge_share is not None and not 0 < merge_share <= 1:
            problems.append(f"merge_share is {merge_share}, allowed: above 0, at most 1, or None")
        if problems:
            raise BudgetConfigError.of(problems)
        self._plan = plan if isinstance(plan, SelectivePlan) else SelectivePlan.of(plan or {})
        self._recent = recent
        self._old = old
        self._earlier_tokens = earlier_tokens
        self._merge_share = merge_share

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
        """Returns the segments that fit, in their order, some of them as "[Earlier: ...]"."""
        del query  # what later turns depend on is judged by what was said, not by the next question
        price = cost or plain_cost(counter)
        costs = [price(segment, segment.text) for segment in segments]
        groups = _groups(segments)
        state = _State(room=limit, gone=self._discarded(segments, groups))
        if sum(cost for i, cost in enumerate(costs) if i not in state.gone) <= limit:
            state.pieces = {i: _whole(s, costs[i]) for i, s in enumerate(segments) if i not in state.gone}
            fates: list[Preservation] = [self._plan.fate(s.id) or "discard" for s in segments]
            long = [
                i
                for i, fate in enumerate(fates)
                if fate == "summarize" and i in state.pieces and costs[i] > self._earlier_tokens
            ]
            for i in long:
                if (
                    len(groups[i]) == 1
                    and not segments[i].pinned
                    and not segments[i].text.startswith("[Earlier: ")
                ):
                    self._shorten_one(i, segments[i], costs[i], costs[i], state, counter, price)
        else:
            fates = self._fates(segments)
            self._keep_pinned(segments, groups, costs, state, block)
            state.merged = self._repeats(segments) - set(state.pieces)
            self._keep_whole(segments, groups, costs, fates, state)
            self._shorten(segments, groups, costs, fates, state, counter, price)
        pieces = tuple(state.pieces[i] for i in sorted(state.pieces))
        reasons = [_reason(i, fates[i], state) for i in range(len(segments))]
        decisions = tuple(
            _decide(s, state.pieces.get(i), costs[i], block, reasons[i]) for i, s in enumerate(segments)
        )
        return Fit(pieces=pieces, tokens=sum(piece.rendition.tokens for piece in pieces), decisions=decisions)

    def _discarded(self, segments: Sequence[Segment], groups: dict[int, list[int]]) -> frozenset[int]:
        """Returns what the caller's plan throws away, groups whole."""
        gone: set[int] = set()
        for i, segment in enumerate(segments):
            if self._plan.fate(segment.id) == "discard" and not any(
                segments[j].pinned or self._plan.fate(segments[j].id) == "preserve_full" for j in groups[i]
            ):
                gone.update(groups[i])
        return frozenset(gone)

    def _fates(self, segments: Sequence[Segment]) -> list[Preservation]:
        found = plan_segments(segments, recent=self._recent, old=self._old)
        return [self._plan.fate(s.id) or found.fate(s.id) or "summarize" for s in segments]

    @staticmethod
    def _keep_pinned(
        segments: Sequence[Segment], groups: dict[int, list[int]], costs: list[int], state: _State, block: str
    ) -> None:
        pinned = sorted({j for i, s in enumerate(segments) if s.pinned for j in groups[i]})
        needed = sum(costs[i] for i in pinned)
        if needed > state.room:
            msg = f"pinned segments of block {block!r} need {needed} tokens, allowed: {state.room}; give the block {needed - state.room} more"
            raise BudgetExceededError(msg, limit=state.room, needed=needed, blocks={block: needed})
        state.pieces.update({i: _whole(segments[i], costs[i]) for i in pinned})
        state.room -= needed

    def _repeats(self, segments: Sequence[Segment]) -> set[int]:
        if self._merge_share is None:
            return set()
        repeats: set[int] = set()
        last: tuple[int, frozenset[str]] | None = None
        for i in reversed(range(len(segments))):
            words = frozenset(raw_words(segments[i].text))
            if (
                last is not None
                and segments[i].group is None
                and segments[i].role == segments[last[0]].role
                and words
            ):
                shared = len(words & last[1]) / len(words | last[1])
                if shared >= self._merge_share and not segments[i].pinned:
                    repeats.add(i)
                    continue
            last = (i, words)
        return repeats

    def _keep_whole(
        self,
        segments: Sequence[Segment],
        groups: dict[int, list[int]],
        costs: list[int],
        fates: list[Preservation],
        state: _State,
    ) -> None:
        def urgency(i: int) -> tuple[int, float, int]:
            age = len(segments) - i
            planned = self._plan.fate(segments[i].id) == "preserve_full"
            return (
                0 if planned else 1 if age <= self._recent else 2,
                0.0 if age <= self._recent else -weigh(segments[i].text),
                -i,
            )

        wanted = [
            i
            for i in range(len(segments))
            if fates[i] == "preserve_full" and i not in state.merged | state.gone
        ]
        for i in sorted(wanted, key=urgency):
            members = groups[i]
            if i in state.pieces:
                continue
            needed = sum(costs[j] for j in members)
            if needed <= state.room:
                state.pieces.update({j: _whole(segments[j], costs[j]) for j in members})
                state.room -= needed

    def _shorten(
        self,
        segments: Sequence[Segment],
        groups: dict[int, list[int]],
        costs: list[int],
        fates: list[Preservation],
        state: _State,
        counter: TokenCounter,
        price: Cost,
    ) -> None:
        out = state.merged | state.gone
        left = [
            i
            for i in range(len(segments))
            if i not in state.pieces and i not in out and fates[i] != "discard"
        ]
        for i in sorted(left, key=lambda i: (_ORDER.index(fates[i]), -i)):
            if i in state.pieces:
                continue
            members = groups[i]
            needed = sum(costs[j] for j in members)
            # A group lives or dies whole, so its members are never shortened one by one.
            if needed <= (state.room if len(members) > 1 else min(state.room, self._earlier_tokens)):
                state.pieces.update({j: _whole(segments[j], costs[j]) for j in members})
                state.room -= needed
                continue
            if len(members) == 1 and self._shorten_one(
                i, segments[i], costs[i], state.room, state, counter, price
            ):
                state.room -= state.pieces[i].rendition.tokens

    def _shorten_one(
        self,
        i: int,
        segment: Segment,
        tokens: int,
        room: int,
        state: _State,
        counter: TokenCounter,
        price: Cost,
    ) -> bool:
        """Says one segment in few words and returns whether that is shorter."""
        piece = self._earlier(segment, room, counter, price)
        if piece is None or piece.rendition.tokens >= tokens:
            return False
        state.pieces[i] = piece
        return True

    def _earlier(self, segment: Segment, room: int, counter: TokenCounter, price: Cost) -> Piece | None:
        frame = price(segment, "[Earlier: ]")
        limit = min(self._earlier_tokens, room - frame)
        own = segment.metadata.get("summary")
        while limit > 0:
            text = extractive_summary(
                own if isinstance(own, str) and own.strip() else segment.text, limit, counter
            )
            if not text.strip(" ."):
                return None
            shown = f"[Earlier: {text}]"
            tokens = price(segment, shown)
            if tokens <= room:
                return Piece(segment, Rendition(kind="summarized", text=shown, tokens=tokens))
            limit -= max(tokens - room, 1)
        return None


def _groups(segments: Sequence[Segment]) -> dict[int, list[int]]:
    by_name: dict[str, list[int]] = {}
    for i, segment in enumerate(segments):
        if segment.group is not None:
            by_name.setdefault(segment.group, []).append(i)
    return {i: by_name[s.group] if s.group is not None else [i] for i, s in enumerate(segments)}


def _whole(segment: Segment, tokens: int) -> Piece:
    return Piece(segment, Rendition(kind="whole", text=segment.text, tokens=tokens))


def _reason(i: int, fate: Preservation, state: _State) -> str:
    if i in state.pieces:
        return {"preserve_full": "key_moment", "summarize": "filler", "discard": "fits"}[fate]
    if i in state.gone:
        return "discarded"
    if i in state.merged:
        return "repeats_next"
    return "filler" if fate == "discard" else "no_room"


def _decide(segment: Segment, piece: Piece | None, before: int, block: str, reason: str) -> Decision:
    if piece is None:
        return Decision(
            segment_id=segment.id, block=block, action="trimmed", reason=reason, before=before, after=0
        )
    after = piece.rendition.tokens
    if piece.whole:
        why = "pinned" if segment.pinned else "fits" if reason != "key_moment" else reason
        return Decision(
            segment_id=segment.id, block=block, action="kept", reason=why, before=before, after=after
        )
    detail = f"Said in {after} instead of {before} tokens."
    return Decision(
        segment_id=segment.id,
        block=block,
        action="summarized",
        reason=reason,
        before=before,
        after=after,
        detail=detail,
    )
