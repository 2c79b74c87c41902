"""What a fit leaves for the next one."""

from __future__ import annotations

from array import array
from itertools import islice

from .selection import Selection
from .state import Cut, KeptRun, ThreadState
from .summary import Summary, summary_of
from .timeline import Timeline, Turn

__all__ = ["remembered"]


def remembered(
    timeline: Timeline, selection: Selection, summary: Summary | None, *, failed: bool
) -> ThreadState:
    """Returns what a session remembers after a fit: positions, counts and hashes.

    Args:
        timeline: the conversation.
        selection: what stayed of it.
        summary: the running summary; None where nothing was asked for one.
        failed: the summarizer was asked in vain; it is not asked again for the same messages.
    """
    known, newest = timeline.known, timeline.newest
    stop = newest.start if newest is not None else 0
    cut = selection.cut
    if not selection.complete and cut is None:
        starts = frozenset(unit.start for unit in selection.units)
        cut = Cut(starts, len(timeline), min(starts, default=len(timeline)))
    start = min(stop, cut.oldest if cut is not None else 0)
    steps = [unit.start for unit in selection.units if unit.start > stop]
    tail = min(steps, default=len(timeline))
    size = len(timeline)
    pinned = tuple([p for p in timeline.pinned if p < stop])
    written = summary if summary is not None else summary_of(timeline)
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
        run=None if selection.edits else _closed(timeline, selection, stop),
        whole=_whole(timeline, known),
        caps=tuple(selection.caps.items()),
        refused_at=size if failed else known.refused_at if known is not None else -1,
        summary=written.text,
        summarized=written.summarized,
        kept_before=written.kept_before,
        summary_hash=written.hash,
        summary_digest=written.digest,
    )


def _counted(newest: Turn | None, tail: int) -> array[int]:
    """Returns what the units of the newest turn cost: its question, and the steps that the kept hash covers."""
    flat = array("q")
    if newest is None:
        return flat
    for unit in newest.units():
        if unit.tokens > 0 and not unit.holes and (unit is newest.question or unit.start >= tail):
            flat.extend((unit.start, unit.stop, unit.tokens))
    return flat


def _whole(timeline: Timeline, known: ThreadState | None) -> int:
    """Returns what all closed turns cost at the least, as written."""
    counted = timeline.counted_since(0)
    return counted if known is None else max(counted, known.whole + timeline.counted_since(known.stop))


def _closed(timeline: Timeline, selection: Selection, stop: int) -> KeptRun:
    """Returns what stays of all turns but the newest, which may still grow."""
    run = selection.run
    units = [u for u in selection.units if u.start < stop]
    positions = sorted([i for u in units for i in u.positions()])
    oldest = 0 if selection.complete else min([u.start for u in units], default=stop)
    known_until = run.stop if run is not None else -1
    broken: list[tuple[int, str]] = []
    for turn in islice(timeline.turns(), 1, None):
        if turn.stop <= max(known_until, oldest):
            break
        broken += [(b.position, b.reason) for b in turn.broken]
    tokens = timeline.cost(units)
    if run is None:
        return KeptRun(stop, tokens, tuple(positions), tuple(broken))
    return KeptRun(stop, run.tokens + tokens, (*run.positions, *positions), (*run.broken, *broken))
