"""A `Memory` that enforces its limit: blocks by rank, 1 cut last, and a valid conversation."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from llama_index.core.async_utils import asyncio_run
from llama_index.core.base.llms.types import BaseContentBlock, ChatMessage, ThinkingBlock, ToolCallBlock
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.memory import Memory
from llama_index.core.storage.chat_store.base_db import MessageStatus
from typing_extensions import override

from rankbudget import BudgetSession, TokenBudget
from rankbudget.adapters import NOTICE, Call, Plan, adrive, plain_budget, plan_steps
from rankbudget.errors import named_failure, shown

from ._codec import PINNED, check_messages, copy_message, pending
from ._contexts import live_data, live_memory
from ._database import ask, database_of, opened
from ._memory import SessionMemory
from ._options import named
from ._render import name_in_plan
from ._serialize import read_block, read_settings, written_block
from .blocks import BudgetMemoryBlock, HistorySummaryMemoryBlock

_SAID = (str, BaseContentBlock, ChatMessage)


class BudgetMemory(SessionMemory, Memory):
    """A `Memory` whose `get` never exceeds `token_limit`, template, blocks and history together.

    Blocks are cut by rank, 1 last: a `BudgetMemoryBlock` has one; of other blocks the priority is read as
    LlamaIndex documents it, 0 never, 1 cut last. All messages stay active, `get` chooses. What no longer fits
    is handed to the blocks once, and again when one of them failed.

    Args:
        budget: limits of the whole prompt; None shares `token_limit` by `chat_history_token_ratio`.
        session, llm, prompt, counter, summarizer: see `BudgetChatMemoryBuffer`.
        notice: the sentence before the blocks that says they are data; None leaves it out.
        handed_on: how many messages the blocks have taken.

    Raises:
        BudgetConfigError: an option is wrong.
    """

    notice: str | None = NOTICE
    handed_on: int = Field(default=0, ge=0)

    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    def _own_session(self) -> BudgetSession:
        made = super()._own_session()
        made.share_with(*(name_in_plan(b.name) for b in self.memory_blocks))
        return made

    def _own_limits(self) -> TokenBudget:
        if not self.memory_blocks:
            return plain_budget(self.token_limit)
        ratio = self.chat_history_token_ratio
        return TokenBudget(
            context_window=self.token_limit,
            reserve=0,
            ratios={"history": ratio, "memory": 1 - ratio},
            surplus="borrow",
            max_system_ratio=None,
        )

    @classmethod
    def from_defaults(cls, *args: Any, **kwargs: Any) -> BudgetMemory:
        """Returns a memory; takes the options of `Memory.from_defaults` and those of the class."""
        options = named(Memory.from_defaults, args, kwargs)
        history = options.pop("chat_history", None)
        check_messages([] if history is None else history)
        memory: BudgetMemory = super().from_defaults(**options)
        if history is not None:
            asyncio_run(memory._replace(history))
        return memory

    # ---- reading ---------------------------------------------------------------------------------
    async def aget_all(self, status: MessageStatus | None = None) -> list[ChatMessage]:
        """Returns all stored messages."""
        return list(await ask(self.sql_store, "get_messages", self.session_id, status=status))

    def _reading(self, question: Any, options: Mapping[str, Any]) -> Call:
        async def aread() -> Any:
            stored = await self.aget_all(MessageStatus.ACTIVE)
            said = await self._get_memory_blocks_content(
                stored, input=pending(question, stored)[0], **options
            )
            return stored, [(block, said[block.name]) for block in self.memory_blocks if said.get(block.name)]

        return Call(lambda: asyncio_run(aread()), awaitable=aread)

    async def _get_memory_blocks_content(
        self,
        chat_history: list[ChatMessage],
        input: str | ChatMessage | None = None,  # noqa: A002 - the host's name
        **block_kwargs: Any,
    ) -> dict[str, Any]:
        """Returns what each block says; a failure names its block."""
        asked = [ChatMessage(content=input)] if isinstance(input, str) else []
        said: dict[str, Any] = {}
        for block in sorted(self.memory_blocks, key=lambda b: -b.priority):
            if isinstance(block, BudgetMemoryBlock):
                block._check_sources()  # noqa: SLF001 - not public
            with named_failure(f"reading the memory block {block.name!r}"):
                content = await block.aget(
                    [*chat_history, *asked], session_id=self.session_id, **block_kwargs
                )
                for item in content if isinstance(content, list) else [content or ""]:
                    if not isinstance(item, _SAID) or isinstance(item, (ThinkingBlock, ToolCallBlock)):
                        msg = f"it gave {shown(item)}, no text, content block or message"
                        raise TypeError(msg)
            if content:
                said[block.name] = content
        return said

    # ---- writing ---------------------------------------------------------------------------------
    async def aput(self, message: ChatMessage) -> None:
        """Stores a message."""
        check_messages([message])
        await ask(self.sql_store, "add_message", self.session_id, message)
        await self._manage_queue()

    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        """Stores messages; none is fine."""
        check_messages(messages)
        if not messages:
            return
        await ask(self.sql_store, "add_messages", self.session_id, messages)
        await self._manage_queue()

    async def aset(self, messages: list[ChatMessage]) -> None:
        """Replaces the conversation."""
        check_messages(messages)
        self._forget()
        await self._replace(messages)

    async def _replace(self, messages: list[ChatMessage]) -> None:
        await ask(self.sql_store, "set_messages", self.session_id, messages)

    async def areset(self, status: MessageStatus | None = None) -> None:
        """Deletes the conversation."""
        self._forget()
        await ask(self.sql_store, "delete_messages", self.session_id, status=status)

    def _forget(self) -> None:
        """Forgets what was remembered of the conversation, summaries of it in blocks too."""
        self.handed_on = 0
        self._session.forget()
        for block in self.memory_blocks:
            if isinstance(block, HistorySummaryMemoryBlock):
                block.forget()

    async def _manage_queue(self) -> None:
        """Hands what no longer fits to the blocks, once; where one fails, again next time."""
        if any(block.accept_short_term_memory for block in self.memory_blocks):
            stored = await self.aget_all(MessageStatus.ACTIVE)
            await self._hand_on(stored, await self._first_kept(stored))

    @override
    def _telling(self, stored: Sequence[ChatMessage], plan: Plan) -> Call | None:
        takers = any(block.accept_short_term_memory for block in self.memory_blocks)
        first = _first_of(plan, stored, self.handed_on) if takers else 0
        if first <= self.handed_on:
            return None
        return Call(
            lambda: asyncio_run(self._hand_on(stored, first)), awaitable=lambda: self._hand_on(stored, first)
        )

    async def _hand_on(self, stored: Sequence[ChatMessage], first: int) -> None:
        """Hands messages before the first that is kept to the blocks which take them."""
        with self._lock:  # of two writers at once each hands on its own messages
            before = self.handed_on
            gone = [m for m in stored[before:first] if m.role not in PINNED]
            self.handed_on = max(before, first)
        if not gone:
            return
        try:
            for block in [b for b in self.memory_blocks if b.accept_short_term_memory]:
                copies = [copy_message(m) for m in gone]
                await block.aput(copies, from_short_term_memory=True, session_id=self.session_id)
        except BaseException:
            self.handed_on = min(self.handed_on, before)
            raise

    async def _first_kept(self, stored: list[ChatMessage]) -> int:
        """Returns the position of the first message that still fits beside the blocks."""
        budget = self.budget or self._own_limits()
        request = self._session.request(
            stored,
            cut="stable",
            asked_elsewhere=True,
            sources=frozenset({"history"}),
            history_tokens=int(budget.limit() * budget.share_of("history")),
        )
        return _first_of(await adrive(plan_steps(request)), stored, self.handed_on)

    # ---- copies and plain data -------------------------------------------------------------------
    def to_dict(self, **kwargs: Any) -> dict[str, Any]:  # noqa: ARG002 - the host's signature
        """Returns plain data that survives JSON: limits, blocks, names of counters, and the conversation.

        A conversation in a database is written as the database's address. What a block holds of this process,
        as a function or a model, is left out; a warning names it.
        """
        if (live := live_data(self)) is not None:
            return live
        left_out = {"memory_blocks", "memory_blocks_template", "tokenizer_fn", "sql_store"}
        data: dict[str, Any] = self.model_dump(mode="json", exclude=left_out)
        data["memory_blocks"] = [written_block(b) for b in self.memory_blocks]
        database = database_of(self.sql_store, self.session_id)
        if database is not None:
            data["database"] = database
        else:
            data["messages"] = [m.model_dump(mode="json") for m in asyncio_run(self.aget_all())]
        return self._with_settings(data)

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> BudgetMemory:
        """Returns the memory that `to_dict` wrote; `data` is not changed.

        Args:
            data: what was written. Messages in it go into a new store, unless `sql_store=` is given.
            kwargs: replace what was written.

        Raises:
            BudgetConfigError: a tokenizer, a counter or a block cannot be made from plain data.
        """
        if (live := live_memory(cls, data)) is not None:
            return live
        values = opened(read_settings(data, kwargs))
        messages = [ChatMessage.model_validate(m) for m in values.pop("messages", ())]
        if "memory_blocks" not in kwargs:
            values["memory_blocks"] = [read_block(block) for block in values.get("memory_blocks", ())]
        memory = cls(**values)
        if messages and "sql_store" not in kwargs:
            asyncio_run(memory._replace(messages))
        return memory

    def _fields(self) -> dict[str, Any]:
        fields = super()._fields()
        database = database_of(self.sql_store, self.session_id)
        if database is not None:
            del fields["sql_store"]
            fields["database"] = database
        return fields


def _first_of(plan: Plan, stored: Sequence[ChatMessage], known: int) -> int:
    """Returns the position of the first stored message, from `known` on, that a plan keeps as it is."""
    kept = {id(m) for m in plan.history if m.role not in PINNED}
    return next((i for i in range(known, len(stored)) if id(stored[i]) in kept), len(stored))
