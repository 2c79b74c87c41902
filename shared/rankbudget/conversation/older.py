"""When not all older steps and exchanges fit: shorten long texts before one is dropped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from .capping import LEAST_TOKENS, VERY_LEAST, cap_units, cuttable, shortened
from .selection import (
    MUST,
    REST_SHARE,
    STEPS,
    Link,
    Selection,
    in_order_of_importance,
    minimum_sets,
    until_full,
)
from .timeline import Timeline, Unit


def with_shortened(timeline: Timeline, room: int, minimum: int) -> Selection | None:
    """Returns what stays when long texts are shortened before a step or an exchange is dropped.

    The last exchanges first, whole where they leave `REST_SHARE` of the room to the rest or the rest is less.
    Then, newest first, each step is kept with at most `LEAST_TOKENS` of a result, and the first one without
    room for that with what is left, as the first exchange that has no results; one that no cut makes fit is
    left out. What no other step can use lengthens results, newest first. None if the question does not fit.
    """
    must = _last_exchanges(timeline, room, minimum)
    if must is None:
        return None
    units, caps, left = list(must.units), dict(must.caps), room - must.tokens
    short: list[list[Unit]] = []
    for link, fits in until_full(timeline, _the_rest(timeline, must.units, minimum), left):
        if fits:
            left -= link.price
            caps.update(link.caps)
            short += [link.units] if link.caps else []
        elif link.importance != MUST and (cut := _cut_to(timeline, link, left)):
            caps.update(cut)
            short, left = [], 0
        else:
            continue
        units += link.units
        if not left:
            break
    lengthen(timeline, short, caps, left)
    edits = shortened(timeline, caps)
    return Selection(units, timeline.cost(units, edits), edits=edits, caps=caps)


def _cut_to(timeline: Timeline, link: Link, room: int) -> Mapping[int, int] | None:
    """Returns the caps of a link that does not fit; None where it cannot be cut to the room."""
    if not timeline.shortens:
        return None
    is_step = link.importance == STEPS
    texts = [] if is_step else results_of(timeline, link.units, VERY_LEAST)
    floor = VERY_LEAST if texts or is_step else LEAST_TOKENS
    texts = texts or [i for unit in link.units for i in unit.positions()]
    return cap_units(timeline, link.units, room, at=texts, floor=floor)


def _last_exchanges(timeline: Timeline, room: int, minimum: int) -> Selection | None:
    """Returns the last exchanges, shortened where the rest would have no room otherwise."""
    count, most = timeline.thread.counter.count, room * REST_SHARE
    for whole in minimum_sets(timeline, minimum) if timeline.shortens else ():
        if timeline.cost(whole) <= room - most:
            break
        long = [i for i in cuttable(timeline, whole, last=False)[0] if count(timeline.text(i)) > LEAST_TOKENS]
        least = timeline.cost(whole, shortened(timeline, dict.fromkeys(long, LEAST_TOKENS)))
        if least <= room:
            rest = until_full(timeline, _the_rest(timeline, whole, minimum), min(most, room - least))
            return _select_least(timeline, room - sum([link.price for link, fits in rest if fits]))
    return _select_least(timeline, room)


def _the_rest(timeline: Timeline, must: Sequence[Unit], minimum: int) -> Iterator[Link]:
    """Yields what may be added to the last exchanges, each result with its least cap.

    These are their other steps, older turns, and which of the last exchanges is lost, as no cut makes it fit.
    """
    starts = {unit.start for unit in must}
    for importance, units in in_order_of_importance(timeline, minimum):
        lost = [unit for unit in units if unit.start not in starts]
        if importance == MUST and lost:
            yield Link(MUST, lost, timeline.cost(lost))
        elif importance != MUST:
            least = dict.fromkeys(_long_results(timeline, units), LEAST_TOKENS)
            yield Link(importance, units, timeline.cost(units, shortened(timeline, least)), least)


def _long_results(timeline: Timeline, units: Sequence[Unit]) -> list[int]:
    return results_of(timeline, units, LEAST_TOKENS) if timeline.shortens else []


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
