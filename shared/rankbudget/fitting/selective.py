"""Selective: what matters stays whole, other segments are shortened, old filler goes; no model is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

from ..compression.extractive import extractive_summary
from ..compression.key_moments import find_moments, is_filler, weigh
from ..counting.protocol import TokenCounter
from ..errors import check_choice, check_count, refuse
from ..segment import Rendition, Segment
from .doubles import find_doubles
from .protocol import Cost, Fit, Group, Piece, members_of, plain_cost, whole

Preservation = Literal["preserve_full", "discard", "summarize"]
_FATES: tuple[Preservation, ...] = get_args(Preservation)
"""Of a group's members, the first of these decides."""
_EARLIER = "[Earlier: {}]"


def plan_segments(
    segments: Sequence[Segment], *, recent: int = 6, old: int = 50
) -> dict[Preservation, set[str]]:
    """Returns ids by what should become of them; nearer filler is summarized, pleasantries are discarded."""
    plan: dict[Preservation, set[str]] = {fate: set() for fate in _FATES}
    for i, segment in enumerate(segments):
        age = len(segments) - i
        moments = find_moments(segment.text)
        if age <= recent or moments - {"name", "number", "quote"} or len(moments) > 1:
            plan["preserve_full"].add(segment.id)
        elif is_filler(segment.text) or (age > old and not moments):
            plan["discard"].add(segment.id)
        else:
            plan["summarize"].add(segment.id)
    return plan


class Selective:
    """Preserves key moments, summarizes the rest, discards filler.

    When everything fits, only what a plan of yours discards or summarizes is touched. Otherwise what the
    plan preserves comes first, then the newest, then key moments by weight, then the rest in few words. A
    segment's own summary (`metadata["summary"]`) is used where there is one.

    Args:
        plan: ids to "preserve_full", "summarize" and "discard"; they overrule the analysis.
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
        plan: Mapping[str, Iterable[str]] | None = None,
        recent: int = 6,
        old: int = 50,
        earlier_tokens: int = 40,
    ) -> None:
        problems: list[str] = []
        for key in plan or {}:
            check_choice("a key of the plan", key, problems, _FATES)
        self.plan = {fate: set((plan or {}).get(fate, ())) for fate in _FATES}
        fates = Counter([name for ids in self.plan.values() for name in ids])
        problems += [
            f"the plan must give each id one fate (got {name!r} in several)"
            for name, count in sorted(fates.items())
            if count > 1
        ]
        self.recent = check_count("recent", recent, problems)
        self.old = check_count("old", old, problems)
        refuse(problems)
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
        price = cost or plain_cost(counter)
        costs = [price(segment, segment.text) for segment in segments]
        fates, order, reasons, why = self._planned(segments, costs, limit)
        pieces: dict[int, Piece] = {}
        room = limit
        for i in order:
            if i in reasons:
                continue
            if fates[i] == "discard":
                reasons[i] = "filler"
                continue
            piece = whole(segments[i], costs[i]) if costs[i] <= room else None
            moment = fates[i] == "preserve_full"
            if piece is None or not (moment or costs[i] <= self.earlier_tokens):
                piece = self._shortened(segments[i], min(room, costs[i] - 1), counter, price) or piece
            reasons[i] = "no_room"
            if piece:
                pieces[i] = piece
                room -= piece.rendition.tokens
                reasons[i] = why if moment else "fits" if piece.whole else "filler"
        return Fit(
            pieces=tuple([pieces[i] for i in sorted(pieces)]),
            tokens=limit - room,
            reasons={segments[i].id: (reason, "") for i, reason in reasons.items()},
        )

    def _planned(
        self, segments: Sequence[Segment], costs: Sequence[int], limit: int
    ) -> tuple[list[Preservation], Sequence[int], dict[int, str], str]:
        """Returns fates, positions (what must stay first), reasons of what goes, and why key moments stay."""
        planned = [_fate(segment, self.plan) for segment in segments]
        reasons = {i: "discarded" for i, fate in enumerate(planned) if fate == "discard"}
        order = range(len(segments))
        if sum([tokens for i, tokens in enumerate(costs) if i not in reasons]) <= limit:
            return [fate or "preserve_full" for fate in planned], order, reasons, "fits"
        for i in find_doubles(segments, reversed(order)):
            reasons.setdefault(i, "duplicate")
        found = plan_segments(segments, recent=self.recent, old=self.old)
        fates = [
            fate or _fate(segment, found) or "summarize"
            for fate, segment in zip(planned, segments, strict=True)
        ]
        ranks = []
        for i, segment in enumerate(segments):
            rank = (0, 0.0) if planned[i] == "preserve_full" else (1, 0.0)
            if fates[i] != "preserve_full":
                rank = 3, 0.0
            elif rank[0] and len(segments) - i > self.recent:
                rank = 2, -weigh(segment.text)
            ranks.append((rank, -i))
        return fates, sorted(order, key=ranks.__getitem__), reasons, "key_moment"

    def _shortened(self, segment: Segment, room: int, counter: TokenCounter, price: Cost) -> Piece | None:
        """Returns a segment in few words that cost at most `room`; None where nothing is left to say."""
        if isinstance(segment, Group) or segment.text.startswith(_EARLIER[:10]):
            return None
        limit = min(self.earlier_tokens, room - price(segment, _EARLIER.format("")))
        own = segment.metadata.get("summary")
        said = own if isinstance(own, str) and own.strip() else segment.text
        while limit > 0:
            text = extractive_summary(said, limit, counter)
            if not text.strip(" ."):
                return None
            shown = _EARLIER.format(text)
            tokens = price(segment, shown)
            if tokens <= room:
                return Piece(segment, Rendition(kind="summarized", text=shown, tokens=tokens))
            limit -= max(tokens - room, 1)
        return None


def _fate(segment: Segment, plan: Mapping[Preservation, set[str]]) -> Preservation | None:
    """Returns what a plan says about a segment, for a group about its members; None for nothing."""
    ids = {member.id for member in members_of(segment)}
    return next((fate for fate in _FATES if ids & plan.get(fate, set())), None)
