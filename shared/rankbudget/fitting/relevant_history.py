"""Which part of a conversation stays when there is a question to serve: continuity first, then what the question needs.

The current question always stays, its last step where that leaves half of the room, the last exchanges where they take little of it. The rest goes to what is worth its tokens:
- in a thread with tools, the names the next call will need: user ids, dates, codes and amounts, each counted once, those of earlier calls most;
- in a plain conversation, the newest turns for half of what is left, then the turns most relevant to the question.
A unit brings the question it belongs to, so that an answer never opens the conversation.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ..codec import content_text
from ..relevance.turns import TurnScorer
from ..segment import Segment
from ..timeline import Timeline, Turn, Unit
from .history import Selection, fill

__all__ = ["LOOKS_BACK", "relevant", "values_of"]

LOOKS_BACK = 2_000
"""Turns that are read; what is older goes as it does without a question."""
STEP, CONTINUITY, NEWEST = 0.5, 0.3, 0.5
"""Largest share of the room the last step of the current turn takes for sure, and the last exchanges; share of the rest that goes to the
newest turns of a plain conversation."""
VALUE_WEIGHTS = {"base": -3.6, "told": 0.37, "called": 2.2, "user": 0.8, "digit": 0.9, "underscore": 0.9, "age": -0.26}
"""A logistic regression over airline-support conversations: how likely a value is an argument of the next call."""
DENSITY = 0.5
"""Gain is divided by tokens to this power: 0 ignores the price, 1 prefers many short messages."""
_LONGEST = 40
_SHORTEST = 3
_WORD = re.compile(r"""[^\s"'{}\[\](),:;!?<>*|`]+""")


def relevant(timeline: Timeline, room: int, minimum: int, query: str) -> Selection | None:
    """Keeps the current turn and what serves the query; None when not even the current turn fits."""
    everything = fill(timeline, room, minimum)
    if everything is not None and everything.complete:
        return everything
    turns = list(islice(timeline.turns(), LOOKS_BACK))
    if not turns:
        return None
    shelf = _Shelf(timeline, room)
    if not shelf.add(_indispensable(turns[0]), turns[0]):
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


def _indispensable(turn: Turn) -> list[Unit]:
    """Returns the current question and a call that still waits; without a question, the last thing said."""
    return [unit for unit in turn.body if unit.waiting] if turn.question else turn.core()


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
        return [unit for n, unit in enumerate(wanted) if unit.start not in self.units and unit not in wanted[:n]]

    def price(self, units: Sequence[Unit]) -> int:
        return sum([self._timeline.tokens_of(unit) for unit in units])

    def add(self, units: Sequence[Unit], turn: Turn) -> bool:
        """Keeps units and the question of their turn, or nothing when there is no room for all of it."""
        fresh = self.missing(units, turn)
        price = self.price(fresh)
        if price > self.left:
            return False
        self.units.update({unit.start: unit for unit in fresh})
        self.used += price
        return True


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
            self.calls += [str(call.get("function", {}).get("arguments") or "") for call in neutral.get("tool_calls") or ()]
        self.text = "\n".join([*said, *self.calls])


@dataclass(slots=True)
class _Value:
    units: set[int]
    called: bool = False
    asked: bool = False


def _take_values(shelf: _Shelf, units: Sequence[_Read]) -> None:
    values = values_of([(unit.text, unit.calls, unit.results, unit.asked) for unit in units])
    holds: list[set[str]] = [set() for _ in units]
    for name, value in values.items():
        for n in value.units:
            holds[n].add(name)
    worth = {name: _likely(name, value, len(units)) for name, value in values.items()}
    at = {unit.unit.start: n for n, unit in enumerate(units)}
    have = {name for start in shelf.units for name in holds[at[start]]}
    left = [n for n, unit in enumerate(units) if unit.unit.start not in shelf.units]
    while left:
        best: tuple[float, int] | None = None
        possible = []
        for n in left:
            fresh = shelf.missing([units[n].unit], units[n].turn)
            price = shelf.price(fresh)
            if not fresh or price > shelf.left:
                continue
            possible.append(n)
            new = set().union(*[holds[at[unit.start]] for unit in fresh]) - have
            # Without anything new the newest is worth most.
            gain = sum([worth[name] for name in new]) + 1e-3 / (len(units) - n)
            best = max(best or (-1.0, 0), (gain / max(1, price) ** DENSITY, n))
        if best is None:
            return
        chosen = units[best[1]]
        for unit in shelf.missing([chosen.unit], chosen.turn):
            have |= holds[at[unit.start]]
        shelf.add([chosen.unit], chosen.turn)
        left = [n for n in possible if units[n].unit.start not in shelf.units]


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


def values_of(units: Sequence[tuple[str, Sequence[str], Sequence[str], bool]]) -> dict[str, _Value]:
    """Returns the names and numbers a next call may need, and the units that hold each.

    Args:
        units: text, arguments of calls (JSON), results of tools, and whether the user speaks.

    Example:
        >>> found = values_of([("I am mia_li_3668.", [], [], True), ("", ['{"user_id": "mia_li_3668"}'], [], False)])
        >>> {name: (sorted(value.units), value.called, value.asked) for name, value in found.items()}
        {'mia_li_3668': ([0, 1], True, True)}
    """
    found: dict[str, _Value] = {}
    for n, (text, calls, results, asked) in enumerate(units):
        called = {leaf for call in calls for leaf in _leaves(call)}
        names = {word.strip(".") for word in _WORD.findall(text)}
        plain = {leaf for result in results for leaf in _leaves(result) if " " not in leaf and not leaf.isdigit()}
        for name in {name for name in names if _names_something(name)} | called | plain:
            value = found.setdefault(name, _Value(set()))
            value.units.add(n)
            value.called = value.called or name in called
            value.asked = value.asked or asked
    for name, value in found.items():
        if value.called:  # a plain word that was an argument once counts wherever it stands
            value.units.update(n for n, (text, *_) in enumerate(units) if name in text)
    return found


def _names_something(word: str) -> bool:
    if not _SHORTEST <= len(word) <= _LONGEST:
        return False
    return "_" in word or word.isupper() or any(character.isdigit() for character in word)


def _likely(name: str, value: _Value, size: int) -> float:
    """Returns how likely a value is an argument of the next call."""
    weights = VALUE_WEIGHTS
    odds = (
        weights["base"]
        + weights["told"] * math.log(len(value.units))
        + weights["called"] * value.called
        + weights["user"] * value.asked
        + weights["digit"] * any(character.isdigit() for character in name)
        + weights["underscore"] * ("_" in name)
        + weights["age"] * math.log(size - max(value.units))
    )
    return 1 / (1 + math.exp(-odds))


def _leaves(text: str) -> Iterator[str]:
    """Yields the short texts and numbers a JSON text holds; nothing for any other text."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return
    stack: list[Any] = [data]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
        elif item is not None and not isinstance(item, bool) and _SHORTEST <= len(str(item)) <= _LONGEST:
            yield str(item)


def _oldest_first(turn: Turn) -> list[Unit]:
    return [turn.question, *turn.body] if turn.question else list(turn.body)
