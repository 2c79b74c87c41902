"""Which steps of a conversation with tools stay: the newest, then what holds what the next call needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..compression.json_values import dump
from ..counting.blocks import CALLS, arguments_of, as_block, blocks_of, function_of, kind_of
from ..messages.texts import content_text
from .capping import VERY_LEAST, cap_units, shortened
from .coverage import Piece, cover, take
from .next_call import Said, Value, is_number, likely, values_of, words_in
from .older import lengthen, results_of
from .selection import Selection
from .timeline import NO_EDITS, Timeline
from .units import Turn, Unit

NEWEST_STEPS = 0.25
"""Share of the free room for the newest steps."""
RELEVANT = 0.25
"""Share of what these leave for what is relevant to a question, before what the next call needs."""
ASKED_STEPS, FEW_STEPS = 0.5, 3
"""Share of the free room for steps with a number of the query; how many steps may have it."""
RESULT_TOKENS = 32
"""What a result of an older step is shortened to while the whole of it has no room."""
ANSWER_TOKENS = 128
"""What an answer that has no room whole is shortened to where half of the room is less."""


def keep_steps(
    timeline: Timeline,
    turns: Sequence[Turn],
    stay: Sequence[Unit],
    room: int,
    best: Sequence[Sequence[int]],
    order: Iterable[int] = (),
) -> Selection:
    """Keeps the units that `stay`, and what else of the turns fits the room, some with shortened results.

    The `best` come before all that is newer than they, apart from the newest steps; behind these what serves
    a question comes in `order`.
    """
    units, questions = units_of(turns)
    taken = [n for n, unit in enumerate(units) if unit in stay]
    copies = _short_results(timeline, [unit for unit in units if unit not in stay], room)
    values = values_of([_said(timeline, unit) for unit in units])
    pieces = _pieces(timeline, units, questions, copies, values)
    asked, before = _asked_for(timeline.thread.query or "", values), len(taken)
    named, left = take_answers(timeline, units, [[n] for n in asked], taken, int(room * ASKED_STEPS))
    room -= int(room * ASKED_STEPS) - left
    newer = int(room * NEWEST_STEPS)
    answers, left = take_answers(timeline, units, best, taken, room - newer)
    rest = {piece.needs: n for n, piece in enumerate(pieces) if n >= len(units)}
    taken += [rest[n] for n in taken[before:] if n in rest]  # nothing of them is chosen later
    room = left + newer
    newest_first = range(len(units) - 1, -1, -1)
    room -= take(pieces, taken, newest_first, newer, skip=False)
    room -= take(pieces, taken, order, int(room * RELEVANT))
    chosen = cover(pieces, [likely(name, value) for name, value in values.items()], taken, room)
    room -= sum([pieces[n].price for n in chosen])
    taken += chosen
    kept = [units[n] for n in sorted(taken) if n < len(units)]
    whole = {pieces[n].needs for n in taken if n >= len(units)}
    short = [units[n] for n in sorted(taken, reverse=True) if n < len(units) and n not in whole]
    caps = {i: RESULT_TOKENS for unit in short for i in copies.get(unit.start, ())}
    more = _next_step(units, questions, set(taken))
    at = results_of(timeline, more, VERY_LEAST) if timeline.thread.message_cap is not None else ()
    cut = cap_units(timeline, more, room, at=dict.fromkeys(at, VERY_LEAST))
    if cut is not None:
        kept += more
        caps.update(cut)
        room = 0
    long = too_long(units, questions, newest_first[: few_of(timeline, turns)], taken)
    before = len(taken)
    texts, room = take_answers(timeline, units, long, taken, room)
    kept += [units[n] for n in taken[before:]]
    caps.update({**named, **answers, **texts})
    links = [*([units[n] for n in link] for link in (*best, *long)), *([unit] for unit in short)]
    lengthen(timeline, links, caps, room)
    edits = shortened(timeline, caps)
    return Selection(kept, timeline.cost(kept, edits), edits=edits)


def take_answers(
    timeline: Timeline,
    units: Sequence[Unit],
    links: Iterable[Sequence[int]],
    taken: list[int],
    room: int,
) -> tuple[dict[int, int], int]:
    """Adds units to those `taken`, whole or shortened; returns the caps of the texts, and the room left.

    What does not fit whole has half of the room, so that the next ones have some where the first says little,
    or `ANSWER_TOKENS` where that is more.
    """
    caps: dict[int, int] = {}
    for link in links:
        added = [n for n in link if n not in taken]
        parts = [units[n] for n in added]
        if timeline.cost(parts) > room:
            texts = [i for unit in parts for i in unit.positions()]
            most = max(room // 2, min(room, ANSWER_TOKENS))
            cut = cap_units(timeline, parts, most, at=dict.fromkeys(texts, VERY_LEAST))
            if cut is None or timeline.thread.message_cap is None:
                continue
            caps.update(cut)
        room -= timeline.cost(parts, shortened(timeline, caps))
        taken += added
    return caps, room


def few_of(timeline: Timeline, turns: Sequence[Turn]) -> int:
    """Returns how many units the last few exchanges have.

    The question is one of the exchanges, also where it is given beside the messages.
    """
    few = turns[: max(0, timeline.thread.min_exchanges - timeline.ended)]
    return sum([len(turn.units) for turn in few])


def too_long(
    units: Sequence[Unit], questions: Sequence[int | None], few: Iterable[int], taken: Sequence[int]
) -> list[list[int]]:
    """Returns the newest of a few units that was not taken, behind its question, if it is a text."""
    missed = next((n for n in few if n not in taken), None)
    if missed is None or units[missed].stop - units[missed].start > 1:
        return []
    return [[n for n in (questions[missed], missed) if n is not None]]


def _asked_for(query: str, values: Mapping[str, Value]) -> list[int]:
    """Returns the units with a number of the query that few units have, newest first."""
    named = [values[name].units for name in words_in(query) if name in values and is_number(name)]
    return sorted({n for held in named if len(held) <= FEW_STEPS for n in held}, reverse=True)


def _next_step(units: Sequence[Unit], questions: Sequence[int | None], taken: set[int]) -> list[Unit]:
    """Returns the newest step that was not taken though its question was, if there is one."""
    for n in reversed(range(len(units))):
        steps = n not in taken and units[n].stop - units[n].start > 1
        if steps and (questions[n] is None or questions[n] in taken):
            return [units[n]]
    return []


def units_of(turns: Sequence[Turn]) -> tuple[list[Unit], list[int | None]]:
    """Returns the units of turns, newest turn first, from the oldest on, and where each one's question is."""
    units: list[Unit] = []
    questions: list[int | None] = []
    for turn in reversed(turns):
        asked = len(units) if turn.question else None
        questions += [None if unit is turn.question else asked for unit in turn.units]
        units += turn.units
    return units, questions


