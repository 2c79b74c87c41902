"""A stored conversation read under a budget: whole where it is kept, fitted where it is read, with a remembered cut between reads."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage, RemoveMessage, get_buffer_string

from rankbudget import BudgetExceededError, BudgetSession
from rankbudget.messages.codec import finished
from rankbudget.counting.callables import CallableCounter
from rankbudget._drivers import Call, Steps, adrive, drive
from rankbudget.messages.measure import Measure
from rankbudget.report.result import FitResult

from ._codec import CODEC
from ._convert import as_messages
from ._limits import Limits

__all__ = ["Store", "ThreadReader"]


class Store(BaseChatMessageHistory):
    """The plainest message history: a list in this process."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[BaseMessage] = []

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # the base class names an attribute, its docs allow a property
        return list(self._rows)

    async def aget_messages(self) -> list[BaseMessage]:
        return list(self._rows)

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        self._rows.extend(messages)

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        self._rows.extend(messages)

    def clear(self) -> None:
        self._rows.clear()

    async def aclear(self) -> None:
        self._rows.clear()


class ThreadReader:
    """Fits what a store returns; safe to use from many threads.

    A question that is not stored yet allows all of the thread to go; a thread that ends on the user's message,
    a call or a result is still at its own.

    Args:
        limits: the budget and how to count.
        summarizer: writes the running summary; None writes none.
        as_text: how the conversation reads when it stands in the prompt as one text; None when it stands there as messages.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        summarizer: Any = None,
        as_text: Callable[[Sequence[BaseMessage]], str] | None = None,
    ) -> None:
        self.limits = limits
        self._base = limits.measure()
        self._measure: Measure = (
            self._base if as_text is None else _TextMeasure(limits.counter.count, as_text)
        )
        self._summarizer = summarizer
        self._as_text = as_text
        self._plain = 0  # how many of the oldest messages are known to be no orders to remove others
        self._newest: BaseMessage | None = None  # the last of them
        whole = limits.budget if limits.budget is not None else limits.max_tokens
        assert whole is not None
        self.session = BudgetSession(
            whole,
            counter=limits.counter,
            codec=CODEC,
            measure=self._measure,
            summarizer=summarizer,
            tools=limits.tools,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Returns what travels; where the counter was made from a callable, the remembered cut stays behind and is found anew."""
        session = None if isinstance(self.limits.counter, CallableCounter) else self.session
        return {
            "limits": self.limits,
            "summarizer": self._summarizer,
            "as_text": self._as_text,
            "session": session,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        session = state.pop("session")
        self.__init__(state.pop("limits"), **state)  # type: ignore[misc]  # made again from what it was made of
        self.session = session or self.session

    def __deepcopy__(self, memo: dict[int, Any]) -> ThreadReader:
        """Returns a reader of its own that starts from the cut this one remembers; what writes summaries is shared."""
        twin = memo[id(self)] = type(self)(self.limits, summarizer=self._summarizer, as_text=self._as_text)
        twin.session = copy.deepcopy(self.session, memo)
        return twin

    def extra_tokens(self, rest: Sequence[BaseMessage] | None) -> int:
        """Returns what the rest of the prompt costs, as far as it is known: `rest` is the prompt without this conversation."""
        if rest is None:
            return 0
        return max(0, self._base.total(list(rest)) - self._measure.overhead)

    def fit(
        self, messages: Sequence[BaseMessage], *, extra_tokens: int = 0, asked: bool = False
    ) -> FitResult:
        """Returns the part of the stored conversation that this turn may read; `asked` says that the question stands elsewhere."""
        return drive(self._steps(self._listed(messages), extra_tokens, asked=asked))

    async def afit(
        self, messages: Sequence[BaseMessage], *, extra_tokens: int = 0, asked: bool = False
    ) -> FitResult:
        """Returns what `fit` returns, without blocking the event loop while a summary is written."""
        return await adrive(self._steps(self._listed(messages), extra_tokens, asked=asked))

    def _steps(self, messages: list[BaseMessage], extra_tokens: int, *, asked: bool) -> Steps[FitResult]:
        """Fits as if the thread held the question; a finished thread whose last question does not fit may go altogether."""
        self._check_rest(extra_tokens)
        options: dict[str, Any] = {"extra_tokens": extra_tokens, **self._ceiling()}
        session = self.session
        for question in [""] if asked else [None, ""] if finished(CODEC, messages) else [None]:
            fit = partial(session.fit, messages, question=question, **options)
            try:
                return (yield Call(fit, (), partial(session.afit, messages, question=question, **options)))  # type: ignore[no-any-return]  # a Call answers with what its function returns
            except BudgetExceededError as error:
                failure = error
        raise failure

    def _listed(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Returns the thread as a list without copying one; each message is looked at once, so that a turn costs the same after ten thousand."""
        listed = messages if isinstance(messages, list) else list(messages)
        known = (
            self._plain if 0 < self._plain <= len(listed) and listed[self._plain - 1] is self._newest else 0
        )  # else another thread
        new = listed[known:]
        if RemoveMessage in set(map(type, new)):
            self._plain = 0
            return as_messages(listed)
        self._plain = known + len(new)
        self._newest = new[-1] if new else self._newest
        return listed

    def _check_rest(self, extra_tokens: int) -> None:
        """Refuses a prompt that is too large without any of the thread; a budget's own check is the session's."""
        limit, needed = self.limits.max_tokens, self._measure.overhead + extra_tokens
        if extra_tokens and limit is not None and needed > limit:
            msg = f"the prompt without the conversation needs {needed} tokens, the limit is {limit}; shorten prompt, tools or question, or raise the limit"
            raise BudgetExceededError(msg, limit=limit, needed=needed, blocks={"prompt": needed})

    def room_for_documents(self, used: int, *, extra_tokens: int = 0) -> int:
        """Returns the tokens this turn's documents may have beside `used` tokens of conversation."""
        try:
            left = self.session.room_for("knowledge", extra_tokens=extra_tokens + used)
        except BudgetExceededError:
            return 0
        ceiling = self.limits.max_tokens
        return (
            left
            if ceiling is None
            else min(left, max(0, ceiling - self._measure.overhead - extra_tokens - used))
        )

    def _ceiling(self) -> dict[str, int]:
        both = self.limits.budget is not None and self.limits.max_tokens is not None
        return {"ceiling": self.limits.max_tokens} if both and self.limits.max_tokens is not None else {}


class _TextMeasure:
    """Counts a conversation as the one text it becomes."""

    additive = False
    overhead = 0

    def __init__(self, count: Callable[[str], int], as_text: Callable[[Sequence[BaseMessage]], str]) -> None:
        self._count = count
        self._as_text = as_text

    def group(self, messages: Sequence[Any]) -> int:
        return self._count(self._as_text(messages) + "\n")

    def total(self, messages: Sequence[Any]) -> int:
        return self._count(self._as_text(messages))


def buffer_text(messages: Sequence[BaseMessage], *, human: str, ai: str) -> str:
    """Returns a conversation as LangChain's own memories write it, tool calls and results included."""
    return get_buffer_string(messages, human_prefix=human, ai_prefix=ai)
