"""What stays of a conversation when there is a question to serve: the last few, then what is relevant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..relevance.asking import is_asked, names_in
from ..relevance.lexical import KeywordScorer
from ..relevance.turns import TurnScorer
from ..segment import Segment
from .answering import answering
from .capping import shortened
from .coverage import Piece, take
from .older import lengthen
from .selection import Selection, fill
from .steps import calls_of, few_of, keep_steps, take_answers, texts_of, too_long, units_of
from .timeline import Timeline
from .units import Turn, Unit

LOOKS_BACK = 2_000
"""Turns that are read, and more only where these leave room."""
NEWEST = 0.5
"""Share of the free room for the newest messages."""
NAMED = 0.5
"""Share of the different words of a question above which what holds them may answer it, beside tool steps."""
ANSWERS = 3
"""Units that serve the query best: they come before all but the last few, shortened where they must."""


def relevant(timeline: Timeline, room: int) -> Selection | None:
    """Keeps the current turn and what serves the query; None when not even the current question fits."""
    everything = fill(timeline, room, timeline.thread.min_exchanges)
    if everything is not None and everything.complete:
        return everything
    turns = _read(timeline, room)
    stay = _staying(timeline, turns[0]) if turns else []
    if not turns or room < timeline.cost(stay):
        return None
    has_steps = any(unit.stop - unit.start > 1 for turn in turns for unit in turn.units)
    chosen = (_beside_steps if has_steps else _by_relevance)(timeline, turns, stay, room)
    return _answered(timeline, chosen) if chosen is not None and timeline.thread.answered else chosen


def _answered(timeline: Timeline, chosen: Selection) -> Selection:
    """Returns a selection without steps before a question, as their answer was left out."""
    kept: list[Unit] = []
    asks = timeline.ended
    for unit in sorted(chosen.units, key=lambda unit: unit.start, reverse=True):
        if asks and unit.stop - unit.start > 1:
            continue
        kept.append(unit)
        asks = timeline.role(unit.start) == "user"
    return replace(chosen, units=kept, tokens=timeline.cost(kept, chosen.edits))


def _read(timeline: Timeline, room: int) -> list[Turn]:
    """Returns the newest turns, as many as are read or fill the room."""
    found: list[Turn] = []
    for turn in timeline.turns():
        if len(found) >= LOOKS_BACK and room < 0:
            break
        found.append(turn)
        room -= sum(map(timeline.tokens_of, turn.units))
    return found


def _staying(timeline: Timeline, newest: Turn) -> list[Unit]:
    """Returns the question with the tool batch that waits for an answer; without one, the last thing said."""
    if timeline.ended:  # the question is not among the messages
        return []
    return [newest.question, *timeline.pending_step(newest)] if newest.question else newest.core()


def _beside_steps(timeline: Timeline, turns: Sequence[Turn], stay: list[Unit], room: int) -> Selection | None:
    """Keeps tool steps as an agent needs them, and before them what answers the query."""
    units, questions = units_of(turns)
    query, answers, order = timeline.thread.query or "", list[int](), list[int]()
    asked, pending = is_asked(query), bool(timeline.pending_step(turns[0]))
    # A request, as "Book it", needs what the next call does; a question has its answer in what names it.
    if asked or not pending:
        others, segments = _others(timeline, units, stay)
        told = names_in(query)  # what is said beside a question names no step
        named = _named(told, timeline, units, others)
        if asked and not pending:
            order = _order(query, segments, others)
            answers = sorted([n for n in order if named[n] > NAMED], key=lambda n: -named[n])[:ANSWERS]
            order = [*[n for link in _links(order[:ANSWERS], questions) for n in link], *order]
        if not answers:
            near = [n for n in others if named[n]]
            texts = [list(map(timeline.text, units[n].positions())) for n in near]
            found = [near[n] for n in answering(told, texts, len(others))]
            answers = [n for n in found if units[n].stop - units[n].start > 1]
    left = room - timeline.cost(stay)
    return keep_steps(timeline, turns, stay, left, _links(answers, questions, steps=True), order)


def _by_relevance(timeline: Timeline, turns: Sequence[Turn], stay: list[Unit], room: int) -> Selection:
    """Keeps the last few texts, then what serves the query best, then newer texts, then the most relevant."""
    units, questions = units_of(turns)
    others, segments = _others(timeline, units, stay)
    order = _order(timeline.thread.query or "", segments, others)
    best = _links(order[:ANSWERS], questions)
    pieces = [Piece(timeline.tokens_of(unit), needs=n) for unit, n in zip(units, questions, strict=True)]
    taken = [n for n, unit in enumerate(units) if unit in stay]
    left = room - timeline.cost(stay)
    newest_first, newer = range(len(units) - 1, -1, -1), int(left * NEWEST)
    last = newest_first[: few_of(timeline, turns)]
    few = take(pieces, taken, last, newer, skip=False)
    best += too_long(units, questions, last, taken)
    caps, left = take_answers(timeline, units, best, taken, left - few)
    left -= take(pieces, taken, newest_first, min(left, newer - few), skip=False)
    left -= take(pieces, taken, order, left)
    lengthen(timeline, [[units[n] for n in link] for link in best], caps, left)
    kept, edits = [units[n] for n in taken], shortened(timeline, caps)
    return Selection(kept, timeline.cost(kept, edits), edits=edits)


def _others(timeline: Timeline, units: list[Unit], stay: list[Unit]) -> tuple[list[int], list[Segment]]:
    """Returns the units beside those that stay, which are the most like the question, with their texts."""
    others = [n for n, unit in enumerate(units) if unit not in stay]
    return others, [Segment(id=str(n), text="\n".join(texts_of(timeline, units[n]))) for n in others]


def _named(query: str, timeline: Timeline, units: Sequence[Unit], others: Sequence[int]) -> dict[int, float]:
    """Returns how much of the query each unit has, of several calls the one that has most with its result."""
    parts = [(n, text) for n in others for text in calls_of(timeline, units[n])]
    found = dict.fromkeys(others, 0.0)
    segments = [Segment(id=str(i), text=text) for i, (_, text) in enumerate(parts)]
    for (n, _), score in zip(parts, KeywordScorer().score(query, segments), strict=True):
        found[n] = max(found[n], score)
    return found


def _order(query: str, segments: Sequence[Segment], units: Sequence[int]) -> list[int]:
    """Returns units by what serves the query, of equal ones the newest first."""
    scores = TurnScorer().score(query, segments)
    return [n for _, n in sorted(zip(scores, units, strict=True), reverse=True)]


def _links(order: Iterable[int], questions: Sequence[int | None], *, steps: bool = False) -> list[list[int]]:
    """Returns units in order, each behind its question and before the newest others of its turn.

    Those come behind all `steps`, which answer by themselves.
    """
    found: list[list[int]] = []
    beside: list[list[int]] = []
    for n in order:
        asked = questions[n]
        found.append([m for m in (asked, n) if m is not None])
        first = n if asked is None else asked
        others = [m for m, one in enumerate(questions) if one == first and m != n]
        (beside if steps else found).extend([first, m] for m in reversed(others[-ANSWERS:]))
    return found + beside
