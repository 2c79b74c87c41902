"""Each message reaches the blocks of a `BudgetMemory` once, whoever edits, shortens or archives the conversation."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock
from llama_index.core.bridge.pydantic import Field
from llama_index.core.memory import BaseMemoryBlock, Memory
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore

from llamaindex_budget import BudgetMemory, HistorySummaryMemoryBlock, StoredAsyncChatStore, StoredChatStore
from llamaindex_budget._handed import beyond, prints_of
from rankbudget import Scope
from rankbudget.errors import BudgetConfigError
from rankbudget.memory import HistoryStore
from tests.drawing import draws
from tests.growth import growth
from tests.llamaindex.models import ListStore, calls, result, say, words

pytestmark = pytest.mark.filterwarnings("ignore:memory block 'summary' is written without summarizer=")


class Taking(BaseMemoryBlock[str]):
    """A block that notes what it is handed, and says so many words of each message."""

    name: str = "taking"
    taken: list[str] = Field(default_factory=list)
    says: int = 0

    async def _aget(self, messages: Any = None, **_: Any) -> str:
        return words(self.says * len(self.taken))

    async def _aput(self, messages: list[ChatMessage]) -> None:
        self.taken = [*self.taken, *map(_mark, messages)]


def _mark(message: ChatMessage) -> str:
    """Returns what a message is known by, shortened or not."""
    return message.additional_kwargs.get("mark") or (message.content or "").split()[0]


def _marks(text: str, most: int) -> str:
    """Summarizes: the marks of all that was said, in order."""
    return " ".join(re.findall(r"#[\w.]+", text))


def _memory(store: AsyncDBChatStore, **fields: Any) -> BudgetMemory:
    blocks = [Taking(), HistorySummaryMemoryBlock(summarizer=_marks, max_tokens=400)]
    return BudgetMemory.from_defaults(
        session_id="t",
        counter="cl100k_base",
        sql_store=store,
        **{"token_limit": 700, "memory_blocks": blocks, **fields},
    )


def _marked(message: ChatMessage, mark: str) -> ChatMessage:
    """Returns a message that says its mark first, and has it beside its text, where nothing is cut."""
    message.blocks.insert(0, TextBlock(text=mark))
    message.additional_kwargs["mark"] = mark
    return message


class Conversation:
    """One stored conversation, two memories of it, and other doors to it."""

    def __init__(self, store: AsyncDBChatStore) -> None:
        self.store = store
        self.memories = [_memory(store), _memory(store)]
        self.marks = count()

    def say(self, role: str = "user") -> ChatMessage:
        return _marked(say(role, words(30)), f"#{next(self.marks)}")

    async def do(self, door: str, place: int) -> None:
        await getattr(self, f"_{door}")(place, await self.store.get_messages("t"))

    async def _talk(self, turns: int, _: Any, which: int = 0) -> None:
        for _turn in range(1 + turns % 4):
            await self.memories[which].aput(self.say())
            await self.memories[which].aget()
            await self.memories[which].aput(self.say("assistant"))

    async def _elsewhere(self, turns: int, _: Any) -> None:
        await self._talk(turns, _, which=1)

    async def _work(self, steps: int, _: Any) -> None:
        work = [self.say()]
        for step in range(steps % 4):
            mark = f"#{next(self.marks)}"
            work += [_marked(calls(mark), mark), _marked(result(mark, words(5 * steps + step)), f"{mark}.1")]
        await self.memories[0].aput_messages([*work, self.say("assistant")])

    async def _edit(self, place: int, stored: list[ChatMessage]) -> None:
        if stored:
            stored[place % len(stored)] = self.say()
            await self.store.set_messages("t", stored)

    async def _regenerate(self, place: int, stored: list[ChatMessage]) -> None:
        await self.store.set_messages("t", [*stored[: place % (len(stored) + 1)], self.say()])

    async def _insert(self, place: int, stored: list[ChatMessage]) -> None:
        stored.insert(place % (len(stored) + 1), self.say())
        await self.store.set_messages("t", stored)

    async def _delete(self, place: int, stored: list[ChatMessage]) -> None:
        if stored:
            del stored[place % len(stored)]
            await self.store.set_messages("t", stored)

    async def _instruct(self, place: int, stored: list[ChatMessage]) -> None:
        rules = [m for m in stored if m.role != "system"]
        await self.store.set_messages("t", [say("system", f"RULE {place}"), *rules])

    async def _archive(self, place: int, stored: list[ChatMessage]) -> None:
        if stored:
            await self.store.archive_oldest_messages("t", 1 + place % len(stored))

    async def _clear(self, _: int, stored: Any) -> None:
        await self.store.delete_messages("t")

    async def _reset(self, place: int, _: Any) -> None:
        await self.memories[0].areset((None, MessageStatus.ACTIVE, MessageStatus.ARCHIVED)[place % 3])

    async def _aset(self, place: int, stored: list[ChatMessage]) -> None:
        changed = [] if place % 2 or not stored else [self.say()]
        await self.memories[0].aset([*stored[: len(stored) - len(changed)], *changed])

    async def _restored(self, _: int, stored: Any) -> None:
        data = json.loads(json.dumps(self.memories[0].to_dict()))
        blocks = self.memories[0].memory_blocks
        again = BudgetMemory.from_dict(data, sql_store=self.store, memory_blocks=blocks)
        self.memories[0] = again

    async def check(self) -> None:
        """Reads with both memories, and compares what each prompt and each block holds with the store."""
        for memory in self.memories:
            shown = {_mark(m) for m in await memory.aget() if m.role != "system"}
            taking, summary = memory.memory_blocks
            assert [text for text, n in Counter(taking.taken).items() if n > 1] == [], "handed twice"
            stored = [m for m in await memory.aget_all(None) if m.role != "system"]
            there = list(map(_mark, stored))
            assert [m for m in there if m not in shown and m not in taking.taken] == [], "in neither"
            told = summary.text.split()
            assert sorted(told) == sorted(m for m in taking.taken if m in there), (
                "a summary of something else"
            )


STORES = {
    "threads": lambda: StoredAsyncChatStore(
        chats=StoredChatStore(store=HistoryStore(":memory:"), user="ann")
    ),
    "sql": lambda: SQLAlchemyChatStore("m"),
    "any": ListStore,
}
DOORS = [name[1:] for name, found in vars(Conversation).items() if name[1:].isalpha() and name[0] == "_"]
STEPS = st.lists(st.tuples(st.sampled_from(DOORS), st.integers(0, 40)), min_size=3, max_size=12)


@pytest.mark.parametrize("store", STORES)
@draws(asynchronous=True, cases=2)
@given(steps=STEPS)
@example(steps=[("talk", 3), ("talk", 3), ("regenerate", 0), ("talk", 3), ("talk", 3)])
@example(steps=[("talk", 3), ("talk", 3), ("delete", 0), ("delete", 0), ("talk", 3)])
@example(steps=[("talk", 3), ("talk", 3), ("aset", 1), ("talk", 0)])
@example(steps=[("talk", 3), ("talk", 3), ("archive", 3), ("archive", 9), ("talk", 1)])
@example(steps=[("talk", 3), ("talk", 3), ("archive", 9), ("reset", 1), ("talk", 1)])
def test_each_message_reaches_the_blocks_once_whatever_is_edited(
    store: str, steps: list[tuple[str, int]]
) -> None:
    """Through every door: nothing is in neither a prompt nor a block, nothing is handed twice, no summary tells of what was replaced."""

    async def run() -> None:
        conversation = Conversation(STORES[store]())
        for door, place in [*steps, ("talk", 1)]:
            await conversation.do(door, place)
            await conversation.check()

    asyncio.run(run())


@pytest.mark.parametrize("door", ["store", "thread", "reset"])
async def test_a_summary_of_what_was_deleted_is_void_at_the_next_read(door: str) -> None:
    """Not even one prompt shows it, and the block's plain data hold only what is left, whichever door deleted."""
    database = HistoryStore(":memory:")
    chats = StoredChatStore(store=database, user="ann")
    memory = _memory(StoredAsyncChatStore(chats=chats))
    for n in range(12):
        await memory.aput(say("user", f"#{n} {words(30, 'secret' if n == 0 else 'word')}"))
        await memory.aget()
        await memory.aput(say("assistant", f"#{n + 50} noted"))
    summary = memory.memory_blocks[1]
    assert summary.text.split()[:2] == ["#0", "#50"]
    if door == "store":
        chats.delete_message("t", 0)
    elif door == "thread":
        database.thread("t", scope=Scope(user="ann")).delete(0)
    else:
        await memory.areset(MessageStatus.ACTIVE)
    prompt = "\n".join([m.content or "" for m in await memory.aget()])
    assert not re.search(r"#0\b", prompt + json.dumps(memory.to_dict()["memory_blocks"][1]))
    assert summary.text.split()[:1] == ([] if door == "reset" else ["#50"])
    database.close()


