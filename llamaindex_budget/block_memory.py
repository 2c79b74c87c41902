"""A `Memory` that enforces its limit: blocks by rank, 1 cut last, and a history that is always a valid conversation."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llama_index.core.async_utils import asyncio_run
from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]  # public, not re-exported by name
from llama_index.core.memory import BaseMemoryBlock, Memory
from llama_index.core.memory.memory import InsertMethod
from llama_index.core.storage.chat_store.base_db import MessageStatus

from rankbudget import Assembler, Assembly, Block, BudgetSession, Segment, TokenBudget
from rankbudget.messages.codec import finished
from rankbudget.errors import BudgetConfigError, BudgetExceededError
from rankbudget.messages.tags import NOTICE, escape_text

from ._convert import CODEC, copy_message, counter_of
from ._events import BudgetEvent
from ._frame import Frame, current_frame, watch_engines
from ._sharing import for_templates, set_aside, tokens_around
from ._store import name_of_tokenizer, tokenizer_named
from ._travel import counter_read, counter_written, store_read, store_written
from .blocks import BudgetMemoryBlock

__all__ = ["BudgetMemory"]

dispatcher = get_dispatcher(__name__)

_KNOWLEDGE_SHARE = 0.3
"""Part of an engine's room that stays free for nodes, which are in the same prompt."""
_OWN_NAMES = ("system", "history", "query")  # the core's own blocks


