"""When not all older steps and exchanges fit: shorten long texts before one is dropped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .capping import LEAST_TOKENS, VERY_LEAST, cap_units, shortened
from .selection import MUST, STEPS, Selection, in_order_of_importance
from .timeline import Timeline, Unit


def with_shortened(timeline: Timeline, room: int, minimum: int) -> Selection:
    """Returns what stays when long texts of older steps and exchanges are shortened before one is dropped.

    Newest first, each step is kept with at most `LEAST_TOKENS` of a result, and the first one without room
    for that with what is left, as the first exchange that has no results. What no other step can use
    lengthens results, newest first.
    """
    units: list[Unit] = []
    short: list[list[Unit]] = []
    caps: dict[int, int] = {}
    left = room
    for importance, link in in_order_of_importance(timeline, minimum):
        results = [] if importance == MUST else results_of(timeline, link, LEAST_TOKENS)
        least = dict.fromkeys(results, LEAST_TOKENS)
        price = timeline.cost(link, shortened(timeline, least))
        if price > left:
            texts = [] if importance == STEPS else results_of(timeline, link, VERY_LEAST)
            floor = VERY_LEAST if texts or importance == STEPS else LEAST_TOKENS
            texts = texts or [i for unit in link for i in unit.positions()]
            cut = cap_units(timeline, link, left, cuttable=texts, floor=floor)
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
