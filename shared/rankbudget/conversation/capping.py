"""When what must stay does not fit: shorten its long plain texts, largest first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from .selection import MUST, STEPS, Selection, in_order_of_importance
from .timeline import Timeline, Unit

LEAST_TOKENS = 200
"""No text of an exchange that could be dropped is cut below this."""
VERY_LEAST = 16
"""No text at all is cut below this."""
_ROUNDS = 4


def with_shortened(timeline: Timeline, found: Selection, room: int, minimum: int) -> Selection:
    """Returns what stays when long results of older steps are shortened before a step is dropped.

    Newest first, each step is kept with at most `LEAST_TOKENS` of a result, and the first one without room
    for that with what is left. What no other step can use lengthens results, newest first.
    """
    if not (found.older and timeline.shortens):
        return found
    units: list[Unit] = []
    short: list[list[Unit]] = []
    caps: dict[int, int] = {}
    left = room
    for importance, link in in_order_of_importance(timeline, minimum):
        results = [] if importance == MUST else results_of(timeline, link, LEAST_TOKENS)
        least = dict.fromkeys(results, LEAST_TOKENS)
        price = timeline.cost(link, shortened(timeline, least))
        if price > left:
            texts = results_of(timeline, link, VERY_LEAST)
            if importance == STEPS:
                texts = [i for unit in link for i in unit.positions()]
            cut = cap_units(timeline, link, left, cuttable=texts, floor=VERY_LEAST)
            if cut is not None:
                units += link
                caps.update(cut)
                short = []
            break
        left -= price
        units += link
        if results:
            caps.update(least)
            short.append(link)
    lengthen(timeline, short, caps, left)
    edits = shortened(timeline, caps)
    return Selection(units, timeline.cost(units, edits), edits=edits, caps=caps)


def lengthen(timeline: Timeline, links: Iterable[Sequence[Unit]], caps: dict[int, int], left: int) -> None:
    """Changes the `caps` of shortened results so that the first links take what is left."""
    for link in links:
        least = {i: caps.pop(i) for unit in link for i in unit.positions() if i in caps}
        if not least:
            continue
        spent = timeline.cost(link, shortened(timeline, least))
        left -= timeline.cost(link) - spent
        if left < 0:
            floor = min(least.values())
            room = left + timeline.cost(link)
            caps.update(cap_units(timeline, link, room, cuttable=least, floor=floor) or least)
            return


def may_be_short(timeline: Timeline, importance: int, units: Iterable[Unit]) -> bool:
    """Returns whether units may be kept with shortened results."""
    return timeline.shortens and importance != MUST and bool(results_of(timeline, units, VERY_LEAST))


def results_of(timeline: Timeline, units: Iterable[Unit], tokens: int) -> list[int]:
    """Returns where tool results with more than so many `tokens` of text are."""
    count, steps = timeline.thread.counter.count, [unit for unit in units if unit.stop - unit.start > 1]
    results = [i for unit in steps for i in unit.positions() if timeline.role(i) == "tool"]
    return [i for i in results if count(timeline.text(i)) > tokens]


def cap_units(
    timeline: Timeline,
    units: Sequence[Unit],
    room: int,
    *,
    cuttable: Collection[int],
    floor: int,
) -> Mapping[int, int] | None:
    """Returns how many tokens each long text may keep, by position; None when `units` cannot fit the room.

    Only texts at the positions `cuttable` are cut, none of them below `floor` tokens.
    """
    sizes = {position: timeline.thread.counter.count(timeline.text(position)) for position in cuttable}
    sizes = {position: size for position, size in sizes.items() if size > floor}
    if not sizes:
        return None
    allowed = room - timeline.cost(units) + sum(sizes.values())
    attempt = 0
    while True:
        level = floor if attempt == _ROUNDS else max(floor, _level(list(sizes.values()), allowed))
        caps = {position: level for position, size in sizes.items() if size > level}
        over = timeline.cost(units, shortened(timeline, caps)) - room
        if over <= 0:
            return caps
        if level == floor:
            return None
        allowed -= over
        attempt += 1


def shortened(timeline: Timeline, caps: Mapping[int, int]) -> dict[int, Any]:
    """Returns copies of the messages at the positions of `caps` with at most so many tokens of text."""
    from ..compression.structured import remembered_cut  # loaded only where a text is shortened

    made, counter = {}, timeline.thread.counter
    for position, tokens in caps.items():
        texts = timeline.texts(position)
        text = "\n".join(texts)
        if counter.count(text) <= tokens:
            continue  # a session's question may be another one than the one that it shortened
        cut = partial(remembered_cut, counter=counter, structured=timeline.role(position) == "tool")
        sizes = counter.count_many(texts)
        level = _level(sizes, tokens)
        # Each long block is cut by itself, so that a caption stays beside its image.
        if len(texts) > 1 and level >= VERY_LEAST:
            parts: Any = [t if n <= level else cut(t, level) for t, n in zip(texts, sizes, strict=True)]
        else:
            parts = cut(text, tokens)
        made[position] = timeline.codec.with_text(timeline.messages[position], parts)
    return made


def _level(sizes: list[int], allowed: int) -> int:
    """Returns the highest level at which texts of `sizes`, cut to it, add up to at most `allowed`."""
    left, count = allowed, len(sizes)
    for size in sorted(sizes):
        share = left // count
        if size > share:
            return share
        left -= size
        count -= 1
    return max(sizes)
