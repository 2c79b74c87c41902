"""The last N turns: what is older is dropped though it fits, and everything else is as if it had never been said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Assembler, BudgetError, BudgetReport, BudgetSession, TokenBudget, fit_messages
from rankbudget.adapters import drive
from rankbudget.testing import (
    Application,
    ListCounter,
    WordCounter,
    applications,
    check_laws,
    check_refusal,
    check_same,
    snapshot,
)
from rankbudget.testing.repairs import answers, mended
from tests.drawing import draws

COUNTER = WordCounter()
REASON = "older_than_last_turns"
PINNED = ("system", "developer")
SYSTEM = {"role": "system", "content": "Be brief."}


def chat(turns: int) -> list[dict[str, Any]]:
    """Questions and answers with a system message before each third question."""
    made: list[dict[str, Any]] = []
    for n in range(turns):
        made += [SYSTEM] if n % 3 == 0 else []
        made += [{"role": "user", "content": f"why {n}"}, {"role": "assistant", "content": f"because {n}"}]
    return made


def since(messages: list[Any], turns: int) -> int:
    """Where the last turns begin; 0 where there are no more."""
    left = [(i, m) for i, m in enumerate(mended(messages)) if m is not None]
    asked = [i for i, m in left if m["role"] == "user" and not answers(m)]
    return asked[-turns] if len(asked) > turns else 0


def window(messages: list[Any], turns: int) -> list[Any]:
    """The last turns, and what always stays of the older ones."""
    start = since(messages, turns)
    return [m for i, m in enumerate(messages) if i >= start or m["role"] in PINNED]


@pytest.mark.parametrize("counter", [COUNTER, ListCounter()], ids=["adds up", "whole lists only"])
@draws()
@given(applications(max_turns=7, user_results=True), st.integers(1, 4), st.booleans())
def test_older_turns_are_as_if_never_said(
    counter: Any, application: Application, turns: int, ranked: bool
) -> None:
    """With and without a query, and whatever the limit, the same is kept as of the last turns alone."""
    messages, query = application.fresh(), "word 3" if ranked else None
    newest, before = window(messages, turns), snapshot(messages)
    options: dict[str, Any] = {"max_tokens": application.limit(COUNTER), "counter": counter, "query": query}
    try:
        expected = fit_messages(newest, **options)
    except BudgetError as error:
        with pytest.raises(type(error)):
            fit_messages(messages, last_turns=turns, **options)
        return
    made = fit_messages(messages, last_turns=turns, **options)
    check_same(expected.messages, made.messages, what="the last turns")
    assert made.report.total_tokens == expected.report.total_tokens
    assert before == snapshot(messages)
    dropped = [d for d in made.report.decisions if d.reason == REASON]
    assert len(messages) - len(newest) >= len(dropped) >= (1 if since(messages, turns) else 0)
    assert made.report.size == len(messages)


@draws()
@given(applications(max_turns=7, user_results=True), st.integers(1, 4))
def test_a_stable_cut_keeps_the_laws_among_the_last_turns(application: Application, turns: int) -> None:
    """What `cut="stable"` keeps of the last turns is a valid conversation of them, within the limit."""
    messages, limit = application.fresh(), application.limit(COUNTER)
    newest = window(messages, turns)
    try:
        made = fit_messages(messages, max_tokens=limit, counter=COUNTER, cut="stable", last_turns=turns)
    except BudgetError as error:
        check_refusal(newest, error, limit=limit, counter=COUNTER)
        return
    check_laws(newest, made.messages, limit=limit, counter=COUNTER, reported=made.report.total_tokens)


@pytest.mark.parametrize("summarizes", [False, True], ids=["alone", "with a summary"])
@draws()
@given(applications(max_turns=7, user_results=True), st.integers(1, 3), st.integers(1, 3))
def test_a_session_keeps_the_laws_among_the_last_turns(
    summarizes: bool, application: Application, turns: int, step: int
) -> None:
    """Turn by turn, read once or twice, a session's part is a valid conversation of the last turns."""
    messages, limit = application.fresh(), application.limit(COUNTER)
    budget = TokenBudget(context_window=1_000_000, max_system_ratio=None, last_turns=turns)
    summarizer = (lambda text, most: "they said much") if summarizes else None
    session = BudgetSession(budget, counter=COUNTER, summarizer=summarizer)
    for size in range(1, len(messages) + 1, step):
        so_far = messages[:size]
        newest, before = window(so_far, turns), snapshot(so_far)
        try:
            made = session.fit(so_far, limit=limit)
        except BudgetError as error:
            check_refusal(newest, error, limit=limit, counter=COUNTER)
            continue
        check_same(made.messages, session.fit(so_far, limit=limit).messages, what="a second reading")
        assert COUNTER.count_messages(made.messages) == made.report.total_tokens <= limit
        assert before == snapshot(so_far)
        if not summarizes:
            check_laws(newest, made.messages, limit=limit, counter=COUNTER)
        older = {id(m) for m in so_far} - {id(m) for m in newest}
        assert older.isdisjoint(map(id, made.messages))


@pytest.mark.parametrize("turns", [1, 2, 5])
def test_a_session_with_room_keeps_the_last_turns_whole(turns: int) -> None:
    """The window moves with every turn, nothing of it is cut, and a longer or shorter one takes over."""
    thread = chat(12)
    session = BudgetSession(TokenBudget(context_window=4000, last_turns=turns), counter=COUNTER)
    for size in range(1, len(thread) + 1):
        assert session.fit(thread[:size]).messages == window(thread[:size], turns)
    for other in (turns + 3, 100, turns):
        plan = drive(session.plan_steps(session.request(thread, last_turns=other)))
        assert list(plan.history) == window(thread, other)


