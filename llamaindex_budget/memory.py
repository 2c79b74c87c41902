"""A chat memory that returns what fits: valid, within its limit, the same however often it is read."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

from llama_index.core.async_utils import asyncio_run
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import Field, PrivateAttr, field_serializer
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]  # not re-exported
from llama_index.core.llms.llm import LLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.memory.types import DEFAULT_CHAT_STORE_KEY
from llama_index.core.storage.chat_store import BaseChatStore, SimpleChatStore

from rankbudget import Block, BudgetSession, FitResult, TokenBudget
from rankbudget.adapters import (
    Plan,
    Steps,
    adrive,
    drive,
    summarizer_or_warning,
)
from rankbudget.errors import BudgetExceededError

from ._codec import STORED, copy_message, pending
from ._counters import counter_of
from ._events import BudgetEvent
from ._host_prompt import HostPrompt
from ._measured import host_copies
from ._serialize import (
    add_settings,
    dump_store,
    load_store,
    name_of_tokenizer,
    read_settings,
    tokenizer_named,
)
from ._sharing import active_session, adopt, one_call_limit, with_limits
from .models import as_summarizer

__all__ = ["BudgetChatMemoryBuffer"]

dispatcher = get_dispatcher(__name__)

_WINDOW_SHARE = 0.75  # as the stock buffer takes from a model's window
_DEFAULT_LIMIT = 3000


class BudgetChatMemoryBuffer(ChatMemoryBuffer):
    """A `ChatMemoryBuffer` whose `get` never exceeds its limit and always is a valid conversation.

    Everything put stays stored; `get` only chooses. Tool calls stay with their results, system messages stay
    first, the question stays, and what comes back are copies. A text such as `{context_str}`, which an engine
    would fill in, comes back as `{ context_str}`.

    Args:
        token_limit: most tokens `get` returns, from 1. Beside a budget, a session or an LLM it bounds the
            history alone. Without them a question that is not stored yet takes from it, too.
        budget: limits of the whole prompt; the history gets its share.
        session: the `BudgetSession` this memory shares with a `BudgetNodePostprocessor`.
        llm: its window, answer and tokenizer are the budget and the counter when neither is given.
        prompt: what the host sends around the history: a prompt template, a text or messages.
        counter: a model or encoding name, or what else `counter_for` takes; None counts with `tokenizer_fn`.
        summarizer: an LLM, or `(text, max_tokens) -> str`; adds a summary of what no longer fits.

    Example:
        >>> memory = BudgetChatMemoryBuffer.from_defaults(token_limit=20)
        >>> for i in range(5):
        ...     memory.put(ChatMessage(role="user", content=f"question {i}"))  # 7 tokens each
        >>> [m.content for m in memory.get()], len(memory.get_all())
        (['question 3', 'question 4'], 5)
    """

    budget: TokenBudget | None = Field(default=None, description="Limits of the whole prompt.")
    counter: str | None = Field(
        default=None, description="Name of the token counter; None counts with tokenizer_fn."
    )

    _session: BudgetSession = PrivateAttr()
    _given: dict[str, Any] = PrivateAttr(default_factory=dict)
    _bounded: bool = PrivateAttr(default=False)
    _one_call: int | None = PrivateAttr(default=None)
    _lock: Any = PrivateAttr()

    def __init__(
        self,
        *,
        session: BudgetSession | None = None,
        llm: LLM | None = None,
        prompt: Any = None,
        counter: Any = None,
        summarizer: Any = None,
        **data: Any,
    ) -> None:
        data, counter, self_bounded = with_limits(data, session, llm, counter)
        super().__init__(**data, counter=counter if isinstance(counter, str) else None)
        self._lock = threading.RLock()
        self._given = {
            "counter": counter,
            "session": session,
            "summarizer": as_summarizer(summarizer),
            "prompt": prompt,
        }
        self._one_call = None if llm is None else one_call_limit(llm)
        if prompt is not None:
            HostPrompt(prompt)  # raises where it is none
        self._bounded = self_bounded
        if session is None:
            session = BudgetSession(
                self.budget or self.token_limit,
                counter=counter_of(self.tokenizer_fn, counter),
                codec=STORED,
                summarizer=as_summarizer(summarizer),
            )
        self._session = adopt(session)
        self._session.attach(self.stored)

    # ---- making one ------------------------------------------------------------------------------
    @classmethod
    def class_name(cls) -> str:
        return "BudgetChatMemoryBuffer"

    @classmethod
    def from_defaults(
        cls,
        chat_history: list[ChatMessage] | None = None,
        llm: LLM | None = None,
        chat_store: BaseChatStore | None = None,
        chat_store_key: str = DEFAULT_CHAT_STORE_KEY,
        token_limit: int | None = None,
        tokenizer_fn: Callable[[str], list[Any]] | None = None,
        **kwargs: Any,
    ) -> BudgetChatMemoryBuffer:
        """Returns a memory; `chat_history` is copied.

        Raises:
            ValueError: an unknown argument.
        """
        allowed = ("budget", "session", "prompt", "counter", "summarizer")
        unknown = sorted(set(kwargs) - set(allowed))
        if unknown:
            msg = f"unexpected arguments: {unknown}; allowed: ChatMemoryBuffer's and {', '.join(allowed)}"
            raise ValueError(msg)
        if token_limit is None and llm is not None:
            token_limit = int(llm.metadata.context_window * _WINDOW_SHARE)
        elif token_limit is None and kwargs.get("budget") is None and kwargs.get("session") is None:
            token_limit = _DEFAULT_LIMIT
        store = chat_store or SimpleChatStore()
        if chat_history is not None:
            store.set_messages(chat_store_key, [copy_message(m) for m in chat_history])
        return cls(
            llm=llm,
            token_limit=token_limit,
            tokenizer_fn=tokenizer_fn,
            chat_store=store,
            chat_store_key=chat_store_key,
            **kwargs,
        )

    # ---- reading ---------------------------------------------------------------------------------
    @property
    def session(self) -> BudgetSession:
        """The session whose budget this memory shares."""
        return active_session() or self._session

    def get(
        self,
        input: Any = None,  # noqa: A002 - the host's name
        initial_token_count: int = 0,
        **_: Any,
    ) -> list[ChatMessage]:
        """Returns copies of what fits; `input` is a question that may not be stored yet."""
        return list(self.fit(input, initial_token_count).messages)

    async def aget(
        self,
        input: Any = None,  # noqa: A002 - the host's name
        initial_token_count: int = 0,
        **_: Any,
    ) -> list[ChatMessage]:
        """Returns what `get` returns, through the store's own async methods."""
        return list((await self.afit(input, initial_token_count)).messages)

    def fit(self, question: Any = None, initial_token_count: int = 0) -> FitResult:
        """Returns what `get` returns, with the report that says why.

        Raises:
            BudgetExceededError: system messages and the current question alone exceed the limit.
        """
        steps = self.plan_steps(self.stored(), question, initial_token_count=initial_token_count)
        return self._result(drive(steps))

    async def afit(self, question: Any = None, initial_token_count: int = 0) -> FitResult:
        """Returns what `fit` returns, without blocking the event loop."""
        steps = self.plan_steps(await self.astored(), question, initial_token_count=initial_token_count)
        return self._result(await adrive(steps))

    def plan_steps(
        self,
        stored: list[ChatMessage],
        question: Any,
        *,
        initial_token_count: int = 0,
        blocks: Sequence[Block] = (),
        ceiling: int | None = None,
        prompt: Any = None,
        **fields: Any,
    ) -> Steps[Plan]:
        """Makes the plan of a turn.

        Args:
            stored: the whole conversation.
            question: what is asked now; it may be the last stored message.
            initial_token_count: tokens that stand before the history.
            blocks: blocks of the same turn, as retrieved nodes.
            ceiling: most tokens of the whole prompt, beside the budget.
            prompt: what the host sends around it all; None takes the memory's.
            fields: other fields of the request.
        """
        session = self.session
        asked = pending(question, stored)
        request = session.request(
            stored,
            question=asked,
            blocks=blocks,
            extra_tokens=self._before(initial_token_count),
            ceiling=self._one_call if blocks and ceiling is None else ceiling,
            history_tokens=self._most(session),
            covers="prompt" if blocks else "history",
            **fields,
        )
        prompt = self._given["prompt"] if prompt is None else prompt
        if prompt is not None:
            around = HostPrompt(prompt).around
            request = around(request, asked, session.host_tokens, before=initial_token_count)
        try:
            return (yield from session.read_steps(request))
        except BudgetExceededError as error:
            msg = f"{error} token_limit={self.token_limit} bounds the history: raise it or the budget."
            raise BudgetExceededError(
                msg, limit=error.limit, needed=error.needed, blocks=error.blocks
            ) from error

    def _before(self, initial_token_count: int) -> int:
        own = self._session
        if not isinstance(own.budget, TokenBudget) and self._given["session"] is None:
            own.budget = self.token_limit  # it may have been raised since
            if initial_token_count > self.token_limit:
                msg = (
                    f"Initial token count exceeds token limit: {initial_token_count} tokens come first, "
                    f"token_limit is {self.token_limit}. Shorten the system prompt or raise token_limit."
                )
                raise BudgetExceededError(msg, limit=self.token_limit, needed=initial_token_count)
        return initial_token_count

    def _most(self, session: BudgetSession) -> int | None:
        return max(0, self.token_limit - session.counter.overhead()) if self._bounded else None

    def _result(self, plan: Plan) -> FitResult:
        dispatcher.event(BudgetEvent(report=plan.report))
        return FitResult(messages=host_copies(plan.history, plan.counter), report=plan.report)

    def stored(self) -> list[ChatMessage]:
        """Returns the stored messages themselves, which nobody may change."""
        try:
            return self.chat_store.get_messages(self.chat_store_key)
        except NotImplementedError:  # a store that only reads asynchronously
            found: list[ChatMessage] = asyncio_run(self.astored())
            return found

    async def astored(self) -> list[ChatMessage]:
        """Returns what `stored` returns."""
        return await self.chat_store.aget_messages(self.chat_store_key)

    def get_all(self) -> list[ChatMessage]:
        """Returns copies of all stored messages."""
        return [copy_message(m) for m in self.stored()]

    async def aget_all(self) -> list[ChatMessage]:
        """Returns copies of all stored messages."""
        return [copy_message(m) for m in await self.astored()]

    # ---- writing ---------------------------------------------------------------------------------
    def put(self, message: ChatMessage) -> None:
        """Stores a copy of a message."""
        with self._lock:
            super().put(copy_message(message))

    async def aput(self, message: ChatMessage) -> None:
        """Stores a copy of a message."""
        await super().aput(copy_message(message))

    def put_messages(self, messages: list[ChatMessage]) -> None:
        """Stores copies of messages, none of another thread between them."""
        with self._lock:
            for message in messages:
                super().put(copy_message(message))

    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        """Stores copies of messages, in order."""
        for message in messages:
            await super().aput(copy_message(message))

    def set(self, messages: list[ChatMessage]) -> None:
        """Replaces the conversation by copies of `messages`."""
        with self._lock:
            super().set([copy_message(m) for m in messages])

    async def aset(self, messages: list[ChatMessage]) -> None:
        """Replaces the conversation by copies of `messages`."""
        await super().aset([copy_message(m) for m in messages])

    def reset(self) -> None:
        """Deletes the conversation and what was remembered of it."""
        with self._lock:
            super().reset()
            self._session.forget()

    async def areset(self) -> None:
        """Deletes the conversation and what was remembered of it."""
        await super().areset()
        self._session.forget()

    # ---- copies and plain data -------------------------------------------------------------------
    @field_serializer("chat_store")
    def serialize_courses_in_order(self, chat_store: BaseChatStore) -> dict[str, Any]:
        """Writes the store as plain data; replaces the base's serializer, which fails on pydantic 2.14."""
        return dump_store(chat_store)

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Returns plain data that survives JSON: messages, limits, session, names of counters."""
        data: dict[str, Any] = super().to_dict(**kwargs)
        add_settings(data, self._given["session"], self._given["counter"], self.tokenizer_fn)
        if not self._bounded and self.budget is not None:
            data.pop("token_limit", None)  # it is the budget's
        summarizer_or_warning(self._given["summarizer"], pickled=False)
        return data

    def to_string(self) -> str:
        """Returns the memory as JSON."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> BudgetChatMemoryBuffer:
        """Returns the memory that `to_dict` wrote; also reads what a stock `ChatMemoryBuffer` wrote.

        Args:
            data: what was written; it is not changed. A session in it is made anew, one for each memory.
            kwargs: replace what was written.

        Raises:
            BudgetConfigError: store, tokenizer or counter cannot be found here.
        """
        values = read_settings(data, kwargs)
        if "chat_history" in values:  # how the stock buffer wrote its messages once
            history = {DEFAULT_CHAT_STORE_KEY: values.pop("chat_history")}
            values["chat_store"] = {"class_name": "SimpleChatStore", "store": history}
        if isinstance(values.get("chat_store"), dict):
            values["chat_store"] = load_store(values["chat_store"])
        return cls(**values)

    def __getstate__(self) -> dict[str, Any]:
        # The base deletes what cannot be pickled from the live object; here the state is a copy. A counter
        # that is not picklable raises its own error: another one in its place would overflow.
        fields = {**self._fields(), **self._given}
        fields["summarizer"] = summarizer_or_warning(self._given["summarizer"], pickled=True)
        return {"__dict__": fields, "tokenizer": name_of_tokenizer(self.tokenizer_fn)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        tokenizer = tokenizer_named(state["tokenizer"])
        self.__init__(**state["__dict__"], tokenizer_fn=tokenizer)  # type: ignore[misc]  # as the base

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> BudgetChatMemoryBuffer:
        memo = {} if memo is None else memo
        session = copy.deepcopy(self._session, memo)
        fields = {**self._fields(), "chat_store": copy.deepcopy(self.chat_store, memo)}
        given = {**self._given, "session": session if self._given["session"] is not None else None}
        twin = type(self)(**fields, **given, tokenizer_fn=self.tokenizer_fn)
        twin._session = session  # noqa: SLF001 - its own kind
        session.attach(twin.stored)
        memo[id(self)] = twin
        return twin

    def _fields(self) -> dict[str, Any]:
        left_out = {"tokenizer_fn", "counter"} | (
            set() if self._bounded or not self.budget else {"token_limit"}
        )
        return {key: value for key, value in self.__dict__.items() if key not in left_out}
