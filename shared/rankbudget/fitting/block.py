"""Fits one block: pins, groups and decisions, around any strategy, which has a name or is an object."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from typing import Any, cast

from ..counting.protocol import TokenCounter
from ..errors import BudgetConfigError, BudgetExceededError, counted
from ..relevance.protocol import Scorer
from ..segment import Action, Decision, RenditionKind, Segment
from .protocol import Cost, Fit, FitStrategy, Group, Piece, asked_once, members_of, plain_cost, whole

_CLASSES = {
    "best_first": "evidence.BestFirst",
    "evidence": "evidence.Evidence",
    "in_order": "truncate.Truncate",
    "memories": "evidence.Memories",
    "selective": "selective.Selective",
    "truncate": "truncate.Truncate",
}
"""Loaded only where a block asks for them."""
_DEFAULTS = {
    "system": "truncate",
    "project": "truncate",
    "task": "truncate",
    "memory": "memories",
    "examples": "best_first",
}
_OUTCOMES: dict[RenditionKind, tuple[Action, str]] = {
    "whole": ("kept", "fits"),
    "truncated": ("truncated", "no_room"),
    "compressed": ("compressed", "best_sentences"),
    "summarized": ("summarized", "filler"),
    "placeholder": ("summarized", "no_room"),
}
"""What became of a segment by its rendition, and why, where the strategy does not say."""


_MOST_AROUND = 64
"""Tokens that tags may have around a text; a blank one with more is a picture, priced by its owner."""
_BLANK = "filler", "It is blank, and not all texts fit."
_Unit = tuple[Segment, list[int]]
"""What is kept or dropped as one, a segment or a group, and the positions of its members."""


@dataclass(eq=False)
class _Later(Sequence[Decision]):
    """Decisions that are made when they are read: few reports are looked at."""

    make: Callable[[], Sequence[Decision]]

    @cached_property
    def _made(self) -> Sequence[Decision]:
        return self.make()

    def __getitem__(self, place: Any) -> Any:
        return self._made[place]

    def __len__(self) -> int:
        return len(self._made)


def fit_block(
    segments: Sequence[Segment],
    *,
    strategy: FitStrategy,
    limit: int,
    counter: TokenCounter,
    block: str,
    query: str = "",
    cost: Cost | None = None,
    media: Container[str] = (),
) -> Fit:
    """Returns the pieces of a block that cost at most `limit` tokens, and a decision for every segment.

    Pinned segments stay with their groups and are paid for first; the strategy picks from the others. Where
    not all fit, blank texts are dropped first, but for those of segments with `media`. `cost` comes from
    `asked_once`.

    Raises:
        BudgetExceededError: pinned segments need more than `limit`.
        BudgetConfigError: the strategy broke a rule of `FitStrategy`.
    """
    price = cost or asked_once(plain_cost(counter))
    units = _units(segments)
    free = [unit for unit in units if not unit[0].pinned]
    pinned = sum([price(one, one.text) for one, _ in units if one.pinned])
    if pinned > limit:
        raise _pins_exceed(segments, limit, pinned, block)
    blank = _blank(free, limit - pinned, price, media)
    free = [unit for unit in free if unit[0].id not in blank]
    found = Fit(pieces=(), tokens=0)
    if free:
        found = strategy.fit(
            [one for one, _ in free],
            limit=limit - pinned,
            counter=counter,
            block=block,
            query=query,
            cost=price,
        )
        _check(found, free, strategy, limit - pinned, block)
    placed, reasons = _placed(found, units, price), {**found.reasons, **dict.fromkeys(blank, _BLANK)}
    tokens = sum([piece.rendition.tokens for piece in placed.values()])

    def decide() -> tuple[Decision, ...]:
        decisions: dict[int, Decision] = {}
        for one, at in units:
            own, needed = reasons.get(one.id), price(one, one.text)
            for i, member in zip(at, members_of(one), strict=True):
                piece = placed.get(i)
                why = own if piece else _why_dropped(own, needed, limit, limit - tokens)
                decisions[i] = _decision(member, piece, price(member, member.text), block, why)
        return tuple([decisions[i] for i in range(len(segments))])

    return dataclasses.replace(
        found,
        pieces=tuple(placed.values()),
        tokens=tokens,
        decisions=_Later(decide),
        needed=partial(_needed, found, blank, units, pinned),
    )


def _blank(free: Sequence[_Unit], room: int, price: Cost, media: Container[str]) -> dict[str, int]:
    """Returns the segments without text, lines and media, and what all need; none where all fit."""
    texts = [one for one, _ in free if not (one.text.strip() or one.beside or one.role or one.id in media)]
    blank = [one for one in texts if not isinstance(one, Group) and price(one, "") <= _MOST_AROUND]
    all_of_them = sum([price(one, one.text) for one, _ in free]) if blank else 0
    return {one.id: all_of_them for one in blank} if all_of_them > room else {}


def _units(segments: Sequence[Segment]) -> list[_Unit]:
    by_key: dict[str | int, list[int]] = {}
    for i, segment in enumerate(segments):
        by_key.setdefault(i if segment.group is None else segment.group, []).append(i)
    return [
        (segments[at[0]] if len(at) == 1 else _group([segments[i] for i in at]), at) for at in by_key.values()
    ]


def _group(members: Sequence[Segment]) -> Group:
    """Returns one segment for a group: its first member with all texts, the best score, and every pin."""
    first = members[0]
    scores = [member.score for member in members if member.score is not None]
    fields = {field.name: getattr(first, field.name) for field in dataclasses.fields(Segment)}
    fields["text"] = "\n".join([member.text for member in members])
    fields["score"] = max(scores) if len(scores) == len(members) else None
    fields["pinned"] = any(member.pinned for member in members)
    return Group(**fields, members=tuple(members))


def _needed(found: Fit, blank: Mapping[str, int], units: Sequence[_Unit], pinned: int) -> dict[str, int]:
    """Returns the smallest limit that keeps something of each dropped segment, pinned ones paid for."""
    least = {**found.needed(), **blank}
    known = [one for one, _ in units if one.id in least]
    return {member.id: pinned + least[one.id] for one in known for member in members_of(one)}


def _check(found: Fit, free: Sequence[_Unit], strategy: FitStrategy, room: int, block: str) -> None:
    """Raises an error where a strategy of somebody's own breaks a rule that the prompt depends on."""
    given = {id(one) for one, _ in free}
    used = sum([piece.rendition.tokens for piece in found.pieces])
    problem = f"keep at most {room} tokens (got {used})" if used > room else ""
    for piece in found.pieces:
        if id(piece.segment) not in given:
            problem = f"keep only segments that it was given, each once (got {piece.segment.id!r})"
        elif isinstance(piece.segment, Group) and not piece.whole:
            problem = f"keep a group whole or not at all (got a part of {piece.segment.id!r})"
        given.discard(id(piece.segment))
    if problem:
        msg = (
            f"the strategy {type(strategy).__name__} of block {block!r} must {problem}. "
            "Test it with FitStrategyConformance."
        )
        raise BudgetConfigError(msg)