async def test_the_mark_of_what_was_handed_on_holds_no_content() -> None:
    """It is one fingerprint of each message, the same in a memory that was written and read."""
    store = ListStore()
    memory = _memory(store)
    for n in range(40):
        await memory.aput(say("user", f"#{n} {words(30, 'secret')}"))
    assert memory.handed_on == prints_of((await memory.aget_all())[: len(memory.handed_on)])
    assert len(memory.handed_on) > 3
    assert {len(mark) for mark in memory.handed_on} == {20}  # 16 bytes each
    again = BudgetMemory.from_dict(json.loads(json.dumps(memory.to_dict())), memory_blocks=[Taking()])
    await again.aget()
    assert again.handed_on == memory.handed_on
    assert again.memory_blocks[0].taken == []


TURNS = st.lists(
    st.tuples(
        st.sampled_from("ab"), st.lists(st.integers(0, 200), max_size=4), st.sampled_from([1, 30, 90, 200])
    ),
    min_size=2,
    max_size=9,
)


@draws(asynchronous=True)
@given(
    turns=TURNS,
    limit=st.sampled_from([200, 300, 600, 1_200]),
    again=st.integers(1, 4),
    says=st.sampled_from([0, 30]),
)
@example(turns=[("a", [80], 40), *[("b", [], 1)] * 6], limit=300, again=9, says=0)
@example(turns=[("a", [], 90), ("a", [150], 90), ("a", [], 90), ("b", [], 30)], limit=300, again=9, says=30)
def test_a_message_is_in_the_prompt_or_was_handed_on_once(
    turns: list[tuple[str, list[int], int]], limit: int, again: int, says: int
) -> None:
    """After every turn with any steps, some of the same words, in a memory that is written and read in between."""

    async def run() -> None:
        memory, chat = _memory(ListStore(), token_limit=limit), Counter[str]()
        memory.memory_blocks[0].says, memory.memory_blocks[0].priority = says, 1
        for number, (word, steps, size) in enumerate(turns):
            said = [_marked(say("user", "?"), f"#{word}")]
            for step, length in enumerate(steps):
                mark = f"#{number}.{step}"
                said += [_marked(calls(mark), mark), _marked(result(mark, words(length)), f"{mark}.1")]
            said.append(_marked(say("assistant", words(size)), f"#{word}.{size}"))
            for part in (said[:1], said[1:]):
                await memory.aput_messages(part)
                chat.update(map(_mark, part))
                prompt = await memory.aget()
                shown = Counter(_mark(m) for m in prompt if m.role != MessageRole.SYSTEM)
                taken = Counter(memory.memory_blocks[0].taken)
                assert chat - shown - taken == Counter(), "in neither"
                assert taken - chat == Counter(), "handed twice"
            if number % again == 0:
                data = json.loads(json.dumps(memory.to_dict()))
                blocks = memory.memory_blocks
                memory = BudgetMemory.from_dict(data, memory_blocks=blocks)

    asyncio.run(run())


