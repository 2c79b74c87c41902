"""A summary of what went: it has a decision of its own, and a summarizer that hangs costs its time and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import subprocess
import sys
import threading
from typing import Any

import pytest

from rankbudget import (
    Assembler,
    Block,
    BudgetConfigError,
    BudgetReport,
    BudgetSession,
    TokenBudget,
    afit_messages,
    fit_messages,
)
from rankbudget.segment import Decision
from rankbudget.testing import WordCounter

COUNTER = WordCounter()
ROLES = ("user", "assistant")
CHAT = [{"role": ROLES[i % 2], "content": f"we decided on option {i} for this"} for i in range(60)]
SYSTEM = {"role": "system", "content": "Be brief."}


def write(text: str, max_tokens: int) -> str:
    return "They decided options."


def summaries(report: BudgetReport) -> list[Decision]:
    """Returns the decisions on summaries, after checking that all decisions add up to the prompt."""
    assert sum(d.after for d in report.decisions) + report.overhead == report.total_tokens
    return [d for d in report.decisions if d.action == "summarized"]


# ---- its decision -------------------------------------------------------------------------------------------------------------------
def test_a_summary_has_a_decision_and_decisions_add_up() -> None:
    """It says for how many messages it stands and what it costs where it stands; what it was written from is counted once, as dropped."""
    result = fit_messages(CHAT, max_tokens=200, summarizer=write)
    report = result.report
    (summary,) = summaries(report)
    kept = len(result.messages) - 1
    assert (summary.segment_id, summary.block, summary.reason, summary.before) == (
        "history-summary",
        "history",
        "summary_of_dropped",
        0,
    )
    assert summary.detail == f"It replaces {60 - kept} dropped messages."
    alone = fit_messages([result.messages[0]], max_tokens=200).report
    assert summary.after == alone.total_tokens - alone.overhead
    assert (
        sum(d.before for d in report.decisions)
        == fit_messages(CHAT, max_tokens=10_000).report.block("history").used
    )
    assert (
        report.block("history").kept,
        report.block("history").shortened,
        report.block("history").dropped,
    ) == (kept, 1, 60 - kept)
    assert report.explain("history-summary").endswith(f"It replaces {60 - kept} dropped messages.")
    assert report.size == len(report.decisions) == 61


def test_kept_ids_follow_the_prompt() -> None:
    """The summary stands after the leading system message, in the prompt and in the report."""
    chat = [{**SYSTEM, "id": "s"}, *({**m, "id": f"m{i}"} for i, m in enumerate(CHAT))]
    result = fit_messages(chat, max_tokens=200, summarizer=write)
    summaries(result.report)
    assert result.report.kept_ids() == tuple(m.get("id", "history-summary") for m in result.messages)
    first = result.report.decisions[0]
    assert (first.segment_id, first.reason) == ("s", "pinned")


def test_a_session_counts_all_that_its_summary_represents() -> None:
    """Turn after turn, the one summary represents all messages that are not there any more."""
    session = BudgetSession(200, summarizer=write)
    for turns in (20, 40, 60):
        result = session.fit(CHAT[:turns])
        (summary,) = summaries(result.report)
        assert summary.detail == f"It replaces {turns - len(result.messages) + 1} dropped messages."


def test_a_summary_in_an_assembled_prompt_has_a_decision() -> None:
    """The assembler's report adds up, too."""
    budget = TokenBudget(context_window=600)
    made = Assembler(budget, summarizer=write).assemble(
        [Block(name="history", messages=CHAT)], query="Which option?"
    )
    (summary,) = summaries(made.report)
    assert summary.segment_id == "history-summary"


@pytest.mark.parametrize("summarizer", [None, lambda text, max_tokens: ""], ids=["none", "answers nothing"])
def test_without_a_summary_there_is_no_decision_on_one(summarizer: Any) -> None:
    """Nothing was inserted, nothing is reported."""
    assert summaries(fit_messages(CHAT, max_tokens=200, summarizer=summarizer).report) == []


def test_a_failed_summary_is_told_each_time_the_turn_is_read() -> None:
    """It is asked once; whoever reads the turn again is told as well that what was dropped is in no summary."""
    calls: list[int] = []

    def fails(text: str, max_tokens: int) -> str:
        calls.append(1)
        raise ConnectionError

    session = BudgetSession(200, summarizer=fails)
    for size in (40, 60):
        for _ in range(3):
            report = session.fit(CHAT[:size]).report
            assert [w for w in report.warnings if w.startswith("summary_failed")]
    assert len(calls) == 2


