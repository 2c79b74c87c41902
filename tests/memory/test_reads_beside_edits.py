"""A conversation is read while another process edits it: each read sees one state, and none is an error."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableLambda
from sqlalchemy import event

from langchain_budget import BudgetMessageHistory, StoredMessageHistory, StoredThreadMiddleware
from llamaindex_budget import (
    BudgetChatMemoryBuffer,
    BudgetMemory,
    StoredAsyncChatStore,
    StoredChatStore,
)
from rankbudget import Assembler, Block, BudgetSession, Scope, TokenBudget
from rankbudget.errors import StoreConflictError
from rankbudget.memory import HistoryStore
from rankbudget.testing import WordCounter
from tests.drawing import draws

ANN = Scope(user="ann")
TURNS = 60


def written(version: int) -> list[dict[str, Any]]:
    """A conversation in which each message names its version."""
    turns = [
        (
            {"role": "user", "content": f"v{version} q{n}"},
            {"role": "assistant", "content": f"v{version} a{n}"},
        )
        for n in range(TURNS - version)
    ]
    return [{"role": "system", "content": f"v{version} rules"}, *(said for turn in turns for said in turn)]


class Edited:
    """A thread, all of which another process writes anew before each of the next `edits` transactions."""

    def __init__(self, path: Path) -> None:
        self.store, self._other = HistoryStore(path), HistoryStore(path)
        self.thread = self.store.thread("t", scope=ANN)
        self.edits, self._version, self._editing = 0, 0, threading.Lock()
        self._edit()
        event.listen(self.store.database.engine, "checkout", self._before)

    def _edit(self) -> None:
        self._version += 1
        self._other.thread("t", scope=ANN).replace(written(self._version))

    def _before(self, *_: Any) -> None:
        with self._editing:
            if self.edits > 0:
                self.edits -= 1
                self._edit()

    def close(self) -> None:
        self.store.close()
        self._other.close()


@pytest.fixture
def edited(sqlite_file: Path) -> Iterator[Edited]:
    made = Edited(sqlite_file)
    yield made
    made.close()


def history(thread: Any) -> BudgetMessageHistory:
    stored = StoredMessageHistory(thread.store, "t", scope=ANN)
    return BudgetMessageHistory(history=stored, max_tokens=300, counter="o200k_base")


def buffer(thread: Any) -> BudgetChatMemoryBuffer:
    chats = StoredChatStore(store=thread.store, user="ann")
    return BudgetChatMemoryBuffer.from_defaults(chat_store=chats, chat_store_key="t", token_limit=300)


async def block_memory(thread: Any) -> Any:
    chats = StoredAsyncChatStore(chats=StoredChatStore(store=thread.store, user="ann"))
    return await BudgetMemory.from_defaults(session_id="t", sql_store=chats, token_limit=300).aget()


def prompt(thread: Any) -> Any:
    budget = TokenBudget(context_window=400, reserve=100)
    return (
        Assembler(budget, counter=WordCounter())
        .assemble([Block(name="history", messages=thread.conversation())])
        .messages
    )


def told(text: str, max_tokens: int) -> str:
    del max_tokens
    return f"{text.split(maxsplit=1)[0]} gist"


def agent(thread: Any) -> Any:
    middleware = StoredThreadMiddleware(thread.store, scope=ANN, max_tokens=300)
    asked = {"messages": [HumanMessage("new", id=thread.ids()[-2])]}
    begin = RunnableLambda(lambda state: middleware.before_agent(state, None))
    begun = begin.invoke(asked, {"configurable": {"thread_id": "t"}})
    return [m for m in begun["messages"][1:] if m.content != "new"]


READS: dict[str, Callable[[Any], Any]] = {
    "messages": lambda thread: thread.messages(),
    "newest": lambda thread: list(thread.newest(300)),
    "fit": lambda thread: thread.fit(max_tokens=300).messages,
    "fit of few turns": lambda thread: thread.fit(max_tokens=300, last_turns=4).messages,
    "fit with a summary": lambda thread: thread.fit(max_tokens=300, summarizer=told).messages,
    "session": lambda thread: BudgetSession(300).fit(thread.conversation()).messages,
    "prompt": prompt,
    "LangChain's messages": lambda thread: StoredMessageHistory(thread.store, "t", scope=ANN).messages,
    "LangChain's history": lambda thread: history(thread).messages,
    "LangChain's async history": lambda thread: asyncio.run(history(thread).aget_messages()),
    "LangChain's agent": agent,
    "LlamaIndex's buffer": lambda thread: buffer(thread).get(),
    "LlamaIndex's async buffer": lambda thread: asyncio.run(buffer(thread).aget()),
    "LlamaIndex's memory": lambda thread: asyncio.run(block_memory(thread)),
}


def text(message: Any) -> str:
    return str(message["content"] if isinstance(message, dict) else message.content)


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("edits", [1, 3, 9])
def test_each_read_sees_one_state(edited: Edited, name: str, edits: int) -> None:
    """Whoever reads, and however often all is written anew before a transaction: what is shown was there at one moment."""
    edited.edits = edits
    shown = READS[name](edited.thread)
    assert edited.edits < edits
    assert len(shown) > 5
    firsts = {text(message).split()[0] for message in shown if not text(message).startswith("[Summary")}
    assert len(firsts) == 1


@draws()
@given(st.integers(0, 600), st.integers(0, 8))
def test_a_fit_beside_edits_is_that_of_a_list(tokens: int, edits: int) -> None:
    """What is kept is what a fit of the list of that moment keeps, whatever was read before."""
    import tempfile

    from rankbudget import fit_messages

    with tempfile.TemporaryDirectory() as folder:
        edited = Edited(Path(folder) / "m.db")
        edited.edits = edits
        kept = edited.thread.fit(max_tokens=40 + tokens, counter=WordCounter()).messages
        version = int(kept[0]["content"].split()[0][1:])
        assert kept == fit_messages(written(version), max_tokens=40 + tokens, counter=WordCounter()).messages
        edited.close()


def test_what_gave_messages_away_says_that_they_changed(edited: Edited) -> None:
    """A conversation that was partly read, or partly yielded, is not mixed with a newer one."""
    reading, yielding = edited.thread.conversation(), edited.thread.newest(10_000)
    assert text(reading[-1]) == text(next(yielding)) == f"v1 a{TURNS - 2}"
    edited.edits = 1
    with pytest.raises(StoreConflictError, match="Read it again"):
        list(reading)
    with pytest.raises(StoreConflictError, match="Read it again"):
        list(yielding)


@pytest.mark.parametrize("last_turns", [None, 1, 3, 20])
@pytest.mark.parametrize("tools", [False, True])
@pytest.mark.parametrize("tokens", [150, 4000])
def test_a_report_is_read_after_an_edit(
    edited: Edited, last_turns: int | None, *, tools: bool, tokens: int
) -> None:
    """What a report says of a prompt is known when the prompt is made, whatever becomes of the conversation."""
    for n in range(40 if tools else 0):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "find", "arguments": "{}"}}
        asked = {"role": "assistant", "content": "", "tool_calls": [call]}
        found = {"role": "tool", "tool_call_id": f"c{n}", "content": "found"}
        edited.thread.append([{"role": "user", "content": f"tool {n}"}, asked, found])
    before, after = (edited.thread.fit(max_tokens=tokens, last_turns=last_turns).report for _ in range(2))
    expected = before.to_dict()
    edited.thread.delete(0)
    assert after.to_dict() == expected
