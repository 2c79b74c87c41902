"""`StoredThreadMiddleware` beside a checkpointer: what was edited in the state is what is sent and stored."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
    convert_to_messages,
)
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_budget import BudgetMiddleware, StoredMessageHistory, StoredThreadMiddleware
from langchain_budget.stored_history import FORM
from rankbudget.memory import HistoryStore, HostForm
from rankbudget.memory.forms import DICTS
from rankbudget.testing import WordCounter
from tests.drawing import draws

from .test_stored_threads import ANN, THREAD, Scripted


@tool
def look_up(name: str) -> str:
    """Looks up a secret."""
    return f"{name}-result " + "word " * 40


def secrets(value: object) -> set[str]:
    return set(re.findall(r"secret-[\d.]+\w*(?:-result)?", repr(value)))


def summarized(text: str, most: int) -> str:
    """Returns all secrets of a text, as a summary that leaves nothing out."""
    return " ".join(sorted(secrets(text)))


def budgeted(**options: Any) -> BudgetMiddleware:
    return BudgetMiddleware(max_tokens=150, counter=WordCounter(), **options)


OTHERS: dict[str, Callable[[], list[Any]]] = {
    "none": list,
    "fit": lambda: [budgeted()],
    "persist": lambda: [budgeted(persist=True)],
    "summarize": lambda: [budgeted(summarizer=summarized)],
    "shorten": lambda: [budgeted(tool_result_tokens=9)],
}


def with_text(message: BaseMessage, text: str) -> BaseMessage:
    return message.model_copy(update={"content": text, "name": None})


def made_anew(message: BaseMessage, text: str) -> BaseMessage:
    """Returns a message of the same id and calls, of which nothing else is kept."""
    if isinstance(message, AIMessage):
        return AIMessage(text, id=message.id, tool_calls=message.tool_calls)
    if isinstance(message, ToolMessage):
        return ToolMessage(text, id=message.id, tool_call_id=message.tool_call_id)
    return HumanMessage(text, id=message.id)


def in_blocks(message: BaseMessage, text: str) -> BaseMessage:
    return made_anew(message, "").model_copy(update={"content": [{"type": "text", "text": text}]})


EDITS: list[Callable[[BaseMessage, str], BaseMessage]] = [with_text, made_anew, in_blocks]


def edited(message: BaseMessage, how: int, text: str) -> BaseMessage:
    """Returns a message in which `text` is where the secret was: in its text, its name, or its call."""
    if isinstance(message, AIMessage) and message.tool_calls:
        calls = [{**call, "args": {"name": text}} for call in message.tool_calls]
        return AIMessage(message.content, id=message.id, tool_calls=calls)
    return EDITS[how % len(EDITS)](message, text)


class Edited:
    """An agent whose users edit messages of its state, at its end or in an older checkpoint."""

    def __init__(self, stored: StoredThreadMiddleware, others: list[Any], *, asynchronous: bool) -> None:
        self.model = Scripted(script=[], seen=[])
        saver = InMemorySaver()
        self.agent = create_agent(self.model, [look_up], middleware=[stored, *others], checkpointer=saver)
        self.asynchronous = asynchronous
        self.ends: list[Any] = []

    def asks(self, turn: int, config: Any, *, fails: bool) -> None:
        """Runs a turn, each message of which has a secret of its own."""
        call = {"name": "look_up", "args": {"name": f"secret-{turn}.1"}, "id": f"c{turn}"}
        answer = OSError() if fails else AIMessage(f"secret-{turn}.2", id=f"a{turn}")
        self.model.script[:] = [AIMessage("", tool_calls=[call]), answer]
        self.model.seen.clear()
        asked: Any = {
            "messages": [HumanMessage(f"asks secret-{turn}.0", id=f"q{turn}", name=f"secret-{turn}.0n")]
        }
        try:
            asyncio.run(self.agent.ainvoke(asked, config)) if self.asynchronous else self.agent.invoke(
                asked, config
            )
        except OSError:
            return
        self.ends.append(self.agent.get_state(THREAD).config)

    def changes(self, config: Any, place: int, how: int, text: str) -> tuple[Any, set[str], str]:
        """Edits a message of a state; returns where to go on, what must not come back, and the message's id."""
        state = self.agent.get_state(config).values["messages"]
        said = [m for m in state if secrets(m) and m.additional_kwargs.get("lc_source") != "summary"]
        old = said[place % len(said)]
        new = edited(old, how, text)
        config = self.agent.update_state(config, {"messages": [new]})
        return config, secrets(old) - secrets(new), str(old.id)


OPERATIONS = st.tuples(
    st.sampled_from(["ask", "edit", "edit", "fork and edit"]),
    st.integers(0, 9),
    st.integers(0, 2),
    st.booleans(),
)


