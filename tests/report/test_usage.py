"""Sums over many reports, the text of one, and ratios that follow what blocks needed."""

from __future__ import annotations

import logging
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import (
    Assembler,
    BlockTotal,
    BudgetConfigError,
    BudgetReport,
    TokenBudget,
    adapt_ratios,
    debug_context,
    fit_messages,
    ratio_changes,
    usage_of,
)
from rankbudget.report.words import HOLDS_AT_ANY_SIZE
from rankbudget.testing import WordCounter
from tests.drawing import draws

BUDGET = TokenBudget(
    context_window=1000,
    reserve=100,
    ratios={"memory": 0.3, "history": 0.4, "knowledge": 0.2},
    max_system_ratio=None,
)
CHAT = [
    {"role": role, "content": f"{role} {n} " + "word " * 9}
    for n in range(60)
    for role in ("user", "assistant")
]


def turn(
    memories: int, messages: int, documents: int, budget: TokenBudget = BUDGET, **more: Any
) -> BudgetReport:
    """The report of a prompt with so many pieces of about twelve tokens each."""
    blocks = {
        "memory": [f"memory {n} " + "word " * 9 for n in range(memories)],
        "history": CHAT[-2 * messages :] if messages else [],
        "knowledge": [f"document {n} " + "word " * 9 for n in range(documents)],
    }
    return Assembler(budget, counter=WordCounter()).assemble({**blocks, **more}, query="Which word?").report


# ---- sums -------------------------------------------------------------------------------------------------------------------------
@draws()
@given(st.lists(st.tuples(*[st.integers(0, 60)] * 3), min_size=1, max_size=4))
def test_usage_is_the_sum_of_the_reports(turns: list[tuple[int, int, int]]) -> None:
    """Used, granted, dropped and exhausted are those of the decisions, of reports, what has them, or plain data."""
    reports = [turn(*sizes) for sizes in turns]
    usage = usage_of(reports)
    assert usage == usage_of(SimpleNamespace(report=report) for report in reports)
    assert usage == usage_of(report.to_dict() for report in reports)
    for name, block in usage.items():
        own = [[d for d in report.decisions if d.block == name] for report in reports]
        totals = [report.block(name) for report in reports]
        assert block.reports == len(reports)
        assert block.used == sum(t.used for t in totals)
        assert block.granted == sum(t.granted or 0 for t in totals)
        assert block.dropped == sum(d.action == "trimmed" for ds in own for d in ds)
        wanting = [d.action == "trimmed" and d.reason not in HOLDS_AT_ANY_SIZE for ds in own for d in ds]
        assert bool(block.exhausted) == any(wanting)
        assert block.wanted is not None
        assert block.wanted >= block.used
    figures = usage_of(report.to_dict(decisions=False) for report in reports)
    for name, block in usage.items():
        assert (figures[name].exhausted, figures[name].used) == (block.exhausted, block.used)
        assert figures[name].wanted in ((None, block.wanted) if block.exhausted else (block.wanted,))


def test_only_a_lack_of_room_exhausts_a_block() -> None:
    """What no budget would bring back counts as dropped, not as dropped for want of room."""
    broken = [{"role": "tool", "tool_call_id": "gone", "content": "9"}, {"role": "user", "content": "why?"}]
    (history,) = usage_of([fit_messages(broken, max_tokens=100).report]).values()
    assert (history.dropped, history.cut, history.exhausted, history.exhaustion) == (1, 1, 0, 0.0)
    window = fit_messages(CHAT, max_tokens=9000, last_turns=3).report
    assert (window.block("history").dropped, window.block("history").dropped_for_room) == (114, 0)
    (history,) = usage_of([window, fit_messages(CHAT, max_tokens=99).report]).values()
    assert history.exhaustion == 0.5


@pytest.mark.parametrize("given", [5, None, "report", [], {"limit": 5}], ids=repr)
def test_what_is_no_report_is_refused(given: Any) -> None:
    """In sums and as a text alike."""
    with pytest.raises(BudgetConfigError, match="must be a"):
        usage_of([given])
    with pytest.raises(BudgetConfigError, match="must be a"):
        debug_context(given)


def test_the_debug_text_is_the_table_of_the_report() -> None:
    """Of a report, of a result and of an assembly; warnings included."""
    made = Assembler(BUDGET).assemble({"history": CHAT, "knowledge": []}, query="Which?")
    assert debug_context(made) == debug_context(made.report) == made.report.table()
    assert "history" in debug_context(made)
    assert "warning: knowledge is empty: retrieval may have failed" in debug_context(made)
    fitted = fit_messages(CHAT, max_tokens=60)
    assert "warning: history was cut to" in debug_context(fitted)


