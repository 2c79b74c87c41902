"""A chat memory that returns what fits: valid, within its limit, the same however often it is read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from llama_index.core.async_utils import asyncio_run
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import PrivateAttr, field_serializer
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.memory.chat_memory_buffer import DEFAULT_TOKEN_LIMIT_RATIO
from llama_index.core.memory.types import DEFAULT_CHAT_STORE_KEY
from llama_index.core.storage.chat_store import BaseChatStore, SimpleChatStore

from rankbudget import BudgetSession
from rankbudget.adapters import Call, Plan, PromptRequest, Steps, with_clear_ids
from rankbudget.errors import BudgetExceededError

from ._codec import CODEC, check_messages, copy_message
from ._contexts import live_data, live_memory
from ._memory import SessionMemory
from ._serialize import class_named, read_settings

_LEAST_READ = 1_000
"""Newest messages that are read at least."""


class BudgetChatMemoryBuffer(SessionMemory, ChatMemoryBuffer):
    """A `ChatMemoryBuffer` whose `get` never exceeds its limit and always is a valid conversation.

    Everything put stays stored; `get` only chooses. Tool calls stay with their results, system messages stay
    first, the question stays, and what comes back are copies. A text such as `{context_str}`, which an engine
    would fill in, comes back as `{ context_str}`.

    Args:
        token_limit: most tokens `get` returns, from 1. Beside a budget, a session or an LLM it bounds the
            history alone. Without them a question that is not stored yet takes from it, too. With an LLM
            and none given, what must stay has the LLM's whole limit, other history three quarters of it; all
            of it where the LLM is a `budget_model` and the question is stored, as by agents.
        budget: limits of the whole prompt; the history gets its share.
        session: the `BudgetSession` this memory shares with a `BudgetNodePostprocessor`.
        llm: its window, answer and tokenizer are the budget and the counter when neither is given.
        prompt: what the host sends around the history: a prompt template, a text or messages.
        counter: a model or encoding name, or what else `counter_for` takes; None counts with `tokenizer_fn`.
        summarizer: an LLM, or `(text, max_tokens) -> str`; adds a summary of what no longer fits. With
            `session=` the session has it.

    Raises:
        BudgetConfigError: an option is wrong.

    Example:
        >>> memory = BudgetChatMemoryBuffer.from_defaults(token_limit=20)
        >>> for i in range(5):
        ...     memory.put(ChatMessage(role="user", content=f"question {i}"))  # 7 tokens each
        >>> [m.content for m in memory.get()], len(memory.get_all())
        (['question 3', 'question 4'], 5)
    """

    _lock: Any = PrivateAttr(default_factory=threading.RLock)

    def _use(self, session: BudgetSession) -> None:
        super()._use(session)
        session.attach(self.stored, self._most)

    # ---- reading ---------------------------------------------------------------------------------
    def _within_one_call(
        self, session: BudgetSession, request: PromptRequest, *, awaits: bool
    ) -> Steps[Plan]:
        """Leaves nodes that may come what the stock buffer does; what must stay may have all of the limit.

        Engines with nodes read a memory before they store the question. To other reads none come, and a
        bounded LLM makes room for all that a host adds.
        """
        full = self._of_llm["bounded"] and not request.asked_elsewhere
        if self.one_call is not None and self.token_limit == self._derived and not full:
            share = int(self.token_limit * DEFAULT_TOKEN_LIMIT_RATIO)
            smaller = replace(request, history_tokens=share)
            try:
                return (yield from super()._within_one_call(session, smaller, awaits=awaits))
            except BudgetExceededError:
                pass
        return (yield from super()._within_one_call(session, request, awaits=awaits))

    def _reading(self, *_: Any) -> Call:
        async def aread() -> Any:
            if self._reads_what_fits():
                return await asyncio.to_thread(self.stored), ()
            return self._clear(await ChatMemoryBuffer.aget_all(self)), ()

        return Call(lambda: (self.stored(), ()), awaitable=aread)

    def stored(self) -> list[ChatMessage]:
        """Returns stored messages, not to be changed, as prompts have them; some stores read what fits."""
        if self._reads_what_fits():
            found_later: Any = getattr(self.chat_store, "conversation")  # noqa: B009 - of a `StoredChatStore`
            named = {"by_name": True} if self._of_llm["by_name"] else {}
            read_later: list[ChatMessage] = found_later(self.chat_store_key, self.token_limit, **named)
            return read_later
        return self._clear(self._all())

    def _clear(self, messages: list[ChatMessage]) -> list[ChatMessage]:
        """Returns messages whose calls have ids, as far as a prompt may reach: of each one token at least."""
        if self._of_llm["by_name"]:
            return messages
        said = tuple(messages)  # a store's own list grows while others put messages
        start = max(0, len(said) - max(_LEAST_READ, self.token_limit))
        return [*said[:start], *with_clear_ids(CODEC, said[start:], first=start)]

    def _all(self) -> list[ChatMessage]:
        try:
            return self.chat_store.get_messages(self.chat_store_key)
        except NotImplementedError:  # a store that only reads asynchronously
            found: list[ChatMessage] = asyncio_run(ChatMemoryBuffer.aget_all(self))
            return found

    def _reads_what_fits(self) -> bool:
        return hasattr(self.chat_store, "conversation")

    def get_all(self) -> list[ChatMessage]:
        """Returns copies of all stored messages."""
        return [copy_message(m) for m in self._all()]

    async def aget_all(self) -> list[ChatMessage]:
        """Returns copies of all stored messages."""
        return [copy_message(m) for m in await super().aget_all()]

    # ---- writing ---------------------------------------------------------------------------------
    def put(self, message: ChatMessage) -> None:
        """Stores a copy of a message."""
        check_messages([message])
        with self._lock:
            super().put(copy_message(message))

    async def aput(self, message: ChatMessage) -> None:
        """Stores a copy of a message."""
        check_messages([message])
        await super().aput(copy_message(message))

    def put_messages(self, messages: list[ChatMessage]) -> None:
        """Stores copies of messages; in our store and a `SimpleChatStore` no others come between them."""
        check_messages(messages)
        add = self._adds_together()
        with self._lock:
            if add is None:
                super().put_messages(messages)
            elif messages:
                add([copy_message(message) for message in messages])

    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        """Stores copies of messages, as `put_messages` does."""
        if self._adds_together() is not None:
            return await asyncio.to_thread(self.put_messages, messages)
        check_messages(messages)
        for message in messages:
            await self.aput(message)
        return None

    def _adds_together(self) -> Callable[[list[ChatMessage]], object] | None:
        """Returns what adds messages at once: between a call and its result no other run may write."""
        store, key = self.chat_store, self.chat_store_key
        if type(store) is SimpleChatStore:
            return lambda messages: store.store.setdefault(key, []).extend(messages)
        thread: Any = getattr(store, "thread", None)  # of a `StoredChatStore`
        return None if thread is None else lambda messages: thread(key).append(messages)

    def set(self, messages: list[ChatMessage]) -> None:
        """Replaces the conversation by copies of `messages`."""
        check_messages(messages)
        with self._lock:
            super().set([copy_message(m) for m in messages])

    async def aset(self, messages: list[ChatMessage]) -> None:
        """Replaces the conversation by copies of `messages`."""
        check_messages(messages)
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

    # ---- plain data ------------------------------------------------------------------------------
    @field_serializer("chat_store")
    def serialize_courses_in_order(self, chat_store: BaseChatStore) -> dict[str, Any]:
        """Writes the store; the base's serializer and that of `SimpleChatStore` fail on pydantic 2.14."""
        name = {"class_name": chat_store.class_name()}
        if not isinstance(chat_store, SimpleChatStore):
            return {**chat_store.model_dump(mode="json"), **name}
        kept = chat_store.store.items()
        return {"store": {key: [m.model_dump(mode="json") for m in found] for key, found in kept}, **name}

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Returns plain data that survives JSON: messages, limits, session, names of counters."""
        if live := live_data(self):
            return live
        if hasattr(self.chat_store, "thread"):
            self.chat_store.__getstate__()  # a `StoredChatStore` in memory cannot be opened again
        return self._with_settings(super().to_dict(**kwargs))

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> BudgetChatMemoryBuffer:
        """Returns the memory that `to_dict` wrote; also reads what a stock `ChatMemoryBuffer` wrote.

        Args:
            data: what was written; it is not changed. A session in it is made anew, one for each memory.
            kwargs: replace what was written.

        Raises:
            BudgetConfigError: store, tokenizer or counter cannot be found here.
        """
        if (live := live_memory(cls, data)) is not None:
            return live
        values = read_settings(data, kwargs)
        if "chat_history" in values:  # how the stock buffer wrote its messages once
            values["chat_store"] = {"store": {DEFAULT_CHAT_STORE_KEY: values.pop("chat_history")}}
        store = values.get("chat_store")
        if isinstance(store, dict):
            kind = class_named(store.get("class_name", "SimpleChatStore"), BaseChatStore, "chat_store")
            values["chat_store"] = kind.from_dict(store)
        return cls(**values)
