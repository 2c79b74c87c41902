"""Two parts of one prompt that are planned in separate calls: a conversation, and blocks beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .._drivers import Steps
from ..messages.texts import content_text
from .request import Plan, PromptRequest, Turn
from .stages import plan_steps


@dataclass(frozen=True, slots=True)
class Part:
    """What one call of a turn planned."""

    asked: int | None = None  # hash of its question; None before the first call
    tokens: int = 0
    names: frozenset[str] = frozenset()  # of its blocks
    beside: int | None = None  # hash of the question of the conversation that it went with


@dataclass(frozen=True, slots=True)
class Had:
    """What the blocks of a turn had in its earlier calls."""

    tokens: Mapping[str, int] = field(default_factory=dict)
    limit: int = 0  # the largest

    def within(self, ceiling: int | None) -> Mapping[str, int]:
        """Returns the tokens of each block; none for a call with a smaller limit."""
        return self.tokens if ceiling is None or ceiling >= self.limit else {}

    def after(self, made: Plan, names: Iterable[str]) -> Had:
        """Returns the same after another plan, which had the blocks with these names."""
        kept = {name: made.kept[name].tokens if name in made.kept else 0 for name in names}
        return Had({**self.tokens, **kept}, max(self.limit, made.report.limit))


def asked_by(request: PromptRequest, history: Sequence[Any]) -> int:
    """Returns the hash of the question that a request should answer, its own or the last one of a history."""
    text, codec = request.question_text, request.codec
    if not text:
        asked = next((message for message in reversed(history) if codec.role(message) == "user"), None)
        text = "" if asked is None else content_text(codec.to_dict(asked).get("content"))
    return hash(text.strip())


def of_this_turn(other: Part, last: Part, asked: int) -> Part:
    """Returns the `other` part; nothing where it goes with the `last` plan of this one and `asked` is new."""
    return Part() if other.asked == last.asked != asked else other


def left_for(brought: Part, asked: int) -> Part:
    """Returns the blocks another call `brought`; none where they went with an earlier turn."""
    return brought if brought.beside in (None, asked) else Part()


def beside_turn(now: Part, brought: Part, asked: int) -> Part:
    """Returns the blocks brought `now`, marked where a turn was planned beside them."""
    return replace(now, beside=asked) if now is brought and now.asked is not None else now


def limit_of(request: PromptRequest) -> int:
    """Returns the largest prompt of a request beside any system prompt."""
    return request.budget.limit(band=request.counter.band, ceiling=request.ceiling)


def beside_steps(request: PromptRequest, turn: Turn, asked: int, *, other: Part, taken: int) -> Steps[Plan]:
    """Makes the plan of one part beside the `other` part, for which `taken` tokens of the limit stay free.

    Where the other part did not answer the same question, its share is kept free. It may have been asked in
    other words; so both must fit, too.
    """
    if other.asked is None or not other.names <= turn.awaited:
        return (yield from plan_steps(request, turn))
    limit, band = limit_of(request), request.counter.band
    left = replace(request, ceiling=request.budget.ceiling_for(max(0, limit - taken), band=band))
    sources = (turn.sources or turn.awaited) - other.names
    beside = plan_steps(left, replace(turn, sources=sources, awaited=turn.awaited - other.names))
    if other.asked == asked:
        return (yield from beside)
    made = yield from plan_steps(request, turn)
    return made if made.report.total_tokens + taken <= limit else (yield from beside)
