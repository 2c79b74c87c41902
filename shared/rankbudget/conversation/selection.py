"""Which part of a conversation stays: newest first, whole groups, at least the last exchanges.

A tool batch at the very end stays with the question: a model that never sees the result it asked for would
ask again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain, islice
from typing import Any

from .capping import LEAST_TOKENS
from .state import Cut, KeptRun
from .timeline import NO_EDITS, Timeline
from .units import Turn, Unit

REST_SHARE = 0.25
"""Share of the room that the last exchanges, which may be shortened, leave to what is before them."""


HEAVY = 400
"""Tokens in no text above which a step or an exchange waits; a picture has 765 or more in most models."""
SOON = 1 / 4
"""How long a heavy one of the last exchanges waits, in parts of its weight: it is likely asked about."""


@dataclass(slots=True)
class Selection:
    """Which units stay."""

    units: list[Unit]  # in any order
    tokens: int  # what they cost, with `edits`
    complete: bool = False  # nothing valid was left out
    cut: Cut | None = None  # the remembered cut that was kept; None for a new one, or while all stays
    run: KeptRun | None = None  # what stays of older turns that were not parsed again
    edits: Mapping[int, Any] = field(default_factory=lambda: NO_EDITS)  # shortened copies by position
    # Most tokens of each shortened text, by position.
    caps: Mapping[int, int] = field(default_factory=lambda: NO_EDITS)
    # Questions of remembered caps; other texts are shortened for the current one.
    asked: Mapping[int, tuple[int, ...]] = field(default_factory=lambda: NO_EDITS)
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


def fill(timeline: Timeline, room: int, minimum: int) -> Selection | None:
    """Keeps as much as fits into `room` tokens; None when the last `minimum` exchanges do not fit."""
    kept: list[Unit] = []
    used, must, tokens_of = 0, 0, timeline.tokens_of
    for importance, link in in_order_of_importance(timeline, minimum):
        with_link = used
        for unit in link:
            with_link += tokens_of(unit)
        if with_link > room:
            older = importance == STEPS or room - used > LEAST_TOKENS or must > room * (1 - REST_SHARE)
            older = older or any(unit.stop - unit.start > 1 for unit in kept + link)
            return None if importance == MUST else Selection(kept, used, older=older)
        kept += link
        used = with_link
        must = used if importance == MUST else must
    return Selection(kept, used, complete=True)


MUST, STEPS, OLDER = range(3)
"""The last exchanges, their other steps, and older turns."""
ALL, NEWEST, BEFORE_NEWEST = slice(0, None), slice(0, 1), slice(1, None)
"""Spans of turns, newest first."""


def in_order_of_importance(timeline: Timeline, minimum: int) -> Iterator[tuple[int, list[Unit]]]:
    """Yields what to add next, and what it is: `MUST`, `STEPS` or `OLDER`.

    All steps of a running turn come first: the model needs what it has just read.
    """
    if timeline.running is None:
        return order_of(timeline, max(1, minimum), ALL)
    return chain(order_of(timeline, 1, NEWEST), order_of(timeline, minimum - 1, BEFORE_NEWEST))


def order_of(timeline: Timeline, minimum: int, span: slice) -> Iterator[tuple[int, list[Unit]]]:
    """Yields the units of some turns as `in_order_of_importance` does.

    A step or an exchange with much that nothing can shorten, as photos, comes behind as much of the older
    rest, and one of the last exchanges behind a quarter of that. So it does not keep the rest out of a small
    room, and its place is the same in every room.
    """
    turns = islice(timeline.turns(), span.start, span.stop)
    newest, late = list[Turn](), list[Turn]()
    for turn in islice(turns, max(0, minimum)):
        if _waits(timeline, turn):
            late.append(turn)
            continue
        newest.append(turn)
        yield MUST, turn.core()
    waiting: list[tuple[int, int, int, int, list[list[Unit]]]] = []  # a heap: what is due first
    passed = 0
    for place, (importance, links, part) in enumerate(_by_age(timeline, newest, late, turns)):
        for number, link in enumerate(links):
            tokens = sum(map(timeline.tokens_of, link))
            weight = _uncuttable(timeline, link) if tokens > HEAVY else 0
            if weight <= HEAVY:
                yield importance, link
                passed += tokens
                continue
            due = passed + int(weight * part)
            heappush(waiting, (due, place, number, importance, [link] if number else links))
            if not number:  # the steps of an exchange cannot be without its question
                break
        while waiting and waiting[0][0] <= passed:
            yield from _each(heappop(waiting))
    while waiting:
        yield from _each(heappop(waiting))


def _each(waited: tuple[int, int, int, int, list[list[Unit]]]) -> Iterator[tuple[int, list[Unit]]]:
    *_, importance, links = waited
    return ((importance, link) for link in links)


def _by_age(
    timeline: Timeline, newest: Sequence[Turn], late: Sequence[Turn], older: Iterator[Turn]
) -> Iterator[tuple[int, list[list[Unit]], float]]:
    """Yields the other steps of the last exchanges, then exchanges and their steps, newest first.

    With each comes how long it waits if it is heavy, in parts of its weight.
    """
    for turn in newest:
        for unit in reversed(turn.body[:-1]):
            yield STEPS, [[unit]], 1
    for turn in chain(late, older):
        least = [turn.units[:1], turn.core()[1:]] if left_unread(timeline, turn) else [turn.core()]
        links = [*least, *([unit] for unit in reversed(turn.body[:-1]))]
        yield OLDER, links, SOON if turn in late else 1


def _waits(timeline: Timeline, turn: Turn) -> bool:
    """Returns whether a turn's exchange is heavy, and not the one that the model is to answer."""
    if turn is timeline.newest and not timeline.ended:
        return False
    core = turn.core()
    return sum(map(timeline.tokens_of, core)) > HEAVY < _uncuttable(timeline, core)


