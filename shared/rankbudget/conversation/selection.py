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

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from .state import Cut, KeptRun, Summary, ThreadState
from .timeline import NO_EDITS, Broken, Timeline, Turn, Unit

__all__ = ["Selection", "fill", "in_order_of_importance", "minimum_sets", "remembered", "resume", "stable"]


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

    def messages(self, timeline: Timeline, chosen: Sequence[int] | None = None) -> list[Any]:
        """Returns the messages that stay, shortened copies in the place of some; `chosen` are their positions."""
        whole, edits = timeline.messages, self.edits
        if chosen is None:
            chosen = self.positions(timeline.pinned)
        if edits:
            return [edits.get(i, whole[i]) for i in chosen]
        return [whole[i] for i in chosen]


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


def _trailing_zeros(number: int) -> int:
    return (number & -number).bit_length() - 1 if number else 64


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
    if kept is not None and (cut is None or _beside_question(timeline, room) < 2 * cut.room):
        return kept
    half = fill(timeline, room // 2, minimum)
    if kept is not None:
        return half if half is not None and half.tokens > kept.tokens else kept
    if half is None:  # the last exchanges need more than half: keep just them
        for units in minimum_sets(timeline, minimum)[:1]:
            used = timeline.cost(units)
            half = Selection(units, used) if used <= room else None
    return half


def _beside_question(timeline: Timeline, room: int) -> int:
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


# ---- what a session remembers of it -------------------------------------------------------------------------


def remembered(
    timeline: Timeline, selection: Selection, broken: Sequence[Broken], summary: Summary, *, failed: bool
) -> ThreadState:
    """Returns what a session remembers after a fit: positions, counts and hashes.

    Args:
        timeline: the conversation.
        selection: what stayed of it.
        broken: messages among them that no valid conversation may hold.
        summary: the running summary.
        failed: the summarizer was asked in vain; it is not asked again for the same messages.
    """
    known, newest, size = timeline.known, timeline.newest, len(timeline.messages)
    stop = newest.start if newest is not None else 0
    cut = selection.cut
    if not selection.complete and cut is None:
        starts = frozenset([unit.start for unit in selection.units])
        cut = Cut(starts, size, min(starts, default=size), _beside_question(timeline, selection.room))
    start = min(stop, cut.oldest if cut is not None else 0)
    tail = min([unit.start for unit in selection.units if unit.start > stop], default=size)
    pinned = tuple([p for p in timeline.pinned if p < stop])
    counted, whole = _counts(timeline, tail)
    return ThreadState(
        size=size,
        stop=stop,
        tail=tail,
        pinned=pinned,
        start=start,
        kept_hash=timeline.prints.hash_of_kept(pinned, start, stop, tail, size),
        cut=cut,
        counted=counted,
        question_hash=hash(timeline.prints.one(stop)) if newest is not None else 0,
        run=None if selection.edits else _closed(timeline, selection, broken, stop),
        whole=whole,
        caps=tuple(selection.caps.items()),
        refused_at=size if failed else known.refused_at if known is not None else -1,
        summary=summary,
    )


def _counts(timeline: Timeline, tail: int) -> tuple[array[int], int]:
    """Returns the tokens of the newest turn's units, and what all turns before it cost at the least.

    Of the newest turn its question is counted, and steps that the kept hash covers.
    """
    known, newest = timeline.known, array("q")
    older = since = 0
    for turn in timeline.turns_read:
        counted = [unit for unit in turn.units if unit.tokens > 0]
        if turn is timeline.newest:
            for unit in counted:
                if not unit.holes and (unit.start >= tail or unit is turn.question):
                    newest.extend((unit.start, unit.stop, unit.tokens))
            continue
        tokens = sum([unit.tokens for unit in counted])
        older += tokens
        if known is not None and turn.start >= known.stop:
            since += tokens
    return newest, max(older, since + known.whole) if known is not None else older


def _closed(timeline: Timeline, selection: Selection, broken: Sequence[Broken], stop: int) -> KeptRun:
    """Returns what stays of all turns but the newest, which may still grow."""
    older = [unit for unit in selection.units if unit.start < stop]
    tokens = timeline.cost(older)
    positions = [i for unit in older for i in unit.positions()]
    if selection.run is not None:
        tokens += selection.run.tokens
        positions += selection.run.positions
    positions.sort()
    return KeptRun(stop, tokens, tuple(positions), tuple([one for one in broken if one[0] < stop]))