# ---- one that hangs -----------------------------------------------------------------------------------------------------------------
class Hangs:
    """A summarizer that waits until it is released."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.answered = False

    def __call__(self, text: str, max_tokens: int) -> str:
        self.release.wait(30)
        self.answered = True
        return "late"


@pytest.fixture
def hangs() -> Any:
    summarizer = Hangs()
    yield summarizer
    summarizer.release.set()


def check_left_behind(result: Any) -> None:
    assert [
        w for w in result.report.warnings if "summary_failed" in w and "must answer within 0.05 seconds" in w
    ]
    assert result.messages == fit_messages(CHAT, max_tokens=200, counter=COUNTER).messages


def test_a_blocking_summarizer_that_hangs_is_left_behind(hangs: Hangs) -> None:
    """After its time the conversation is what it is without a summarizer, and a warning says why."""
    check_left_behind(
        fit_messages(CHAT, max_tokens=200, counter=COUNTER, summarizer=hangs, summary_timeout=0.05)
    )
    assert not hangs.answered


def test_a_blocking_summarizer_that_hangs_is_left_behind_by_the_async_form(hangs: Hangs) -> None:
    """Neither the call nor the end of the event loop waits for its thread."""
    check_left_behind(
        asyncio.run(
            afit_messages(CHAT, max_tokens=200, counter=COUNTER, summarizer=hangs, summary_timeout=0.05)
        )
    )
    assert not hangs.answered


async def test_an_async_summarizer_that_ignores_its_cancellation_is_left_behind() -> None:
    """One that swallows the cancellation is not waited for."""
    release, answered = asyncio.Event(), asyncio.Event()

    async def stubborn(text: str, max_tokens: int) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(30)
        await asyncio.wait_for(release.wait(), 30)
        answered.set()
        return "late"

    check_left_behind(
        await afit_messages(CHAT, max_tokens=200, counter=COUNTER, summarizer=stubborn, summary_timeout=0.05)
    )
    assert not answered.is_set()
    release.set()
    await asyncio.sleep(0.01)


def test_a_process_ends_while_a_summarizer_hangs() -> None:
    """A thread that never returns keeps no interpreter alive, whichever form was called."""
    script = """
import asyncio, time
from rankbudget import afit_messages, fit_messages
from rankbudget.testing import WordCounter
chat = [{"role": "user", "content": "we decided this " * 5}] * 60
options = {"max_tokens": 200, "counter": WordCounter(), "summarizer": lambda text, most: time.sleep(120), "summary_timeout": 0.05}
made = [fit_messages(chat, **options), asyncio.run(afit_messages(chat, **options))]
print([any("summary_failed" in warning for warning in each.report.warnings) for each in made])
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout.strip() == "[True, True]"


def test_a_session_stays_as_it_was_when_its_summarizer_hangs(hangs: Hangs) -> None:
    """The turn goes on; the summary so far is still there, and once the summarizer answers again it says what went in the meantime."""
    seen: list[str] = []

    def flaky(text: str, max_tokens: int) -> str:
        seen.append(text)
        return hangs(text, max_tokens) if len(seen) == 2 else f"summary {len(seen)}"

    session = BudgetSession(200, counter=COUNTER, summarizer=flaky, summary_timeout=0.2)
    session.fit(CHAT[:30])
    assert session.summary == "summary 1"
    turn = 30
    while len(seen) < 2:
        turn += 2
        result = session.fit(CHAT[:turn])
    assert any("summary_failed" in w for w in result.report.warnings)
    assert session.summary == "summary 1"
    while len(seen) < 3:
        turn += 2
        session.fit(CHAT[:turn])
    assert session.summary == "summary 3"
    went = [m["content"] for m in CHAT[:turn] if m not in session.fit(CHAT[:turn]).messages]
    assert all(any(text in given for given in (seen[0], seen[2])) for text in went)


def test_a_timeout_of_the_summarizers_own_is_told_as_its_own() -> None:
    """A client that gives up by itself did not run out of our time."""

    def gives_up(text: str, max_tokens: int) -> str:
        msg = "server gone"
        raise TimeoutError(msg)

    result = fit_messages(CHAT, max_tokens=200, counter=COUNTER, summarizer=gives_up)
    assert any("failed: TimeoutError: server gone" in warning for warning in result.report.warnings)


def test_a_summarizer_sees_the_context_of_its_caller() -> None:
    """Tracing and settings that live in context variables reach it, although it runs in a thread of its own."""
    user = contextvars.ContextVar("user", default="nobody")
    user.set("ann")
    result = fit_messages(
        CHAT, max_tokens=200, counter=COUNTER, summarizer=lambda text, max_tokens: f"for {user.get()}"
    )
    assert "for ann" in result.messages[0]["content"]


def test_without_a_timeout_the_summarizer_runs_in_the_callers_thread() -> None:
    """None waits for ever, and for what is bound to one thread."""
    threads: list[Any] = []

    def noted(text: str, max_tokens: int) -> str:
        threads.append(threading.current_thread())
        return "said"

    fit_messages(CHAT, max_tokens=200, counter=COUNTER, summarizer=noted, summary_timeout=None)
    fit_messages(CHAT, max_tokens=200, counter=COUNTER, summarizer=noted)
    assert threads[0] is threading.current_thread()
    assert threads[1].daemon


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "60", True])
def test_a_timeout_that_is_none_is_refused(seconds: Any) -> None:
    """Told by its name, before anybody is asked."""
    with pytest.raises(BudgetConfigError, match=r"summary_timeout must be seconds above 0, or None"):
        fit_messages(CHAT, max_tokens=200, counter=COUNTER, summarizer=write, summary_timeout=seconds)
    with pytest.raises(BudgetConfigError, match=r"summary_timeout must be seconds above 0, or None"):
        BudgetSession(200, counter=COUNTER, summarizer=write, summary_timeout=seconds)
