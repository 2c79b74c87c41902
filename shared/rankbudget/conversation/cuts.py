"""Cuts that move rarely, so that a provider's prompt cache stays warm, and what a session remembers of one.

stable  needs no memory: of the cuts that leave between a third of the room and the room, the one at a turn
        whose number is divisible by the largest power of two;
resume  a remembered cut, kept while it fits, then moved so far that half of the room is free again; chosen
        anew when there is twice the room there was.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from .capping import LEAST_TOKENS, asked_now, shortened
from .named import asked_hash, or_anew, with_named
from .older import with_shortened
from .selection import Selection, fill, left_by_running, minimum_sets
from .state import Cut, KeptRun, Summary, ThreadState
from .timeline import Timeline
from .units import Broken, Turn, Unit


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
            cuts_inside = count >= least and not timeline.shortens  # else its older steps are shortened first
            return _inside(timeline, turn, start, units, room) if cuts_inside else None
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


def resume(timeline: Timeline, room: int, minimum: int, known: ThreadState) -> Selection | None:
    """Keeps from a remembered cut on while that fits, else moves the cut until half of the room is free.

    For what a new question names it changes, too: see `named.py`. It is dropped when all of the conversation
    fits again, as written. Where only a summary is known, as of a stored conversation, that implies the cut,
    and half of the room is filled at least. None when not even the last exchanges fit.
    """
    known = replace(known, run=None) if timeline.first_turn else known
    known = _with_cut(timeline, known)
    cut, caps = known.cut, _caps_of(timeline, known)
    asked = dict(zip([position for position, _ in known.caps], known.asked, strict=True))
    edits = shortened(timeline, caps, asked) if caps else {}
    if (cut is not None or edits) and timeline.costs_at_most(room + timeline.pinned_tokens):
        whole = fill(timeline, room, 0)
        if whole is not None:
            return whole
    kept = _from_cut(timeline, known, room, edits)
    return _for_question(
        timeline, room, minimum, known, None if kept is None else replace(kept, caps=caps, asked=asked)
    )


def _for_question(
    timeline: Timeline, room: int, minimum: int, known: ThreadState, kept: Selection | None
) -> Selection | None:
    """Returns what stays of what a remembered cut `kept`, or of a new one, with what a new question names."""
    cut = known.cut
    twice = cut is not None and room >= 2 * cut.room and _beside_question(timeline, room) >= 2 * cut.room
    same = known.asked_hash == asked_hash(timeline)
    if kept is not None and not same:
        kept = with_named(timeline, room, kept)
    found = kept
    if kept is None or twice:
        moved = _moved(timeline, room, minimum)
        found = moved if kept is None or (moved is not None and moved.tokens > kept.tokens) else kept
    if found is None or (found is kept and same):
        return found
    return or_anew(timeline, room, found, partial(_filled, timeline, minimum=minimum))


def _with_cut(timeline: Timeline, known: ThreadState) -> ThreadState:
    """Returns a state with the cut that its summary implies, where it has nothing else.

    What the summary does not cover stays. The room of that cut is unknown, so 0.
    """
    summary = known.summary
    if known.size or not summary.text:
        return known
    starts = frozenset(summary.kept_before).difference(timeline.pinned)
    return replace(known, cut=Cut(starts, summary.summarized, min(starts, default=summary.summarized), 0))


def _caps_of(timeline: Timeline, known: ThreadState) -> dict[int, int]:
    """Returns the caps of a session's shortened texts; the current question is whole, whatever it was.

    Texts of turns that have left the last ones have none, else each reading would seem to shorten them.
    """
    asked = -1 if timeline.ended or timeline.thread.shorten_question else timeline.asked
    return {i: tokens for i, tokens in known.caps if i >= timeline.first_turn and i != asked}


def _moved(timeline: Timeline, room: int, minimum: int) -> Selection | None:
    """Returns what a new cut keeps: half of the room, or more where the newest turn needs it.

    A running turn stays whole, and half of what it leaves stays free. Where it does not fit, its steps are
    shortened before one is dropped; where some are dropped all the same, a quarter stays free.
    """
    left = left_by_running(timeline, room)
    if left is not None and left >= 0:
        room -= left // 2
        return _filled(timeline, room, minimum) or with_shortened(timeline, room, minimum)
    half = _filled(timeline, room // 2, minimum)
    if timeline.shortens and _lacks_steps(timeline, half):
        whole = _filled(timeline, room, minimum)
        most = _filled(timeline, 3 * room // 4, minimum) if _drops_steps(timeline, whole) else None
        return most or whole
    for units in minimum_sets(timeline, minimum)[:1] if half is None else ():
        used = timeline.cost(units)  # the last exchanges need more than half: keep just them
        half = Selection(units, used) if used <= room else None
    return half


def _lacks_steps(timeline: Timeline, found: Selection | None) -> bool:
    newest = timeline.newest
    if newest is None or len(newest.body) <= 1:
        return False
    if found is None or min(found.caps.values(), default=LEAST_TOKENS) < LEAST_TOKENS:
        return True
    return _drops_steps(timeline, found)


def _drops_steps(timeline: Timeline, found: Selection | None) -> bool:
    """Returns whether not all steps of the newest turn are kept."""
    if timeline.newest is None or found is None:
        return False
    return not {unit.start for unit in timeline.newest.body} <= {unit.start for unit in found.units}


def _filled(timeline: Timeline, room: int, minimum: int) -> Selection | None:
    found = fill(timeline, room, minimum)
    shorten = found is not None and found.older and timeline.shortens
    return with_shortened(timeline, room, minimum) if shorten else found


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
            if not all(unit in kept for unit in timeline.pending_step(turn)):
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


# ---- what a session remembers of it ----------------------------------------------------------------------


def remembered(
    timeline: Timeline,
    selection: Selection,
    broken: Sequence[Broken],
    summary: Summary | None,
    *,
    failed: bool,
) -> ThreadState:
    """Returns what a session remembers after a fit: positions, counts and hashes.

    Without a new summary the last one stays; a summarizer that `failed` is not asked again for the same
    messages.
    """
    known, newest, size = timeline.known, timeline.newest, len(timeline.messages)
    if summary is None:
        summary = known.summary if known is not None else Summary()
    stop = newest.start if newest is not None else 0
    cut = _cut_of(timeline, selection)
    start = min(stop, cut.oldest if cut is not None else timeline.first_turn)
    tail = min([unit.start for unit in selection.units if unit.start > stop], default=size)
    pinned = tuple([p for p in timeline.pinned if p < stop])
    counted, whole = _counts(timeline, tail)
    now = asked_now(timeline)  # what was shortened just now was shortened for this
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
        asked_hash=asked_hash(timeline),
        run=None if selection.edits or timeline.first_turn else _closed(timeline, selection, broken, stop),
        whole=whole,
        caps=tuple(selection.caps.items()),
        asked=tuple([selection.asked.get(position, now) for position in selection.caps]),
        refused_at=size if failed else known.refused_at if known is not None else -1,
        summary=summary,
        line=object() if known is None else known.line,
    )


def _cut_of(timeline: Timeline, selection: Selection) -> Cut | None:
    """Returns the cut that was kept, or a new one, with the room that it was made for."""
    cut = selection.cut
    if not selection.complete and cut is None:
        size, starts = len(timeline.messages), frozenset([unit.start for unit in selection.units])
        cut = Cut(starts, size, min(starts, default=size), 0)
    if cut is None or cut.room:
        return cut
    return replace(cut, room=_beside_question(timeline, selection.room))


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


def _closed(timeline: Timeline, selection: Selection, broken: Sequence[Broken], stop: int) -> KeptRun | None:
    """Returns what stays of all turns but the newest, which may still grow; None where some are repaired."""
    run = selection.run or KeptRun(0, 0, (), ())
    older = [unit for unit in selection.units if unit.start < stop]
    positions = sorted([i for unit in older for i in unit.positions()])
    if not timeline.stripped.keys().isdisjoint(positions):
        return None
    tokens = run.tokens + timeline.cost(older)
    closed = tuple([one for one in broken if one[0] < stop])
    return KeptRun(stop, tokens, (*run.positions, *positions), closed)
