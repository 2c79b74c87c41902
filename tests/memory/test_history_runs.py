"""Runs over stored conversations: an agent without a checkpointer, one summary for both hosts, calls, results, archives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import Memory
from llama_index.core.storage.chat_store import SimpleChatStore
from llama_index.core.storage.chat_store.base_db import MessageStatus
from pydantic import Field

from langchain_budget import (
    BudgetMessageHistory,
    BudgetTrimmer,
    StoredMessageHistory,
    StoredThreadMiddleware,
)
from llamaindex_budget import BudgetChatMemoryBuffer, BudgetMemory, StoredAsyncChatStore, StoredChatStore
from rankbudget import Scope
from rankbudget.errors import BudgetConfigError
from rankbudget.memory import HistoryStore
from rankbudget.testing import WordCounter
from tests.drawing import draws

ANN = Scope(user="ann")


@pytest.fixture
def store(tmp_path: Any) -> Iterator[HistoryStore]:
    made = HistoryStore(tmp_path / "histories.db")
    yield made
    made.close()


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_an_agent_needs_no_checkpointer(store: HistoryStore, asynchronous: bool) -> None:
    """Runs of one thread go on where the last one ended, what is stored is whole, and other users see nothing."""
    model = Recording(responses=["fine"])
    stored = StoredThreadMiddleware(
        store, scope=lambda runtime: Scope(user=runtime.context), max_tokens=30, counter=WordCounter()
    )
    agent = create_agent(model, middleware=[stored], context_schema=str)
    for number in range(6):
        given = {"messages": [HumanMessage("one two three " * 3 + str(number), id=f"q{number}")]}
        config: Any = {"configurable": {"thread_id": "t"}}
        if asynchronous:
            await agent.ainvoke(given, config, context="ann")
        else:
            agent.invoke(given, config, context="ann")
    agent.invoke({"messages": [HumanMessage("and I?")]}, config, context="bob")
    whole = StoredMessageHistory(store, "t", scope=ANN).messages
    assert [m.type for m in whole] == ["human", "ai"] * 6
    assert [m.id for m in whole if m.type == "human"] == [f"q{number}" for number in range(6)]
    assert [m.content for m in model.seen[-1]] == ["and I?"]
    assert [m.id for m in model.seen[-2] if m.type == "human"] == ["q4", "q5"]
    with pytest.raises(BudgetConfigError, match="must have a thread_id"):
        agent.invoke({"messages": [HumanMessage("hi")]}, context="ann")


class Recording(FakeListChatModel):
    """A model that remembers what it was sent."""

    seen: list[Any] = Field(default_factory=list)

    def _call(self, messages: Any, *args: Any, **options: Any) -> str:
        self.seen.append(list(messages))
        return super()._call(messages, *args, **options)


def test_a_summary_serves_both_hosts(store: HistoryStore) -> None:
    """What LangChain's run summarized LlamaIndex shows, and asks only for what came since."""
    asked: list[str] = []

    def gist(text: str, max_tokens: int) -> str:
        asked.append(text)
        return "gist"

    history = StoredMessageHistory(store, "t", scope=ANN)
    pairs = [(HumanMessage(f"question {n}"), AIMessage(f"answer {n}")) for n in range(60)]
    history.add_messages([message for pair in pairs[:40] for message in pair])
    options: dict[str, Any] = {"counter": WordCounter(), "summarizer": gist}
    shown = BudgetMessageHistory(history, max_tokens=120, **options).messages
    assert "gist" in shown[0].content
    assert "question 0" in asked[0]
    asked.clear()
    history.add_messages([message for pair in pairs[40:] for message in pair])
    chats = StoredChatStore(store=store, user="ann")
    memory = BudgetChatMemoryBuffer.from_defaults(
        token_limit=120, chat_store=chats, chat_store_key="t", **options
    )
    assert "gist" in str(memory.get()[0].content)
    assert asked
    assert not any("question 0" in text for text in asked)
    assert history.thread.conversation().summary.summarized == 120


