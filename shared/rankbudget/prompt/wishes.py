"""What each block wants: the cost of its pieces as the prompt shows them, and of what is around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..fitting.protocol import Fit, whole
from ..messages.measure import Measure
from ..messages.tags import JOINT, tag_lines, wrapper_of
from ..segment import Block, Segment
from .layout import REMEMBERED, STATIC
from .request import PromptRequest

UNBOUNDED = 1 << 40
"""More than any room."""
_PROBES = 3
"""Pieces of a block that a host renders to show what it puts around each."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a block wants."""

    wanted: int = 0  # tokens of all of it, frame included
    base: int = 0  # tokens of its frame: tags; for the first block of a message framing and notice, too
    each: int = 0  # tokens that a host's rendering adds to each piece
    pinned: int = 0  # tokens of what is never cut, frame included
    costs: Mapping[str, int] = field(default_factory=dict)  # of each whole segment, by its id


def wishes_of(
    request: PromptRequest, measure: Measure, blocks: Sequence[Block], tags: tuple[str, ...], empty: int
) -> dict[str, Wish]:
    """Returns what each block wants, by name; `empty` are the tokens of a host's prompt without any."""
    wishes: dict[str, Wish] = {}
    framed = False  # blocks that change every turn share one message, which is framed once
    for block in blocks:
        if not block.segments:
            wishes[block.name] = Wish()
        elif request.cost is not None:  # the strategy prices the segments; here they would be counted twice
            wishes[block.name] = Wish(wanted=UNBOUNDED)
        else:
            static = block.name in STATIC
            show = as_rendered(request, block.name, tags)
            counts = request.counter.count_many([show(s, s.text) for s in block.segments])
            base, each = request.frames.get(block.name, 0), 0
            if request.render is None:
                base = _frame_tokens(request, measure, block.name, framing=static or not framed)
            elif block.name not in request.frames:
                base, each = _host_frame(request, measure, block, counts, empty)
            framed = framed or not static
            counted = zip(block.segments, counts, strict=True)
            costs = [(s, tokens + each + request.beside.get(s.id, 0)) for s, tokens in counted]
            groups = {s.group for s in block.segments if s.pinned and s.group is not None}
            stay = [cost for s, cost in costs if block.pinned or s.pinned or s.group in groups]
            wishes[block.name] = Wish(
                wanted=base + sum([cost for _, cost in costs]),
                base=base,
                each=each,
                pinned=base + sum(stay) if stay else 0,
                costs={s.id: cost for s, cost in costs},
            )
    return wishes


def _frame_tokens(request: PromptRequest, measure: Measure, name: str, *, framing: bool) -> int:
    count = request.counter.count
    tags = sum(map(count, tag_lines(name)))
    if not framing:
        return tags
    told = name not in STATIC or name == REMEMBERED
    notice = count(request.notice + "\n") if request.notice and told else 0
    return tags + notice + measure.group([request.codec.make("system", "", origin=name)])


def _host_frame(
    request: PromptRequest, measure: Measure, block: Block, counts: Sequence[int], empty: int
) -> tuple[int, int]:
    """Returns the tokens that a host puts around a block, and around each of its pieces.

    The host's own rendering says so, with one of the shortest pieces in it and with a few.
    """
    assert request.render is not None
    shortest = sorted(range(len(counts)), key=counts.__getitem__)[:_PROBES]
    added = []
    for places in (shortest[:1], sorted(shortest)) if len(shortest) > 1 else (shortest,):
        pieces = tuple([whole(block.segments[i], counts[i]) for i in places])
        rendered = request.render({block.name: Fit(pieces=pieces, tokens=0)}, [])
        media = 0 if block.name == "knowledge" else sum([request.beside.get(p.segment.id, 0) for p in pieces])
        added.append(measure.total(list(rendered)) - empty - sum([counts[i] for i in places]) - media)
    each = max(0, -(-(added[-1] - added[0]) // max(1, len(shortest) - 1)))
    return max(0, added[0] - each), each


def as_rendered(request: PromptRequest, name: str, tags: tuple[str, ...]) -> Callable[[Segment, str], str]:
    """Returns how a text of a segment of a block reads in the prompt, wrapping included."""
    wrap = wrapper_of(name, tags) if request.render is None else lambda _, text: text + JOINT
    shown = request.shown
    if shown is None:
        return wrap
    return lambda segment, text: wrap(segment, shown(name, segment, text))
