"""Which part of a conversation stays when there is a question to serve: the newest, then what is relevant."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from ..relevance.turns import TurnScorer
from ..segment import Segment
from .selection import Selection, fill
from .steps import keep_steps, texts_of
from .timeline import Timeline, Turn, Unit

LOOKS_BACK = 2_000
"""Turns that are read; older ones are dropped."""
NEWEST = 0.5
"""Share of the free room for the newest messages."""


def relevant(timeline: Timeline, room: int) -> Selection | None:
    """Keeps the current turn and what serves the query; None when not even the current question fits."""
    everything = fill(timeline, room, timeline.thread.min_exchanges)
    if everything is not None and everything.complete:
        return everything
    turns = list(islice(timeline.turns(), LOOKS_BACK))
    if not turns:
        return None
    newest = turns[0]
    kept = _Kept(timeline, room)
    # The tool batch that the model has not answered yet; without a question, the last thing said.
    if not kept.add(timeline.pending_step(newest) if newest.question else newest.core(), newest):
        return None
    if any(unit.stop - unit.start > 1 for turn in turns for unit in turn.body):
        return keep_steps(timeline, turns, list(kept.units.values()), kept.left)
    units = [(unit, turn) for turn in reversed(turns) for unit in turn.units]
    newest_until = kept.left * (1 - NEWEST)
    for unit, turn in reversed(units):
        if kept.left - kept.price(kept.missing([unit], turn)) < newest_until:
            break
        kept.add([unit], turn)
    segments = [
        Segment(id=str(n), text="\n".join(texts_of(timeline, unit))) for n, (unit, _) in enumerate(units)
    ]
    scores = TurnScorer().score(timeline.thread.query or "", segments)
    for n in sorted(range(len(units)), key=lambda n: (-scores[n], -n)):
        kept.add([units[n][0]], units[n][1])
    return Selection(list(kept.units.values()), kept.used)


class _Kept:
    """Units that are kept, and what they cost."""

    def __init__(self, timeline: Timeline, room: int) -> None:
        self.units: dict[int, Unit] = {}
        self.used = 0
        self._timeline = timeline
        self._room = room

    @property
    def left(self) -> int:
        return self._room - self.used

    def missing(self, units: Sequence[Unit], turn: Turn) -> list[Unit]:
        """Returns what keeping these units would add: themselves and the question of their turn."""
        wanted = {unit.start: unit for unit in ([turn.question, *units] if turn.question else units)}
        return [unit for start, unit in wanted.items() if start not in self.units]

    def price(self, units: Sequence[Unit]) -> int:
        return sum([self._timeline.tokens_of(unit) for unit in units])

    def add(self, units: Sequence[Unit], turn: Turn) -> bool:
        """Keeps units and the question of their turn, or nothing when there is no room for all of it."""
        fresh = self.missing(units, turn)
        if self.price(fresh) > self.left:
            return False
        self.units.update({unit.start: unit for unit in fresh})
        self.used += self.price(fresh)
        return True
