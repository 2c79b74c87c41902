"""A prompt of a stored conversation: the same as of the whole list, but only what fits is read, and counted once."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from sqlalchemy import event

from langchain_budget import BudgetMessageHistory, StoredMessageHistory
from rankbudget import Assembler, Block, BudgetSession, Scope, fit_messages
from rankbudget.errors import BudgetError, MessageError
from rankbudget.memory import HistoryStore, StoredThread
from rankbudget.testing import Application, RecordingCounter, WordCounter, applications
from tests.drawing import draws
from tests.properties.test_edited_sessions import STEPS, _changed, _told

ANN = Scope(user="ann")


def said(text: str, role: str = "user", **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": text, **fields}


def chat(turns: int) -> list[dict[str, Any]]:
    """A conversation in which every question and answer has two words."""
    pairs = [(said(f"question {i}"), said(f"answer {i}", "assistant")) for i in range(turns)]
    return [said("be kind", "system"), *(message for pair in pairs for message in pair)]


def outcome(fit: Any) -> Any:
    """What a fit keeps and what it costs, or how it is refused."""
    try:
        found = fit()
    except BudgetError as error:
        return type(error), str(error)
    return found.messages, found.report.total_tokens


# ---- the same as the list ------------------------------------------------------------------------
@draws()
@given(applications(user_results=True))
def test_a_stored_conversation_is_fitted_as_the_list(application: Application) -> None:
    """Whatever is drawn, broken conversations included, the same stays of both, and costs the same."""
    store, messages = HistoryStore(":memory:"), application.fresh()
    thread = store.thread("t", scope=ANN)
    thread.append(messages)
    options: dict[str, Any] = {"max_tokens": application.tokens, "counter": WordCounter()}
    for cut in ("fill", "stable"):
        expected = outcome(lambda: fit_messages(messages, cut=cut, **options))  # noqa: B023 - called at once
        assert outcome(lambda: thread.fit(cut=cut, **options)) == expected  # noqa: B023 - the same
    store.close()


@draws()
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["system", "developer", "user", "assistant"]),
            st.sampled_from(["", " ", "one two"]),
        ),
        min_size=1,
        max_size=9,
    ),
    st.integers(3, 30),
    st.booleans(),
)
def test_a_blank_system_message_goes_as_from_the_list(
    chat: list[tuple[str, str]], limit: int, strict: bool
) -> None:
    """Wherever it is stored: the fit reads the same prompt of the store, or is refused with the same error."""
    store, messages = HistoryStore(":memory:"), [said(text, role) for role, text in chat]
    thread = store.thread("t", scope=ANN)
    thread.append(messages)
    options: dict[str, Any] = {"max_tokens": limit, "counter": WordCounter(), "strict": strict}
    found = outcome(lambda: thread.fit(**options))
    assert found == outcome(lambda: fit_messages(messages, **options))
    if isinstance(found[0], list):
        assert all(message["content"].strip() for message in found[0])
    store.close()


def test_messages_of_another_host_are_refused_as_in_a_list() -> None:
    """The core reads dicts; its error says what takes the others, whether they are stored or not."""
    history = StoredMessageHistory(HistoryStore(":memory:"), "t", scope=ANN)
    history.add_messages([HumanMessage("one")])
    for messages in (history.messages, history.conversation()):
        for fit in (BudgetSession(500).fit, partial(fit_messages, max_tokens=500)):
            with pytest.raises(MessageError, match=r"got None of HumanMessage.*langchain_budget takes it"):
                fit(messages)


@pytest.mark.parametrize("summarizer", [None, _told])
@draws(cases=2)
@given(applications(max_turns=6, user_results=True), STEPS, st.integers(20, 200))
def test_a_session_continues_a_stored_conversation(
    summarizer: Any, application: Application, steps: list[tuple[str, int]], limit: int
) -> None:
    """While people append, edit and delete, a session keeps of it what it keeps of the list."""
    rest, messages = application.fresh(), list[Any]()
    store = HistoryStore(":memory:", counters={"words": (counter := WordCounter())})
    thread = store.thread("t", scope=ANN)
    of_list, of_stored = (BudgetSession(limit, counter=counter, summarizer=summarizer) for _ in range(2))
    for mark, step in enumerate(steps):
        messages = _changed(messages, rest, step, mark)
        thread.replace(messages)
        expected = outcome(lambda: of_list.fit(messages))  # noqa: B023 - called at once
        assert outcome(lambda: of_stored.fit(thread.conversation())) == expected
    store.close()


# ---- only what fits ------------------------------------------------------------------------------
def test_only_what_fits_is_read_and_nothing_is_counted_again(histories: HistoryStore) -> None:
    """The second read of a long conversation counts no message, and the report says how many were not read."""
    counter = RecordingCounter(WordCounter())
    histories.counts.given = {"words": counter}
    thread = histories.thread("t", scope=ANN)
    messages = chat(3000)
    messages.insert(1000, said("late rule", "system"))
    thread.append(messages)
    assert counter.messages == len(messages)
    counter.reset()
    result = thread.fit(max_tokens=400, counter=counter)
    assert result.messages == fit_messages(messages, max_tokens=400, counter=WordCounter()).messages
    assert [m["content"] for m in result.messages[:2]] == ["be kind", "late rule"]
    counter.reset()
    report = thread.fit(max_tokens=400, counter=counter).report
    unread = next(d for d in report.decisions if d.reason == "not_read")
    assert (counter.calls, counter.messages) == (0, 0)
    assert len(report.decisions) < 400
    said_unread = int(unread.detail.split()[0].replace(",", ""))
    assert said_unread == len(messages) - (len(report.decisions) - 1)
    assert any(f"{said_unread:,} older messages" in warning for warning in report.warnings)
    assert report.more_tokens(unread.segment_id) is None


@pytest.mark.parametrize("as_block", [False, True])
def test_an_assembler_reads_only_what_fits(histories: HistoryStore, as_block: bool) -> None:
    """A conversation from a store is no list that is read whole, by its name or in a block."""
    thread = histories.thread("t", scope=ANN)
    thread.append(chat(3000))
    history = thread.conversation()
    block: Any = [Block(name="history", messages=history)] if as_block else {"history": history}
    report = Assembler(400, counter=WordCounter()).assemble(block, query="why?").report
    assert len(report.decisions) < 400
    assert [d.reason for d in report.decisions].count("not_read") == 1


def test_a_read_costs_the_database_no_more_in_a_longer_conversation(sqlite_file: Path) -> None:
    """SQLite takes as many steps for the newest messages of 10,000 as for those of 500."""
    steps = []
    store = HistoryStore(str(sqlite_file), counters={"words": (counter := WordCounter())})
    for turns in (250, 5000):
        thread = store.thread(f"t{turns}", scope=ANN)
        thread.append(chat(turns))
        thread.fit(max_tokens=200, counter=counter)
        with store.database.read() as connection:
            driver: Any = connection.connection.dbapi_connection
        steps.append(0)
        driver.set_progress_handler(lambda: steps.append(steps.pop() + 1), 1)
        thread.fit(max_tokens=200, counter=counter)
        driver.set_progress_handler(None, 1)
    assert steps[0] > 100
    assert steps[1] <= 1.1 * steps[0]


def test_counts_are_stored_at_the_first_read(histories: HistoryStore) -> None:
    """What one process has counted no other one counts again; new content is counted anew."""
    thread = histories.thread("t", scope=ANN)
    thread.append([said(f"word {number}", id=f"m{number}") for number in range(50)])
    assert [m["id"] for m in thread.newest(30, "o200k_base")] == ["m49", "m48", "m47", "m46"]
    rows = stored_counts(thread)
    assert all("o200k_base" in counts for counts in rows[-4:])
    thread.append([said("word word word", id="m49")])
    assert stored_counts(thread)[-1] == "{}"
    assert (
        thread.fit(max_tokens=3000).report.total_tokens
        == fit_messages(thread.messages(), max_tokens=3000).report.total_tokens
    )


def stored_counts(thread: StoredThread) -> list[str]:
    from rankbudget.memory.history_tables import messages

    table = messages()
    with thread.store.database.read() as connection:
        wanted = table.select().where(table.c.place.is_not(None)).order_by(table.c.place)
        return [row.counts for row in connection.execute(wanted)]


def test_a_read_tears_no_pair() -> None:
    """Where the budget ends among calls and results, none is yielded without its call."""
    store = HistoryStore(":memory:")
    thread = store.thread("t", scope=ANN)
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    for number in range(30):
        calls = [{**call, "id": f"c{number}{letter}"} for letter in "ab"]
        thread.append(
            [
                said(f"question {number}"),
                said("", "assistant", tool_calls=calls),
                *(said("found", "tool", tool_call_id=one["id"]) for one in calls),
            ]
        )
    for tokens in range(0, 200, 7):
        yielded = list(thread.newest(tokens, WordCounter()))[::-1]
        results = [m["tool_call_id"] for m in yielded if m["role"] == "tool"]
        asked = [one["id"] for m in yielded for one in m.get("tool_calls", ())]
        assert results == asked
    store.close()


# ---- the running summary -------------------------------------------------------------------------
def summarizer(text: str, max_tokens: int) -> str:
    summarizer.asked.append(text)  # type: ignore[attr-defined]  # a function has attributes
    return "gist"


def session() -> BudgetSession:
    summarizer.asked = []  # type: ignore[attr-defined]  # the same
    return BudgetSession(120, counter=WordCounter(), summarizer=summarizer)


def asked() -> list[str]:
    return summarizer.asked  # type: ignore[attr-defined,no-any-return]  # the same


def test_a_summary_survives_a_restart(histories: HistoryStore) -> None:
    """Another process shows the stored summary, and asks only for what came since."""
    thread = histories.thread("t", scope=ANN)
    thread.append(chat(40))
    first = session().fit(thread.conversation())
    assert any("gist" in m["content"] for m in first.messages)
    assert "question 0" in asked()[0]
    stored = thread.conversation().summary
    assert (stored.text, stored.summarized) == ("gist", 81)
    thread.append(chat(60)[81:])
    again = session().fit(thread.conversation())
    assert any("gist" in m["content"] for m in again.messages)
    assert not any("question 0" in text for text in asked())
    assert thread.conversation().summary.summarized == 121


def test_a_summary_replaces_nothing_written_meanwhile(histories: HistoryStore) -> None:
    """Of two turns that summarize at once, the first is kept; the other's is discarded."""
    from dataclasses import replace

    thread = histories.thread("t", scope=ANN)
    thread.append(chat(40))
    early = thread.conversation()
    session().fit(thread.conversation())
    stored = thread.conversation().summary
    assert early.keep(replace(stored, text="late")) is False
    assert thread.conversation().summary == stored
    assert thread.conversation().keep(replace(stored, text="next")) is True
    assert thread.conversation().summary.text == "next"


