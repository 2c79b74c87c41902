"""Any message history, whole where it is stored and fitted where it is read.

history = BudgetMessageHistory(SQLChatMessageHistory(..), max_tokens=4000) chain =
RunnableWithMessageHistory(prompt | model, BudgetMessageHistory.around(get_session_history, model="gpt-4o"),
..)
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.chat_history import BaseChatMessageHistory

from rankbudget import BudgetReport, BudgetSession, FitResult, TokenBudget
from rankbudget.adapters import CallableCounter, Limits, Measure, Plan, SessionPool, Steps, adrive, drive

from ._codec import CODEC, NeedsConversionError
from ._convert import as_messages
from ._limits import limits_for
from ._serialize import named_options
from .models import as_summarizer

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

__all__ = ["BudgetMessageHistory", "Store", "read_steps", "session_of", "travelling"]


class BudgetMessageHistory(BaseChatMessageHistory):
    """Fits a stored conversation each time it is read; what is stored is never shortened.

    The cut is remembered between reads, so that a provider's prompt cache stays warm: over the limit it moves
    once, down to half of it.

    Args:
        history: the history that stores the messages.
        budget: the limits; the conversation gets its share of them.
        model: a chat model or a model's name; gives window and tokenizer.
        max_tokens: tokens the conversation may have; beside a budget the smaller wins.
        counter: counts instead of the model's tokenizer.
        tools: what is bound to the model; it is counted. None takes what `model` itself has bound, an empty
            list says nothing is.
        summarizer: a model, a chain as `prompt | model`, or a callable `(text, max_tokens) -> str`, that
            keeps a running summary of what is cut.
        extra_tokens: tokens of the prompt beside the conversation: system prompt, question, documents.
        context_window: the window in tokens, where the model does not say it.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> store = BudgetMessageHistory(max_tokens=8, counter=lambda message: len(message.content.split()))
        >>> store.add_messages([HumanMessage("one two three"), AIMessage("four five six")])
        >>> store.add_messages([HumanMessage("seven"), AIMessage("eight")])
        >>> len(store.messages), len(store.history.messages)
        (4, 4)
        >>> store.add_messages([HumanMessage("nine"), AIMessage("ten")])
        >>> [m.content for m in store.messages], len(store.history.messages)
        (['seven', 'eight', 'nine', 'ten'], 6)
    """

    @named_options
    def __init__(
        self,
        history: BaseChatMessageHistory | None = None,
        *,
        budget: TokenBudget | None = None,
        model: Any = None,
        max_tokens: int | None = None,
        counter: Any = None,
        tools: Sequence[Any] | None = None,
        summarizer: Any = None,
        extra_tokens: int = 0,
        context_window: int | None = None,
    ) -> None:
        super().__init__()
        self.history: BaseChatMessageHistory = history if history is not None else Store()
        self.extra_tokens = extra_tokens
        self._options: dict[str, Any] = {
            "budget": budget,
            "model": model,
            "max_tokens": max_tokens,
            "context_window": context_window,
            "counter": counter,
            "tools": tools,
        }
        self._limits = limits_for(**self._options)
        self._session = session_of(self._limits, summarizer)

    def __getstate__(self) -> dict[str, Any]:
        """Returns what travels; the cut stays here where the counter cannot travel."""
        here = {"_limits": None, "_session": travelling(self._session)}
        return {**self.__dict__, **here, "_summarizer": self._session.summarizer}

    def __setstate__(self, state: dict[str, Any]) -> None:
        summarizer = state.pop("_summarizer")
        self.__dict__.update(state)
        self._limits = limits_for(**self._options)
        if state["_session"] is None:
            self._session = session_of(self._limits, summarizer)

    def __copy__(self) -> BudgetMessageHistory:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> BudgetMessageHistory:
        """Returns a history with a store and a cut of its own; what writes summaries is shared."""
        twin = memo[id(self)] = copy.copy(self)
        twin.history = copy.deepcopy(self.history, memo)
        twin._session = copy.deepcopy(self._session, memo)  # noqa: SLF001 - its own kind
        return twin

    @classmethod
    def around(
        cls, get_session_history: Callable[..., BaseChatMessageHistory], *, keep: int = 1000, **options: Any
    ) -> Callable[..., BudgetMessageHistory]:
        """Returns a factory whose histories are fitted when read; its `.forget(..)` forgets one.

        Args:
            get_session_history: makes the history that stores a conversation, as `RunnableWithMessageHistory`
                takes it.
            keep: for how many conversations the cut is remembered; the one not used for longest is forgotten.
                A conversation is known by what the factory is called with; where that cannot be compared, no
                cut is remembered.
            options: what the constructor takes.
        """
        first = cls(**options)  # says at once what cannot work, not when the first user comes
        new_session = functools.partial(session_of, first._limits, first._session.summarizer)
        pool = SessionPool(keep)

        @functools.wraps(get_session_history)
        def make(*args: Any, **kwargs: Any) -> BudgetMessageHistory:
            thread = _known_by((args, kwargs))
            session = new_session() if thread is None else pool.get(thread, new_session)
            made = copy.copy(first)
            made.history = get_session_history(*args, **kwargs)
            made._session = session  # noqa: SLF001 - its own kind
            return made

        def forget(*args: Any, **kwargs: Any) -> bool:
            """Forgets the cut and the summary of a conversation; returns whether it was known."""
            return pool.forget(_known_by((args, kwargs)))

        noted = getattr(get_session_history, "__annotations__", {})
        make.__annotations__ = {**noted, "return": BudgetMessageHistory}
        make.forget = forget  # type: ignore[attr-defined]  # a function has attributes
        return make

    # ---- read: fitted ------------------------------------------------------------------------------------
    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # as its docs allow
        return _copies(self.fit())

    async def aget_messages(self) -> list[BaseMessage]:
        return _copies(await self.afit())

    def fit(self) -> FitResult:
        """Returns what `messages` holds, with the report that says why."""
        return _result(drive(self._steps(self.history.messages)))

    async def afit(self) -> FitResult:
        """Returns what `fit` returns, without blocking the event loop."""
        return _result(await adrive(self._steps(await self.history.aget_messages())))

    def _steps(self, messages: Sequence[BaseMessage]) -> Steps[Plan]:
        fields = {"ceiling": self._limits.ceiling, "extra_tokens": self.extra_tokens, "covers": "history"}
        return read_steps(self._session, messages, **fields)

    @property
    def report(self) -> BudgetReport:
        """The report of what a read returns now."""
        return self.fit().report

    # ---- written: whole ----------------------------------------------------------------------------------
    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        self.history.add_messages(messages)

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        await self.history.aadd_messages(messages)

    def clear(self) -> None:
        self.history.clear()
        self._session.forget()

    async def aclear(self) -> None:
        await self.history.aclear()
        self._session.forget()


class Store(BaseChatMessageHistory):
    """A list in this process, as LangChain's own was before it was deprecated."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[BaseMessage] = []

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # as its docs allow
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


