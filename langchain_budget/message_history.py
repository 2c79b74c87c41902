"""Any message history, whole where it is stored and fitted where it is read."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage
from typing_extensions import Unpack

from rankbudget import BudgetReport, FitResult, TokenBudget
from rankbudget.adapters import Call, SessionPool, Steps, awaiting, blocking

from ._codec import CODEC
from ._convert import as_messages
from ._limits import limits_for, planned
from ._options import LimitOptions, SharedCopy, check_values, checked


class BudgetMessageHistory(SharedCopy, BaseChatMessageHistory):
    """Fits a stored conversation each time it is read; what is stored is never shortened.

    The cut is remembered between reads, so that a provider's prompt cache stays warm: over the limit it moves
    once, down to half of it.

    Args:
        history: the history that stores the messages; None stores them in this process. Of a
            `StoredMessageHistory` only what fits is read.
        budget: the limits; the conversation gets its share of them.
        tools: what is bound to the model; None takes what `model` itself has bound.
        extra_tokens: tokens of the prompt beside the conversation: system prompt, question, documents.
        results_next: whether the next input may be the results of a call at the end, which is then handed
            out; otherwise a call without all its results is left out, so that a question can follow.
        limits: model, max_tokens (of the conversation), context_window, counter, summarizer and
            summary_timeout, as in `BudgetTrimmer`.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> store = BudgetMessageHistory(max_tokens=8, counter=lambda message: len(message.content.split()))
        >>> store.add_messages([HumanMessage("one two three"), AIMessage("four five six")])
        >>> store.add_messages([HumanMessage("seven"), AIMessage("eight")])
        >>> store.add_messages([HumanMessage("nine"), AIMessage("ten")])
        >>> [m.content for m in store.messages], len(store.history.messages)
        (['seven', 'eight', 'nine', 'ten'], 6)
    """

    _own = ("history", "_session")
    _question: str | None = None  # what surely follows, whatever is read
    _for_one_run = False
    _read: Sequence[BaseMessage] | None = None  # by a run: it adds its own behind as many as it reads again

    @checked
    def __init__(
        self,
        history: BaseChatMessageHistory | None = None,
        *,
        budget: TokenBudget | None = None,
        tools: Sequence[Any] | None = None,
        extra_tokens: int = 0,
        results_next: bool = False,
        **limits: Unpack[LimitOptions],
    ) -> None:
        super().__init__()
        self.history: BaseChatMessageHistory = history if history is not None else Store()
        self.extra_tokens = extra_tokens
        self.results_next = results_next
        self._options: dict[str, Any] = {"budget": budget, "tools": tools, **limits}
        self._limits = limits_for(**self._options)
        self._session = self._limits.session()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_limits": None, "_read": None, "_session": self._session.learned()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        limits = limits_for(**state["_options"])
        self.__dict__.update(state, _limits=limits, _session=limits.session())
        self._session.learn_again(state["_session"])

    @classmethod
    def around(
        cls, get_session_history: Callable[..., BaseChatMessageHistory], *, keep: int = 1000, **options: Any
    ) -> Callable[..., BudgetMessageHistory]:
        """Returns a factory whose histories are fitted when read; its `.forget(..)` forgets one.

        Each of them is for one run: what it told first it tells until something is added through it, whatever
        others add to the conversation meanwhile.

        Args:
            get_session_history: makes the history that stores a conversation, or returns a thread of a
                `HistoryStore`.
            keep: for how many conversations the cut is remembered, from 1; the one not used for longest is
                forgotten. What the factory is called with, by place or by name, names one; what cannot be
                compared, none.
            options: what the constructor takes.
        """
        check_values({"keep": keep, "get_session_history": get_session_history})
        first = cls(**options)  # raises now, not when the first user comes
        pool, key_of = SessionPool(keep), _keys_of(get_session_history)

        @functools.wraps(get_session_history)
        def make(*args: Any, **kwargs: Any) -> BudgetMessageHistory:
            made = copy.copy(first)
            made._for_one_run = True  # noqa: SLF001 - its own kind
            made.history = _as_history(get_session_history(*args, **kwargs))
            check_values({"what get_session_history returns": made.history})
            new_session = made._limits.session  # noqa: SLF001 - its own kind
            made._session = new_session()  # noqa: SLF001 - the same
            with suppress(TypeError):
                made._session = pool.get(key_of(args, kwargs), new_session)  # noqa: SLF001 - the same
            return made

        def forget(*args: Any, **kwargs: Any) -> bool:
            """Forgets the cut and the summary of a conversation; returns whether it was known."""
            with suppress(TypeError):
                return pool.forget(key_of(args, kwargs))
            return False

        annotations = getattr(get_session_history, "__annotations__", {})
        make.__annotations__ = {**annotations, "return": BudgetMessageHistory}
        make.forget = forget  # type: ignore[attr-defined]  # a function has attributes
        return make

    # ---- read: fitted ------------------------------------------------------------------------------------
    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # as its docs allow
        """Copies of the stored messages that fit."""
        return self._copied(self.fit(self._question).messages if self._read is None else self._read)

    async def aget_messages(self) -> list[BaseMessage]:
        found = (await self.afit(self._question)).messages if self._read is None else self._read
        return self._copied(found)

    def _copied(self, found: Sequence[BaseMessage]) -> list[BaseMessage]:
        self._read = found if self._for_one_run else None
        return list(map(CODEC.copy, found))

    @blocking
    def fit(self, question: str | None = None) -> Steps[FitResult]:
        """Returns what `messages` holds, with the report that says why.

        Args:
            question: what is asked next, where it is known: shortened messages keep what it names. Its tokens
                are among the `extra_tokens`.
        """
        read = getattr(self.history, "conversation", None)  # of a `StoredMessageHistory`: only what fits
        if read is not None:
            stored = yield Call(read, (self._limits.budget.limit(),))
        else:
            stored = list((yield Call(lambda: self.history.messages, (), self.history.aget_messages)))
        ceiling, extra = self._limits.ceiling, self.extra_tokens
        request = self._session.request(stored, ceiling=ceiling, extra_tokens=extra, covers="history")
        elsewhere = question is not None and not self.results_next
        request = replace(request, question_text=question or "", asked_elsewhere=elsewhere)
        plan = yield from planned(request, self._session, results_next=self.results_next)
        return FitResult(messages=plan.history, report=plan.report)

    afit = awaiting(fit)

    @property
    def report(self) -> BudgetReport:
        """The report of what a read returns now."""
        return self.fit().report

    # ---- written: whole ----------------------------------------------------------------------------------
    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        self._read = None
        self.history.add_messages(_readable(messages))

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        self._read = None
        await self.history.aadd_messages(_readable(messages))

    def clear(self) -> None:
        self._read = None
        self.history.clear()
        self._session.forget()

    async def aclear(self) -> None:
        self._read = None
        await self.history.aclear()
        self._session.forget()


class Store(BaseChatMessageHistory):
    """A list in this process, as LangChain's own was before it was deprecated."""

    messages: list[BaseMessage]

    def __init__(self) -> None:
        self.messages = []

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        self.messages.extend(messages)

    def clear(self) -> None:
        self.messages.clear()


