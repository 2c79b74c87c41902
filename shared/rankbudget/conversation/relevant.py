"""Which part of a conversation stays when there is a question to serve: the newest, then what is relevant."""

from __future__ import annotations

from itertools import islice

from ..relevance.turns import TurnScorer
from ..segment import Segment
from .coverage import Piece, take
from .selection import Selection, fill
from .steps import keep_steps, texts_of, units_of
from .timeline import Timeline

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
    # The tool batch that the model has not answered yet; without a question, the last thing said.
    stay = [newest.question, *timeline.pending_step(newest)] if newest.question else newest.core()
    left = room - timeline.cost(stay)
    if left < 0:
        return None
    if any(unit.stop - unit.start > 1 for turn in turns for unit in turn.body):
        return keep_steps(timeline, turns, stay, left)
    units, questions = units_of(turns)
    pieces = [Piece(timeline.tokens_of(unit), needs=n) for unit, n in zip(units, questions, strict=True)]
    taken = [n for n, unit in enumerate(units) if unit in stay]
    left -= take(pieces, taken, range(len(units) - 1, -1, -1), int(left * NEWEST), skip=False)
    segments = [Segment(id=str(n), text="\n".join(texts_of(timeline, unit))) for n, unit in enumerate(units)]
    scores = TurnScorer().score(timeline.thread.query or "", segments)
    left -= take(pieces, taken, sorted(range(len(units)), key=lambda n: (-scores[n], -n)), left)
    return Selection([units[n] for n in taken], room - left)
