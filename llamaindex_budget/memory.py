"""A chat memory that returns what fits: valid, within its limit, with the same answer however often it is read."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from llama_index.core.async_utils import asyncio_run
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import Field, PrivateAttr, field_serializer
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]  # public, not re-exported by name
from llama_index.core.llms.llm import LLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.memory.types import DEFAULT_CHAT_STORE_KEY
from llama_index.core.storage.chat_store import BaseChatStore, SimpleChatStore

from rankbudget import BudgetSession, TokenBudget
from rankbudget.messages.codec import finished
from rankbudget._drivers import Call, Steps, adrive, drive
from rankbudget.errors import BudgetExceededError
from rankbudget.report.result import FitResult

from ._convert import CODEC, ChatCodec, copy_message, counter_of
from ._events import BudgetEvent
from ._frame import Frame, current_frame, watch_engines
from ._sharing import (
    active_session,
    adopt,
    engine_session,
    fixed_tokens,
    for_templates,
    set_aside,
    slot_tokens,
)
from ._store import dump_store, load_store, name_of_tokenizer, tokenizer_named
from ._travel import counter_read, counter_written, session_read, session_written, summarizer_or_warning
from .models import as_summarizer

__all__ = ["BudgetChatMemoryBuffer"]

dispatcher = get_dispatcher(__name__)

_WINDOW_SHARE = 0.75  # as the stock buffer takes from a model's window
_DEFAULT_LIMIT = 3000


class BudgetChatMemoryBuffer(ChatMemoryBuffer):
    """A `ChatMemoryBuffer` whose `get` never exceeds its limit and always is a valid conversation.

    Everything put stays stored; `get` only chooses. Tool calls stay with their results, system messages stay first, the question stays, and what
    comes back are copies.

    Args:
        token_limit: most tokens `get` returns, roles, tool calls and thinking counted. Beside a budget or in an engine it bounds the history alone: system
            prompt, nodes and question take from the window. Without either, a question that is not stored yet takes from it too.
        budget: limits of the whole prompt; the history gets its share.
        session: the `BudgetSession` this memory shares with a `BudgetNodePostprocessor`.
        counter: a model or encoding name, or what else `counter_for` takes; None counts with `tokenizer_fn`.
        summarizer: an LLM, or `(text, max_tokens) -> str`; adds a summary of what no longer fits. Nothing is lost when it fails.

    Example:
        >>> memory = BudgetChatMemoryBuffer.from_defaults(token_limit=20)
        >>> for i in range(5):
        ...     memory.put(ChatMessage(role="user", content=f"question {i}"))  # 7 tokens each: 3 framing, 1 role, 3 content
        >>> [m.content for m in memory.get()], len(memory.get_all())
        (['question 3', 'question 4'], 5)
    """

    budget: TokenBudget | None = Field(default=None, description="Limits of the whole prompt.")
    counter: str | None = Field(
        default=None, description="Name of the token counter; None counts with tokenizer_fn."
    )

    _session: BudgetSession = PrivateAttr()
    _engine_session: BudgetSession | None = PrivateAttr(default=None)
    _counting: Any = PrivateAttr(default=None)
    _summarizer: Any = PrivateAttr(default=None)
    _shares: bool = PrivateAttr(default=False)
    _lock: Any = PrivateAttr()

    def __init__(
        self,
        *,
        session: BudgetSession | None = None,
        counter: Any = None,
        summarizer: Any = None,
        **data: Any,
    ) -> None:
        budget = data.get("budget") or (session.budget if session is not None else None)
        if data.get("token_limit") is None and budget is not None:
            data["token_limit"] = budget.limit() if isinstance(budget, TokenBudget) else budget
        super().__init__(**data, counter=counter if isinstance(counter, str) else None)
        self._lock = threading.RLock()
        self._counting = counter
        self._summarizer = as_summarizer(summarizer)
        self._shares = session is not None
        if session is None:
            tokens = counter_of(
                self.tokenizer_fn, counter if counter is not None else self.budget and self.budget.model
            )
            session = BudgetSession(
                self.budget or self.token_limit, counter=tokens, codec=CODEC, summarizer=self._summarizer
            )
        self._session = adopt(session)
        self._session.attach(self._stored, history_tokens=self.token_limit)
        watch_engines()

    # ---- making one -------------------------------------------------------------------------------------------------------------
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
        *,
        budget: TokenBudget | None = None,
        session: BudgetSession | None = None,
        counter: Any = None,
        summarizer: Any = None,
        **kwargs: Any,
    ) -> BudgetChatMemoryBuffer:
        """Returns a memory; `chat_history` is copied, `llm` only tells the default limit, as in the stock buffer."""
        if kwargs:
            msg = f"unexpected arguments: {sorted(kwargs)}; allowed: those of ChatMemoryBuffer and budget, session, counter, summarizer"
            raise ValueError(msg)
        if token_limit is None and llm is not None:
            token_limit = int(llm.metadata.context_window * _WINDOW_SHARE)
        elif token_limit is None and budget is None and session is None:
            token_limit = _DEFAULT_LIMIT
        store = chat_store or SimpleChatStore()
        if chat_history is not None:
            store.set_messages(chat_store_key, [copy_message(m) for m in chat_history])
        return cls(
            token_limit=token_limit,
            tokenizer_fn=tokenizer_fn,
            chat_store=store,
            chat_store_key=chat_store_key,
            budget=budget,
            session=session,
            counter=counter,
            summarizer=summarizer,
        )

    # ---- reading ----------------------------------------------------------------------------------------------------------------
    @property
    def session(self) -> BudgetSession:
        """The session whose budget this memory shares."""
        return active_session() or self._session

    def session_in(self, frame: Frame | None) -> BudgetSession:
        """Returns the session for an engine: one over the engine's whole window when neither a budget nor a session was given."""
        found = active_session()
        if found is not None:
            return found
        own = self._session
        if frame is None or isinstance(own.budget, TokenBudget) or (self._shares and not frame.retrieves):
            return own
        made = engine_session(
            frame, own, own.budget if self._shares else None
        )  # a session's number bounds the whole prompt, ours the history
        with self._lock:
            known = self._engine_session
            if known is None or known.budget != made.budget:
                known = made
                known.attach(self._stored, history_tokens=self.token_limit)
                self._engine_session = known
            return known

    def get(self, input: str | None = None, initial_token_count: int = 0, **kwargs: Any) -> list[ChatMessage]:  # noqa: A002, ARG002 - the host's names
        """Returns copies of the messages that fit beside `initial_token_count` tokens; `input` is a question not yet stored."""
        return self.fit(input, initial_token_count).messages  # type: ignore[return-value]  # our codec's messages are ChatMessages

    async def aget(
        self, input: str | None = None, initial_token_count: int = 0, **kwargs: Any
    ) -> list[ChatMessage]:
        """Returns what `get` returns, through the store's own async methods."""
        return (await self.afit(input, initial_token_count)).messages  # type: ignore[return-value]  # as above

    def fit(self, question: Any = None, initial_token_count: int = 0) -> FitResult:
        """Returns what `get` returns, with the report that says why.

        A finished thread without a question is read for a question that stands elsewhere: it keeps what it can, and if need be all of it goes.

        Raises:
            BudgetExceededError: system messages and the current question alone exceed the limit.
        """
        return _announced(drive(self._steps(self._stored(), question, initial_token_count)))

    async def afit(self, question: Any = None, initial_token_count: int = 0) -> FitResult:
        """Returns what `fit` returns, without blocking the event loop."""
        stored = await self.chat_store.aget_messages(self.chat_store_key)
        return _announced(await adrive(self._steps(stored, question, initial_token_count)))

    def _steps(self, stored: list[ChatMessage], question: Any, initial_token_count: int) -> Steps[FitResult]:
        """Fits until what defusing adds is paid for; a finished thread whose last question does not fit may go altogether."""
        frame, session, options = self._turn(initial_token_count)
        pending = frame.question if frame is not None else _pending(question, stored)
        slots = 0
        while True:
            given = {**options, "question": pending, "extra_tokens": options["extra_tokens"] + slots}
            try:
                result = yield Call(
                    partial(session.fit, stored, **given), (), partial(session.afit, stored, **given)
                )
            except BudgetExceededError as error:
                if pending is not None or not finished(CODEC, stored):
                    raise self._explained(error) from error
                pending = ""
                continue
            needed = set_aside(session, frame, result.messages, slots)
            if needed == slots:
                return self._copied(result, session, frame)
            slots = needed

    def slot_tokens_in(self, frame: Frame | None) -> int:
        """Returns what defusing the kept messages costs in an engine that takes them for templates; nearly always 0."""
        if (
            frame is None
            or not frame.formats_history
            or not any("{" in (m.content or "") for m in self._stored())
        ):
            return 0
        kept = drive(
            self._steps(self._stored(), frame.question, 0)
        ).messages  # only looked at, so nobody is told
        return slot_tokens(self.session_in(frame), frame, kept)

    def _turn(self, initial_token_count: int) -> tuple[Frame | None, BudgetSession, dict[str, Any]]:
        frame = current_frame(self)
        if frame is None and initial_token_count > self.token_limit:
            msg = (
                f"Initial token count exceeds token limit: {initial_token_count} tokens stand before the history, token_limit is {self.token_limit}; "
                "shorten the system prompt or raise token_limit"
            )
            raise BudgetExceededError(
                msg,
                limit=self.token_limit,
                needed=initial_token_count,
                blocks={"initial": initial_token_count},
            )
        session = self.session_in(frame)
        spoken_for = max(initial_token_count, fixed_tokens(session, frame))
        most = self.token_limit if frame is not None else self.token_limit - initial_token_count
        return (
            frame,
            session,
            {"limit": self._alone(session, frame), "history_tokens": most, "extra_tokens": spoken_for},
        )

    def _explained(self, error: BudgetExceededError) -> BudgetExceededError:
        msg = f"{error}; token_limit={self.token_limit} bounds the history, the window of model or budget the whole prompt: raise the one in the way"
        return BudgetExceededError(msg, limit=error.limit, needed=error.needed, blocks=error.blocks)

    def _alone(self, session: BudgetSession, frame: Frame | None) -> int | None:
        """Returns the limit of a whole prompt where nothing competes with the history, None where documents have a share."""
        shared = self._shares or session is active_session() or (frame is not None and frame.retrieves)
        return (
            session.budget.limit(band=session.counter.band)
            if not shared and isinstance(session.budget, TokenBudget)
            else None
        )

    def _copied(self, result: FitResult, session: BudgetSession, frame: Frame | None) -> FitResult:
        copies = [copy_message(m) for m in result.messages]
        if frame is not None and frame.formats_history:
            for_templates(copies, session.counter)
        return FitResult(messages=copies, segments=result.segments, text=result.text, report=result.report)

    def _stored(self) -> list[ChatMessage]:
        try:
            return self.chat_store.get_messages(
                self.chat_store_key
            )  # read, never changed: a copy would cost more with every turn
        except NotImplementedError:  # a store that only reads asynchronously
            found: list[ChatMessage] = asyncio_run(self.chat_store.aget_messages(self.chat_store_key))
            return found

    def get_all(self) -> list[ChatMessage]:
        """Returns copies of all stored messages."""
        return [copy_message(m) for m in self._stored()]

    async def aget_all(self) -> list[ChatMessage]:
        """Returns copies of all stored messages."""
        return [copy_message(m) for m in await self.chat_store.aget_messages(self.chat_store_key)]

    # ---- writing ----------------------------------------------------------------------------------------------------------------
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
            self._forget()

    async def areset(self) -> None:
        """Deletes the conversation and what was remembered of it."""
        await super().areset()
        self._forget()

    def _forget(self) -> None:
        self._session.reset()
        if self._engine_session is not None:
            self._engine_session.reset()

    # ---- leaving the process ----------------------------------------------------------------------------------------------------
    @field_serializer("chat_store")
    def serialize_courses_in_order(self, chat_store: BaseChatStore) -> dict[str, Any]:
        """Writes the store as plain data; takes the place of the base's serializer, which fails on pydantic 2.14."""
        return dump_store(chat_store)

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Returns plain data that survives JSON: messages, limits, budget, session, and the names of tokenizer and counter."""
        data: dict[str, Any] = super().to_dict(**kwargs)
        data["tokenizer"] = name_of_tokenizer(self.tokenizer_fn)
        if self._shares:
            data["session"] = session_written(self._session)
        elif self.counter is None:
            data["counting"] = counter_written(self._counting)
        summarizer_or_warning(self._summarizer, travels=False)
        return data

    def to_string(self) -> str:
        """Returns the memory as JSON."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> BudgetChatMemoryBuffer:
        """Returns the memory that `to_dict` wrote; also reads what a stock `ChatMemoryBuffer` wrote. `data` stays as it is.

        Args:
            data: what was written; a session in it is made anew, one for each memory.
            kwargs: take the place of what was written: `session=`, `counter=`, `summarizer=`, `chat_store=` and the other arguments.

        Raises:
            BudgetConfigError: store, tokenizer or counter cannot be found here.
        """
        values = {**data, **kwargs}
        values.pop("class_name", None)
        tokenizer = values.pop("tokenizer", None)
        if "chat_history" in values:  # how the stock buffer wrote its messages once
            values["chat_store"] = {
                "class_name": "SimpleChatStore",
                "store": {DEFAULT_CHAT_STORE_KEY: values.pop("chat_history")},
            }
        if isinstance(values.get("chat_store"), dict):
            values["chat_store"] = load_store(values["chat_store"])
        if tokenizer is not None and values.get("tokenizer_fn") is None:
            values["tokenizer_fn"] = tokenizer_named(tokenizer)
        counting, given = values.pop("counting", None), kwargs.get("counter")
        if isinstance(values.get("session"), dict):
            values["session"] = session_read(
                values["session"], counter=given, summarizer=as_summarizer(values.get("summarizer"))
            )
        elif counting is not None and given is None and values.get("session") is None:
            values["counter"] = counter_read(counting)
        return cls(**values)

    def __getstate__(self) -> dict[str, Any]:
        # The base deletes what cannot be pickled from the live object; here the state is a copy, and a tokenizer goes by its name.
        # A counter or session that does not travel raises its own error: another counter in its place would overflow.
        fields = {
            key: value for key, value in self.__dict__.items() if key not in ("tokenizer_fn", "counter")
        }
        fields |= {"counter": self._counting, "session": self._session if self._shares else None}
        fields["summarizer"] = summarizer_or_warning(self._summarizer, travels=True)
        return {"__dict__": fields, "tokenizer": name_of_tokenizer(self.tokenizer_fn)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["__dict__"], tokenizer_fn=tokenizer_named(state["tokenizer"]))  # type: ignore[misc]  # as the base restores

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> BudgetChatMemoryBuffer:
        memo = {} if memo is None else memo
        fields = {key: value for key, value in self.__dict__.items() if key not in ("chat_store", "counter")}
        fields |= {
            "chat_store": copy.deepcopy(self.chat_store, memo),
            "session": copy.deepcopy(self._session, memo),
        }
        twin = type(self)(**fields, counter=self._counting, summarizer=self._summarizer)
        twin._shares = self._shares  # noqa: SLF001 - its own kind
        memo[id(self)] = twin
        return twin


def _announced(result: FitResult) -> FitResult:
    dispatcher.event(BudgetEvent(report=result.report))
    return result


def _pending(question: Any, stored: Sequence[ChatMessage]) -> str | None:
    """Returns a question that is not in the memory yet; agents store it first, context engines afterwards. An answered one is asked again."""
    text = question.content if isinstance(question, ChatMessage) else question
    if not text or not isinstance(text, str):
        return None
    if finished(CODEC, stored):
        return text
    for message in reversed(stored):
        if ChatCodec().role(message) == "user":
            return None if message.content == text else text
    return text