@draws(asynchronous=True)
@given(
    operations=st.lists(OPERATIONS, min_size=2, max_size=8),
    limit=st.sampled_from([70, 150, 10_000]),
    other=st.sampled_from(sorted(OTHERS)),
    summarizes=st.booleans(),
    asynchronous=st.booleans(),
)
def test_what_was_edited_never_comes_back(
    operations: list[tuple[str, int, int, bool]],
    limit: int,
    other: str,
    summarizes: bool,
    asynchronous: bool,
) -> None:
    """Whatever is edited, where and how: the old words are not sent, in no summary, state or stored message."""
    store = HistoryStore(":memory:")
    options: dict[str, Any] = {"summarizer": summarized} if summarizes else {}
    stored = StoredThreadMiddleware(store, scope=ANN, max_tokens=limit, counter=WordCounter(), **options)
    agent = Edited(stored, OTHERS[other](), asynchronous=asynchronous)
    old: dict[str, set[str]] = {}
    agent.asks(0, THREAD, fails=False)
    for turn, (operation, which, how, fails) in enumerate(operations, start=1):
        config: Any = THREAD
        if operation != "ask":
            forks = operation == "fork and edit" and not old  # an older state may have the old words
            base = agent.ends[which % len(agent.ends)] if forks else THREAD
            config, gone, name = agent.changes(base, which, how, f"edited {turn}")
            old[name] = old.get(name, set()) | gone
        runs = config if operation == "fork and edit" else THREAD
        agent.asks(turn, runs, fails=fails)
        whole = StoredMessageHistory(store, "t", scope=ANN).messages
        state = agent.agent.get_state(THREAD).values["messages"]
        assert fails or operation == "ask" or f"edited {turn}" in repr(whole)
        for place in (*agent.model.seen, state, whole):
            assert not secrets(place) & set().union(*old.values())


@pytest.mark.parametrize("form", [DICTS, FORM], ids=["another host", "LangChain"])
@pytest.mark.parametrize("removes", [False, True])
def test_messages_stored_without_an_id_are_edited_and_removed_too(form: HostForm, removes: bool) -> None:
    """Each has an id in the state; edited, it replaces the stored one; unchanged, the store keeps it as it was."""
    store = HistoryStore(":memory:")
    thread = store.thread("t", scope=ANN, form=form)
    texts = ["the code is secret-1", "Noted.", "Thanks.", "Welcome."]
    roles = ["user", "assistant"] * 2
    said = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    thread.append(said if form is DICTS else convert_to_messages(said))
    stored = StoredThreadMiddleware(store, scope=ANN, max_tokens=1000, counter=WordCounter())
    model = Scripted(script=[AIMessage("fine") for _ in range(3)], seen=[])
    agent = create_agent(model, middleware=[stored], checkpointer=InMemorySaver())
    agent.invoke({"messages": [("human", "first")]}, THREAD)
    old = agent.get_state(THREAD).values["messages"][0]
    changed: Any = RemoveMessage(id=old.id) if removes else HumanMessage("[redacted]", id=old.id)
    agent.update_state(THREAD, {"messages": [changed]})
    for _ in range(2):
        agent.invoke({"messages": [("human", "next")]}, THREAD)
        sent = [m.text for m in model.seen[-1]]
        assert "secret-1" not in " ".join(sent)
        assert ("[redacted]" in sent) is not removes
        assert "Thanks." in sent
    assert len(thread.replaced()) == (not removes)
    assert len(thread) == 10


def test_a_turn_costs_the_database_no_more_in_a_longer_conversation(sqlite_file: Path) -> None:
    """Comparing the state takes SQLite as many steps beside 10,000 stored messages as beside 500; an edit as well."""
    steps: dict[tuple[int, bool], int] = {}
    counter = WordCounter()
    store = HistoryStore(str(sqlite_file), counters={"words": counter})
    for size in (500, 10_000):
        config: Any = {"configurable": {"thread_id": f"t{size}"}}
        kinds = [HumanMessage, AIMessage] * (size // 2)
        older: list[BaseMessage] = [
            kind(f"{n} words", id=f"o{n}" if n % 2 else None) for n, kind in enumerate(kinds)
        ]
        StoredMessageHistory(store, f"t{size}", scope=ANN).add_messages(older)
        stored = StoredThreadMiddleware(store, scope=ANN, max_tokens=100, counter=counter)
        model = Scripted(script=[AIMessage("fine") for _ in range(3)], seen=[])
        agent = create_agent(model, middleware=[stored], checkpointer=InMemorySaver())
        agent.invoke({"messages": [HumanMessage("first")]}, config)
        again = partial(agent.invoke, {"messages": [("human", "again")]}, config)
        steps[size, False] = steps_of(store, again)
        changed = HumanMessage("edited", id=agent.get_state(config).values["messages"][2].id)
        agent.update_state(config, {"messages": [changed]})
        steps[size, True] = steps_of(store, again)
        assert any(m.text == "edited" for m in model.seen[-1])
    assert steps[500, False] > 100
    assert steps[10_000, False] <= 1.1 * steps[500, False]
    assert steps[10_000, True] <= 1.1 * steps[500, True]


def steps_of(store: HistoryStore, run: Callable[[], object]) -> int:
    """Returns how many steps SQLite takes meanwhile."""
    taken = [0]
    with store.database.read() as connection:
        driver: Any = connection.connection.dbapi_connection
    driver.set_progress_handler(lambda: taken.append(taken.pop() + 1), 1)
    run()
    driver.set_progress_handler(None, 1)
    return taken[0]
