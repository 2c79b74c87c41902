"""What stays of a conversation when there is a question to serve: the last few, then what is relevant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from ..relevance.asking import is_asked
from ..relevance.lexical import KeywordScorer
from ..relevance.turns import TurnScorer
from ..segment import Segment
from .capping import shortened
from .coverage import Piece, take
from .older import lengthen
from .selection import Selection, fill
from .steps import keep_steps, take_answers, texts_of, units_of
from .timeline import Timeline

LOOKS_BACK = 2_000
"""Turns that are read; older ones are dropped."""
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
    turns = list(islice(timeline.turns(), LOOKS_BACK))
    if not turns:
        return None
    newest = turns[0]
    # The tool batch that the model has not answered yet; without a question, the last thing said.
    pending = [] if timeline.ended else timeline.pending_step(newest)
    stay = [newest.question, *pending] if newest.question else newest.core()
    exchanges = timeline.thread.min_exchanges
    if timeline.ended:  # the question is not among the messages, and one of the exchanges
        stay, exchanges = [], exchanges - 1
    left = room - timeline.cost(stay)
    if left < 0:
        return None
    units, questions = units_of(turns)
    taken = [n for n, unit in enumerate(units) if unit in stay]
    others = [n for n in range(len(units)) if n not in taken]  # the question is the most like itself
    segments = [Segment(id=str(n), text="\n".join(texts_of(timeline, units[n]))) for n in others]
    query = timeline.thread.query or ""
    if any(unit.stop - unit.start > 1 for unit in units):
        # A request, as "Book it", needs what the next call does; a question has its answer in what names it.
        asks = is_asked(query) and not pending
        named = dict(zip(others, KeywordScorer().score(query, segments), strict=True)) if asks else {}
        first = _order(query, segments, others)[:1] if max(named.values(), default=0) > NAMED else []
        answers = [n for n in first if named[n] > NAMED]
        return keep_steps(timeline, turns, stay, left, _links(answers, questions))
    order = _order(query, segments, others)
    best = _links(order[:ANSWERS], questions)
    pieces = [Piece(timeline.tokens_of(unit), needs=n) for unit, n in zip(units, questions, strict=True)]
    last = sum([len(turn.units) for turn in turns[: max(0, exchanges)]])
    newest_first, newer = range(len(units) - 1, -1, -1), int(left * NEWEST)
    few = take(pieces, taken, newest_first[:last], newer, skip=False)
    caps, left = take_answers(timeline, units, best, taken, left - few)
    left -= take(pieces, taken, newest_first, min(left, newer - few), skip=False)
    left -= take(pieces, taken, order, left)
    lengthen(timeline, [[units[n] for n in link] for link in best], caps, left)
    kept, edits = [units[n] for n in taken], shortened(timeline, caps)
    return Selection(kept, timeline.cost(kept, edits), edits=edits)


def _order(query: str, segments: Sequence[Segment], units: Sequence[int]) -> list[int]:
    """Returns units by what serves the query, of equal ones the newest first."""
    scores = TurnScorer().score(query, segments)
    return [n for _, n in sorted(zip(scores, units, strict=True), reverse=True)]


def _links(order: Iterable[int], questions: Sequence[int | None]) -> list[list[int]]:
    """Returns units in order, each behind its question; a question is followed by its answer."""
    answers = {asked: n for n, asked in enumerate(questions) if asked is not None}
    found: list[list[int]] = []
    for n in order:
        found.append([m for m in (questions[n], n) if m is not None])
        if n in answers:
            found.append([n, answers[n]])
    return found
