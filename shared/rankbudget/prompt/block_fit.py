"""The blocks that compete for the room: what each wants, what each keeps within its grant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ..fitting.protocol import Fit
from ..fitting.strategies import strategy_for
from ..messages.measure import Measure
from ..messages.tags import JOINT, close_tag, open_tag, wrapper_of
from ..segment import Block, Segment
from .layout import STATIC
from .request import PromptRequest

__all__ = ["NOTHING", "BlockInput", "Wish", "as_shown", "fit_block", "wishes_of"]

_ALL = 1 << 40
"""More than any room."""
NOTHING = Fit(pieces=(), tokens=0, decisions=())


@dataclass(frozen=True, slots=True)
class BlockInput:
    """A block as its reader sees it, with its rank and the question it should answer."""

    block: Block
    rank: int
    query: str


@dataclass(frozen=True, slots=True)
class Wish:
    """What a block wants.

    Args:
        wanted: tokens of all of it, frame included.
        base: tokens of its frame: tags, and for the first block of a message its framing and notice.
        pinned: tokens of what is never cut, frame included.
    """

    wanted: int = 0
    base: int = 0
    pinned: int = 0


def wishes_of(
    request: PromptRequest, measure: Measure, blocks: tuple[BlockInput, ...], tags: tuple[str, ...]
) -> dict[str, Wish]:
    """Returns what each block wants, by name."""
    wishes: dict[str, Wish] = {}
    changing = (
        False  # a block that changes every turn came before: the message that holds them is framed once
    )
    for given in blocks:
        block = given.block
        if not block.segments:
            wishes[block.name] = Wish()
            continue
        if request.cost is not None:  # the strategy prices the segments; counting them here would count twice
            wishes[block.name] = Wish(wanted=_ALL)
            continue
        base = _base(request, measure, block.name, framing=block.name in STATIC or not changing)
        changing = changing or block.name not in STATIC
        costs = request.counter.count_many(
            [_piece(request, block.name, tags, s, s.text) for s in block.segments]
        )
        if request.beside:
            costs = [c + request.beside.get(s.id, 0) for c, s in zip(costs, block.segments, strict=True)]
        stay = _pinned_positions(block)
        pinned = base + sum([costs[i] for i in stay]) if stay else 0
        wishes[block.name] = Wish(base + sum(costs), base, pinned)
    return wishes


def fit_block(
    request: PromptRequest, given: BlockInput, base: int, granted: int, tags: tuple[str, ...]
) -> Fit:
    """Returns what a block keeps within `granted` tokens, its frame of `base` tokens included."""
    block, counter = given.block, request.counter
    segments = block.segments
    if block.pinned:
        segments = tuple([replace(s, pinned=True) for s in segments])
    strategy = strategy_for(block.name, block.strategy, scorer=request.scorer)
    fit = strategy.fit(
        segments,
        limit=max(0, granted - base),
        counter=counter,
        block=block.name,
        query=given.query,
        cost=request.cost
        or (
            lambda segment, text: (
                counter.count(_piece(request, block.name, tags, segment, text))
                + request.beside.get(segment.id, 0)
            )
        ),
    )
    return replace(fit, tokens=fit.tokens + base) if fit.pieces else fit


def as_shown(fits: Mapping[str, Fit], shown: Callable[[str, Segment, str], str]) -> dict[str, Fit]:
    """Returns fits whose pieces read as the prompt shows them."""
    made: dict[str, Fit] = {}
    for name, fit in fits.items():
        pieces = [
            replace(p, rendition=replace(p.rendition, text=shown(name, p.segment, p.rendition.text)))
            for p in fit.pieces
        ]
        made[name] = replace(fit, pieces=tuple(pieces))
    return made


def _base(request: PromptRequest, measure: Measure, name: str, *, framing: bool) -> int:
    if request.render is not None:
        return 0
    count = request.counter.count
    tags = count(open_tag(name)) + count(close_tag(name))
    if not framing:
        return tags
    notice = count(request.notice + "\n") if request.notice and name not in STATIC else 0
    return tags + notice + measure.group([request.codec.make("system", "", origin=name)])


def _pinned_positions(block: Block) -> list[int]:
    """Returns the positions of the segments that are never cut: the pinned ones, with all of their groups."""
    if block.pinned:
        return list(range(len(block.segments)))
    pinned = [i for i, s in enumerate(block.segments) if s.pinned]
    groups = {block.segments[i].group for i in pinned} - {None}
    if not groups:
        return pinned
    return [i for i, s in enumerate(block.segments) if s.pinned or s.group in groups]


def _piece(request: PromptRequest, name: str, tags: tuple[str, ...], segment: Segment, text: str) -> str:
    if request.shown is not None:
        text = request.shown(name, segment, text)
    return text + JOINT if request.render is not None else wrapper_of(name, tags)(segment, text)