def _as_history(given: Any) -> Any:
    """Returns what stores messages; a thread of a `HistoryStore` as a `StoredMessageHistory`."""
    if not hasattr(given, "conversation") or hasattr(given, "add_messages"):
        return given
    from .stored_history import StoredMessageHistory  # loads the database's library

    return StoredMessageHistory.of(given)


def _readable(given: Any) -> Any:
    """Returns messages as they were given; raises MessageError for what no read could convert."""
    messages = given if isinstance(given, (list, tuple)) else as_messages(given)
    as_messages(messages)
    return messages


def _keys_of(factory: Callable[..., Any]) -> Callable[[Any, Any], Hashable]:
    """Returns what makes one key of a factory's arguments, given by place, by name or by default."""
    signature = None
    with suppress(TypeError, ValueError):  # a class written in C may have none
        signature = inspect.signature(factory)

    def key_of(args: Any, kwargs: Any) -> Hashable:
        try:
            bound = signature.bind(*args, **kwargs) if signature is not None else None
        except TypeError:  # a decorator may take other arguments than what it wraps
            bound = None
        if bound is None:
            return _key_of((args, kwargs))
        bound.apply_defaults()
        return _key_of(dict(bound.arguments))

    return key_of


def _key_of(value: Any) -> Hashable:
    """Returns a hashable form of a factory's arguments; raises TypeError where there is none."""
    held = value
    if isinstance(value, dict):
        held = frozenset((key, _key_of(item)) for key, item in value.items())
    elif isinstance(value, (set, frozenset)):
        held = frozenset(map(_key_of, value))
    elif isinstance(value, (list, tuple)):
        held = tuple(map(_key_of, value))
    hash(held)
    return type(value).__name__, held
