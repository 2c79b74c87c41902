"""What `trim_messages` does when it is called: its options are checked already."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import dropwhile
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.messages.utils import count_tokens_approximately

from rankbudget import FitResult, TokenBudget, counter_for, fit_messages
from rankbudget.adapters import CodecMeasure, Measure, Timeline, block_text, replace_text
from rankbudget.errors import BudgetConfigError, BudgetExceededError, CounterUnavailableError

from ._codec import CODEC, LangChainCodec, codec_for
from ._convert import as_messages
from ._counters import HostCounter, host_counter
from ._supported import is_kind

if TYPE_CHECKING:
    from .trim import Kinds

_RESULT_CAP = 1000
"""Most tokens a result of the newest tool call keeps where they cannot all stay whole."""
_SHORTEST = HumanMessage(".")
"""In the place of a question while only what follows it is counted: counters are given valid lists alone."""
_ENCODINGS = ("o200k_base", "cl100k_base", "o200k_harmony", "p50k_base", "r50k_base")


def trimmed(
    messages: Any,
    *,
    max_tokens: int,
    token_counter: Any,
    strategy: str,
    allow_partial: bool,
    end_on: Kinds,
    start_on: Kinds,
    include_system: bool,
    text_splitter: Any,
) -> list[BaseMessage]:
    """Returns the newest (or first) messages within `max_tokens`, as `trim_messages` says."""
    host = _counter(token_counter)
    split = getattr(text_splitter, "split_text", text_splitter) or methodcaller("splitlines", keepends=True)
    measure = host.measure or CodecMeasure(_codec_of(token_counter), host.counter)
    fit = partial(
        fit_messages,
        max_tokens=max_tokens,
        counter=host.counter,
        codec=CODEC,
        measure=measure,
        min_exchanges=1,
    )
    trim = _Trim(fit, measure, max_tokens, split if allow_partial else None)
    given = as_messages(messages)
    if strategy == "first":
        return trim.oldest(given, end_on)
    while end_on and given and not _may_end(given[-1], end_on):
        given.pop()
    if not include_system and not trim.fits(given):
        given = list(dropwhile(lambda m: isinstance(m, SystemMessage), given))
    kept = _ended(trim.newest(given), end_on, include_system=include_system)
    return _started(kept, start_on, include_system=include_system) if start_on else kept


@dataclass(frozen=True)
class _Trim:
    """A limit, how to fit and to count, and how a text is split where the message at the edge may be cut."""

    fit: Callable[..., FitResult]
    measure: Measure
    limit: int
    split: Callable[[str], list[str]] | None

    def fits(self, messages: Sequence[BaseMessage]) -> bool:
        return self.measure.total(messages) <= self.limit

    def oldest(self, given: list[BaseMessage], end_on: Kinds) -> list[BaseMessage]:
        """Returns the oldest messages within the limit, whole units at a time."""
        timeline = Timeline(given, CODEC, self.measure)
        units: list[Sequence[int]] = [[i] for i in timeline.pinned]
        units += [unit.positions() for turn in timeline.turns() for unit in turn.units]
        units.sort(key=lambda unit: unit[0])
        given = list(timeline.messages)

        def first(count: int) -> list[BaseMessage]:
            return [given[i] for i in sorted(i for unit in units[:count] for i in unit)]

        counts = range(len(units) + 1)
        count = len(units)
        if not self.fits(first(count)):
            count = max(0, bisect_right(counts, self.limit, key=lambda n: self.measure.total(first(n))) - 1)
        kept = first(count)
        if self.split is not None and count < len(units) and len(units[count]) == 1:
            edge = self._cut(given[units[count][0]], kept, (), end=False)
            if edge is not None and (end_on is None or _matches(edge, end_on)):
                return [*kept, edge]
        while end_on and kept and not _may_end(kept[-1], end_on):
            count -= 1
            kept = first(count)
        return kept

    def newest(self, given: list[BaseMessage]) -> list[BaseMessage]:
        """Returns the newest messages that fit, the user's message at the edge cut to what is left for it."""
        if not given:
            return []
        if self.split is not None and any(map(CODEC.answers, given)):
            timeline = Timeline(given, CODEC, self.measure)
            list(timeline.turns())
            given = list(timeline.messages)  # without results of no call, so that what is kept is known again
        try:
            kept = self._fitted(given)
        except BudgetExceededError:
            longer = self._with_cut_question(given, [])
            if longer is None:
                raise
            return longer
        return kept if len(kept) == len(given) else self._with_cut_question(given, kept) or kept

    def _fitted(self, given: list[BaseMessage]) -> list[BaseMessage]:
        """Returns the newest messages that fit; unanswered results are shortened before they are refused."""
        try:
            return list(self.fit(given, message_cap=None).messages)
        except BudgetExceededError:
            if CODEC.role(given[-1]) != "tool":
                raise
            # Without its newest results an agent would ask for them again.
            fitted = list(self.fit(given, message_cap=_RESULT_CAP).messages)
            whole = {id(message) for message in given}
            if any(id(message) not in whole and CODEC.role(message) != "tool" for message in fitted):
                raise
            return fitted

    def _with_cut_question(
        self, given: list[BaseMessage], kept: list[BaseMessage]
    ) -> list[BaseMessage] | None:
        """Adds what fits of the newest turn that is not whole: newest steps, end of its question."""
        if self.split is None:
            return None
        timeline = Timeline(given, CODEC, self.measure)
        pinned = [given[i] for i in timeline.pinned]
        held = {id(m) for m in kept}
        newer: list[BaseMessage] = []
        for turn in timeline.turns():
            if turn.question is None:
                return None
            question = given[turn.question.start]
            steps = [timeline.read(unit) for unit in turn.body]
            whole = [question, *(m for step in steps for m in step)]
            if not {id(m) for m in whole} <= held:
                break
            newer = [*whole, *newer]
        else:
            return None
        # A result that was not answered yet stays: without it an agent asks again.
        least = int(bool(steps) and not newer and CODEC.role(given[-1]) == "tool")
        for count in range(len(steps), least - 1, -1):
            rest = [m for step in steps[len(steps) - count :] for m in step] + newer
            if count and not self.fits([*pinned, _SHORTEST, *rest]):
                continue
            found = self._cut(question, pinned, rest, end=True)
            if found is not None and (rest or not kept):
                stays = {id(m) for m in [*pinned, question, *rest]}
                return [found if m is question else m for m in given if id(m) in stays]
        return None

    def _cut(
        self, message: BaseMessage, before: Sequence[BaseMessage], after: Sequence[BaseMessage], *, end: bool
    ) -> BaseMessage | None:
        """Returns the message with as much of its text as fits between two lists; None when none does."""
        if self.split is None or not _cuttable(message):
            return None
        content = message.content
        texts_alone = isinstance(content, list) and all(block_text(b) is not None for b in content)
        blocks: Any = content if texts_alone else []
        edge: Any = [blocks[-1 if end else 0]] if blocks else content
        parts = self.split((block_text(edge[0]) or "") if blocks else message.text)

        def shortened(count: int) -> BaseMessage:
            """Returns the message with so many parts of its edge's text, then with so many whole blocks."""
            if count < len(parts):
                kept = parts[-count:] if end else parts[:count]
                return _with_content(message, replace_text(edge, "".join(kept)))
            whole = count - len(parts) + 1
            return _with_content(message, blocks[-whole:] if end else blocks[:whole])

        counts = range(1, len(parts) + max(0, len(blocks) - 1))
        most = bisect_right(
            counts, self.limit, key=lambda n: self.measure.total([*before, shortened(n), *after])
        )
        return shortened(most) if most else None


