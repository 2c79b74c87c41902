"""A `Memory` that enforces its limit: blocks by rank, 1 cut last, and a valid conversation."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from llama_index.core.async_utils import asyncio_run
from llama_index.core.base.llms.types import BaseContentBlock, ChatMessage, ThinkingBlock, ToolCallBlock
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.memory import BaseMemoryBlock, Memory
from llama_index.core.storage.chat_store.base_db import MessageStatus
from typing_extensions import override

from rankbudget import BudgetSession, TokenBudget
from rankbudget.adapters import NOTICE, Call, Plan, adrive, plain_budget, plan_steps
from rankbudget.errors import named_failure, shown

from ._codec import check_messages, copy_message, pending
from ._contexts import live_data, live_memory
from ._database import address_of, ask, database_of, opened, rows_of
from ._handed import Notes, Rows, beyond
from ._memory import SessionMemory
from ._options import named
from ._render import name_in_plan
from ._serialize import loaded_blocks, read_settings, take_up, written_block
from .blocks import BudgetMemoryBlock, HistorySummaryMemoryBlock, question_of

_SAID = (str, BaseContentBlock, ChatMessage)


class BudgetMemory(SessionMemory, Memory):
    """A `Memory` whose `get` never exceeds `token_limit`, template, blocks and history together.

    Blocks are cut by rank, 1 last: a `BudgetMemoryBlock` has one; of other blocks the priority is read as
    LlamaIndex documents it, 0 never, 1 cut last. All messages stay active, `get` chooses. What no longer fits
    is handed to the blocks once, and again when one of them failed. A summary of what was edited or deleted,
    here or elsewhere, is made again.

    Args:
        budget: limits of the whole prompt; None shares `token_limit` by `chat_history_token_ratio`.
        session, llm, prompt, counter, summarizer: see `BudgetChatMemoryBuffer`.
        notice: the sentence before the blocks that says they are data; None leaves it out.
        handed_on: fingerprints of the messages that the blocks have taken.

    Raises:
        BudgetConfigError: an option is wrong.
    """

    notice: str | None = NOTICE
    handed_on: list[str] = Field(default_factory=list)

    _lock: Any = PrivateAttr(default_factory=threading.Lock)
    _notes: Notes = PrivateAttr(default_factory=Notes)  # of the messages that were read last

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
            stored = await self._current()
            said = await self._get_memory_blocks_content(
                stored, input=pending(question, stored)[0], **options
            )
            return stored, [(block, said[block.name]) for block in self.memory_blocks if said.get(block.name)]

        return Call(lambda: asyncio_run(aread()), awaitable=aread)

    async def _get_memory_blocks_content(
        self,
        chat_history: Sequence[ChatMessage],
        input: str | ChatMessage | None = None,  # noqa: A002 - the host's name
        **block_kwargs: Any,
    ) -> dict[str, Any]:
        """Returns what each block says; a failure names its block."""
        asked = [ChatMessage(content=input)] if isinstance(input, str) else []
        newest = asked or [ChatMessage(content=question_of(chat_history))]
        said: dict[str, Any] = {}
        for block in sorted(self.memory_blocks, key=lambda b: -b.priority):
            if isinstance(block, BudgetMemoryBlock):
                block._check_sources()  # noqa: SLF001 - not public
            # Of ours only `read` looks at more than the question: a long conversation is not parsed for them.
            own = block.__module__ == BudgetMemoryBlock.__module__ and getattr(block, "read", None) is None
            given = newest if own else [*chat_history, *asked]
            with named_failure(f"reading the memory block {block.name!r}"):
                content = await block.aget(given, session_id=self.session_id, **block_kwargs)
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
        """Replaces the conversation; blocks are handed only what they do not know."""
        check_messages(messages)
        await self._replace(messages)
        await self._current()

    async def _replace(self, messages: list[ChatMessage]) -> None:
        await ask(self.sql_store, "set_messages", self.session_id, messages)

    async def areset(self, status: MessageStatus | None = None) -> None:
        """Deletes the conversation."""
        self._session.forget()
        await ask(self.sql_store, "delete_messages", self.session_id, status=status)
        await self._current()
        if not await self.aget_all():
            self.handed_on = []
            for block in self.memory_blocks:
                if isinstance(block, HistorySummaryMemoryBlock):
                    block.forget()

    # ---- handing on ------------------------------------------------------------------------------
    def _takers(self) -> list[BaseMemoryBlock[Any]]:
        return [block for block in self.memory_blocks if block.accept_short_term_memory]

    async def _current(self) -> Rows:
        """Returns the active messages; first the blocks learn what others archived, edited or deleted."""
        known = self.handed_on  # taken before reading: what is missing then is no message yet to come
        states = (MessageStatus.ACTIVE, MessageStatus.ARCHIVED)[: 2 if self._takers() else 1]
        by_name = bool(self._of_llm["by_name"])
        read = [await rows_of(self.sql_store, self.session_id, of, by_name=by_name) for of in states]
        noted = self._notes.only({key for rows in read for key in rows.keys})
        for rows in read:
            rows.notes, rows.noted = self._notes, noted
        stored, *archives = read
        for archived in archives:
            if not self._recalled(known, archived, stored):
                return await self._current()
            await self._hand_on(archived, list(archived.prints))
        return stored

    def _recalled(self, known: list[str], *read: Rows) -> bool:
        """Forgets what is no longer among the messages, as does a summary, which begins again with the rest.

        Returns whether it could: not where another call has handed on messages meanwhile.
        """
        now = [one for rows in read for one in rows.prints.values()]
        if not beyond(now, known):
            return True
        new = set(beyond(known, now))
        left = [at for at in range(len(now)) if at not in new]
        said = [(rows, at) for rows in read for at in rows.prints]
        with self._lock:
            if self.handed_on is not known:
                return False
            self.handed_on = [now[at] for at in left]
            for block in self._takers():
                if isinstance(block, HistorySummaryMemoryBlock):
                    block.forget(but=[rows[at] for rows, at in map(said.__getitem__, left)])
        return True

    async def _manage_queue(self) -> None:
        """Hands what no longer fits to the blocks, once; where one fails, again next time."""
        if self._takers():
            stored = await self._current()
            await self._hand_on(stored, await self._left_beside_blocks(stored))

    @override
    def _telling(self, stored: Any, plan: Plan) -> Call | None:
        left = stored.left_out(plan) if self._takers() else []
        if not beyond(self.handed_on, [stored.prints[at] for at in left]):
            return None
        return Call(
            lambda: asyncio_run(self._hand_on(stored, left)), awaitable=lambda: self._hand_on(stored, left)
        )

    async def _hand_on(self, stored: Rows, left: Sequence[int]) -> None:
        """Hands to the blocks what they do not know of the messages at positions that a prompt leaves out."""
        prints = [stored.prints[at] for at in left]
        with self._lock:  # of two writers at once each hands on its own messages
            new = beyond(self.handed_on, prints)
            if not new:
                return
            self.handed_on = [*self.handed_on, *(prints[at] for at in new)]
        try:
            for block in self._takers():
                copies = [copy_message(stored[left[at]]) for at in new]
                await block.aput(copies, from_short_term_memory=True, session_id=self.session_id)
        except BaseException:
            with self._lock:
                known = self.handed_on
                self.handed_on = [known[at] for at in beyond([prints[at] for at in new], known)]
            raise

    async def _left_beside_blocks(self, stored: Rows) -> list[int]:
        """Returns what is older than the messages that fit beside the blocks.

        A step inside them waits for a prompt without it: the result of a call may be put next.
        """
        budget = self.budget or self._own_limits()
        request = self._session.request(
            stored,
            cut="stable",
            asked_elsewhere=True,
            sources=frozenset({"history"}),
            history_tokens=int(budget.limit() * budget.share_of("history")),
        )
        left = stored.left_out(await adrive(plan_steps(request)))
        return [at for at, oldest in zip(left, stored.prints, strict=False) if at == oldest]

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
        database = address_of(self.sql_store, self.session_id)
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
            values["memory_blocks"] = loaded_blocks(values.get("memory_blocks", ()))
        memory = cls(**values)
        if "memory_blocks" in kwargs:
            take_up(memory.memory_blocks, data.get("memory_blocks", ()))
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