async def test_a_shortened_result_is_in_the_prompt_and_waits() -> None:
    """Blocks get it when a prompt leaves it out whole, and only what left."""
    memory = _memory(ListStore(), token_limit=600)
    work = [_marked(say("user", "?"), "#0")]
    for n in (1, 2):
        work += [_marked(calls(f"#{n}"), f"#{n}"), _marked(result(f"#{n}", words(400)), f"#{n}.1")]
    await memory.aput_messages([*work, _marked(say("assistant", words(20)), "#3")])
    prompt = await memory.aget()
    assert [_mark(m) for m in prompt] == ["#0", "#1", "#1.1", "#2", "#2.1", "#3"]
    assert max(len((m.content or "").split()) for m in prompt) < 400
    assert memory.memory_blocks[0].taken == []
    for n in range(4, 20):
        await memory.aput_messages(
            [_marked(say("user", words(40)), f"#{n}"), _marked(say("assistant", "ok"), f"#{n}a")]
        )
        shown = {_mark(m) for m in await memory.aget() if m.role != MessageRole.SYSTEM}
        assert {"#1.1", "#2.1"} - shown <= set(memory.memory_blocks[0].taken)
    assert {"#1.1", "#2.1"} <= set(memory.memory_blocks[0].taken)


async def test_a_call_waits_for_its_result() -> None:
    """A call that is stored before its result is in no valid prompt yet, and no block is told of it."""
    memory = _memory(ListStore())
    for message in (say("user", "?"), calls("c1"), result("c1", "#1")):
        await memory.aput(message)
        assert memory.memory_blocks[0].taken == []


