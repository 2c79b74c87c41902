"""`StoredThreadMiddleware` and clients that send messages again: what they edited is what is sent and stored."""

from __future__ import annotations

import asyncio
import json
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
    ToolMessage,
    convert_to_messages,
)
from langchain_core.tools import tool

from langchain_budget import BudgetMiddleware, StoredMessageHistory, StoredThreadMiddleware
from langchain_budget.stored_history import FORM
from rankbudget.adapters import SUMMARY_START
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


OPERATIONS = st.tuples(
    st.sampled_from(["ask", "edit", "edit"]), st.integers(0, 9), st.integers(0, 2), st.booleans()
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
    """Whatever a client edits in what it sends again, where and how: the old words are not sent, in no summary, stored nowhere."""
    store, model = HistoryStore(":memory:"), Scripted(script=[], seen=[])
    options: dict[str, Any] = {"summarizer": summarized} if summarizes else {}
    stored = StoredThreadMiddleware(store, scope=ANN, max_tokens=limit, counter=WordCounter(), **options)
    agent = create_agent(model, [look_up], middleware=[stored, *OTHERS[other]()])
    old: dict[str, set[str]] = {}
    for turn, (operation, place, how, fails) in enumerate(operations):
        whole = StoredMessageHistory(store, "t", scope=ANN).messages
        if operation == "edit" and (said := [m for m in whole if secrets(m)]):
            message = said[place % len(said)]
            new = edited(message, how, f"edited {turn}")
            old[str(message.id)] = old.get(str(message.id), set()) | (secrets(message) - secrets(new))
            whole = [new if m is message else m for m in whole]
        call = {"name": "look_up", "args": {"name": f"secret-{turn}.1"}, "id": f"c{turn}"}
        model.script[:] = [
            AIMessage("", tool_calls=[call]),
            OSError() if fails else AIMessage(f"secret-{turn}.2"),
        ]
        model.seen.clear()
        question = HumanMessage(f"asks secret-{turn}.0", id=f"q{turn}", name=f"secret-{turn}.0n")
        asked: Any = {"messages": [*whole, question]}
        try:
            asyncio.run(agent.ainvoke(asked, THREAD)) if asynchronous else agent.invoke(asked, THREAD)
        except OSError:
            assert fails
        for seen in (*model.seen, StoredMessageHistory(store, "t", scope=ANN).messages):
            assert not secrets(seen) & set().union(*old.values())


RESULTS = {
    "words": lambda size: " ".join(f"word{n}" for n in range(size)),
    "lines": lambda size: "\n".join(f"2026-11-{n % 30 + 1:02} INFO step {n} done" for n in range(size)),
    "JSON": lambda size: json.dumps([{"id": n, "said": f"item {n} is fine"} for n in range(size)], indent=1),
}


@tool
def fetch(kind: str, size: int) -> str:
    """Returns a text of a kind."""
    return RESULTS[kind](size)


def sent_again(messages: list[BaseMessage]) -> list[Any]:
    """Returns what a client keeps of messages: ids, roles, texts and calls."""
    said = []
    for message in messages:
        role = {"human": "user", "ai": "assistant"}.get(message.type, message.type)
        beside = {
            key: held for key in ("tool_calls", "tool_call_id") if (held := getattr(message, key, None))
        }
        said.append({"id": message.id, "role": role, "content": message.content, **beside})
    return said


@draws()
@given(
    turns=st.lists(st.tuples(st.sampled_from(sorted(RESULTS)), st.integers(1, 90)), min_size=2, max_size=6),
    limit=st.sampled_from([150, 250, 10_000]),
    other=st.sampled_from(sorted(OTHERS.keys() - {"shorten"})),  # which shortens what is stored
    summarizes=st.booleans(),
)
def test_what_was_only_shown_is_no_edit(
    turns: list[tuple[str, int]], limit: int, other: str, summarizes: bool
) -> None:
    """Shortened texts and summaries that come again without their marks: stored is what was said, once and whole."""
    store, model = HistoryStore(":memory:"), Scripted(script=[], seen=[])
    options: dict[str, Any] = {"summarizer": lambda text, most: "They spoke."} if summarizes else {}
    stored = StoredThreadMiddleware(store, scope=ANN, max_tokens=limit, counter=WordCounter(), **options)
    agent = create_agent(model, [fetch], middleware=[stored, *OTHERS[other]()])
    known: list[BaseMessage] = []
    said = list[str]()
    for turn, (kind, size) in enumerate(turns):
        call = {"name": "fetch", "args": {"kind": kind, "size": size}, "id": f"c{turn}"}
        model.script[:] = [AIMessage("", tool_calls=[call]), AIMessage(f"answer {turn}")]
        asked: Any = {"messages": [*sent_again(known), {"role": "user", "content": f"question {turn}"}]}
        known = agent.invoke(asked, THREAD)["messages"]
        said += [f"question {turn}", "", RESULTS[kind](size), f"answer {turn}"]
        assert [m.text for m in StoredMessageHistory(store, "t", scope=ANN).messages] == said
        assert all(sum(m.text.startswith(SUMMARY_START) for m in seen) <= 1 for seen in model.seen)


@pytest.mark.parametrize("form", [DICTS, FORM], ids=["another host", "LangChain"])
def test_messages_stored_without_an_id_are_edited_too(form: HostForm) -> None:
    """Each has an id in what a run returns; edited, it replaces the stored one; unchanged, the store keeps it as it was."""
    store = HistoryStore(":memory:")
    thread = store.thread("t", scope=ANN, form=form)
    texts = ["the code is secret-1", "Noted.", "Thanks.", "Welcome."]
    roles = ["user", "assistant"] * 2
    said = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    thread.append(said if form is DICTS else convert_to_messages(said))
    stored = StoredThreadMiddleware(store, scope=ANN, max_tokens=1000, counter=WordCounter())
    model = Scripted(script=[AIMessage("fine") for _ in range(3)], seen=[])
    agent = create_agent(model, middleware=[stored])
    old, *others = agent.invoke({"messages": [("human", "first")]}, THREAD)["messages"]
    given: list[Any] = [HumanMessage("[redacted]", id=old.id), *others]
    for _ in range(2):
        agent.invoke({"messages": [*given, ("human", "next")]}, THREAD)
        sent = [m.text for m in model.seen[-1]]
        assert "secret-1" not in " ".join(sent)
        assert "[redacted]" in sent
        assert "Thanks." in sent
        given = []
    assert len(thread.replaced()) == 1
    assert len(thread) == 10


def test_a_turn_costs_the_database_no_more_in_a_longer_conversation(sqlite_file: Path) -> None:
    """Comparing what is sent again takes SQLite as many steps beside 10,000 stored messages as beside 500; an edit as well."""
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
        agent = create_agent(model, middleware=[stored])
        known = agent.invoke({"messages": [HumanMessage("first")]}, config)["messages"]
        for edits in (False, True):
            changed = HumanMessage("edited", id=known[-2].id) if edits else known[-2]
            asked: Any = {"messages": [*known[:-2], changed, known[-1], ("human", "again")]}
            steps[size, edits] = steps_of(store, partial(agent.invoke, asked, config))
            known += StoredMessageHistory(store, f"t{size}", scope=ANN).messages[-2:]
        assert any(m.text == "edited" for m in model.seen[-1])
    assert steps[500, False] > 100
    assert steps[10_000, False] <= 1.1 * steps[500, False]
    assert steps[10_000, True] <= 1.1 * steps[500, True]


def test_another_answer_costs_the_database_no_more_in_a_longer_conversation(sqlite_file: Path) -> None:
    """A last question that is asked again, or edited, takes as many steps beside 10,000 stored messages as beside 500."""
    steps: dict[tuple[int, str], int] = {}
    store = HistoryStore(str(sqlite_file), counters={"words": WordCounter()})
    for size in (500, 10_000):
        config: Any = {"configurable": {"thread_id": f"t{size}"}}
        history = StoredMessageHistory(store, f"t{size}", scope=ANN)
        history.add_messages(
            [kind(f"{n} words") for n in range(size // 2) for kind in (HumanMessage, AIMessage)]
        )
        stored = StoredThreadMiddleware(store, scope=ANN, max_tokens=100, counter=WordCounter())
        model = Scripted(script=[AIMessage(f"fine {n}") for n in range(3)], seen=[])
        agent = create_agent(model, middleware=[stored])
        for text in ("first", "edited", "edited"):
            asked: Any = {"messages": [HumanMessage(text, id="q")]}
            steps[size, text] = steps_of(store, partial(agent.invoke, asked, config))
            assert [m.text for m in model.seen[-1]][-2:] == [f"{size // 2 - 1} words", text]
        assert [m.text for m in history.messages[-2:]] == ["edited", "fine 2"]
    assert steps[10_000, "edited"] <= 1.1 * steps[500, "edited"]


@pytest.mark.parametrize("door", ["an agent", "a history"])
@draws(cases=10)
@given(
    beside=st.fixed_dictionaries(
        {},
        optional={
            "additional_kwargs": st.just({"reasoning_content": "deep"}),
            "usage_metadata": st.just({"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
            "response_metadata": st.just({"model_name": "m"}),
        },
    ),
    edited=st.booleans(),
)
def test_what_a_client_leaves_out_is_no_edit(door: str, beside: dict[str, Any], edited: bool) -> None:
    """Only role, content, calls and id come back: thinking and usage stay stored, but for another text."""
    store = HistoryStore(":memory:")
    history = StoredMessageHistory(store, "t", scope=ANN)
    history.add_messages([HumanMessage("one", id="1"), AIMessage("fine", id="2", **beside)])
    text = "better" if edited else "fine"
    given: list[Any] = [HumanMessage("one", id="1"), AIMessage(text, id="2"), HumanMessage("two", id="3")]
    if door == "an agent":
        stored = StoredThreadMiddleware(store, scope=ANN, max_tokens=100, counter=WordCounter())
        model = Scripted(script=[AIMessage("yes")], seen=[])
        create_agent(model, middleware=[stored]).invoke({"messages": given}, THREAD)
    else:
        history.add_messages(given)
    assert len(history.thread.replaced()) == edited
    kept = AIMessage("better", id="2") if edited else AIMessage("fine", id="2", **beside)
    assert history.messages[1] == kept


def steps_of(store: HistoryStore, run: Callable[[], object]) -> int:
    """Returns how many steps SQLite takes meanwhile."""
    taken = [0]
    with store.database.read() as connection:
        driver: Any = connection.connection.dbapi_connection
    driver.set_progress_handler(lambda: taken.append(taken.pop() + 1), 1)
    run()
    driver.set_progress_handler(None, 1)
    return taken[0]