def texts_of(timeline: Timeline, unit: Unit, copies: Mapping[int, Any] = NO_EDITS) -> Iterator[str]:
    """Yields the texts of a unit's messages and the arguments of their calls."""
    for position in unit.positions():
        neutral = timeline.codec.to_dict(copies.get(position, timeline.messages[position]))
        yield content_text(neutral.get("content"))
        yield from _arguments(neutral)


def calls_of(timeline: Timeline, unit: Unit) -> list[str]:
    """Returns the texts of a unit; of a step each call's arguments with its result, by their id."""
    calls: dict[str, str] = {}
    texts: list[str] = []
    for position in unit.positions():
        neutral = timeline.codec.to_dict(timeline.messages[position])
        for call in neutral.get("tool_calls") or ():
            calls[call.get("id") or ""] = "\n".join(_arguments({"tool_calls": [call]}))
        said = content_text(neutral.get("content"))
        texts.append("\n".join([calls.get(neutral.get("tool_call_id") or "", ""), said]))
    return texts if calls else ["\n".join(texts_of(timeline, unit))]


def _said(timeline: Timeline, unit: Unit) -> Said:
    neutral = map(timeline.codec.to_dict, timeline.read(unit))
    return Said("\n".join(texts_of(timeline, unit)), [call for one in neutral for call in _arguments(one)])


def _arguments(neutral: Mapping[str, Any]) -> list[str]:
    inside = [call for call in map(as_block, blocks_of(neutral.get("content"))) if kind_of(call) in CALLS]
    calls = map(function_of, [*(neutral.get("tool_calls") or ()), *inside])
    found = [arguments_of(call) or "" for call in calls]
    return [given if isinstance(given, str) else dump(given) for given in found]


def _short_results(timeline: Timeline, units: Sequence[Unit], room: int) -> dict[int, Mapping[int, Any]]:
    """Returns copies of long results by the start of their step, newest steps first, while they could fit."""
    found: dict[int, Mapping[int, Any]] = {}
    left = 0 if timeline.thread.message_cap is None else room // RESULT_TOKENS
    for unit in reversed(units):
        if left <= 0:
            break
        caps = {
            position: RESULT_TOKENS
            for position in unit.positions()
            if timeline.role(position) == "tool" and timeline.is_longer(position, RESULT_TOKENS)
        }
        if caps:
            left -= len(caps)
            copies = shortened(timeline, caps)
            if timeline.cost([unit], copies) < timeline.tokens_of(unit):
                found[unit.start] = copies
    return found


def _pieces(
    timeline: Timeline,
    units: Sequence[Unit],
    questions: Sequence[int | None],
    copies: Mapping[int, Mapping[int, Any]],
    values: Mapping[str, Value],
) -> list[Piece]:
    """Returns a piece for each unit, and behind them one for what each shortened unit lacks."""
    names = list(values)
    held: list[list[int]] = [[] for _ in units]
    for number, value in enumerate(values.values()):
        for n in value.units:
            held[n].append(number)
    pieces: list[Piece] = []
    rest: list[Piece] = []
    for n, (unit, needs) in enumerate(zip(units, questions, strict=True)):
        age, price, inside = len(units) - 1 - n, timeline.tokens_of(unit), held[n]
        if unit.start in copies:
            short = timeline.cost([unit], copies[unit.start])
            rest.append(Piece(price - short, inside, age, needs=n))
            text = "\n".join(texts_of(timeline, unit, copies[unit.start]))
            price, inside = short, [number for number in inside if names[number] in text]
        pieces.append(Piece(price, inside, age, needs))
    return pieces + rest