def _uncuttable(timeline: Timeline, link: Sequence[Unit]) -> int:
    """Returns how many tokens of some units are in no text."""
    found = 0
    for position in [i for unit in link for i in unit.positions()]:
        message = timeline.messages[position]
        neutral = timeline.codec.to_dict(message)
        if neutral.get("content").__class__ is not str or neutral.get("tool_calls"):
            text = timeline.thread.counter.count(timeline.text(position))
            found += timeline.measure.group([message]) - text
    return found


def left_by_running(timeline: Timeline, room: int) -> int | None:
    """Returns how many tokens a running turn leaves of the room, negative if longer; None without one."""
    running = timeline.running
    return None if running is None else room - cost_within(timeline, running.units, room)


def cost_within(timeline: Timeline, units: Sequence[Unit], most: int) -> int:
    """Returns what units cost, or more than `most` where they do; counts no more than that."""
    total = 0
    for unit in reversed(units):
        total += timeline.tokens_of(unit)
        if total > most:
            break
    return total


def last_turns(timeline: Timeline, minimum: int, span: slice) -> list[Turn]:
    """Returns the turns of a span whose exchanges stay first, newest first."""
    turns = islice(timeline.turns(), span.start, max(1, span.start + minimum))
    return [turn for turn in turns if not _waits(timeline, turn)]


def cost_of_waiting(timeline: Timeline, minimum: int) -> int:
    """Returns what heavy ones of the last exchanges need, with what comes before them."""
    turns = [turn for turn in islice(timeline.turns(), minimum) if _waits(timeline, turn)]
    before = sum([_uncuttable(timeline, turn.core()) for turn in turns]) * SOON
    return sum([timeline.cost(turn.core()) for turn in turns]) + int(before)


def left_unread(timeline: Timeline, turn: Turn) -> list[Unit]:
    """Returns the last step of a turn if something else was asked before the model answered it."""
    return [] if timeline.pending_step(turn) else timeline.unread_step(turn)


def minimum_sets(timeline: Timeline, minimum: int, span: slice = ALL) -> list[list[Unit]]:
    """Returns ever smaller sets to keep: n exchanges, n-1, .., 1, the question with its pending step.

    Of an exchange that ends with an unread step, its question is left before all of it is dropped.
    """
    turns = last_turns(timeline, minimum, span)
    alone_too = not (span.start or timeline.ended)  # an old question is useless without its answer
    kept, sets = list[Unit](), list[list[Unit]]()
    for turn in turns:
        if turn.question and left_unread(timeline, turn):
            sets.insert(0, [*kept, turn.question])
        kept = [*kept, *turn.core()]
        sets.insert(0, kept)
    for turn in turns[:1] if alone_too else ():
        alone = ([turn.question] if turn.question else []) + timeline.pending_step(turn)
        if alone and len(alone) < len(turn.core()):
            sets.append(alone)
    return sets
