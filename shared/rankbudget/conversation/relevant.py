"""Which part of a conversation stays when there is a question to serve: continuity first, then what the question needs.

The current question always stays, its last step where that takes at most a quarter of the room, the last exchanges where they take little of it.
The rest goes to what is worth its tokens:
- in a thread with tools, the names the next call will need: user ids, dates and codes, each counted once, by how likely they are (`next_call.py`);
- in a plain conversation, the newest turns for half of what is left, then the turns most relevant to the question.
An answer never opens the conversation: in a plain one a unit brings the question it belongs to; in a thread with tools, where room is for values,
the oldest unit does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from ..messages.codec import content_text
from ..relevance.turns import TurnScorer
from ..segment import Segment
from .timeline import Timeline, Turn, Unit
from .coverage import cover
from .selection import Selection, fill
from .next_call import likely, values_of

__all__ = ["LOOKS_BACK", "relevant", "values_of"]

LOOKS_BACK = 2_000
"""Turns that are read; what is older goes as it does without a question."""
STEP, CONTINUITY, NEWEST = 0.25, 0.3, 0.5
"""Largest share of the room the last step of the current turn takes for sure, and the last exchanges; share of the rest that goes to the
newest turns of a plain conversation. A small newest result is never lost; a large one has to be worth its tokens like everything else."""


def relevant(timeline: Timeline, room: int, minimum: int, query: str) -> Selection | None:
    """Keeps the current turn and what serves the query; None when not even the current turn fits."""
    everything = fill(timeline, room, minimum)
    if everything is not None and everything.complete:
        return everything
    turns = list(islice(timeline.turns(), LOOKS_BACK))
    if not turns:
        return None
    shelf = _Shelf(timeline, room)
    if not shelf.add(_indispensable(timeline, turns[0]), turns[0]):
        return None
    if shelf.price(shelf.missing(turns[0].core(), turns[0])) <= room * STEP:
        shelf.add(turns[0].core(), turns[0])
    last = [unit for turn in turns[: max(1, minimum)] for unit in turn.core()]
    if sum(timeline.tokens_of(unit) for unit in last) <= room * CONTINUITY:
        for turn in turns[: max(1, minimum)]:
            shelf.add(turn.core(), turn)
    units = [_Read(unit, turn, timeline) for turn in reversed(turns) for unit in _oldest_first(turn)]
    if any(unit.calls for unit in units):
        _take_values(shelf, units)
    else:
        _take_relevant(shelf, units, query)
    return Selection(list(shelf.units.values()), shelf.used)


def _indispensable(timeline: Timeline, turn: Turn) -> list[Unit]:
    """Returns the tool batch that the model has not answered yet, which goes with its question; without a question, the last thing said."""
    return timeline.owed(turn) if turn.question else turn.core()


class _Shelf:
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
        wanted = [turn.question, *units] if turn.question else list(units)
        return [
            unit for n, unit in enumerate(wanted) if unit.start not in self.units and unit not in wanted[:n]
        ]

    def price(self, units: Sequence[Unit]) -> int:
        return sum([self._timeline.tokens_of(unit) for unit in units])

    def add(self, units: Sequence[Unit], turn: Turn) -> bool:
        """Keeps units and the question of their turn, or nothing when there is no room for all of it."""
        fresh = self.missing(units, turn)
        price = self.price(fresh)
        if price > self.left:
            return False
        self.put(fresh)
        return True

    def put(self, fresh: Sequence[Unit]) -> None:
        """Keeps units that are known to fit."""
        self.units.update({unit.start: unit for unit in fresh})
        self.used += self.price(fresh)


class _Read:
    """A unit, its turn, and what its messages say."""

    def __init__(self, unit: Unit, turn: Turn, timeline: Timeline) -> None:
        self.unit = unit
        self.turn = turn
        said: list[str] = []
        self.calls: list[str] = []
        self.results: list[str] = []
        self.asked = False
        for message in timeline.read(unit):
            neutral = timeline.codec.to_dict(message)
            text = content_text(neutral.get("content"))
            said.append(text)
            if neutral.get("role") == "tool":
                self.results.append(text)
            self.asked = self.asked or neutral.get("role") == "user"
            self.calls += [
                str(call.get("function", {}).get("arguments") or "")
                for call in neutral.get("tool_calls") or ()
            ]
        self.text = "\n".join([*said, *self.calls])


def _take_values(shelf: _Shelf, units: Sequence[_Read]) -> None:
    values = values_of([(unit.text, unit.calls, unit.results, unit.asked) for unit in units])
    holds: list[list[int]] = [[] for _ in units]
    for number, value in enumerate(values.values()):
        for n in value.units:
            holds[n].append(number)
    at = {read.unit.start: n for n, read in enumerate(units)}
    chosen = cover(
        [shelf.price([read.unit]) for read in units],
        holds,
        [likely(name, value, len(units)) for name, value in values.items()],
        [at[read.turn.question.start] if read.turn.question else n for n, read in enumerate(units)],
        [at[start] for start in sorted(shelf.units)],
        shelf.left,
    )
    shelf.put([units[n].unit for n in chosen])


def _take_relevant(shelf: _Shelf, units: Sequence[_Read], query: str) -> None:
    newest_until = shelf.left * (1 - NEWEST)
    for read in reversed(units):
        if shelf.left - shelf.price(shelf.missing([read.unit], read.turn)) < newest_until:
            break
        shelf.add([read.unit], read.turn)
    segments = [Segment(id=str(n), text=read.text) for n, read in enumerate(units)]
    scores = TurnScorer().score(query, segments)
    for n in sorted(range(len(units)), key=lambda n: (-scores[n], -n)):
        if shelf.left <= 0:
            return
        shelf.add([units[n].unit], units[n].turn)


def _oldest_first(turn: Turn) -> list[Unit]:
    return [turn.question, *turn.body] if turn.question else list(turn.body)
