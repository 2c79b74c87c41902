"""What llama-index-core's own memory tests pin, in our words; where we differ on purpose is written in docs/llamaindex.md."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, MessageRole, TextBlock
from llama_index.core.memory import StaticMemoryBlock
from llama_index.core.storage.chat_store import SimpleChatStore

from llamaindex_budget import BudgetChatMemoryBuffer, BudgetMemory
from rankbudget.errors import BudgetExceededError
from tests.llamaindex.models import ListStore, PlayLLM, calls, result, say, tokens

U1, A1, U2, A2 = (
    say("user", "first user message"),
    say("assistant", "first answer"),
    say("user", "second user message"),
    say("assistant", "second answer"),
)
ALL = tokens([U1, A1, U2, A2])


def _buffer(limit: int, *history: ChatMessage) -> BudgetChatMemoryBuffer:
    return BudgetChatMemoryBuffer.from_defaults(token_limit=limit, chat_history=list(history))


def _texts(messages: list[ChatMessage]) -> list[str | None]:
    return [m.content for m in messages]


# ---------------------------------------------------------------- test_chat_memory_buffer
def test_put_then_get() -> None:
    """What was put is what get and get_all return."""
    memory = _buffer(100)
    memory.put(U1)
    assert memory.get() == memory.get_all() == [U1]


def test_initial_tokens_over_the_limit_are_a_value_error() -> None:
    """The message starts as the stock one does."""
    with pytest.raises(ValueError, match="Initial token count exceeds token limit"):
        _buffer(100, U1).get(initial_token_count=101)


def test_initial_tokens_equal_to_the_limit() -> None:
    """Differs: the stock buffer returns the last message over the limit; here nothing is sent over it."""
    with pytest.raises(BudgetExceededError):
        _buffer(10, U1).get(initial_token_count=10)


def test_an_answer_is_not_left_at_the_start() -> None:
    """Where a question does not fit, its answer goes too."""
    got = _buffer(ALL - tokens([U1]) + 3, U1, A1, U2, A2).get()
    assert _texts(got) == _texts([U2, A2])


def test_room_for_the_second_turn_keeps_the_second_turn() -> None:
    """The older question goes with its answer."""
    assert _texts(_buffer(tokens([U2, A2]), U1, A1, U2, A2).get()) == _texts([U2, A2])
    assert _texts(_buffer(ALL - 1, U1, A1, U2, A2).get()) == _texts([U2, A2])


def test_room_for_all_keeps_all() -> None:
    """At exactly the size of the thread, all of it comes back."""
    assert _buffer(ALL, U1, A1, U2, A2).get() == [U1, A1, U2, A2]


def test_initial_tokens_take_their_room() -> None:
    """One token in front of a thread that just fits costs its first turn."""
    assert _texts(_buffer(ALL, U1, A1, U2, A2).get(initial_token_count=1)) == _texts([U2, A2])


def test_set_replaces() -> None:
    """Setting a conversation replaces the one before; put appends to it."""
    memory = _buffer(1000, U1, A1)
    memory.put(U2)
    assert memory.get() == [U1, A1, U2]
    memory.set([A2, U2])
    assert memory.get_all() == [A2, U2]
    memory.reset()
    assert memory.get() == memory.get_all() == []


def test_max_tokens() -> None:
    """Differs: 2-token messages count 4 more for role and framing, so three fit where the stock limit of 5 keeps two."""
    memory = _buffer(100, say("user", "Hello World"))
    assert len(memory.get()) == 1
    for text in ("Hello World2", "Hello World3", "Hello World4"):
        memory.put(say("user", text))
    memory.token_limit = 3 + 3 * 7
    assert len(memory.get()) == 3
    memory.put(say("user", "Hello World5"))
    assert memory.get()[-1].content == "Hello World5"
    assert tokens(memory.get()) <= 3 + 3 * 7


@pytest.mark.parametrize("way", ["string", "dict", "pickle"])
def test_saving_and_loading(way: str) -> None:
    """A memory and its messages come back from a string, a dict and a pickle."""
    memory = _buffer(500, U1, A1, calls("c1"), result("c1", "r"), U2)
    loaded = {
        "string": lambda: BudgetChatMemoryBuffer.from_string(memory.to_string()),
        "dict": lambda: BudgetChatMemoryBuffer.from_dict(memory.to_dict()),
        "pickle": lambda: pickle.loads(pickle.dumps(memory)),
    }[way]()
    assert len(loaded.get()) == len(memory.get())
    assert loaded.token_limit == memory.token_limit
    assert loaded.get_all() == memory.get_all()


def test_a_store_and_its_key_are_the_users() -> None:
    """Messages live in the store that was given, under its key."""
    store = SimpleChatStore()
    memory = BudgetChatMemoryBuffer.from_defaults(chat_store=store, chat_store_key="ann")
    memory.put(U1)
    assert store.get_messages("ann") == [U1]


async def test_async_methods() -> None:
    """aput, aget, aget_all, aset and areset do what their blocking forms do."""
    memory = _buffer(1000)
    await memory.aput(U1)
    await memory.aput_messages([A1])
    assert await memory.aget() == await memory.aget_all() == [U1, A1]
    await memory.aset([U2])
    assert memory.get_all() == [U2]
    await memory.areset()
    assert await memory.aget() == []


# ---------------------------------------------------------------- test_chat_summary_memory_buffer
def test_a_summary_stands_in_front_of_what_stays() -> None:
    """The summary of the older messages comes first, the newest stay word for word, and the stored ones stay too."""
    llm = PlayLLM(requests=[], steps=[], answer="They greeted each other.")
    history = [
        m for i in range(20) for m in (say("user", f"user message {i}"), say("assistant", f"answer {i}"))
    ]
    memory = BudgetChatMemoryBuffer.from_defaults(token_limit=150, chat_history=history, summarizer=llm)
    got = memory.get()
    assert "They greeted each other." in (got[0].content or "")
    assert _texts(got[1:]) == _texts(history)[-len(got) + 1 :]
    assert len(memory.get_all()) == 40


def test_no_summary_where_all_fits() -> None:
    """The model is not asked when nothing goes."""
    llm = PlayLLM(requests=[], steps=[])
    assert BudgetChatMemoryBuffer.from_defaults(
        token_limit=ALL, chat_history=[U1, A1, U2, A2], summarizer=llm
    ).get() == [U1, A1, U2, A2]
    assert llm.requests == []


# ---------------------------------------------------------------- test_memory_base, test_memory_blocks_base
def _memory(**fields: Any) -> BudgetMemory:
    return BudgetMemory.from_defaults(**{"token_limit": 1000, "chat_store": ListStore(), **fields})


async def test_memory_starts_empty_and_keeps_order() -> None:
    """Nothing in, nothing out; messages come back in their order."""
    memory = _memory()
    assert await memory.aget() == []
    await memory.aput(U1)
    await memory.aput_messages([A1, U2])
    assert await memory.aget() == await memory.aget_all() == [U1, A1, U2]
    await memory.areset()
    assert await memory.aget() == []


async def test_blocks_go_into_the_system_message() -> None:
    """With insert_method="system" there is one system message that holds the block's tag, name and text; its own text comes first."""
    memory = _memory(
        memory_blocks=[StaticMemoryBlock(name="core_info", static_content="The sky is blue.")],
        insert_method="system",
    )
    await memory.aset([say("system", "You are kind."), U1])
    got = await memory.aget()
    assert [m.role for m in got] == [MessageRole.SYSTEM, MessageRole.USER]
    text = got[0].content or ""
    assert (
        text.index("You are kind.")
        < text.index("<memory>")
        < text.index("<core_info>")
        < text.index("The sky is blue.")
        < text.index("</core_info>")
    )