# ---- ratios -----------------------------------------------------------------------------------------------------------------------
SIZES = st.lists(st.tuples(*[st.integers(0, 60)] * 3), min_size=1, max_size=3)


@draws()
@given(SIZES, st.sampled_from((0.02, 0.1, 1)), st.sampled_from((0, 0.05, 0.25)), st.booleans())
def test_ratios_stay_within_their_bounds(
    turns: list[tuple[int, int, int]], most: float, least: float, plain: bool
) -> None:
    """Each moves by at most one step and not below the least, the sum stays, and every change has its reason."""
    reports = [turn(*sizes) for sizes in turns]
    given: Any = [report.to_dict(decisions=False) for report in reports] if plain else reports
    changes = ratio_changes(BUDGET, given, most=most, least=least)
    adapted = adapt_ratios(BUDGET, given, most=most, least=least)
    assert adapted == adapt_ratios(BUDGET, given, most=most, least=least)
    assert sum(adapted.ratios.values()) == pytest.approx(sum(BUDGET.ratios.values()))
    assert adapted.replace(ratios=BUDGET.ratios) == BUDGET
    for name, after in adapted.ratios.items():
        before = BUDGET.ratios[name]
        assert abs(after - before) <= most + 1e-9
        assert after >= min(before, least) - 1e-9
    usage = usage_of(reports)
    for change in changes:
        assert change.after == adapted.ratios[change.block] != change.before
        assert change.why.startswith(
            f"ratio of {change.block}: {change.before:g} -> {change.after:g}. It needed"
        )
        assert change.after < change.before or usage[change.block].exhausted
    if not any(block.exhausted for block in usage.values()):
        assert changes == ()
        assert adapted is BUDGET


def test_steps_lead_to_ratios_that_fit_and_stay_there() -> None:
    """Turns with few memories and a long history: step by step the history drops less, until nothing moves any more."""
    budget, dropped = BUDGET, list[int]()
    for _ in range(20):
        report = turn(2, 55, 8, budget)
        dropped.append(report.block("history").dropped)
        adapted = adapt_ratios(budget, [report], most=0.05)
        if adapted is budget:
            break
        budget = adapted
    assert 3 < len(dropped) < 20
    assert all(after <= before for before, after in pairwise(dropped))
    assert dropped[-1] < dropped[0] - 10
    assert budget.ratios["memory"] >= 0.05


def test_blocks_without_a_ratio_need_that_of_memory() -> None:
    """Documents and a project draw from the memory's share, so what they lack raises its ratio; sizes and pins are apart."""
    budget = TokenBudget(
        context_window=1000, reserve=100, sizes={"task": 50}, ratios={"memory": 0.2, "history": 0.7}
    )
    report = turn(0, 5, 60, budget, system="Be brief.", task=["Sort."], project=["We use tabs."])
    (taker,) = [c for c in ratio_changes(budget, [report]) if c.after > c.before]
    (giver,) = [c for c in ratio_changes(budget, [report]) if c.after < c.before]
    assert (taker.block, giver.block) == ("memory", "history")
    assert "pieces had no room in 1 of 1 prompt." in taker.why
    assert "pieces had no room in 0 of 1 prompt." in giver.why


def test_an_adapted_budget_says_why(caplog: pytest.LogCaptureFixture) -> None:
    """The log has a sentence for each ratio that moved, and a report can carry them."""
    report = turn(2, 55, 8)
    with caplog.at_level(logging.INFO, "rankbudget.report"):
        adapt_ratios(BUDGET, [report])
    why = [change.why for change in ratio_changes(BUDGET, [report])]
    assert caplog.messages == why
    assert len(why) >= 2
    assert report.noting(*why).warnings[: len(why)] == tuple(why)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"most": 0}, "most must be"), ({"most": 2}, "most must be"), ({"least": -1}, "least must be")],
)
def test_bounds_that_are_none_are_refused(options: dict[str, Any], words: str) -> None:
    """Each by its name."""
    with pytest.raises(BudgetConfigError, match=words):
        adapt_ratios(BUDGET, [], **options)


def test_without_anything_to_learn_the_budget_comes_back() -> None:
    """No reports, no ratios, nothing lacking, and no room at all."""
    assert adapt_ratios(BUDGET, []) is BUDGET
    sizes = TokenBudget.five_blocks("gpt-4")
    assert adapt_ratios(sizes, [turn(50, 50, 50, sizes)]) is sizes
    assert adapt_ratios(BUDGET, [turn(1, 1, 1)]) is BUDGET
    full = BudgetReport(
        limit=10, total_tokens=10, overhead=10, blocks=[BlockTotal(name="history", rank=5, granted=0, used=0)]
    )
    assert adapt_ratios(BUDGET, [full]) is BUDGET