def test_a_cut_is_dropped_when_the_last_turns_fit_again() -> None:
    """A long turn that has left the last turns does not count against them any more."""
    words = (26, 12, 12, 4)
    thread = [{"role": "user", "content": "word " * size} for size in words]
    budget = TokenBudget(context_window=4000, last_turns=3, min_exchanges=1, message_cap=None)
    session = BudgetSession(budget, counter=COUNTER)
    kept = [len(session.fit(thread[:size], limit=50).messages) for size in range(1, 5)]
    assert kept == [1, 2, 1, 3]


@pytest.mark.parametrize("limit", [110, 120, 130])
def test_a_summary_of_older_turns_leaves_the_last_ones_as_they_are(limit: int) -> None:
    """Where these and half of a summary's share fit, and whatever was shortened in a turn that has left them."""
    words = [300, 40, 20]
    thread = [SYSTEM]
    for n, size in enumerate(words):
        said = {"role": "assistant", "content": f"because {n} " + "word " * size}
        thread += [{"role": "user", "content": f"why {n}"}, said]
    budget = TokenBudget(context_window=4000, last_turns=2)
    session = BudgetSession(budget, counter=COUNTER, summarizer=lambda text, most: "they said much")
    for size in range(2, len(thread) + 1):
        first, second = (session.fit(thread[:size], limit=limit).messages for _ in range(2))
        assert first == second
    summary = next(m for m in first if "they said much" in m["content"])
    assert [m for m in first if m is not summary] == window(thread, 2)


def test_without_older_turns_nothing_is_summarized() -> None:
    """A greeting before the first question belongs to no turn and is dropped for its own reason."""
    thread = [SYSTEM, {"role": "assistant", "content": "Hello!"}, *chat(2)[1:]]
    made = fit_messages(
        thread, max_tokens=4000, counter=COUNTER, last_turns=2, summarizer=lambda text, most: "never"
    )
    assert [m["content"] for m in made.messages] == ["Be brief.", "why 0", "because 0", "why 1", "because 1"]
    assert {d.reason for d in made.report.decisions} == {"pinned", "leading_assistant", "fits"}


def test_an_older_turn_says_why_it_went() -> None:
    """Its reason is its own, more tokens do not bring it back, and what was cut for room has another reason."""
    made = fit_messages(chat(9), max_tokens=45, counter=COUNTER, last_turns=3, min_exchanges=1)
    reasons = {d.segment_id: d.reason for d in made.report.decisions}
    assert [reasons[f"history-{i}"] for i in (0, 1, 13, 14, 15, 16, 20)] == [
        *("pinned", REASON, REASON, "pinned", "older_than_cut", "older_than_cut", "fits"),
    ]
    assert made.report.more_tokens("history-1") == 0
    assert made.report.more_tokens("history-15")
    assert "no budget would bring it back" in made.report.explain("history-1")
    assert made.report == BudgetReport.from_dict(made.report.to_dict())


def test_the_question_is_one_of_the_turns_wherever_it_is() -> None:
    """At the end of the history or beside it: the same older turns stay."""
    thread, budget = chat(6)[1:], TokenBudget(last_turns=2)
    within = Assembler(budget).assemble({"history": [*thread, {"role": "user", "content": "so?"}]})
    beside = Assembler(budget).assemble({"history": thread}, query="so?")
    assert [m["content"] for m in within.messages] == ["Be brief.", "why 5", "because 5", "so?"]
    assert within.messages == beside.messages
    session = BudgetSession(budget)
    assert list(session.fit(thread, question="so?").messages) == list(within.messages)[:-1]
    alone = Assembler(budget.replace(last_turns=1)).assemble({"history": thread}, query="so?")
    assert [m["content"] for m in alone.messages] == ["Be brief.", "so?"]


def test_older_turns_go_into_the_summary() -> None:
    """Each older turn is summarized once, the last turns stay whole, and the summary has a decision."""
    told: list[str] = []

    def write(text: str, most: int) -> str:
        told.append(text)
        return f"summary {len(told)}"

    budget = TokenBudget(context_window=4000, last_turns=2)
    session = BudgetSession(budget, counter=COUNTER, summarizer=write)
    thread = [m for m in chat(5) if m is not SYSTEM]
    for size in (4, 6, 8):
        made = session.fit(thread[:size])
        assert made.messages[-4:] == thread[size - 4 : size]
    assert len(told) == 2
    assert "why 0" in told[0]
    assert "why 1" in told[1]
    assert not any(f"why {n}" in text for n in (2, 3) for text in told)
    assert "summary 2" in made.messages[0]["content"]
    once = fit_messages(thread, max_tokens=4000, counter=COUNTER, last_turns=2, summarizer=write)
    assert once.report.decisions[0].action == "summarized"
    assert once.messages[1:] == thread[-4:]


@pytest.mark.parametrize("turns", [0, -1, 2.5, "3", True])
def test_a_number_of_turns_that_is_none_is_refused(turns: Any) -> None:
    """The option is named with what it allows, in a call and in a budget."""
    words = r"last_turns must be a whole number from 1, or None to keep as many as fit \(got "
    with pytest.raises(BudgetError, match=words):
        fit_messages(chat(1), max_tokens=100, last_turns=turns)
    with pytest.raises(BudgetError, match=words):
        TokenBudget(last_turns=turns)