def session_of(
    limits: Limits, summarizer: Any = None, *, measure: Measure | None = None, sources: Sequence[str] = ()
) -> BudgetSession:
    """Returns a session that reads LangChain's messages."""
    return BudgetSession(
        limits.budget,
        counter=limits.counter,
        codec=CODEC,
        measure=measure or limits.measure,
        summarizer=as_summarizer(summarizer),
        tools=limits.tools,
        sources=sources,
    )


def travelling(session: BudgetSession) -> BudgetSession | None:
    """Returns a session that can be pickled; None where its counter was made from a callable."""
    return None if isinstance(session.counter, CallableCounter) else session


def read_steps(session: BudgetSession, messages: Sequence[Any], **fields: Any) -> Steps[Plan]:
    """Plans the reading of a stored conversation; orders to remove messages are carried out."""
    try:
        return (yield from session.read_steps(session.request(messages, **fields)))
    except NeedsConversionError:
        return (yield from session.read_steps(session.request(as_messages(messages), **fields)))


def _known_by(value: Any) -> Any:
    """Returns what stands for a value as a key, for lists and dicts what they hold; None when nothing can."""
    if isinstance(value, dict):
        parts = _known_by(
            [part for pair in sorted(value.items(), key=lambda pair: str(pair[0])) for part in pair]
        )
        return None if parts is None else ("dict", parts)
    if isinstance(value, (list, tuple, set, frozenset)):
        parts = [_known_by(part) for part in value]
        return (
            None
            if None in parts
            else (
                type(value).__name__,
                frozenset(parts) if isinstance(value, (set, frozenset)) else tuple(parts),
            )
        )
    try:
        hash(value)
    except TypeError:
        return None
    return (type(value).__name__, value)


def _result(plan: Plan) -> FitResult:
    return FitResult(messages=plan.history, report=plan.report)


def _copies(result: FitResult) -> list[BaseMessage]:
    """Memories hand out copies: what a caller changes does not reach the store."""
    return [CODEC.copy(message) for message in result.messages]
