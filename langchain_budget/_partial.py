"""Cuts the message at the edge, as langchain-core's `trim_messages` does, without breaking it.

Only text is cut. The cut message is a copy without stale usage and, as langchain-core's, without a mark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from rankbudget.adapters import Measure, Timeline, Unit, block_text, replace_text
from rankbudget.errors import BudgetExceededError

from ._codec import CODEC

__all__ = ["Partial", "keep_first", "matches", "may_end"]


class Partial:
    """Cuts one message so that a list with it fits; `splitter` makes parts that join to the text again."""

    def __init__(self, measure: Measure, limit: int, splitter: Any = None) -> None:
        self._measure = measure
        self._limit = limit
        self._split: Callable[[str], list[str]] = getattr(splitter, "split_text", splitter) or _after_newlines

    def newest(
        self, given: list[BaseMessage], fit: Callable[[list[BaseMessage]], list[BaseMessage]]
    ) -> list[BaseMessage]:
        """Returns the newest messages that fit, the user's message at the edge cut to what is left for it."""
        try:
            kept = fit(given)
        except BudgetExceededError:
            longer = self._with_cut_question(given, [])
            if longer is None:
                raise
            return longer
        return kept if len(kept) == len(given) else self._with_cut_question(given, kept) or kept

    def cut(
        self, message: BaseMessage, before: Sequence[BaseMessage], after: Sequence[BaseMessage], *, end: bool
    ) -> BaseMessage | None:
        """Returns the message with as much of its text as fits between two lists; None when none does."""
        if not _cuttable(message):
            return None
        content = message.content
        blocks = (
            content if isinstance(content, list) and all(block_text(b) is not None for b in content) else []
        )
        edge: Any = [blocks[-1 if end else 0]] if blocks else content
        parts = self._split((block_text(edge[0]) or "") if blocks else message.text)

        def shortened(count: int) -> BaseMessage:
            """Returns the message with so many parts of its edge's text, then with so many whole blocks."""
            if count < len(parts):
                kept = parts[-count:] if end else parts[:count]
                return _with_content(message, replace_text(edge, "".join(kept)))
            whole = count - len(parts) + 1
            return _with_content(message, blocks[-whole:] if end else blocks[:whole])

        low, high = 0, len(parts) - 1 + max(0, len(blocks) - 1)
        while low < high:
            middle = (low + high + 1) // 2
            fits = self._measure.total([*before, shortened(middle), *after]) <= self._limit
            low, high = (middle, high) if fits else (low, middle - 1)
        return shortened(low) if low else None

    def _with_cut_question(
        self, given: list[BaseMessage], kept: list[BaseMessage]
    ) -> list[BaseMessage] | None:
        """Adds what fits of the newest turn that is not whole: newest steps, end of its question."""
        timeline = Timeline(given, CODEC, self._measure)
        pinned = [given[i] for i in timeline.pinned]
        held = {id(m) for m in kept}
        newer: list[BaseMessage] = []
        for turn in timeline.turns():
            if turn.question is None:
                return None
            question = given[turn.question.start]
            steps = [[given[i] for i in unit.positions()] for unit in turn.body]
            whole = [question, *(m for step in steps for m in step)]
            if not all(id(m) in held for m in whole):
                break
            newer = [*whole, *newer]
        else:
            return None
        # A result that was not answered yet stays: without it an agent asks again.
        least = 1 if steps and not newer and CODEC.role(given[-1]) == "tool" else 0
        for count in range(len(steps), least - 1, -1):
            rest = [m for step in steps[len(steps) - count :] for m in step] + newer
            if count and self._measure.total([*pinned, *rest]) > self._limit:
                continue
            found = self.cut(question, pinned, rest, end=True)
            if found is not None and (rest or not kept):
                stays = {id(m) for m in [*pinned, question, *rest]}
                return [found if m is question else m for m in given if id(m) in stays]
        return None


def keep_first(
    given: list[BaseMessage], measure: Measure, limit: int, *, cut: Partial | None = None, end_on: Any = None
) -> list[BaseMessage]:
    """Returns the oldest messages within the limit, whole units at a time."""
    units = _units(given, measure)
    kept = units
    if measure.total(_read(given, units)) > limit:
        kept, used = [], measure.overhead
        for unit in units:
            used += measure.group([given[i] for i in unit.positions()])
            if used > limit:
                break
            kept.append(unit)
        while kept and measure.total(_read(given, kept)) > limit:  # counts that do not add up
            kept.pop()
    messages = _read(given, kept)
    edge: BaseMessage | None = None
    if cut is not None and len(kept) < len(units) and len(places := units[len(kept)].positions()) == 1:
        edge = cut.cut(given[places[0]], messages, (), end=False)
    if edge is not None and (end_on is None or matches(edge, end_on)):
        return [*messages, edge]
    while end_on and kept and not may_end(given[kept[-1].positions()[-1]], end_on):
        kept.pop()
    return _read(given, kept)


def may_end(message: BaseMessage, kinds: Any) -> bool:
    """Tells whether a list may end on a message: one of the types, and no call that nobody answers."""
    return matches(message, kinds) and not CODEC.call_ids(message)


def matches(message: BaseMessage, kinds: Any) -> bool:
    """Tells whether a message is of one of the types, given by name or as classes."""
    listed = [kinds] if isinstance(kinds, (str, type)) else list(kinds)
    names = {kind for kind in listed if isinstance(kind, str)}
    classes = tuple(kind for kind in listed if isinstance(kind, type))
    return message.type in names or isinstance(message, classes)


def _units(given: list[BaseMessage], measure: Measure) -> list[Unit]:
    """Returns the parts of a thread that stay together, oldest first, without broken ones."""
    timeline = Timeline(given, CODEC, measure)
    units = [Unit(i, i + 1) for i in timeline.pinned]
    for turn in timeline.turns():
        units += turn.body if turn.question is None else [turn.question, *turn.body]
    units.sort(key=lambda unit: unit.start)
    return units


def _read(given: list[BaseMessage], units: Sequence[Unit]) -> list[BaseMessage]:
    return [given[i] for i in sorted({i for unit in units for i in unit.positions()})]


def _cuttable(message: BaseMessage) -> bool:
    """Tells whether text may be cut: of users and models, without calls, thinking or reasoning."""
    blocks = message.content if isinstance(message.content, list) else []
    kinds = [str(block.get("type")) for block in blocks if isinstance(block, dict)]
    thought = any("thinking" in kind or kind == "reasoning" for kind in kinds)
    return isinstance(message, (HumanMessage, AIMessage)) and not thought and not CODEC.call_ids(message)


def _with_content(message: BaseMessage, content: Any) -> BaseMessage:
    made: BaseMessage = CODEC.with_text(message, "")
    return made.model_copy(update={"content": content, "additional_kwargs": dict(message.additional_kwargs)})


def _after_newlines(text: str) -> list[str]:
    return text.splitlines(keepends=True)
