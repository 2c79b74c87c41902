"""A turn of a `BudgetMemory` costs what is new in it, however long the conversation is that a store holds."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore

import llamaindex_budget.memory
from llamaindex_budget import (
    BudgetChatMemoryBuffer,
    BudgetMemory,
    BudgetMemoryBlock,
    HistorySummaryMemoryBlock,
    StoredAsyncChatStore,
    StoredChatStore,
    _handed,
)
from rankbudget.adapters import with_clear_ids
from rankbudget.compression import extractive
from rankbudget.memory import HistoryStore
from rankbudget.memory.forms import HostForm
from tests.llamaindex.models import ListStore, say, words


def _threads() -> StoredAsyncChatStore:
    return StoredAsyncChatStore(chats=StoredChatStore(store=HistoryStore(":memory:"), user="ann"))


def _file(tmp_path: Any) -> SQLAlchemyChatStore:
    return SQLAlchemyChatStore("m", async_database_uri=f"sqlite+aiosqlite:///{tmp_path}/m.db")


STORES: dict[str, Any] = {
    "memory": lambda _: SQLAlchemyChatStore("m"),
    "file": _file,
    "threads": lambda _: _threads(),
    "any": lambda _: ListStore(),
}
BLOCKS: dict[str, Any] = {
    "none": list,
    "blocks": lambda: [
        HistorySummaryMemoryBlock(summarizer=lambda text, _: text[-100:], max_tokens=100),
        BudgetMemoryBlock(name="house", text="The door is red."),
    ],
}


class Work(Counter[str]):
    """Counts messages that are made of rows, fingerprints and characters that are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        for place, name, kind in (
            (ChatMessage, "__init__", "made"),  # also by the stock SQL store, which validates
            (HostForm, "message", "made"),
            (_handed, "digest_of", "fingerprints"),
        ):
            monkeypatch.setattr(place, name, self._noting(getattr(place, name), kind))

    def _noting(self, function: Any, kind: str) -> Any:
        def noted(*args: Any, **options: Any) -> Any:
            self[kind] += 1
            return function(*args, **options)

        return noted

    def count(self, text: str) -> int:
        self["characters"] += len(text)
        return len(text.split())