def _started(kept: list[BaseMessage], start_on: Kinds, *, include_system: bool) -> list[BaseMessage]:
    """Drops what precedes the first message of the wanted types; a result never opens."""
    stays = [include_system and isinstance(m, SystemMessage) for m in kept]
    opens = (
        not s and CODEC.role(m) != "tool" and _matches(m, start_on) for s, m in zip(stays, kept, strict=True)
    )
    first = next((i for i, is_first in enumerate(opens) if is_first), len(kept))
    return [m for i, m in enumerate(kept) if i >= first or stays[i]]


def _ended(kept: list[BaseMessage], end_on: Kinds, *, include_system: bool) -> list[BaseMessage]:
    """Drops all but system messages where the message that the result should end on has no room."""
    if not kept or not end_on or _may_end(kept[-1], end_on):
        return kept
    return [m for m in kept if include_system and isinstance(m, SystemMessage)]


def _may_end(message: BaseMessage, kinds: Any) -> bool:
    """Tells whether a list may end on a message: one of the types, and no unanswered call."""
    return _matches(message, kinds) and not CODEC.call_ids(message)


def _matches(message: BaseMessage, kinds: Any) -> bool:
    """Tells whether a message is of one of the types, given by name or as classes."""
    listed = [kinds] if isinstance(kinds, (str, type)) else kinds
    return any(
        message.type == kind if isinstance(kind, str) else isinstance(message, kind) for kind in listed
    )


def _cuttable(message: BaseMessage) -> bool:
    """Tells whether text may be cut: of users and models, without calls, thinking or reasoning."""
    blocks = message.content if isinstance(message.content, list) else []
    kinds = [str(block.get("type")) for block in blocks if isinstance(block, dict)]
    thought = any("thinking" in kind or kind == "reasoning" for kind in kinds)
    return isinstance(message, (HumanMessage, AIMessage)) and not thought and not CODEC.call_ids(message)


def _with_content(message: BaseMessage, content: Any) -> BaseMessage:
    """Returns a copy without stale usage and, as langchain-core's, without a mark."""
    made: BaseMessage = CODEC.with_text(message, "")
    return made.model_copy(update={"content": content, "additional_kwargs": dict(message.additional_kwargs)})


def _codec_of(counter: Any) -> LangChainCodec:
    """Returns what reads messages as a model that counts them sends them, or all of them for any other."""
    if not is_kind(counter, "BaseLanguageModel"):
        return CODEC
    from .models import client_of

    return codec_for(client_of(counter))


def _counter(given: Any) -> HostCounter:
    if given == "approximate":
        given = "o200k_base" if counter_for("o200k_base").exact else count_tokens_approximately
    elif isinstance(given, str) and given not in _ENCODINGS:
        try:
            TokenBudget.for_model(given)
        except CounterUnavailableError as error:
            msg = (
                f"Invalid token_counter shortcut '{given}'. Available shortcuts: 'approximate', "
                f"encodings ({', '.join(_ENCODINGS)}) and names of known models."
            )
            raise BudgetConfigError(msg) from error
    elif not is_kind(given, "BaseLanguageModel"):
        given = getattr(given, "get_num_tokens_from_messages", given)  # of a model with bound arguments
        if not callable(given) and not hasattr(given, "count_messages") and not isinstance(given, str):
            msg = (
                "'token_counter' expected to be a model that implements 'get_num_tokens_from_messages()' "
                f"or a function. Received object of type {type(given)}."
            )
            raise BudgetConfigError(msg)
    return host_counter(given, prefer="messages")