def test_tool_results_keep_their_call(store: HistoryStore) -> None:
    """A call that LangChain stored is answered in LlamaIndex, and LangChain reads both as one step."""
    history = StoredMessageHistory(store, "t", scope=ANN)
    call = {"name": "find", "args": {"b": 1, "a": [2]}, "id": "c1", "type": "tool_call"}
    history.add_messages([HumanMessage("find it"), AIMessage("", tool_calls=[call])])
    chats = StoredChatStore(store=store, user="ann")
    chats.add_message(
        "t", ChatMessage(role="tool", content="found", additional_kwargs={"tool_call_id": "c1"})
    )
    assert history.messages[2] == ToolMessage("found", tool_call_id="c1")
    assert list(chats.get_messages("t")[1].blocks[0].tool_kwargs) == ["b", "a"]


def _buffer(chats: Any) -> BudgetChatMemoryBuffer:
    return BudgetChatMemoryBuffer.from_defaults(chat_store=chats, chat_store_key="t", token_limit=10**6)


def _writers(kind: str, store: HistoryStore) -> Any:
    """Returns what makes a new memory or history of one and the same conversation."""
    chats = SimpleChatStore() if kind == "simple" else StoredChatStore(store=store, user="ann")
    if kind == "memory":
        kept = StoredAsyncChatStore(chats=chats)
        return lambda: BudgetMemory.from_defaults(session_id="t", token_limit=10**6, sql_store=kept)
    if kind == "langchain":
        return lambda: StoredMessageHistory(store, "t", scope=ANN)
    return lambda: _buffer(chats)