def test_a_summary_is_void_when_its_messages_change(histories: HistoryStore) -> None:
    """What covers a changed message is gone from the database; what covers others stays."""
    thread = histories.thread("t", scope=ANN)
    messages = chat(40)
    thread.append(messages)
    session().fit(thread.conversation())
    thread.append([said("new")])
    thread.replace([*messages, said("newer")])
    assert thread.conversation().summary.text == "gist"
    thread.replace([messages[0], said("another question"), *messages[2:]])
    assert thread.conversation().summary.text == ""
    session().fit(thread.conversation())
    assert "another question" in asked()[0]
    thread.clear()
    assert thread.conversation().summary.text == ""


@pytest.mark.parametrize("steps", [0, 3])
@draws(cases=2, asynchronous=True)
@given(
    lengths=st.lists(st.integers(0, 40), min_size=20, max_size=20),
    limit=st.sampled_from([120, 300]),
    widest=st.sampled_from([3, 40]),
)
def test_a_session_for_each_request_does_as_one_that_lives(
    steps: int, lengths: list[int], limit: int, widest: int
) -> None:
    """Whatever is said and called, it has the stored summary, asks for another hardly more often, and keeps as much."""
    asked: dict[bool, int] = {}
    kept: dict[bool, int] = {}
    for lives in (True, False):
        store, calls, tokens = HistoryStore(":memory:"), list[str](), list[int]()

        def told(text: str, max_tokens: int) -> str:
            calls.append(text)  # noqa: B023 - called in this round
            return "gist " * 5

        thread, held = store.thread("t", scope=ANN), None
        for number, length in enumerate(lengths):
            words = "word " * min(length, widest)
            parts = [[said(f"question {number} {words}")]]
            for step in range(length % (steps + 1)):
                called = {"id": f"c{number}-{step}", "type": "function", "function": FUNCTION}
                result = said(words, "tool", tool_call_id=called["id"])
                parts.append([said("", "assistant", tool_calls=[called]), result])
            for part in parts:
                thread.append(part)
                if held is None or not lives:
                    held = BudgetSession(limit, counter=WordCounter(), summarizer=told)
                with suppress(BudgetError):
                    tokens.append(held.fit(thread.conversation()).report.total_tokens)
            thread.append([said(f"answer {number} {words}", "assistant")])
        asked[lives], kept[lives] = len(calls), sum(tokens)
        store.close()
    assert asked[False] <= 2 * asked[True]
    assert kept[False] >= 0.95 * kept[True]


