"""When not all older steps and exchanges fit: shorten long texts before one is dropped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from .capping import LEAST_TOKENS, VERY_LEAST, cap_units, cuttable, shortened
from .selection import MUST, REST_SHARE, STEPS, Selection, in_order_of_importance, minimum_sets
from .timeline import Timeline
from .units import Unit


def with_shortened(timeline: Timeline, room: int, minimum: int) -> Selection | None:
    """Returns what stays when long texts are shortened before a step or an exchange is dropped.

    The last exchanges first, whole where they leave `REST_SHARE` of the room to the rest or the rest is less.
    Then, newest first, each step is kept with at most `LEAST_TOKENS` of a result, and the first one without
    room for that with what is left, as the first exchange that has no results. What no other step can use
    lengthens results, newest first. None when not even the question fits.
    """
    must = _last_exchanges(timeline, room, minimum)
    if must is None or not timeline.shortens:
        return must
    units, caps, left = list(must.units), dict(must.caps), room - must.tokens
    short: list[list[Unit]] = []
    for importance, link, least, price in _the_rest(timeline, must.units, minimum):
        if price > left:
            cut = _cut_to(timeline, importance, link, left)
            if cut:
                units += link
                caps.update(cut)
                short = []
            break
        left -= price
        units += link
        if least:
            caps.update(least)
            short.append(link)
    lengthen(timeline, short, caps, left)
    edits = shortened(timeline, caps)
    return Selection(units, timeline.cost(units, edits), edits=edits, caps=caps)


def _cut_to(timeline: Timeline, importance: int, link: Sequence[Unit], room: int) -> Mapping[int, int] | None:
    """Returns the caps of the first link that does not fit; None where it cannot be cut to the room."""
    texts = [] if importance == STEPS else results_of(timeline, link, VERY_LEAST)
    floor = VERY_LEAST if texts or importance == STEPS else LEAST_TOKENS
    texts = texts or [i for unit in link for i in unit.positions()]
    return cap_units(timeline, link, room, at=texts, floor=floor)


def _last_exchanges(timeline: Timeline, room: int, minimum: int) -> Selection | None:
    """Returns the last exchanges, shortened where the rest would have no room otherwise."""
    whole = next(iter(minimum_sets(timeline, minimum)), [])
    most = room * REST_SHARE
    if timeline.shortens and timeline.cost(whole) > room - most:
        count = timeline.thread.counter.count
        long = [i for i in cuttable(timeline, whole, last=False)[0] if count(timeline.text(i)) > LEAST_TOKENS]
        least = timeline.cost(whole, shortened(timeline, dict.fromkeys(long, LEAST_TOKENS)))
        reserve = [price for *_, price in _the_rest(timeline, whole, minimum, min(most, room - least))]
        return _select_least(timeline, room - sum(reserve))
    return _select_least(timeline, room)


def _the_rest(
    timeline: Timeline, must: Sequence[Unit], minimum: int, most: float = math.inf
) -> Iterator[tuple[int, list[Unit], dict[int, int], int]]:
    """Yields what may be added to the last exchanges, with its least caps and price, up to `most` tokens.

    These are their other steps, and older turns; nothing where one of the last exchanges is lost.
    """
    starts = {unit.start for unit in must}
    for importance, link in in_order_of_importance(timeline, minimum):
        if importance == MUST and not {unit.start for unit in link} <= starts:
            return
        if importance == MUST:
            continue
        long = results_of(timeline, link, LEAST_TOKENS)
        least = dict.fromkeys(long, LEAST_TOKENS)
        price = timeline.cost(link, shortened(timeline, least))
        most -= price
        if most < 0:
            return
        yield importance, link, least, price


def _select_least(timeline: Timeline, room: int) -> Selection | None:
    """Keeps fewer and fewer exchanges, with long texts shortened; the question is cut last, if at all."""
    sets = minimum_sets(timeline, timeline.thread.min_exchanges)
    if timeline.ended:  # an old question is useless without its answer
        sets = [units for units in sets if len(units) > 1]
    for units in sets:
        price = timeline.cost(units)
        if price <= room:
            return Selection(units, price)
        last = units is sets[-1]
        floor = VERY_LEAST if last else LEAST_TOKENS
        for texts in cuttable(timeline, units, last=last):
            caps = cap_units(timeline, units, room, at=texts, floor=floor)
            if caps is not None:
                edits = shortened(timeline, caps)
                return Selection(units, timeline.cost(units, edits), edits=edits, caps=caps)
    return Selection([], 0) if timeline.ended and room >= 0 else None


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
            caps.update(cap_units(timeline, link, room, at=least, floor=floor) or least)
            return


def may_be_short(timeline: Timeline, importance: int, units: Iterable[Unit]) -> bool:
    """Returns whether units may be kept with shortened results."""
    return timeline.shortens and importance != MUST and bool(results_of(timeline, units, VERY_LEAST))


def results_of(timeline: Timeline, units: Iterable[Unit], tokens: int) -> list[int]:
    """Returns where tool results with more than so many `tokens` of text are."""
    count, steps = timeline.thread.counter.count, [unit for unit in units if unit.stop - unit.start > 1]
    results = [i for unit in steps for i in unit.positions() if timeline.role(i) == "tool"]
    return [i for i in results if count(timeline.text(i)) > tokens]