async def test_blocks_go_into_the_user_message() -> None:
    """With insert_method="user" they come before the latest question."""
    memory = _memory(
        memory_blocks=[StaticMemoryBlock(name="core_info", static_content="The sky is blue.")],
        insert_method="user",
    )
    await memory.aset([U1, A1, U2])
    got = await memory.aget()
    assert len(got) == 3
    assert (got[-1].content or "").endswith("second user message")
    assert "The sky is blue." in (got[-1].content or "")


async def test_blocks_of_messages_come_before_the_history() -> None:
    """A block that returns chat messages has them in front of the conversation."""

    class Earlier(StaticMemoryBlock):
        async def _aget(self, messages: Any = None, **_: Any) -> Any:
            return [say("user", "long ago"), say("assistant", "indeed")]

    memory = _memory(memory_blocks=[Earlier(name="earlier", static_content="")])
    await memory.aset([U1])
    assert _texts(await memory.aget()) == ["long ago", "indeed", "first user message"]


async def test_block_names_are_unique() -> None:
    """Two blocks of one name are refused, as in the stock memory."""
    same = [
        StaticMemoryBlock(name="one", static_content="a"),
        StaticMemoryBlock(name="one", static_content="b"),
    ]
    with pytest.raises(ValueError, match="unique names"):
        _memory(memory_blocks=same)


async def test_tool_calls_are_counted() -> None:
    """A large call does not hide from the limit (pinned upstream by newer tests)."""
    memory = _memory(token_limit=200)
    await memory.aset(
        [say("user", "q"), calls("c1", code="x " * 2000), result("c1", "ok"), say("assistant", "done"), U2]
    )
    assert tokens(await memory.aget()) <= 200
    assert (await memory.aget())[-1] == U2


async def test_pictures_are_counted() -> None:
    """An image has its price in the limit."""
    memory = _memory(token_limit=300)
    await memory.aset(
        [
            ChatMessage(
                role="user", blocks=[TextBlock(text="look"), ImageBlock(url="http://127.0.0.1:9/x.png")]
            ),
            A1,
            U2,
        ]
    )
    assert tokens(await memory.aget()) <= 300


def test_the_stores_of_two_sessions_are_apart() -> None:
    """One store, two session ids, two conversations."""
    store = ListStore()
    ann, bob = _memory(chat_store=store, session_id="ann"), _memory(chat_store=store, session_id="bob")
    ann.put(U1)
    bob.put(U2)
    assert (ann.get(), bob.get()) == ([U1], [U2])
    assert json.loads(ann.to_json())["session_id"] == "ann"