@pytest.mark.parametrize("words", [1, 2, 50, 10**6])
def test_marks_are_compared_in_linear_time(words: int) -> None:
    """Ten times the messages cost at most fourteen times as much, however often they say the same, wherever two were edited."""

    def edited(size: int) -> tuple[list[str], list[str]]:
        known = [str(n % words) for n in range(size)]
        now = [*known[1:5], "x", *known[6:-7], "y", *known[-6:]]
        return known, now

    assert growth(lambda lists: beyond(*lists), edited, 2_000, 10, 14).linear


MARKS = st.lists(st.sampled_from("abcdef"), max_size=12)


@draws()
@given(known=MARKS, now=MARKS)
def test_marks_are_compared_by_how_often_each_occurs(known: list[str], now: list[str]) -> None:
    """What there is more of is new, of equal ones the last; with it nothing is, and without it all is as before."""
    new = beyond(known, now)
    assert Counter(now[at] for at in new) == Counter(now) - Counter(known)
    assert all(now[at] not in now[at + 1 :] or now.index(now[at], at + 1) in new for at in new)
    merged = [*known, *(now[at] for at in new)]
    assert beyond(merged, now) == []
    assert Counter(merged[at] for at in beyond([now[at] for at in new], merged)) == Counter(known)


@given(doors=st.lists(st.tuples(st.booleans(), st.sampled_from(["put", "get", "reset"])), max_size=6))
async def test_a_summary_is_of_one_conversation(doors: list[tuple[bool, str]]) -> None:
    """A block that two users share is refused to the second, by our memory at once: no text of the first is shown or lost."""
    block = HistorySummaryMemoryBlock(summarizer=_marks)
    users, shown = ["ann", "bob"], {"ann": "", "bob": ""}
    options: dict[str, Any] = {"token_limit": 300, "memory_blocks": [block]}
    memories = [Memory.from_defaults(session_id=user, **options) for user in users]
    await block.aput([say("user", "#ann.0")], from_short_term_memory=True, session_id="ann")
    with pytest.raises(BudgetConfigError, match=r"'summary' must serve one conversation .*'bob'"):
        BudgetMemory.from_defaults(session_id="bob", **options)
    for second, door in doors:
        memory, user = memories[second], users[second]
        said = [say(role, f"#{user} {words(60)}") for role in ("user", "assistant") * 2]
        try:
            if door == "put":
                await memory.aput_messages(said)
            elif door == "get":
                shown[user] += " ".join(m.content or "" for m in await memory.aget())
            else:
                await memory.areset()
        except BudgetConfigError:
            if not second:
                raise
    assert "#bob" not in shown["ann"] + block.text
    assert "#ann" not in shown["bob"]
    assert "#ann.0" in block.text


async def test_memories_of_one_conversation_share_its_summary() -> None:
    """A memory that is made again for each request, with the same `session_id`, goes on with the same block."""
    block = HistorySummaryMemoryBlock(summarizer=_marks)
    for turn in range(2):
        memory = BudgetMemory.from_defaults(session_id="ann", token_limit=300, memory_blocks=[block])
        await block.aput([say("user", f"#{turn}")], session_id="ann")
        assert f"#{turn}" in (await memory.aget("What now?"))[0].content