class BudgetMemory(Memory):
    """A `Memory` whose `get` never exceeds `token_limit`: its template, roles, tool calls, blocks and history counted together.

    Blocks are cut by rank, 1 last: a `BudgetMemoryBlock` has one; of other blocks the priority is read as LlamaIndex documents it, 0 never, 1 cut last.
    Messages are never moved to an archive: all stay active, `get` chooses. What no longer fits is handed once to the blocks that take it, and again when
    one of them failed.

    Args:
        budget: limits of the whole prompt; None shares `token_limit` by `chat_history_token_ratio`.
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
    _queue: BudgetSession = PrivateAttr()
    _counting: Any = PrivateAttr(default=None)

    def __init__(self, *, counter: Any = None, **data: Any) -> None:
        budget = data.get("budget")
        if data.get("token_limit") is None and isinstance(budget, TokenBudget):
            data["token_limit"] = budget.limit()
        super().__init__(**data, counter=counter if isinstance(counter, str) else None)
        self._counting = counter
        tokens = counter_of(
            self.tokenizer_fn, counter if counter is not None else self.budget and self.budget.model
        )
        self._session = BudgetSession(self._limits(), counter=tokens, codec=CODEC)
        share = self._limits().limit() * (
            self.chat_history_token_ratio if self.budget is None else self.budget.share_of("history")
        )
        self._queue = BudgetSession(max(1, int(share)), counter=tokens, codec=CODEC)
        watch_engines()

    @classmethod
    def class_name(cls) -> str:
        return "BudgetMemory"

    @classmethod
    def from_defaults(
        cls,
        *args: Any,
        budget: TokenBudget | None = None,
        counter: Any = None,
        notice: str | None = NOTICE,
        **kwargs: Any,
    ) -> BudgetMemory:
        """Returns a memory; takes what `Memory.from_defaults` takes, and `chat_history` stays as it is."""
        if budget is not None and "token_limit" not in kwargs:
            kwargs["token_limit"] = budget.limit()
        if kwargs.get("chat_history") is not None:
            kwargs["chat_history"] = [copy_message(m) for m in kwargs["chat_history"]]
        stock = Memory.from_defaults(*args, **kwargs)
        fields = {name: getattr(stock, name) for name in Memory.model_fields}
        return cls(**fields, budget=budget, counter=counter, notice=notice)

    # ---- reading ----------------------------------------------------------------------------------------------------------------
    async def aget(
        self, input: str | ChatMessage | None = None, initial_token_count: int = 0, **block_kwargs: Any
    ) -> list[ChatMessage]:
        """Returns copies of what fits beside `initial_token_count` tokens: blocks and history; `input` is a question not yet stored."""
        return (await self.aassemble(input, initial_token_count, **block_kwargs)).messages

    def get(
        self, input: str | ChatMessage | None = None, initial_token_count: int = 0, **block_kwargs: Any
    ) -> list[ChatMessage]:
        """Returns what `aget` returns."""
        found: list[ChatMessage] = asyncio_run(self.aget(input, initial_token_count, **block_kwargs))
        return found

    async def aassemble(
        self, question: Any = None, initial_token_count: int = 0, **block_kwargs: Any
    ) -> Assembly:
        """Returns what `aget` returns, with the report that says why."""
        frame = current_frame(self)
        stored = await self.sql_store.get_messages(self.session_id, status=MessageStatus.ACTIVE)
        asked = frame.question if frame is not None else getattr(question, "content", question)
        pending = bool(asked) and (frame is not None or not _asked_last(stored, asked))
        written = frame if frame is not None and frame.writes_history else None
        contents = await self._get_memory_blocks_content(
            list(stored), input=asked if pending else None, **block_kwargs
        )
        parts = self._parts(contents)
        spoken_for, spare = self._spoken_for(frame, initial_token_count, asked if pending else None), 0
        while True:
            budget = self._limits(frame, spoken_for + spare, initial_token_count)
            if not parts:
                budget = budget.replace(
                    ratios={"history": 1.0}, reserve=budget.reserve_tokens()
                )  # nobody to share with
            setup = Assembler(
                budget, counter=self._session.counter, codec=CODEC, session=self._session, notice=None
            )
            blocks = [
                *(p.block for p in parts if p.block is not None),
                Block(name="history", messages=stored),
            ]
            try:
                made = await setup.aassemble(
                    blocks,
                    query=asked if pending else None,
                    render=_Render(self, parts, frame, asked if pending else None),
                )
            except BudgetExceededError:
                fixed = [p for p in parts if p.attached and not p.pinned]
                if fixed:  # media cannot be shortened: the lowest rank goes
                    parts = [p for p in parts if p is not max(fixed, key=lambda p: p.rank)]
                    continue
                system = [m for m in stored if CODEC.role(m) in {"system", "developer"}]
                if pending or len(system) == len(stored) or not finished(CODEC, stored):
                    raise
                stored = system  # whoever reads a finished thread brings the question
                continue
            needed = set_aside(self._session, written, made.messages, spare)
            if needed == spare:
                dispatcher.event(BudgetEvent(report=made.report))
                return made
            spare = needed

    def _parts(self, contents: Mapping[str, Any]) -> list[_Part]:
        parts = []
        for memory_block in self.memory_blocks:
            content = contents.get(memory_block.name)
            if content:
                parts.append(_Part.of(memory_block, content))
        return parts

    def _base(self, frame: Frame | None) -> TokenBudget:
        """Returns the limits of the whole prompt: the budget's, else the engine's window, else what the memory itself may have."""
        if self.budget is not None:
            return self.budget
        window, reserve = (self.token_limit, 0) if frame is None else (frame.window, frame.num_output)
        shares = {"history": self.chat_history_token_ratio, "memory": 1 - self.chat_history_token_ratio}
        return TokenBudget(
            context_window=window, reserve=reserve, ratios=shares, surplus="borrow", max_system_ratio=None
        )

    def _whole(self, frame: Frame | None, band: float | None = None) -> int:
        """Returns the most tokens of the whole prompt."""
        limit = self._base(frame).limit(band=self._session.counter.band if band is None else band)
        return limit if frame is None else min(limit, frame.window - frame.num_output - frame.padding)

    def _limits(self, frame: Frame | None = None, spoken_for: int = 0, initial: int = 0) -> TokenBudget:
        """Returns the limits of what `get` returns: `token_limit`, and what the rest of the prompt leaves of the whole."""
        base, whole = self._base(frame), self._whole(frame, band=0.0)
        most = min(self.token_limit - (initial if frame is None else 0), whole - spoken_for)
        if most < 1:
            msg = (
                f"what stands beside the memory has {spoken_for} tokens, the whole prompt may have {whole}, the memory token_limit={self.token_limit}; "
                "shorten what stands beside it, or raise the one in the way"
            )
            raise BudgetExceededError(msg, limit=whole, needed=spoken_for, blocks={"engine": spoken_for})
        reserve, safety = base.reserve_tokens(), base.safety_tokens()
        kept = base.safety if not safety else max(2, safety)  # 1 would be read as a share
        return base.replace(
            context_window=most + reserve + (safety and max(2, safety)),
            reserve=reserve,
            safety=kept,
            max_system_ratio=None,
        )

    def _spoken_for(self, frame: Frame | None, initial_token_count: int, question: str | None) -> int:
        counter = self._session.counter
        tokens = initial_token_count
        if frame is not None:
            tokens = max(tokens, tokens_around(self._session, frame))
        if question:
            tokens += counter.count_message({"role": "user", "content": question})
        if frame is not None and frame.retrieves:
            tokens += int(max(0, self._whole(frame) - counter.overhead() - tokens) * _KNOWLEDGE_SHARE)
        return tokens

    def room_for(self, frame: Frame | None) -> int:
        """Returns the tokens this turn's nodes may have: all that blocks and history leave."""
        used = self._session.counter.count_messages(
            [CODEC.to_dict(m) for m in self.get(frame.question if frame is not None else None)]
        )
        taken = tokens_around(self._session, frame) if frame is not None else 0
        if frame is not None and frame.question:
            taken += self._session.counter.count_message({"role": "user", "content": frame.question})
        return max(0, self._whole(frame) - used - taken)

    # ---- writing ----------------------------------------------------------------------------------------------------------------
    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        """Stores messages; none is fine."""
        if messages:
            await super().aput_messages(messages)

    async def aset(self, messages: list[ChatMessage]) -> None:
        """Replaces the conversation."""
        self.handed_on = 0
        await super().aset(messages)

    async def areset(self, status: MessageStatus | None = None) -> None:
        """Deletes the conversation."""
        self.handed_on = 0
        self._session.reset()
        self._queue.reset()
        await super().areset(status)

    async def _manage_queue(self) -> None:
        """Hands what no longer fits to the blocks, once; when one fails all of it is handed on again next time, and nothing is archived."""
        takers = [b for b in self.memory_blocks if b.accept_short_term_memory]
        if not takers:
            return
        stored = await self.sql_store.get_messages(self.session_id, status=MessageStatus.ACTIVE)
        try:
            kept = self._queue.fit(stored).messages
        except BudgetExceededError:
            kept = stored[-1:]
        first = next(
            (
                i
                for i, m in enumerate(stored)
                if any(m is k for k in kept) and CODEC.role(m) not in ("system", "developer")
            ),
            len(stored),
        )
        gone = [m for m in stored[self.handed_on : first] if CODEC.role(m) not in ("system", "developer")]
        if not gone:
            return
        for block in takers:
            await block.aput(
                [copy_message(m) for m in gone], from_short_term_memory=True, session_id=self.session_id
            )
        self.handed_on = first

    # ---- leaving the process ----------------------------------------------------------------------------------------------------
    def to_dict(self, **kwargs: Any) -> dict[str, Any]:  # noqa: ARG002 - the host's signature
        """Returns plain data that survives JSON: messages, limits, blocks and the name of the tokenizer."""
        data: dict[str, Any] = self.model_dump(
            mode="json", exclude={"memory_blocks", "memory_blocks_template", "tokenizer_fn", "sql_store"}
        )
        data["memory_blocks"] = [
            {"class": type(b).__name__, **b.model_dump(mode="json")} for b in self.memory_blocks
        ]
        data["messages"] = [m.model_dump(mode="json") for m in asyncio_run(self.aget_all())]
        data["tokenizer"] = name_of_tokenizer(self.tokenizer_fn)
        if self.counter is None:
            data["counting"] = counter_written(self._counting)
        data["class_name"] = self.class_name()
        return data

    def to_json(self, **kwargs: Any) -> str:
        """Returns the memory as JSON."""
        return json.dumps(self.to_dict(**kwargs))

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> BudgetMemory:
        """Returns the memory that `to_dict` wrote, with its messages in a new store unless `sql_store=` is given; `data` stays as it is."""
        values = {key: value for key, value in data.items() if key != "class_name"}
        messages = [ChatMessage.model_validate(m) for m in values.pop("messages", ())]
        tokenizer = values.pop("tokenizer", None)
        values["memory_blocks"] = [_block_from(b) for b in values.get("memory_blocks", ())]
        counting = values.pop("counting", None)
        if counting is not None and "counter" not in kwargs:
            values["counter"] = counter_read(counting)
        values = {**values, "tokenizer_fn": tokenizer_named(tokenizer), **kwargs}
        memory = cls(**values)
        if messages and "sql_store" not in kwargs:
            asyncio_run(memory.sql_store.set_messages(memory.session_id, messages))
        return memory

    def __getstate__(self) -> dict[str, Any]:
        # The base deletes what cannot be pickled from the live object; here the state is a copy, and the store goes by its place.
        fields = {
            key: value
            for key, value in self.__dict__.items()
            if key not in ("tokenizer_fn", "counter", "sql_store")
        }
        fields["counter"] = self._counting
        return {
            "__dict__": fields,
            "tokenizer": name_of_tokenizer(self.tokenizer_fn),
            "store": store_written(self.sql_store, self.session_id),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        store = store_read(state["store"], state["__dict__"]["session_id"])
        self.__init__(**state["__dict__"], sql_store=store, tokenizer_fn=tokenizer_named(state["tokenizer"]))  # type: ignore[misc]  # as the base restores

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> BudgetMemory:
        """Returns a memory of its own; one in a database, which both find by its address, is the same conversation."""
        memo = {} if memo is None else memo
        store = store_read(
            copy.deepcopy(store_written(self.sql_store, self.session_id), memo), self.session_id
        )
        fields = {
            key: value
            for key, value in self.__dict__.items()
            if key not in ("counter", "sql_store", "memory_blocks")
        }
        twin = type(self)(
            **fields,
            memory_blocks=copy.deepcopy(self.memory_blocks, memo),
            sql_store=store,
            counter=self._counting,
        )
        twin._session, twin._queue = copy.deepcopy((self._session, self._queue), memo)  # noqa: SLF001 - its own kind
        memo[id(self)] = twin
        return twin


@dataclass(slots=True)
class _Part:
    """One memory block's content on its way into the prompt."""

    name: str
    rank: int
    pinned: bool
    block: Block | None
    attached: list[Any]
    """Media blocks and messages: whole or gone."""

    @classmethod
    def of(cls, memory_block: BaseMemoryBlock[Any], content: Any) -> _Part:
        own = memory_block if isinstance(memory_block, BudgetMemoryBlock) else None
        pinned = own.pinned if own else memory_block.priority == 0
        rank = own.rank if own else max(1, memory_block.priority)
        name = memory_block.name
        items = [content] if isinstance(content, str) else list(content)
        texts = [
            getattr(item, "text", item) if isinstance(item, (str, TextBlock)) else None for item in items
        ]
        segments = tuple(
            Segment(
                id=f"{name}-{i}", text=str(text), score=1.0 - i / (len(texts) + 1) if len(texts) > 1 else None
            )
            for i, text in enumerate(texts)
            if text
        )
        block = None
        if segments:
            core = f"{name}-block" if name in _OWN_NAMES else name
            size = own.size if own else None
            strategy = "truncate" if len(segments) == 1 else "evidence"
            block = Block(
                name=core, segments=segments, rank=rank, pinned=pinned, size=size, strategy=strategy
            )
        return cls(
            name, rank, pinned, block, [item for item, text in zip(items, texts, strict=True) if text is None]
        )


class _Render:
    """Puts kept blocks and history together as the host's template does, static text first."""

    def __init__(
        self, memory: BudgetMemory, parts: Sequence[_Part], frame: Frame | None, pending: str | None
    ) -> None:
        self.memory = memory
        self.parts = parts
        self.frame = frame
        self.pending = pending

    def __call__(self, kept: Mapping[str, Any], history: list[Any]) -> list[ChatMessage]:
        shown: list[tuple[str, list[Any]]] = []
        front: list[ChatMessage] = []
        for part in self.parts:
            texts = (
                [p.rendition.text for p in kept[part.block.name].pieces]
                if part.block is not None and part.block.name in kept
                else []
            )
            media = [item for item in part.attached if not isinstance(item, ChatMessage)]
            front += [copy_message(item) for item in part.attached if isinstance(item, ChatMessage)]
            content = [TextBlock(text=_safe(text, part.name)) for text in texts if text]
            if content or media:
                shown.append((part.name, [*content, *media]))
        messages = [copy_message(m) for m in history]
        leading = next(
            (i for i, m in enumerate(messages) if CODEC.role(m) not in ("system", "developer")), len(messages)
        )
        messages[leading:leading] = front
        if shown:
            self._insert(messages, self._written(shown), leading)
        if self.frame is not None and self.frame.formats_history:
            for_templates(messages, self.memory._session.counter)  # noqa: SLF001 - its own half
        return messages

    def _written(self, shown: list[tuple[str, list[Any]]]) -> list[Any]:
        written = list(self.memory.memory_blocks_template.format_messages(memory_blocks=shown)[0].blocks)
        return [TextBlock(text=self.memory.notice), *written] if self.memory.notice else written

    def _insert(self, messages: list[ChatMessage], content: list[Any], leading: int) -> None:
        if self.memory.insert_method == InsertMethod.SYSTEM:
            if leading:  # after the static text, so that a provider's prompt cache keeps it
                last = messages[leading - 1]
                messages[leading - 1] = ChatMessage(
                    role=last.role, blocks=[*last.blocks, *content], additional_kwargs=last.additional_kwargs
                )
            else:
                messages.insert(0, ChatMessage(role=MessageRole.SYSTEM, blocks=content))
            return
        at = next((i for i in range(len(messages) - 1, -1, -1) if CODEC.role(messages[i]) == "user"), None)
        if at is None or self.pending:  # the latest user message is an earlier turn's: it stays as it was
            messages.append(ChatMessage(role=MessageRole.USER, blocks=content))
        else:
            messages[at] = ChatMessage(
                role=MessageRole.USER,
                blocks=[*content, *messages[at].blocks],
                additional_kwargs=messages[at].additional_kwargs,
            )


def _safe(text: str, name: str) -> str:
    """Returns a text that closes neither its own tag nor the template's, nor opens one of the template language's content blocks."""
    return re.sub(
        rf"<(?=\s*/?\s*(?:{re.escape(name)}|memory|content_block)\b)",
        "&lt;",
        escape_text(text),
        flags=re.IGNORECASE,
    )


def _asked_last(stored: Sequence[ChatMessage], question: Any) -> bool:
    last = (
        next((m for m in reversed(stored) if CODEC.role(m) == "user"), None)
        if not finished(CODEC, stored)
        else None
    )
    return last is not None and last.content == question


def _block_from(data: Any) -> BaseMemoryBlock[Any]:
    if isinstance(data, BaseMemoryBlock):
        return data
    values = dict(data)
    name = values.pop("class", None)
    for found in _subclasses(BaseMemoryBlock):
        if found.__name__ == name:
            made: BaseMemoryBlock[Any] = found(**values)
            return made
    msg = f"the memory block {name!r} is not known here; import its class before loading, or pass memory_blocks="
    raise BudgetConfigError(msg)


def _subclasses(base: Any) -> list[Any]:
    return [found for direct in base.__subclasses__() for found in (direct, *_subclasses(direct))]
