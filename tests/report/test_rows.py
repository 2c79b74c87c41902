"""One model of the numbers: every view shows rows that add up to the window."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Assembler, BlockTotal, BudgetReport, Decision, TokenBudget, fit_messages, ratio_changes
from rankbudget.errors import counted
from rankbudget.report.bar import cell_html, part_of
from rankbudget.report.reasons import MEANINGS
from rankbudget.report.rows import rows_of, wanted_by
from rankbudget.report.terminal import shared_out
from rankbudget.segment import Action
from rankbudget.testing import WordCounter
from tests.drawing import draws
from tests.report.made import drawn_by_hand, drawn_results


def check(report: BudgetReport) -> None:
    """The rows are the window, agree with the blocks and the total, and have no negative figure."""
    rows = rows_of(report)
    whole = report.limit if report.window is None else report.window
    assert sum(row.used for row in rows) == whole
    assert all(row.used >= 0 for row in rows)
    apart = ("free", "limit", "safety", "reserve")
    assert sum(row.used for row in rows if row.is_block or row.name not in apart) == report.total_tokens
    for row, block in zip(rows, report.blocks, strict=False):
        assert (row.name, row.used, row.granted) == (block.name, block.used, block.granted)
        assert (row.kept, row.shortened, row.dropped) == (block.kept, block.shortened, block.dropped)


@draws()
@given(drawn_by_hand())
def test_the_rows_of_any_report_add_up_to_its_window(report):
    """Whatever a report holds, its rows are the window, or the limit where no window is known."""
    check(report)


@draws()
@given(drawn_results())
def test_the_rows_of_a_fitted_prompt_add_up_to_its_window(made):
    """So they do for what the library makes, and what it wanted is no less than what it got."""
    result, _ = made
    check(result.report)
    for row in rows_of(result.report):
        assert row.wanted is None or row.wanted >= row.used
    dropped = [one for one in result.report.decisions if one.action != "kept" and one.before > one.after]
    if not dropped:
        assert wanted_by(rows_of(result.report)) == result.report.total_tokens


def test_rows_stand_in_the_order_of_the_prompt_and_what_is_no_prompt_is_last():
    """System first, question last of the blocks, then framing, free, the smaller limit, safety and reserve."""
    budget = TokenBudget(context_window=300, reserve=100, safety=20)
    blocks = {
        "system": "Be brief.",
        "history": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}],
        "memory": ["likes tea"],
        "rules": ["no jokes"],
    }
    made = Assembler(budget, counter=WordCounter()).assemble(blocks, query="which tea?")
    rows = rows_of(made.report)
    assert [row.name for row in rows if row.is_block] == ["system", "history", "memory", "rules", "query"]
    assert [row.title for row in rows][-5:] == ["question", "tools and framing", "free", "safety", "reserve"]
    assert len({row.hue for row in rows}) == len(rows)


def test_what_a_smaller_limit_leaves_free_is_a_row_of_its_own():
    """A window of 100 with a limit of 60 for the prompt has 40 above max_tokens."""
    report = BudgetReport(limit=60, total_tokens=0, window=100)
    assert [(row.title, row.used) for row in rows_of(report)] == [("free", 60), ("above max_tokens", 40)]


def test_what_no_budget_brings_back_is_not_wanted():
    """An orphan result is not among the tokens that the history wanted."""
    chat = [
        {"role": "user", "content": "one two"},
        {"role": "tool", "tool_call_id": "c9", "content": "a result of six words alone"},
        {"role": "user", "content": "three"},
    ]
    report = fit_messages(chat, max_tokens=100, counter=WordCounter()).report
    [orphan] = [one for one in report.decisions if one.reason == "orphan_result"]
    [history] = [row for row in rows_of(report) if row.name == "history"]
    assert orphan.before > 0
    assert (history.wanted, history.dropped) == (history.used, 1)


def test_a_block_without_decisions_wanted_what_it_says_or_uses():
    """A report of figures alone has the wanted tokens of its blocks."""
    blocks = [
        BlockTotal(name="a", rank=1, granted=5, used=3, wanted=8),
        BlockTotal(name="b", rank=2, granted=5, used=4),
    ]
    rows = rows_of(BudgetReport(limit=10, total_tokens=7, blocks=blocks))
    assert [row.wanted for row in rows] == [8, 4, None]


@draws()
@given(drawn_by_hand(), st.integers(0, 300))
def test_cells_are_shared_out_without_a_rest(report, cells):
    """The cells of all rows are the cells there are; with enough of them each row that uses tokens has one."""
    rows = rows_of(report)
    shares = shared_out(rows, cells)
    assert sum(shares) == (cells if any(row.used for row in rows) else 0)
    if cells >= len(rows):
        assert all(bool(share) == bool(row.used) for row, share in zip(rows, shares, strict=True))


@pytest.mark.parametrize(
    ("tokens", "whole", "shown"),
    [(1, 1_000, "<1%"), (5, 1_000, "<1%"), (0, 9, "0%"), (5, 9, "56%"), (1, 0, "")],
)
def test_a_share_says_when_it_is_small(tokens, whole, shown):
    """Up to half a percent a share is "<1%"; of nothing there is none."""
    assert part_of(tokens, whole) == shown


def test_every_reason_has_the_meaning_that_the_glossary_gives():
    """The page explains a reason in the words of docs/glossary.md, and knows all of them."""
    import re
    from pathlib import Path

    page = (Path(__file__).resolve().parents[2] / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| [\w, ]+ \| (.+) \|$", page, flags=re.MULTILINE)
    assert {reason: text.replace("`", "") for reason, text in rows} == MEANINGS


def test_every_figure_and_action_is_a_word_of_the_glossary():
    """What a report has as data is explained: its figures, those of a block, what may become of a piece."""
    import re
    from pathlib import Path
    from typing import get_args

    page = (Path(__file__).resolve().parents[2] / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = {
        word
        for row in re.findall(r"^\| (\*\*.+?) \|", page, flags=re.MULTILINE)
        for word in re.findall(r"\w+", row)
    }
    report = BudgetReport(
        limit=5, total_tokens=0, blocks=[BlockTotal(name="a", rank=1, granted=None, used=0)], parts=[]
    )
    block = report.to_dict()["blocks"][0]
    assert set(block) - {"name", "kept"} <= words
    told = re.search(r"The `action` of a decision is (.+);", page)
    assert set(re.findall(r"`(\w+)`", told[1])) == set(get_args(Action))
    used = re.findall(r"^\| `\w+` \| ([\w, ]+) \| .+ \|$", page, flags=re.MULTILINE)
    assert {action for row in used for action in row.split(", ")} == set(get_args(Action))


def test_decisions_of_one_piece_twice_are_counted_twice():
    """Ids may repeat across blocks; each block wants its own."""
    parts = [
        Decision(segment_id="x", block=name, action="kept", reason="fits", before=n, after=n)
        for name, n in (("a", 2), ("b", 3))
    ]
    blocks = [BlockTotal(name=n, rank=1, granted=None, used=u) for n, u in (("a", 2), ("b", 3))]
    report = BudgetReport(limit=5, total_tokens=5, blocks=blocks, parts=parts)
    assert [row.wanted for row in rows_of(report)] == [2, 3]


NOUNS = "token|piece|segment|message|decision|block|report|prompt|sentence|line|item|key|row"
ONE_OF_MANY = re.compile(rf"(?<![\d.,])1 (more |older |dropped )?({NOUNS})s\b")


@draws()
@given(drawn_results())
def test_one_is_no_plural(made) -> None:
    """Whatever a report says of one token, one piece or one block, it says in the singular."""
    report = made[0].report
    usage = "\n".join(change.why for change in ratio_changes(TokenBudget(), [report]))
    said = [report.table(), repr(report), cell_html(report), usage, *report.warnings]
    said += [report.explain(one.segment_id, one.block) for one in report.decisions]
    assert ONE_OF_MANY.findall("\n".join(said)) == []


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 pieces"), (1, "1 piece"), (2, "2 pieces"), (2000, "2,000 pieces")]
)
def test_a_number_has_its_noun(number: int, said: str) -> None:
    """One is singular; thousands are separated."""
    assert counted(number, "piece") == said
