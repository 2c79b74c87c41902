"""Which part of a conversation stays: newest first, whole groups, at least the last exchanges.

A tool batch at the very end stays with the question: a model that never sees the result it asked for would
ask again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from .capping import LEAST_TOKENS
from .state import Cut, KeptRun
from .timeline import NO_EDITS, Timeline, Unit

REST_SHARE = 0.25
"""Share of the room that the last exchanges, which may be shortened, leave to what is before them."""
GAP_SHARE = 0.1
"""Share of the room that must be free to look for older exchanges behind one that cannot be shortened."""
MOST_GAPS = 8
"""Exchanges left out between kept ones; so a history of too large ones is not read to its start."""


@dataclass(slots=True)
class Selection:
    """Which units stay."""

    units: list[Unit]  # in any order
    tokens: int  # what they cost, with `edits`
    complete: bool = False  # nothing valid was left out
    cut: Cut | None = None  # the remembered cut that was kept; None for a new one, or while all stays
    run: KeptRun | None = None  # what stays of older turns that were not parsed again
    edits: Mapping[int, Any] = field(default_factory=lambda: NO_EDITS)  # shortened copies by position
    caps: Mapping[int, int] = field(
        default_factory=lambda: NO_EDITS
    )  # most tokens of each shortened text, by position
    room: int = 0  # tokens that there were to choose for
    older: bool = False  # steps or exchanges were left out that may stay with shortened texts

    def positions(self, pinned: Sequence[int] = ()) -> list[int]:
        """Returns the kept positions in order, `pinned` ones among them."""
        found = [*pinned, *self.run.positions] if self.run else list(pinned)
        for unit in self.units:
            found += [unit.start] if unit.stop - unit.start == 1 else unit.positions()
        return sorted(found)

    def messages(self, timeline: Timeline) -> list[Any]:
        """Returns the messages that stay, shortened copies in the place of some."""
        whole, edits = timeline.messages, self.edits
        return [edits.get(i, whole[i]) for i in self.positions(timeline.pinned)]


class Link(NamedTuple):
    """Units that are kept or left out together: what they are, their price, and the caps it is meant with."""

    importance: int  # `MUST`, `STEPS` or `OLDER`
    units: list[Unit]
    price: int
    caps: Mapping[int, int] = NO_EDITS


def fill(timeline: Timeline, room: int, minimum: int) -> Selection | None:
    """Keeps as much as fits into `room` tokens; None when the last `minimum` exchanges do not fit."""
    kept: list[Unit] = []
    used = must = 0
    complete, older = True, False
    ordered = in_order_of_importance(timeline, minimum)
    links = (Link(importance, units, timeline.cost(units)) for importance, units in ordered)
    for link, fits in until_full(timeline, links, room):
        if fits:
            kept += link.units
            used += link.price
            must = used if link.importance == MUST else must
            continue
        if link.importance == MUST:
            return None
        complete = False
        older = older or link.importance == STEPS or room - used > LEAST_TOKENS
        older = older or must > room * (1 - REST_SHARE)
        older = older or any(unit.stop - unit.start > 1 for unit in kept + link.units)
    return Selection(kept, used, complete=complete, older=older)


def until_full(timeline: Timeline, links: Iterable[Link], room: float) -> Iterator[tuple[Link, bool]]:
    """Yields links, the most important first, and whether each fits into what the ones before it left.

    The first that does not fit is the last, as older ones may not stay in the place of newer ones. But what
    is heavy and would not fit without its texts, as photos that nobody can shorten, is left out alone.
    """
    left, gaps, lost = room, 0, math.inf
    for link in links:
        first = min([unit.start for unit in link.units], default=-1)
        if first > lost:
            continue  # a step of an exchange that is left out
        fits = link.price <= left
        yield link, fits
        if fits:
            left -= link.price
            continue
        lost, gaps = first, gaps + 1
        least = max(left, LEAST_TOKENS)
        if gaps > MOST_GAPS or left < room * GAP_SHARE or cost_without_texts(timeline, link.units) <= least:
            return


def cost_without_texts(timeline: Timeline, units: Sequence[Unit]) -> int:
    """Returns what units cost with all their texts emptied: calls, media, what a provider found."""
    positions = [i for unit in units for i in unit.positions()]
    emptied = {i: timeline.codec.with_text(timeline.messages[i], "") for i in positions}
    return timeline.cost(units, emptied)


MUST, STEPS, OLDER = range(3)
"""The last exchanges, their other steps, and older turns."""


def in_order_of_importance(timeline: Timeline, minimum: int) -> Iterator[tuple[int, list[Unit]]]:
    """Yields what to add next, and what it is: `MUST`, `STEPS` or `OLDER`."""
    turns = timeline.turns()
    newest = []
    for turn in islice(turns, max(1, minimum)):
        newest.append(turn)
        yield MUST, turn.core()
    for turn in newest:
        for unit in reversed(turn.body[:-1]):
            yield STEPS, [unit]
    for turn in turns:
        yield OLDER, turn.core()
        for unit in reversed(turn.body[:-1]):
            yield OLDER, [unit]


def minimum_sets(timeline: Timeline, minimum: int) -> list[list[Unit]]:
    """Returns ever smaller sets to keep: n exchanges, n-1, .., 1, the question with its pending step."""
    turns = list(islice(timeline.turns(), max(1, minimum)))
    sets = [[unit for turn in turns[:count] for unit in turn.core()] for count in range(len(turns), 0, -1)]
    for turn in turns[:1]:
        alone = ([turn.question] if turn.question else []) + timeline.pending_step(turn)
        if alone and len(alone) < len(turn.core()):
            sets.append(alone)
    return sets