def _placed(found: Fit, units: Sequence[_Unit], price: Cost) -> dict[int, Piece]:
    """Returns the pieces by position, in prompt order; a strategy's own order starts with pinned ones."""
    places = {id(one): at for one, at in units}
    pinned = [place for one, at in units if one.pinned for place in zip(at, members_of(one), strict=True)]
    placed = {i: whole(member, price(member, member.text)) for i, member in pinned}
    order = [places[id(piece.segment)][0] for piece in found.pieces]
    for piece in found.pieces:
        one, at = piece.segment, places[id(piece.segment)]
        for i, member in zip(at, members_of(one), strict=True):
            placed[i] = piece if member is one else whole(member, price(member, member.text))
    return dict(sorted(placed.items())) if order == sorted(order) else placed


def _why_dropped(own: tuple[str, str] | None, tokens: int, limit: int, left: int) -> tuple[str, str]:
    if own and own[0]:
        return own
    reason, detail = "no_room", ""
    if tokens > limit:
        reason, detail = "too_large", f"Needs {counted(tokens, 'token')}; the block has {limit} for segments."
    elif tokens > left:
        detail = f"Needs {counted(tokens, 'token')}; {left} of the {limit} for segments are left."
    return reason, own[1] if own else detail


def _decision(
    segment: Segment, piece: Piece | None, before: int, block: str, why: tuple[str, str] | None
) -> Decision:
    action, usual = _OUTCOMES[piece.rendition.kind] if piece else ("trimmed", "no_room")
    reason, detail = why or (usual, "")
    return Decision(
        segment_id=segment.id,
        block=block,
        action=action,
        reason="pinned" if segment.pinned else reason,
        before=before,
        after=piece.rendition.tokens if piece else 0,
        detail=detail,
    )


def _pins_exceed(segments: Sequence[Segment], limit: int, needed: int, block: str) -> BudgetExceededError:
    names = [segment.id for segment in segments if segment.pinned]
    msg = (
        f"pinned segments of block {block!r} need {needed} tokens, allowed: {limit}; "
        f"give the block {needed - limit} more or unpin some of {names[:10]!r}"
    )
    return BudgetExceededError(msg, limit=limit, needed=needed, blocks={block: needed})


def strategy_for(block: str, strategy: Any = None, *, scorer: Scorer | None = None) -> FitStrategy:
    """Returns the strategy of a block; BudgetConfigError for an unknown name or an object without `fit`."""
    if callable(getattr(strategy, "fit", None)) and not isinstance(strategy, type):
        return cast("FitStrategy", strategy)
    name = strategy or _DEFAULTS.get(block, "evidence")
    if isinstance(name, str) and name in _CLASSES:
        module, _, made = _CLASSES[name].partition(".")
        options = {"scorer": scorer} if module == "evidence" else {}
        return cast("FitStrategy", getattr(import_module(f"{__package__}.{module}"), made)(**options))
    msg = (
        f"strategy of block {block!r} must be one of {', '.join(map(repr, _CLASSES))}, "
        f"or an object with fit() (got {strategy!r})."
    )
    raise BudgetConfigError(msg)
