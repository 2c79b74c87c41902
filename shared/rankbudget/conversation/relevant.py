"""Which part of a conversation stays when there is a question to serve.

The current question always stays. Its last step stays where that takes at most a quarter of the room, the
last exchanges where they take at most three tenths. The rest of the room goes to what is worth its tokens:
- in a thread with tools, the values the next call will need, each counted once (`next_call.py`);
- in a plain conversation, the newest turns for half of what is left, then the most relevant turns.
An answer never opens the conversation: the question of its turn, or an older question, is kept before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from ..messages.codec import content_text
from ..relevance.turns import TurnScorer
from ..segment import Segment
from .coverage import cover
from .next_call import likely, values_of
from .selection import Selection, fill
from .timeline import Timeline, Turn, Unit

__all__ = ["LOOKS_BACK", "relevant"]

LOOKS_BACK = 2_000
"""Turns that are read; older ones are dropped."""
STEP, CONTINUITY, NEWEST = 0.25, 0.3, 0.5
"""Largest share of the room for the last step of the current turn, and for the last exchanges; share of the
rest for the newest turns of a plain conversation."""


def relevant(timeline: Timeline, room: int, minimum: int, query: str) -> Selection | None:
    """Keeps the current turn and what serves the query; None when not even the current turn fits."""
    everything = fill(timeline, room, minimum)
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
    if kept.price(kept.missing(newest.core(), newest)) <= room * STEP:
        kept.add(newest.core(), newest)
    exchanges = turns[: max(1, minimum)]
    if kept.price([unit for turn in exchanges for unit in turn.core()]) <= room * CONTINUITY:
        for turn in exchanges:
            kept.add(turn.core(), turn)
    units = [_Read(unit, turn, timeline) for turn in reversed(turns) for unit in _oldest_first(turn)]
    if any(unit.calls for unit in units):
        _keep_values(kept, units)
    else:
        _keep_relevant(kept, units, query)
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


def _keep_values(kept: _Kept, units: Sequence[_Read]) -> None:
    values = values_of([(unit.text, unit.calls, unit.results, unit.asked) for unit in units])
    holds: list[list[int]] = [[] for _ in units]
    for number, value in enumerate(values.values()):
        for n in value.units:
            holds[n].append(number)
    at = {read.unit.start: n for n, read in enumerate(units)}
    chosen = cover(
        [kept.price([read.unit]) for read in units],
        holds,
        [likely(name, value) for name, value in values.items()],
        [at[read.turn.question.start] if read.turn.question else n for n, read in enumerate(units)],
        [at[start] for start in sorted(kept.units)],
        kept.left,
    )
    kept.put([units[n].unit for n in chosen])


def _keep_relevant(kept: _Kept, units: Sequence[_Read], query: str) -> None:
    newest_until = kept.left * (1 - NEWEST)
    for read in reversed(units):
        if kept.left - kept.price(kept.missing([read.unit], read.turn)) < newest_until:
            break
        kept.add([read.unit], read.turn)
    segments = [Segment(id=str(n), text=read.text) for n, read in enumerate(units)]
    scores = TurnScorer().score(query, segments)
    for n in sorted(range(len(units)), key=lambda n: (-scores[n], -n)):
        if kept.left <= 0:
            return
        kept.add([units[n].unit], units[n].turn)


def _oldest_first(turn: Turn) -> list[Unit]:
    return [turn.question, *turn.body] if turn.question else list(turn.body)
