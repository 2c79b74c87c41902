"""Which part of a conversation stays: newest first, whole groups, at least the last exchanges.

Three ways to choose, one result (`Selection`):
    fill    as much as fits: the last exchanges first, then everything else from the newest on, up to the first that does not fit;
    stable  no memory needed: of the cuts that leave between a third of the room and the room, the one whose number has most trailing zero
            bits, so that the next call most likely takes the same one and the prompt's prefix stays as it was;
    resume  a remembered cut, kept until it does not fit any more, then moved so far that half of the room is free again.
When not even the last exchanges fit, `capping.py` shortens their long texts, then fewer exchanges stay, down to the question itself. A
tool batch at the very end stays with the question: a model that never sees the result it asked for asks again, for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from .timeline import Broken, Timeline, Turn, Unit

__all__ = ["Cut", "Run", "Selection", "chain", "closed", "fill", "minimum_sets", "resume", "stable"]


@dataclass(frozen=True, slots=True)
class Cut:
    """A remembered decision: of what stood before position `edge`, only the units that begin at `starts` stay."""

    starts: frozenset[int]
    edge: int
    oldest: int

    @classmethod
    def after(cls, selection: Selection, edge: int) -> Cut:
        """Returns the decision that repeats a selection."""
        starts = frozenset(unit.start for unit in selection.units)
        return cls(starts, edge, min(starts, default=edge))


@dataclass(frozen=True, slots=True)
class Run:
    """What stays of the turns before position `stop`: they cannot change any more, so nobody needs to look at them again."""

    stop: int
    tokens: int
    positions: list[int]
    broken: list[Broken]


@dataclass(slots=True)
class Selection:
    """Which units stay.

    Args:
        units: kept units, any order.
        tokens: what they cost.
        complete: nothing valid was left out.
        cut: what to remember, when there is a memory.
        before: what stays of older turns, in one piece.
        exchanges: how many exchanges could be guaranteed when the minimum did not fit as it was; -1 otherwise.
    """

    units: list[Unit]
    tokens: int
    complete: bool = False
    cut: Cut | None = None
    exchanges: int = -1
    before: Run | None = None

    def positions(self) -> list[int]:
        """Returns the kept positions in order."""
        found: list[int] = list(self.before.positions) if self.before else []
        for unit in self.units:
            if unit.stop - unit.start == 1:  # most units are one message
                found.append(unit.start)
            else:
                found.extend(unit.positions())
        found.sort()
        return found


def chain(timeline: Timeline, minimum: int) -> Iterator[list[Unit]]:
    """Yields what to add next: the last `minimum` exchanges, then their steps, then older turns, each newest first."""
    turns = timeline.turns()
    newest = []
    for turn in islice(turns, max(1, minimum)):
        newest.append(turn)
        yield turn.core()
    for turn in newest:
        for unit in turn.rest():
            yield [unit]
    for turn in turns:
        yield turn.core()
        if len(turn.body) > 1:
            for unit in turn.rest():
                yield [unit]


def fill(timeline: Timeline, room: int, minimum: int) -> Selection | None:
    """Keeps as much as fits into `room` tokens; None when the last `minimum` exchanges do not fit."""
    kept: list[Unit] = []
    used, tokens_of = 0, timeline.tokens_of
    for links, link in enumerate(chain(timeline, minimum)):
        with_link = used
        for unit in link:
            with_link += tokens_of(unit)
        if with_link > room:
            return Selection(kept, used) if links >= _guaranteed(timeline, minimum) else None
        kept += link
        used = with_link
    return Selection(kept, used, complete=True)


def _guaranteed(timeline: Timeline, minimum: int) -> int:
    return sum(1 for _ in islice(timeline.turns(), max(1, minimum)))


def minimum_sets(timeline: Timeline, minimum: int) -> Iterator[tuple[int, list[Unit]]]:
    """Yields ever smaller sets that a conversation cannot do without: n exchanges, n-1, .., 1, the question alone (0).

    The question is not offered alone while the thread ends on a tool batch that the model has not answered yet.
    """
    turns = list(islice(timeline.turns(), max(1, minimum)))
    for count in range(len(turns), 0, -1):
        yield count, [unit for turn in turns[:count] for unit in turn.core()]
    for turn in turns[:1]:
        alone = ([turn.question] if turn.question else []) + timeline.owed(turn)
        if alone and len(alone) < len(turn.core()):
            yield 0, alone


def stable(timeline: Timeline, room: int, minimum: int) -> Selection | None:
    """Keeps a run whose start only moves when it must; None when there is no such run, or not with the last exchanges in it."""
    floor = room // 3
    least = _guaranteed(timeline, minimum)
    units: list[Unit] = []
    used = 0
    cuts: list[tuple[int, int, int]] = []  # the same without the zeros, of every cut above the floor
    for count, turn in enumerate(timeline.turns(), start=1):
        start = used
        for unit in _newest_first(turn):
            used += timeline.tokens_of(unit)
            if used > room:
                break
            units.append(unit)
        if used > room:
            if cuts:  # numbered last: by now all that stays has been read
                newest = timeline.turn_number(next(timeline.turns()).start)
                best = max(
                    (_trailing_zeros(newest + 1 - turns), turns, kept, tokens) for turns, kept, tokens in cuts
                )
                return Selection(units[: best[2]], best[3])
            return _inside(timeline, turn, start, units, room) if count >= least else None
        if used >= floor and count >= least:
            cuts.append((count, len(units), used))
    return Selection(units, used, complete=True)


def _inside(timeline: Timeline, turn: Turn, used: int, units: list[Unit], room: int) -> Selection | None:
    """Cuts inside a turn too long for the room: its question stays, its older steps go, at a step with many trailing zero bits."""
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
    timeline: Timeline, room: int, minimum: int, cut: Cut | None, run: Run | None, *, fresh: bool
) -> Selection | None:
    """Keeps from a remembered cut on while that fits, else moves the cut until half of the room is free; None when that cannot be.

    A `fresh` session has nothing to disturb yet: it takes as much as fits, and reads no more than that.
    """
    kept = (
        fill(timeline, room, minimum)
        if fresh
        else _from_cut(timeline, cut, run, room) or fill(timeline, room // 2, minimum)
    )
    if kept is None:  # the last exchanges need more than half: keep just them
        for _, units in islice(minimum_sets(timeline, minimum), 1):
            used = sum([timeline.tokens_of(unit) for unit in units])
            kept = Selection(units, used) if used <= room else None
    if kept is not None and not kept.complete and kept.cut is None:
        kept.cut = Cut.after(kept, len(timeline))
    return kept


def _from_cut(timeline: Timeline, cut: Cut | None, run: Run | None, room: int) -> Selection | None:
    oldest = cut.oldest if cut else 0
    units: list[Unit] = []
    used = run.tokens if run else 0
    for number, turn in enumerate(timeline.turns()):
        if run is not None and turn.stop <= run.stop:
            break
        if (
            number == 0
            and cut is not None
            and any(u.start < cut.edge and u.start not in cut.starts for u in timeline.owed(turn))
        ):
            return None  # what was cut has become the newest step: a call after it was repaired away
        for unit in _newest_first(turn):
            if cut is None or unit.start >= cut.edge or unit.start in cut.starts:
                units.append(unit)
                used += timeline.tokens_of(unit)
        if used > room:
            return None
        if turn.start <= oldest:
            break
    return Selection(units, used, complete=cut is None, cut=cut, before=run)


def closed(timeline: Timeline, selection: Selection) -> Run | None:
    """Returns what stays of all turns but the newest, which may still grow."""
    newest = next(timeline.turns(), None)
    if newest is None:
        return None
    run = selection.before
    stop = run.stop if run else -1
    units = [u for u in selection.units if u.start < newest.start]
    positions = sorted(i for u in units for i in u.positions())
    broken: list[Broken] = []
    oldest = 0 if selection.complete else min((u.start for u in units), default=newest.start)
    for turn in islice(timeline.turns(), 1, None):
        if turn.stop <= max(stop, oldest):
            break
        broken += turn.broken
    tokens = sum([timeline.tokens_of(u) for u in units])
    if run is None:
        return Run(newest.start, tokens, positions, broken)
    if not units and not broken:
        return run if run.stop == newest.start else Run(newest.start, run.tokens, run.positions, run.broken)
    return Run(newest.start, run.tokens + tokens, run.positions + positions, run.broken + broken)


def _newest_first(turn: Turn) -> list[Unit]:
    return [*reversed(turn.body), turn.question] if turn.question else turn.body[::-1]


def _trailing_zeros(number: int) -> int:
    return (number & -number).bit_length() - 1 if number else 64
