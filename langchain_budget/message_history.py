"""Any message history, whole where it is stored and fitted where it is read.

history = BudgetMessageHistory(SQLChatMessageHistory(..), max_tokens=4000)
chain = RunnableWithMessageHistory(prompt | model, BudgetMessageHistory.around(get_session_history, model="gpt-4o"), ..)
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.chat_history import BaseChatMessageHistory

from rankbudget import TokenBudget
from rankbudget.report.report import BudgetReport
from rankbudget.report.result import FitResult

from ._codec import CODEC
from ._limits import limits_of
from ._threads import ThreadReader
from .models import as_summarizer

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

__all__ = ["BudgetMessageHistory"]


class BudgetMessageHistory(BaseChatMessageHistory):
    """Fits a stored conversation each time it is read; what is stored is never shortened.

    The cut is remembered between reads, so that a provider's prompt cache stays warm: over the limit it moves once, down to half of it.

    Args:
        history: the history that stores the messages.
        budget: the limits; the conversation gets its share of them.
        model: a chat model or a model's name; gives window and tokenizer.
        max_tokens: tokens the conversation may have; beside a budget the smaller wins.
        counter: counts instead of the model's tokenizer.
        tools: what is bound to the model; it is counted. None takes what `model` itself has bound, an empty list says nothing is.
        summarizer: a model, a chain as `prompt | model`, or a callable `(text, max_tokens) -> str`, that keeps a running summary of what is cut.
        extra_tokens: tokens of the prompt beside the conversation: system prompt, question, documents.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> store = BudgetMessageHistory(max_tokens=8, counter=lambda message: len(message.content.split()))
        >>> store.add_messages([HumanMessage("one two three"), AIMessage("four five six"), HumanMessage("seven"), AIMessage("eight")])
        >>> len(store.messages), len(store.history.messages)
        (4, 4)
        >>> store.add_messages([HumanMessage("nine"), AIMessage("ten")])
        >>> [m.content for m in store.messages], len(store.history.messages)
        (['seven', 'eight', 'nine', 'ten'], 6)
    """

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
        reader: ThreadReader | None = None,
    ) -> None:
        super().__init__()
        from ._threads import Store

        self.history: BaseChatMessageHistory = history if history is not None else Store()
        self.extra_tokens = extra_tokens
        self._reader = reader or _reader(
            budget=budget,
            model=model,
            max_tokens=max_tokens,
            counter=counter,
            tools=tools,
            summarizer=summarizer,
        )

    @classmethod
    def around(
        cls, get_session_history: Callable[..., BaseChatMessageHistory], *, keep: int = 1000, **options: Any
    ) -> Callable[..., BudgetMessageHistory]:
        """Returns a factory of the same signature whose histories are fitted when read.

        Args:
            get_session_history: makes the history that stores a conversation, as `RunnableWithMessageHistory` takes it.
            keep: for how many conversations the cut is remembered; the one not used for longest is forgotten. A conversation is known by
                what the factory is called with; where that cannot be compared, no cut is remembered.
            options: what the constructor takes.
        """
        readers: OrderedDict[Any, ThreadReader] = OrderedDict()
        lock = threading.Lock()
        extra = options.pop("extra_tokens", 0)
        _reader(**options)  # says at once what cannot work, not when the first user comes

        @functools.wraps(get_session_history)
        def make(*args: Any, **kwargs: Any) -> BudgetMessageHistory:
            key = _known_by((args, kwargs))
            with lock:
                reader = (readers.get(key) if key is not None else None) or _reader(**options)
                if key is not None:
                    readers[key] = reader
                    readers.move_to_end(key)
                while len(readers) > keep:
                    readers.popitem(last=False)
            return cls(get_session_history(*args, **kwargs), extra_tokens=extra, reader=reader)

        make.__annotations__ = {
            **getattr(get_session_history, "__annotations__", {}),
            "return": BudgetMessageHistory,
        }
        return make

    # ---- read: fitted -----------------------------------------------------------------------------------------------------------
    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # the base class names an attribute, its docs allow a property
        return _copies(self.fit())

    async def aget_messages(self) -> list[BaseMessage]:
        return _copies(await self.afit())

    def fit(self) -> FitResult:
        """Returns what `messages` holds, with the report that says why."""
        return self._reader.fit(self.history.messages, extra_tokens=self.extra_tokens)

    async def afit(self) -> FitResult:
        """Returns what `fit` returns, without blocking the event loop."""
        return await self._reader.afit(await self.history.aget_messages(), extra_tokens=self.extra_tokens)

    @property
    def report(self) -> BudgetReport:
        """The report of what a read returns now."""
        return self.fit().report

    # ---- written: whole ---------------------------------------------------------------------------------------------------------
    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        self.history.add_messages(messages)

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        await self.history.aadd_messages(messages)

    def clear(self) -> None:
        self.history.clear()
        self._reader.session.reset()

    async def aclear(self) -> None:
        await self.history.aclear()
        self._reader.session.reset()


def _reader(*, summarizer: Any = None, tools: Sequence[Any] | None = None, **limits: Any) -> ThreadReader:
    return ThreadReader(limits_of(tools=tools, **limits), summarizer=as_summarizer(summarizer))


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


def _copies(result: FitResult) -> list[BaseMessage]:
    """Memories hand out copies: what a caller changes does not reach the store."""
    return [CODEC.copy(message) for message in result.messages]
