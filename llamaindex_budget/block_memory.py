"""A `Memory` that enforces its limit: blocks by rank, 1 cut last, and a valid conversation."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from llama_index.core.async_utils import asyncio_run
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]  # not re-exported
from llama_index.core.llms.llm import LLM
from llama_index.core.memory import Memory
from llama_index.core.storage.chat_store.base_db import MessageStatus

from rankbudget import Assembly, Block, BudgetSession, TokenBudget
from rankbudget.adapters import (
    NOTICE,
    Plan,
    PromptRequest,
    adrive,
    plain_budget,
    plan_steps,
)

from ._codec import PINNED, STORED, copy_message, pending
from ._counters import counter_of
from ._events import BudgetEvent
from ._host_prompt import HostPrompt
from ._measured import host_copies
from ._parts import Part, Rendering
from ._serialize import (
    add_settings,
    load_block,
    name_of_tokenizer,
    read_database,
    read_settings,
    tokenizer_named,
    write_database,
)
from ._sharing import active_session, adopt, one_call_limit, with_limits
from .blocks import HistorySummaryMemoryBlock

__all__ = ["BudgetMemory"]

dispatcher = get_dispatcher(__name__)


class BudgetMemory(Memory):
    """A `Memory` whose `get` never exceeds `token_limit`, template, blocks and history together.

    Blocks are cut by rank, 1 last: a `BudgetMemoryBlock` has one; of other blocks the priority is read as
    LlamaIndex documents it, 0 never, 1 cut last. All messages stay active, `get` chooses. What no longer fits
    is handed to the blocks once, and again when one of them failed.

    Args:
        budget: limits of the whole prompt; None shares `token_limit` by `chat_history_token_ratio`.
        session: the `BudgetSession` shared with a `BudgetNodePostprocessor`.
        llm: its window, answer and tokenizer are the budget and the counter when neither is given.
        prompt: what the host sends around it: a prompt template, a text or messages.
        counter: a model or encoding name, or what else `counter_for` takes; None counts with `tokenizer_fn`.
        notice: the sentence before the blocks that says they are data; None leaves it out.
    """

    budget: TokenBudget | None = Field(default=None, description="Limits of the whole prompt.")
    counter: str | None = Field(
        default=None, description="Name of the token counter; None counts with tokenizer_fn."
    )
    notice: str | None = Field(default=NOTICE, description="The sentence before the blocks.")
    handed_on: int = Field(
        default=0, ge=0, description="How many of the oldest messages the blocks have taken."
    )

    _session: BudgetSession = PrivateAttr()
    _given: dict[str, Any] = PrivateAttr(default_factory=dict)
    _bounded: bool = PrivateAttr(default=False)
    _one_call: int | None = PrivateAttr(default=None)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    def __init__(
        self,
        *,
        session: BudgetSession | None = None,
        llm: LLM | None = None,
        prompt: Any = None,
        counter: Any = None,
        **data: Any,
    ) -> None:
        data, counter, self_bounded = with_limits(data, session, llm, counter)
        super().__init__(**data, counter=counter if isinstance(counter, str) else None)
        self._bounded = self_bounded
        self._one_call = None if llm is None else one_call_limit(llm)
        if prompt is not None:
            HostPrompt(prompt)  # raises where it is none
        self._given = {"session": session, "prompt": prompt, "counter": counter}
        if session is None:
            session = BudgetSession(
                self.budget or self._own_limits(),
                counter=counter_of(self.tokenizer_fn, counter),
                codec=STORED,
                sources=[b.name for b in self.memory_blocks],
            )
        self._session = adopt(session)

    @classmethod
    def class_name(cls) -> str:
        return "BudgetMemory"

    @classmethod
    def from_defaults(
        cls,
        *args: Any,
        budget: TokenBudget | None = None,
        session: BudgetSession | None = None,
        llm: LLM | None = None,
        prompt: Any = None,
        counter: Any = None,
        notice: str | None = NOTICE,
        **kwargs: Any,
    ) -> BudgetMemory:
        """Returns a memory; takes what `Memory.from_defaults` takes, and `chat_history` stays as it is."""
        if kwargs.get("chat_history") is not None:
            kwargs["chat_history"] = [copy_message(m) for m in kwargs["chat_history"]]
        if kwargs.get("token_limit") is None:
            kwargs.pop("token_limit", None)
        stock = Memory.from_defaults(*args, **kwargs)
        fields = {name: getattr(stock, name) for name in Memory.model_fields}
        if "token_limit" not in kwargs and any(limits is not None for limits in (budget, session, llm)):
            fields["token_limit"] = None
        own = {"budget": budget, "session": session, "llm": llm, "prompt": prompt}
        return cls(**fields, **own, counter=counter, notice=notice)

    def _own_limits(self) -> TokenBudget:
        """Returns the limits of what the memory itself may have."""
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

    # ---- reading ---------------------------------------------------------------------------------
    @property
    def session(self) -> BudgetSession:
        """The session whose budget this memory shares."""
        return active_session() or self._session

    async def aget(
        self,
        input: Any = None,  # noqa: A002 - the host's name
        initial_token_count: int = 0,
        **block_kwargs: Any,
    ) -> list[ChatMessage]:
        """Returns copies of what fits; `input` is a question that may not be stored yet."""
        return list((await self.aassemble(input, initial_token_count, **block_kwargs)).messages)

    def get(
        self,
        input: Any = None,  # noqa: A002 - the host's name
        initial_token_count: int = 0,
        **block_kwargs: Any,
    ) -> list[ChatMessage]:
        """Returns what `aget` returns."""
        found: list[ChatMessage] = asyncio_run(self.aget(input, initial_token_count, **block_kwargs))
        return found

    async def aassemble(
        self, question: Any = None, initial_token_count: int = 0, **block_kwargs: Any
    ) -> Assembly:
        """Returns what `aget` returns, with the report that says why.

        Raises:
            BudgetExceededError: system messages and the current question alone exceed the limit.
        """
        plan, messages = await self._turn(question, initial_token_count, block_kwargs)
        dispatcher.event(BudgetEvent(report=plan.report))
        return replace(plan, messages=host_copies(messages, plan.counter))

    def plan(self, question: Any = None, **options: Any) -> Plan:
        """Returns what `aplan` returns."""
        found: Plan = asyncio_run(self.aplan(question, **options))
        return found

    async def aplan(self, question: Any = None, **options: Any) -> Plan:
        """Makes the plan of a turn, with blocks that another part brings.

        Args:
            question: what is asked now; it may be the last stored message.
            options: `blocks`, `ceiling`, `prompt` and other fields of the request.
        """
        return (await self._turn(question, **options))[0]

    async def _turn(
        self,
        question: Any,
        initial: int = 0,
        block_kwargs: dict[str, Any] | None = None,
        *,
        blocks: Sequence[Block] = (),
        ceiling: int | None = None,
        prompt: Any = None,
        **fields: Any,
    ) -> tuple[Plan, Sequence[ChatMessage]]:
        """Returns the plan of a turn, and the messages of it that are this memory's."""
        stored = list(await self.sql_store.get_messages(self.session_id, status=MessageStatus.ACTIVE))
        asked = pending(question, stored)
        contents = await self._get_memory_blocks_content(stored, input=asked, **(block_kwargs or {}))
        given = [(b, contents[b.name]) for b in self.memory_blocks if contents.get(b.name)]
        parts = [Part.of(block, content, self.session) for block, content in given]
        if self._given["session"] is None and self.budget is None:
            self._session.budget = self._own_limits()  # token_limit may have been changed since
        render = Rendering(self, parts, pending=asked is not None) if parts else None
        request = self.session.request(
            stored,
            question=asked,
            blocks=[*(p.block for p in parts), *blocks],
            extra_tokens=initial,
            ceiling=self._one_call if blocks and ceiling is None else ceiling,
            beside={
                **fields.pop("beside", {}),
                **{name: cost for p in parts for name, cost in p.media.items()},
            },
            covers="prompt" if blocks else "history",
            **fields,
        )
        request = replace(request, render=render)
        prompt = self._given["prompt"] if prompt is None else prompt
        if prompt is not None:
            around = HostPrompt(prompt).around
            request = around(request, asked, self.session.host_tokens, before=initial)
        if self._bounded and not blocks:
            request = replace(request, ceiling=self.token_limit + self._beside(request))
        plan = await adrive(self.session.read_steps(request))
        return plan, plan.history if render is None else render(plan.kept, list(plan.history))

    def _beside(self, request: PromptRequest) -> int:
        """Returns the tokens of a request that are not this memory's."""
        if request.render is None or request.measure is None:
            return request.extra_tokens
        shown = request.measure.total(list(request.render({}, [])))
        return request.extra_tokens + shown - request.measure.overhead

    # ---- writing ---------------------------------------------------------------------------------
    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        """Stores messages; none is fine."""
        if messages:
            await super().aput_messages(messages)

    async def aset(self, messages: list[ChatMessage]) -> None:
        """Replaces the conversation."""
        self._forget()
        await super().aset(messages)

    async def areset(self, status: MessageStatus | None = None) -> None:
        """Deletes the conversation."""
        self._forget()
        await super().areset(status)

    def _forget(self) -> None:
        """Forgets what was remembered of the conversation, summaries of it in blocks too."""
        self.handed_on = 0
        self._session.forget()
        for block in self.memory_blocks:
            if isinstance(block, HistorySummaryMemoryBlock):
                block.forget()

    async def _manage_queue(self) -> None:
        """Hands what no longer fits to the blocks, once; where one fails, again next time."""
        takers = [b for b in self.memory_blocks if b.accept_short_term_memory]
        if not takers:
            return
        stored = list(await self.sql_store.get_messages(self.session_id, status=MessageStatus.ACTIVE))
        first = await self._first_kept(stored)
        with self._lock:  # what is handed on now, nobody else hands on
            before = self.handed_on
            gone = [m for m in stored[before:first] if m.role not in PINNED]
            self.handed_on = max(before, first)
        if not gone:
            return
        try:
            for block in takers:
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
        plan = await adrive(plan_steps(request))
        kept = {id(m) for m in plan.history if m.role not in PINNED}
        return next((i for i, m in enumerate(stored) if id(m) in kept), len(stored))

    # ---- copies and plain data -------------------------------------------------------------------
    def to_dict(self, **kwargs: Any) -> dict[str, Any]:  # noqa: ARG002 - the host's signature
        """Returns plain data that survives JSON: limits, blocks, names of counters, and the conversation.

        A conversation in a database is written as the database's address.
        """
        left_out = {"memory_blocks", "memory_blocks_template", "tokenizer_fn", "sql_store"}
        if not self._bounded and self.budget is not None:
            left_out.add("token_limit")  # it is the budget's
        data: dict[str, Any] = self.model_dump(mode="json", exclude=left_out)
        data["memory_blocks"] = [
            {"class": type(b).__name__, **b.model_dump(mode="json")} for b in self.memory_blocks
        ]
        store = write_database(self.sql_store, self.session_id)
        if "place" in store and "messages" not in store:
            data["database"] = store["place"]
        else:
            messages = store.get("messages") or asyncio_run(self.aget_all())
            data["messages"] = [m.model_dump(mode="json") for m in messages]
        add_settings(data, self._given["session"], self._given["counter"], self.tokenizer_fn)
        data["class_name"] = self.class_name()
        return data

    def to_json(self, **kwargs: Any) -> str:
        """Returns the memory as JSON."""
        return json.dumps(self.to_dict(**kwargs))

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> BudgetMemory:
        """Returns the memory that `to_dict` wrote; `data` is not changed.

        Args:
            data: what was written. Messages in it go into a new store, unless `sql_store=` is given.
            kwargs: replace what was written.
        """
        values = read_settings(data, kwargs)
        messages = [ChatMessage.model_validate(m) for m in values.pop("messages", ())]
        database = values.pop("database", None)
        values["memory_blocks"] = [load_block(b) for b in values.get("memory_blocks", ())]
        if database is not None and "sql_store" not in kwargs:
            values["sql_store"] = read_database({"place": database}, values["session_id"])
        memory = cls(**values)
        if messages and "sql_store" not in kwargs:
            asyncio_run(memory.sql_store.set_messages(memory.session_id, messages))
        return memory

    def __getstate__(self) -> dict[str, Any]:
        # The base deletes what cannot be pickled from the live object; here the state is a copy.
        return {
            "__dict__": {**self._fields("sql_store", "tokenizer_fn"), **self._given},
            "tokenizer": name_of_tokenizer(self.tokenizer_fn),
            "store": write_database(self.sql_store, self.session_id),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        store = read_database(state["store"], state["__dict__"]["session_id"])
        tokenizer = tokenizer_named(state["tokenizer"])
        self.__init__(**state["__dict__"], sql_store=store, tokenizer_fn=tokenizer)  # type: ignore[misc]  # as the base

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> BudgetMemory:
        """Returns a memory of its own; one in a database is the same conversation."""
        memo = {} if memo is None else memo
        written = copy.deepcopy(write_database(self.sql_store, self.session_id), memo)
        session = copy.deepcopy(self._session, memo)
        given = {**self._given, "session": session if self._given["session"] is not None else None}
        twin = type(self)(
            **self._fields("sql_store", "memory_blocks"),
            **given,
            memory_blocks=copy.deepcopy(self.memory_blocks, memo),
            sql_store=read_database(written, self.session_id),
        )
        twin._session = session  # noqa: SLF001 - its own kind
        memo[id(self)] = twin
        return twin

    def _fields(self, *left_out: str) -> dict[str, Any]:
        names = {"counter", *left_out} | (set() if self._bounded or not self.budget else {"token_limit"})
        return {key: value for key, value in self.__dict__.items() if key not in names}
