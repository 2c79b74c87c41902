"""When not all older steps and exchanges fit: shorten long texts before one is dropped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from .capping import LEAST_TOKENS, VERY_LEAST, cap_units, cuttable, shortened
from .selection import (
    ALL,
    BEFORE_NEWEST,
    MUST,
    NEWEST,
    REST_SHARE,
    STEPS,
    Selection,
    last_turns,
    left_by_running,
    left_unread,
    minimum_sets,
    order_of,
)
from .timeline import Timeline
from .units import Unit


def with_shortened(timeline: Timeline, room: int, minimum: int) -> Selection | None:
    """Returns what stays when long texts are shortened before a step or an exchange is dropped.

    A running turn stays whole, and older turns have what it leaves; where it does not fit, it has all of the
    room. None when not even the question fits.
    """
    running, left = timeline.running, left_by_running(timeline, room)
    if running is None or left is None:
        return _shortened(timeline, room, max(1, minimum), ALL)
    if left < 0:
        return _shortened(timeline, room, 1, NEWEST)
    share = _share_of(timeline, left, room)
    older = _shortened(timeline, share, minimum - 1, BEFORE_NEWEST) or Selection([], 0)
    return replace(older, units=running.units + older.units, tokens=room - left + older.tokens)


def _share_of(timeline: Timeline, left: int, room: int) -> int:
    """Returns what older turns may have of the tokens `left` by a running turn, which grows with each step.

    Where nothing but the messages says where the last cut was, they have half of the room, a quarter, and so
    on. So the start of what is kept changes a few times only.
    """
    if timeline.thread.cut == "fill" or timeline.thread.remembers:
        return left
    while room > left:
        room //= 2
    return room


def _shortened(timeline: Timeline, room: int, minimum: int, span: slice) -> Selection | None:
    """Returns what stays of some turns when long texts are shortened before one is dropped.

    The last exchanges first, whole where they leave `REST_SHARE` of the room to the rest or the rest is less.
    Then, newest first, each step is kept with at most `LEAST_TOKENS` of its result, or half as many of each
    of several, and the first one without room for that with what is left, as the first exchange that has no
    results. What no other step can use lengthens results, newest first.
    """
    must = _last_exchanges(timeline, room, minimum, span)
    if must is None or not timeline.shortens:
        return must
    if any(must.caps.get(i, LEAST_TOKENS) < LEAST_TOKENS for i in _unread_results(timeline, minimum, span)):
        return must  # the rest would have what is left by rounding, which a larger room need not leave
    units, caps, left = list(must.units), dict(must.caps), room - must.tokens
    short: list[list[Unit]] = []
    for importance, link, least, price in _the_rest(timeline, must.units, minimum, span):
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
    return cap_units(timeline, link, room, at=dict.fromkeys(texts, floor))


def _last_exchanges(timeline: Timeline, room: int, minimum: int, span: slice) -> Selection | None:
    """Returns the last exchanges, shortened where the rest would have no room otherwise."""
    whole = next(iter(minimum_sets(timeline, minimum, span)), [])
    most = int(room * REST_SHARE)
    if timeline.shortens and timeline.cost(whole) > room - most:
        may_be_cut = cuttable(timeline, whole, last=False)[0]
        long = [i for i in may_be_cut if timeline.is_longer(i, LEAST_TOKENS)]
        least = timeline.cost(whole, shortened(timeline, dict.fromkeys(long, LEAST_TOKENS)))
        rest = _the_rest(timeline, whole, minimum, span)
        return _select_least(
            timeline, room - _reserve(timeline, rest, min(most, room - least)), minimum, span
        )
    return _select_least(timeline, room, minimum, span)


Rest = tuple[int, list[Unit], dict[int, int], int]
"""What may be added to the last exchanges: importance, units, their least caps, the price with these."""


def _reserve(timeline: Timeline, rest: Iterable[Rest], most: int) -> int:
    """Returns what the rest can use of `most` tokens, with the first step that is cut to what is left."""
    taken = 0
    for importance, link, _, price in rest:
        if taken + price > most:
            cut = importance == STEPS and _cut_to(timeline, importance, link, most - taken)
            return most if cut else taken
        taken += price
    return taken


def _the_rest(timeline: Timeline, must: Sequence[Unit], minimum: int, span: slice) -> Iterator[Rest]:
    """Yields what may be added to the last exchanges.

    These are their other steps, and older turns; nothing where one of the last exchanges is lost.
    """
    starts = {unit.start for unit in must}
    for importance, link in order_of(timeline, minimum, span):
        if importance == MUST and not {unit.start for unit in link} <= starts:
            return
        if importance == MUST:
            continue
        long = results_of(timeline, link, VERY_LEAST)
        share = max(LEAST_TOKENS // 2, LEAST_TOKENS // max(1, sum([len(timeline.sizes(i)) for i in long])))
        least = {i: share for i in long if timeline.is_longer(i, share)}
        yield importance, link, least, timeline.cost(link, shortened(timeline, least))


def _select_least(timeline: Timeline, room: int, minimum: int, span: slice) -> Selection | None:
    """Keeps fewer and fewer exchanges, with long texts shortened; the question is cut last, if at all."""
    sets = minimum_sets(timeline, minimum, span)
    ended = timeline.ended or span.start > 0
    unread = set(_unread_results(timeline, minimum, span))
    for units in sets:
        price = timeline.cost(units)
        if price <= room:
            return Selection(units, price)
        last = units is sets[-1]
        for texts in cuttable(timeline, units, last=last and not ended):
            short = texts if last else unread.intersection(texts)
            at = dict.fromkeys(texts, LEAST_TOKENS) | dict.fromkeys(short, VERY_LEAST)
            caps = cap_units(timeline, units, room, at=at)
            if caps is not None:
                edits = shortened(timeline, caps)
                return Selection(units, timeline.cost(units, edits), edits=edits, caps=caps)
    return Selection([], 0) if ended and room >= 0 else None


def _unread_results(timeline: Timeline, minimum: int, span: slice) -> list[int]:
    """Returns where results of the last exchanges are after which the user spoke instead of the model."""
    steps = [unit for turn in last_turns(timeline, minimum, span) for unit in left_unread(timeline, turn)]
    return results_of(timeline, steps, VERY_LEAST)


def lengthen(timeline: Timeline, links: Iterable[Sequence[Unit]], caps: dict[int, int], left: int) -> None:
    """Changes the `caps` of shortened results so that the first links take what is left."""
    for link in links:
        least = {i: caps.pop(i) for unit in link for i in unit.positions() if i in caps}
        if not least:
            continue
        spent = timeline.cost(link, shortened(timeline, least))
        left -= timeline.cost(link) - spent
        if left < 0:
            caps.update(cap_units(timeline, link, left + timeline.cost(link), at=least) or least)
            return


def least_price(timeline: Timeline, units: Sequence[Unit]) -> int:
    """Returns what an exchange without results costs where it is shortened, being the first without room."""
    positions = [i for unit in units for i in unit.positions()]
    long = [i for i in positions if timeline.shortens and timeline.is_longer(i, LEAST_TOKENS)]
    return timeline.cost(units, shortened(timeline, dict.fromkeys(long, LEAST_TOKENS)))


def may_be_short(timeline: Timeline, importance: int, units: Iterable[Unit]) -> bool:
    """Returns whether units may be kept with shortened results."""
    return timeline.shortens and importance != MUST and bool(results_of(timeline, units, VERY_LEAST))


def results_of(timeline: Timeline, units: Iterable[Unit], tokens: int) -> list[int]:
    """Returns where tool results with more than so many `tokens` of text are."""
    steps = [unit for unit in units if unit.stop - unit.start > 1]
    results = [i for unit in steps for i in unit.positions() if timeline.role(i) == "tool"]
    return [i for i in results if timeline.is_longer(i, tokens)]