async def _turn(memory: BudgetMemory, number: int) -> None:
    await memory.aput(say("user", f"And what of {number}?"))
    await memory.aget()
    await memory.aput(say("assistant", f"Nothing about {number}."))


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("store", STORES)
async def test_a_turn_of_a_long_conversation_costs_what_is_new(
    store: str, blocks: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over 2,000 stored messages it makes, fingerprints and counts at most 1.3 times as much as over 500."""
    found: list[Counter[str]] = []
    for size in (500, 2_000):
        with monkeypatch.context() as patch:
            work = Work(patch)
            memory = BudgetMemory.from_defaults(
                session_id=f"t{size}",
                token_limit=600,
                counter=work.count,
                sql_store=STORES[store](tmp_path),
                memory_blocks=BLOCKS[blocks](),
            )
            roles = ("user", "assistant")
            await memory.aput_messages([say(roles[n % 2], f"#{n} {words(30)}") for n in range(size)])
            for number in range(2):
                await _turn(memory, number)
            work.clear()
            for number in range(2, 4):
                await _turn(memory, number)
            found.append(+work)
    short, long = found
    assert {kind: long[kind] for kind in long if long[kind] > 1.3 * short[kind]} == {}
    assert long["made"] < 400


@pytest.mark.parametrize("store", STORES)
async def test_a_message_that_was_edited_in_place_is_another_one(store: str, tmp_path: Any) -> None:
    """Of an old message whose words another door replaced no summary tells, and the block is handed the new one."""

    def marks(text: str, _: int) -> str:
        return " ".join(sorted({word for word in text.split() if word.startswith("#")}))

    kept = STORES[store](tmp_path)
    summary = HistorySummaryMemoryBlock(summarizer=marks, max_tokens=400)
    memory = BudgetMemory.from_defaults(
        session_id="t",
        token_limit=600,
        sql_store=kept,
        memory_blocks=[summary],
        counter=lambda t: len(t) // 4,
    )
    await memory.aput_messages([say(("user", "assistant")[n % 2], f"#{n} {words(30)}") for n in range(40)])
    await _turn(memory, 1)
    assert "#3" in summary.text.split()
    stored = await kept.get_messages("t")
    stored[3].blocks[0].text = "#x"
    await kept.set_messages("t", stored)
    shown = "\n".join([message.content or "" for message in await memory.aget()])
    assert "#3" not in summary.text.split()
    assert "#x" in summary.text.split()
    assert "#3 " not in shown


class Redacting(SQLAlchemyChatStore):
    """A store that shows no number."""

    async def get_messages(self, *args: Any, **options: Any) -> list[ChatMessage]:
        return [say(m.role.value, "hidden") for m in await super().get_messages(*args, **options)]


async def _hidden(self: Any, *args: Any, **options: Any) -> list[ChatMessage]:
    shown = await StoredAsyncChatStore.get_messages(self, *args, **options)
    return [say(m.role.value, "hidden") for m in shown]


@pytest.mark.parametrize("kind", ["sql", "threads"])
async def test_a_store_of_another_kind_says_itself_what_is_read(kind: str) -> None:
    """What a subclass hides is in no prompt and in no block."""
    threads: Any = type("RedactingThreads", (StoredAsyncChatStore,), {"get_messages": _hidden})
    store: AsyncDBChatStore = Redacting("m") if kind == "sql" else threads(chats=_threads().chats)
    memory = BudgetMemory.from_defaults(
        token_limit=400, sql_store=store, memory_blocks=[HistorySummaryMemoryBlock(max_tokens=50)]
    )
    await memory.aput_messages([say(("user", "assistant")[n % 2], f"secret {n}") for n in range(60)])
    shown = [m.content or "" for m in await memory.aget()]
    assert shown
    assert "secret" not in "\n".join(shown) + memory.memory_blocks[0].text


async def test_the_notes_of_a_memory_hold_no_content_and_go_with_the_messages() -> None:
    """They are numbers, roles and fingerprints, of the stored messages only."""
    memory = BudgetMemory.from_defaults(token_limit=400, memory_blocks=[HistorySummaryMemoryBlock()])
    await memory.aput_messages([say(("user", "assistant")[n % 2], f"secret {n}") for n in range(60)])
    await memory.aget()
    assert len(memory._notes) == 60
    assert "secret" not in repr(memory._notes)
    await memory.aset([say("user", "secret 1"), say("assistant", "secret 2")])
    await memory.aget()
    assert len(memory._notes) == 2


async def test_a_summary_without_a_model_is_made_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of thousands of old messages it takes seconds, in which other tasks go on."""
    used: list[int] = []
    pick = extractive.extractive_summary

    def noted(*args: Any, **options: Any) -> str:
        used.append(threading.get_ident())
        return pick(*args, **options)

    monkeypatch.setattr(extractive, "extractive_summary", noted)
    memory = BudgetMemory.from_defaults(token_limit=300, memory_blocks=[HistorySummaryMemoryBlock()])
    await memory.aput_messages([say(("user", "assistant")[n % 2], words(30)) for n in range(60)])
    assert used
    assert threading.get_ident() not in used


def test_a_buffer_looks_at_no_more_messages_than_a_prompt_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list in memory that is ten times as long is read as far as before."""
    looked: Counter[int] = Counter()

    def read(codec: Any, messages: Any, **options: Any) -> Any:
        looked[size] += len(messages)
        return with_clear_ids(codec, messages, **options)

    monkeypatch.setattr(llamaindex_budget.memory, "with_clear_ids", read)
    for size in (3_000, 30_000):
        memory = BudgetChatMemoryBuffer.from_defaults(token_limit=200)
        store: Any = memory.chat_store
        store.store[memory.chat_store_key] = [say("user", f"message {i}") for i in range(size)]
        assert memory.get()[-1].content == f"message {size - 1}"
    assert looked[30_000] == looked[3_000] > 0