FUNCTION = {"name": "look", "arguments": "{}"}


def test_a_stored_summary_says_what_stays(histories: HistoryStore) -> None:
    """A thread that is opened again unchanged looks the same and asks no summarizer; a larger window is filled."""
    thread = histories.thread("t", scope=ANN)
    thread.append(chat(40))
    first = session().fit(thread.conversation()).messages
    assert session().fit(thread.conversation()).messages == first
    assert asked() == []
    larger = BudgetSession(360, counter=WordCounter(), summarizer=summarizer).fit(thread.conversation())
    assert larger.report.total_tokens > 120
    assert set(map(str, first)) <= set(map(str, larger.messages))


@pytest.mark.parametrize("host", ["fit", "langchain"])
def test_a_summarizer_reads_an_old_thread_in_pages(tmp_path: Path, host: str) -> None:
    """It reads from the oldest message on: one query and one write for each would take minutes."""
    store = HistoryStore(tmp_path / "h.db")
    store.thread("t", scope=ANN).append(chat(1_000))
    statements = 0

    @event.listens_for(store.database.engine, "before_cursor_execute")
    def count(*_: Any) -> None:
        nonlocal statements
        statements += 1

    options: dict[str, Any] = {
        "max_tokens": 200,
        "counter": WordCounter(),
        "summarizer": lambda *_, **__: "sum",
    }
    if host == "fit":
        kept = store.thread("t", scope=ANN).fit(**options).messages
    else:
        kept = BudgetMessageHistory(StoredMessageHistory(store, "t", scope=ANN), **options).messages
    assert "sum" in str(kept)
    assert statements < 100
    store.close()
