"""What each block wants: the cost of its pieces as the prompt shows them, and of what is around them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from ..fitting.protocol import Cost, Fit, asked_once, whole
from ..messages.measure import Measure
from ..messages.tags import JOINT, escape_text, tag_lines, wrapper_of
from ..segment import Block, Segment
from .layout import REMEMBERED, STATIC
from .request import PromptRequest

UNBOUNDED = 1 << 40
"""More than any room."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a block wants."""

    wanted: int = 0  # tokens of all of it, frame included; `UNBOUNDED` where that is more than the room
    base: int = 0  # tokens of its frame: tags; for the first block of a message framing and notice, too
    pinned: int = 0  # tokens of what is never cut, frame included
    cost: Cost = lambda _, text: len(text)  # of a text of a segment; not asked where there is none

    def all_of(self, block: Block) -> int:
        """Returns the tokens of all of the block; what did not matter for the plan is counted now."""
        return self.base + sum([self.cost(s, s.text) for s in block.segments])


def wishes_of(
    request: PromptRequest,
    measure: Measure,
    blocks: Sequence[Block],
    tags: tuple[str, ...],
    empty: int,
    room: int,
) -> dict[str, Wish]:
    """Returns what each block wants of the room, by name; a host's prompt without any has `empty` tokens."""
    wishes: dict[str, Wish] = {}
    framed = False  # blocks that change every turn share one message, which is framed once
    for block in blocks:
        name, static = block.name, block.name in STATIC
        if not block.segments:
            wishes[name] = Wish()
        elif request.cost is not None:  # the strategy prices the segments; here they would be counted twice
            wishes[name] = Wish(UNBOUNDED, cost=asked_once(request.cost))
        else:
            base, each = request.frames.get(name, 0), dict[str, int]()
            if request.render is None:
                base = _frame_tokens(request, measure, name, framing=static or not framed)
            elif name not in request.frames:
                base, each = _host_frame(request, measure, block, empty, tags)
            framed = framed or not static
            wishes[name] = _wish(block, base, _as_rendered(request, block, tags, each), room)
    return wishes


def _wish(block: Block, base: int, cost: Cost, room: int) -> Wish:
    """Returns the wish of a block; if it is larger than the room, no more is counted than shows that."""
    groups = {s.group for s in block.segments if s.pinned and s.group is not None}
    stay = [cost(s, s.text) for s in block.segments if block.pinned or s.pinned or s.group in groups]
    wish = Wish(UNBOUNDED, base, base + sum(stay) if stay else 0, cost)
    so_far = accumulate((cost(s, s.text) for s in block.segments), initial=base)
    fits = block.pinned or all(tokens <= room for tokens in so_far)
    return replace(wish, wanted=wish.all_of(block)) if fits else wish


def _frame_tokens(request: PromptRequest, measure: Measure, name: str, *, framing: bool) -> int:
    count = request.counter.count
    tags = sum(map(count, tag_lines(name)))
    if not framing:
        return tags
    told = name not in STATIC or name == REMEMBERED
    notice = count(request.notice + "\n") if request.notice and told else 0
    return tags + notice + measure.group([request.codec.make("system", "", origin=name)])


def _host_frame(
    request: PromptRequest, measure: Measure, block: Block, empty: int, tags: tuple[str, ...]
) -> tuple[int, dict[str, int]]:
    """Returns the tokens that a host puts around a block, and around each of its segments.

    The host's own rendering says so, with each of two pieces in it and with both: those with least and with
    most around them in our tags, as a long source. The others are between these in the same proportion: all
    as the tags say where the host shows these, all alike where it shows texts alone.
    """
    render, segments, around = request.render, block.segments, _around(request, block, tags)
    assert render is not None
    show = _shown_by(request, block.name, tags)
    counts = request.counter.count_many([show(s, s.text) for s in segments])
    least = min(range(len(counts)), key=lambda i: (around[i], counts[i]))
    most = max(range(len(counts)), key=lambda i: (around[i], i != least, -counts[i]))

    def added(*places: int) -> int:
        pieces = tuple([whole(segments[i], counts[i]) for i in places])
        rendered = render({block.name: Fit(pieces=pieces, tokens=0)}, [])
        media = 0 if block.name == "knowledge" else sum([request.beside.get(p.segment.id, 0) for p in pieces])
        return measure.total(list(rendered)) - empty - sum([counts[i] for i in places]) - media

    low = max(0, added(least))
    if least == most:
        own = min(low, around[least])
        return low - own, {segments[least].id: own}
    high = added(most)
    base = low + high - added(*sorted((least, most)))
    apart = around[most] - around[least]
    slope = (high - low) / apart if apart else 0.0
    first = (low if apart else max(low, high)) - base
    each = [math.ceil(first + slope * (own - around[least])) for own in around]
    return max(0, base), {s.id: max(0, tokens) for s, tokens in zip(segments, each, strict=True)}


def _around(request: PromptRequest, block: Block, tags: tuple[str, ...]) -> list[int]:
    """Returns how many tokens our tags put around each segment of a block, escapes included."""
    count, wrap, found = request.counter.count, wrapper_of(block.name, tags), list[int]()
    for segment in block.segments:
        text = segment.text if request.shown is None else request.shown(block.name, segment, segment.text)
        escaped = escape_text(text, tags=tags)
        found.append(count(wrap(segment, "")) + (count(escaped) - count(text) if escaped != text else 0))
    return found


def _as_rendered(
    request: PromptRequest, block: Block, tags: tuple[str, ...], each: Mapping[str, int]
) -> Cost:
    """Returns what a text of a segment costs in the prompt, media and what a host adds to `each` included."""
    show, count, beside = _shown_by(request, block.name, tags), request.counter.count, request.beside
    return asked_once(lambda s, text: count(show(s, text)) + each.get(s.id, 0) + beside.get(s.id, 0))


def _shown_by(request: PromptRequest, name: str, tags: tuple[str, ...]) -> Callable[[Segment, str], str]:
    """Returns how a text of a segment of a block reads in the prompt, wrapping included."""
    wrap = wrapper_of(name, tags) if request.render is None else lambda _, text: text + JOINT
    shown = request.shown
    if shown is None:
        return wrap
    return lambda segment, text: wrap(segment, shown(name, segment, text))