def _steps(kind: str, run: int) -> list[Any]:
    call = {"id": f"c{run}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    if kind == "langchain":
        known = {"name": "look", "args": {}, "id": f"c{run}"}
        return [AIMessage("", tool_calls=[known]), ToolMessage("17", tool_call_id=f"c{run}"), AIMessage("17")]
    answered = ChatMessage("17", role="tool", additional_kwargs={"tool_call_id": f"c{run}"})
    asked = ChatMessage("", role="assistant", additional_kwargs={"tool_calls": [call]})
    return [asked, answered, ChatMessage("17", role="assistant")]


@pytest.mark.parametrize("kind", ["stored", "simple", "memory", "langchain"])
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_what_is_handed_over_together_stays_together(
    store: HistoryStore, kind: str, asynchronous: bool
) -> None:
    """Of runs that store their steps in one conversation at once none comes between a call and its result."""
    make, runs = _writers(kind, store), range(8)
    names = ("add_messages", "aadd_messages") if kind == "langchain" else ("put_messages", "aput_messages")
    memories = [make() for _ in runs]
    if asynchronous:
        await asyncio.gather(*[getattr(memories[run], names[1])(_steps(kind, run)) for run in runs])
    else:
        with ThreadPoolExecutor(len(runs)) as pool:
            list(pool.map(lambda run: getattr(memories[run], names[0])(_steps(kind, run)), runs))
    reader = make()
    found = [str(m.content) for m in (reader.messages if kind == "langchain" else await reader.aget_all())]
    assert found == ["", "17", "17"] * len(runs)


def _memory(store: HistoryStore) -> Memory:
    kept = StoredAsyncChatStore(chats=StoredChatStore(store=store, user="ann"))
    return Memory(session_id="t", token_limit=60, token_flush_size=20, sql_store=kept)


DELETIONS: dict[str, Callable[[HistoryStore], Any]] = {
    "thread": lambda store: store.thread("t", scope=ANN).clear(),
    "history": lambda store: StoredMessageHistory(store, "t", scope=ANN).clear(),
    "fitted": lambda store: BudgetMessageHistory(
        StoredMessageHistory(store, "t", scope=ANN), max_tokens=99
    ).clear(),
    "chat store": lambda store: StoredChatStore(store=store, user="ann").delete_messages("t"),
    "memory": lambda store: _memory(store).reset(),
    "forget": lambda store: store.forget(ANN),
}


@pytest.mark.parametrize("name", DELETIONS)
def test_a_conversation_goes_with_its_archived_part(store: HistoryStore, name: str) -> None:
    """What LlamaIndex's memory archived is listed as no conversation and deleted with it, through any door."""
    memory, other = _memory(store), StoredChatStore(store=store, user="ann")
    for number in range(12):
        memory.put(ChatMessage(f"secret {number} and some more words"))
    other.add_message("other", ChatMessage("hi"))
    assert len(other.get_messages("t")) < 12 == len(asyncio.run(memory.aget_all(status=None)))
    asyncio.run(memory.areset(MessageStatus.ACTIVE))
    assert (other.get_messages("t"), len(asyncio.run(memory.aget_all(status=None))) > 0) == ([], True)
    memory.put(ChatMessage("newest"))
    assert sorted(store.threads(scope=ANN)) == sorted(other.get_keys()) == ["other", "t"]
    DELETIONS[name](store)
    assert asyncio.run(_memory(store).aget_all(status=None)) == []
    assert store.threads(scope=ANN) == other.get_keys() == ([] if name == "forget" else ["other"])


def _sent_by_an_agent(history: StoredMessageHistory, question: str, limit: int) -> Any:
    """What the middleware loads into a run's state."""
    thread = history.thread
    stored = StoredThreadMiddleware(thread.store, scope=ANN, max_tokens=limit, counter="o200k_base")
    agent = create_agent(FakeListChatModel(responses=["fine"]), middleware=[stored])
    return agent.invoke({"messages": [question]}, {"configurable": {"thread_id": thread.name}})["messages"]


def _read_by_a_history(history: StoredMessageHistory, question: str, limit: int) -> Any:
    return BudgetMessageHistory(history, max_tokens=limit, counter="o200k_base").fit(question).messages


def _trimmed(history: StoredMessageHistory, question: str, limit: int) -> Any:
    """What a chain with a trimmer sends, as one in `RunnableWithMessageHistory`."""
    trimmer = BudgetTrimmer(max_tokens=limit, counter="o200k_base")
    return trimmer.invoke([*history.messages, HumanMessage(question)])


def _read_by_a_buffer(history: StoredMessageHistory, question: str, limit: int) -> Any:
    chats = StoredChatStore(store=history.thread.store, scope=ANN)
    options: Any = {"chat_store": chats, "chat_store_key": history.thread.name, "counter": "o200k_base"}
    return BudgetChatMemoryBuffer.from_defaults(token_limit=limit, **options).get(question)


def _read_by_a_memory(history: StoredMessageHistory, question: str, limit: int) -> Any:
    chats = StoredAsyncChatStore(store=history.thread.store, scope=ANN)
    options: Any = {"sql_store": chats, "session_id": history.thread.name, "counter": "o200k_base"}
    return BudgetMemory.from_defaults(token_limit=limit, **options).get(question)


@pytest.mark.parametrize(
    "door", [_sent_by_an_agent, _read_by_a_history, _trimmed, _read_by_a_buffer, _read_by_a_memory]
)
@draws(cases=6)
@given(asked=st.integers(0, 149), turns=st.integers(0, 2), limit=st.integers(800, 2000))
def test_a_stored_result_keeps_the_row_that_is_asked_for(
    door: Any, asked: int, turns: int, limit: int
) -> None:
    """At each door that knows the question, as where the thread has it at its end."""
    store = HistoryStore(":memory:")
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    rows = "\n".join(f"order O{1000 + row} was sent to city{row * 7 % 91}" for row in range(150))
    said = [
        {"role": "user", "content": "List the orders."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": rows},
        {"role": "assistant", "content": "Here they are."},
    ]
    for turn in range(turns):
        said += [{"role": "user", "content": f"So {turn}?"}, {"role": "assistant", "content": "Yes."}]
    question, row = f"Where was order O{1000 + asked} sent?", f"order O{1000 + asked} was sent"
    for name in ("t", "whole"):
        store.thread(name, scope=ANN).append(said)
    thread = store.thread("whole", scope=ANN)
    thread.append([{"role": "user", "content": question}])
    assert row in str(thread.fit(limit).messages)
    assert row in str(door(StoredMessageHistory(store, "t", scope=ANN), question, limit))
