"""What a fit leaves for the next one."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from .selection import Selection, beside_question
from .state import Cut, KeptRun, Summary, ThreadState
from .timeline import Broken, Timeline, Turn

__all__ = ["remembered"]


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
        cut = Cut(starts, size, min(starts, default=size), beside_question(timeline, selection.room))
    start = min(stop, cut.oldest if cut is not None else 0)
    tail = min([unit.start for unit in selection.units if unit.start > stop], default=size)
    pinned = tuple([p for p in timeline.pinned if p < stop])
    return ThreadState(
        size=size,
        stop=stop,
        tail=tail,
        pinned=pinned,
        start=start,
        kept_hash=timeline.prints.hash_of_kept(pinned, start, stop, tail, size),
        cut=cut,
        counted=_counted(newest, tail),
        question_hash=hash(timeline.prints.one(stop)) if newest is not None else 0,
        run=None if selection.edits else _closed(timeline, selection, broken, stop),
        whole=_counted_before_newest(timeline),
        caps=tuple(selection.caps.items()),
        refused_at=size if failed else known.refused_at if known is not None else -1,
        summary=summary,
    )


def _counted(newest: Turn | None, tail: int) -> array[int]:
    """Returns what units of the newest turn cost: its question, and steps that the kept hash covers."""
    flat = array("q")
    if newest is not None:
        for unit in newest.units:
            if unit.tokens > 0 and not unit.holes and (unit.start >= tail or unit is newest.question):
                flat.extend((unit.start, unit.stop, unit.tokens))
    return flat


def _counted_before_newest(timeline: Timeline) -> int:
    """Returns what all turns but the newest cost at the least: what was counted of them so far."""
    known = timeline.known
    now = since = 0
    for turn in timeline.turns_read[1:]:
        tokens = sum([unit.tokens for unit in turn.units if unit.tokens > 0])
        now += tokens
        if known is not None and turn.start >= known.stop:
            since += tokens
    return max(now, since + known.whole) if known is not None else now


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
