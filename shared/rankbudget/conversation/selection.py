"""Which part of a conversation stays: newest first, whole groups, at least the last exchanges.

Three ways to choose, one result (`Selection`):
    fill    as much as fits: the last exchanges first, then everything else from the newest on, up to the
            first that does not fit;
    stable  needs no memory: of the cuts that leave between a third of the room and the room, the one at a
            turn whose number is divisible by the largest power of two, so that it rarely moves;
    resume  a remembered cut, kept while it fits, then moved so far that half of the room is free again;
            chosen anew when there is twice the room there was.

When the last exchanges do not fit, `capping.py` shortens their long texts, then fewer exchanges stay, down to
the question. A tool batch at the very end stays with the question: a model that never sees the result it
asked for would ask again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from .state import Cut, KeptRun, ThreadState
from .timeline import NO_EDITS, Timeline, Turn, Unit

__all__ = ["Selection", "fill", "in_order_of_importance", "minimum_sets", "resume", "stable"]


@dataclass(slots=True)
class Selection:
    """Which units stay.

    Args:
        units: kept units, any order.
        tokens: what they cost, with `edits`.
        complete: nothing valid was left out.
        cut: the remembered cut that was kept; None for a new one, or while all stays.
        run: what stays of older turns that were not parsed again.
        edits: shortened copies by position.
        caps: most tokens of each shortened text, by position.
        room: tokens that there were to choose for.
    """

    units: list[Unit]
    tokens: int
    complete: bool = False
    cut: Cut | None = None
    run: KeptRun | None = None
    edits: Mapping[int, Any] = field(default_factory=lambda: NO_EDITS)
    caps: Mapping[int, int] = field(default_factory=lambda: NO_EDITS)
    room: int = 0

    def positions(self, pinned: Sequence[int] = ()) -> list[int]:
        """Returns the kept positions in order, `pinned` ones among them."""
        found = [*pinned, *self.run.positions] if self.run else list(pinned)
        for unit in self.units:
            if unit.stop - unit.start == 1:  # most units are one message
                found.append(unit.start)
            else:
                found.extend(unit.positions())
        found.sort()
        return found


def fill(timeline: Timeline, room: int, minimum: int) -> Selection | None:
    """Keeps as much as fits into `room` tokens; None when the last `minimum` exchanges do not fit."""
    kept: list[Unit] = []
    used, tokens_of = 0, timeline.tokens_of
    for must, link in in_order_of_importance(timeline, minimum):
        with_link = used
        for unit in link:
            with_link += tokens_of(unit)
        if with_link > room:
            return None if must else Selection(kept, used)
        kept += link
        used = with_link
    return Selection(kept, used, complete=True)


def in_order_of_importance(timeline: Timeline, minimum: int) -> Iterator[tuple[bool, list[Unit]]]:
    """Yields what to add next, and whether it must stay: last exchanges, their steps, older turns."""
    turns = timeline.turns()
    newest = []
    for turn in islice(turns, max(1, minimum)):
        newest.append(turn)
        yield True, turn.core()
    for turn in newest:
        for unit in reversed(turn.body[:-1]):
            yield False, [unit]
    for turn in turns:
        yield False, turn.core()
        for unit in reversed(turn.body[:-1]):
            yield False, [unit]


def minimum_sets(timeline: Timeline, minimum: int) -> list[list[Unit]]:
    """Returns ever smaller sets to keep: n exchanges, n-1, .., 1, the question with its pending step."""
    turns = list(islice(timeline.turns(), max(1, minimum)))
    sets = [[unit for turn in turns[:count] for unit in turn.core()] for count in range(len(turns), 0, -1)]
    for turn in turns[:1]:
        alone = ([turn.question] if turn.question else []) + timeline.pending_step(turn)
        if alone and len(alone) < len(turn.core()):
            sets.append(alone)
    return sets


def stable(timeline: Timeline, room: int, minimum: int) -> Selection | None:
    """Keeps a run whose start moves only when it must; None when none holds the last exchanges."""
    floor = room // 3
    least = len(list(islice(timeline.turns(), max(1, minimum))))
    units: list[Unit] = []
    used = 0
    cuts: list[tuple[int, int, int]] = []  # turns, units and tokens of every cut above the floor
    for count, turn in enumerate(timeline.turns(), start=1):
        start = used
        for unit in reversed(turn.units):
            used += timeline.tokens_of(unit)
            if used > room:
                break
            units.append(unit)
        if used > room:
            if cuts:  # numbered last: by now all that stays has been read
                newest = timeline.turn_number(units[0].start)
                best = max(
                    (_trailing_zeros(newest + 1 - turns), turns, kept, tokens) for turns, kept, tokens in cuts
                )
                return Selection(units[: best[2]], best[3])
            return _inside(timeline, turn, start, units, room) if count >= least else None
        if used >= floor and count >= least:
            cuts.append((count, len(units), used))
    return Selection(units, used, complete=True)


def _inside(timeline: Timeline, turn: Turn, used: int, units: list[Unit], room: int) -> Selection | None:
    """Cuts inside a turn too long for the room: its question stays, its older steps go."""
    kept = [u for u in units if u.start < turn.start or u.start >= turn.stop]
    if turn.question:
        kept.append(turn.question)
        used += timeline.tokens_of(turn.question)
    best: tuple[int, int, int] | None = None
    for index in range(len(turn.body) - 1, -1, -1):
        used += timeline.tokens_of(turn.body[index])
        if used > room:
            break
        if used >= room // 3:
            best = max(best or (-1, 0, 0), (_trailing_zeros(index), -index, used))
    if best is None:
        return None
    return Selection(kept + turn.body[-best[1] :], best[2])


def resume(
    timeline: Timeline, room: int, minimum: int, known: ThreadState, edits: Mapping[int, Any]
) -> Selection | None:
    """Keeps from a remembered cut on while that fits, else moves the cut until half of the room is free.

    When all of the conversation fits again, as written, the cut is dropped. When there is twice the room that
    there was at the cut, it is chosen anew where that brings messages back. None when not even the last
    exchanges fit.
    """
    cut = known.cut
    if (cut is not None or edits) and timeline.costs_at_most(room + timeline.pinned_tokens):
        whole = fill(timeline, room, 0)
        if whole is not None:
            return whole
    kept = _from_cut(timeline, known, room, edits)
    if kept is not None and (cut is None or beside_question(timeline, room) < 2 * cut.room):
        return kept
    half = fill(timeline, room // 2, minimum)
    if kept is not None:
        return half if half is not None and half.tokens > kept.tokens else kept
    if half is None:  # the last exchanges need more than half: keep just them
        for units in minimum_sets(timeline, minimum)[:1]:
            used = timeline.cost(units)
            half = Selection(units, used) if used <= room else None
    return half


def beside_question(timeline: Timeline, room: int) -> int:
    """Returns the room for all but the current question, which may be long today and short tomorrow."""
    newest = timeline.newest
    if newest is None or newest.question is None or timeline.ended:
        return room
    return room - timeline.tokens_of(newest.question)


def _from_cut(
    timeline: Timeline, known: ThreadState, room: int, edits: Mapping[int, Any]
) -> Selection | None:
    """Returns what a remembered cut keeps; None when that is too much, or no valid conversation any more."""
    cut, run = known.cut, known.run
    units: list[Unit] = []
    used, stop = (run.tokens, run.stop) if run else (0, 0)
    for turn in timeline.turns():
        kept = turn.units
        if cut is not None:
            kept = [u for u in kept if u.start >= cut.edge or u.start in cut.starts]
            pending = timeline.pending_step(turn) if turn is timeline.newest else ()
            if not all(unit in kept for unit in pending):
                return None  # a call after this step was repaired away: the model has not answered it yet
            if kept and turn.question is not None and kept[0] is not turn.question:
                return None  # the conversation was edited: its answers may not stay without their question
        units += kept
        used += timeline.cost(kept, edits)
        if used > room:
            return None
        if turn.start <= stop or (cut is not None and turn.start <= cut.oldest):
            break
    return Selection(units, used, complete=cut is None, cut=cut, run=run, edits=edits)


def _trailing_zeros(number: int) -> int:
    return (number & -number).bit_length() - 1 if number else 64
