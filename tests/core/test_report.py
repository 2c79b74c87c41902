"""BudgetReport: lazy, immutable, readable, escaped."""

from __future__ import annotations

import json
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget.budget.token_budget import TokenBudget
from rankbudget.errors import BudgetError
from rankbudget.prompt.assembler import Assembler
from rankbudget.prompt.session import BudgetSession
from rankbudget.report.report import BudgetReport
from rankbudget.report.totals import BlockTotal
from rankbudget.report.words import warnings_for
from rankbudget.segment import Decision, DecisionRange
from tests.drawing import draws


def decision(segment_id, action="kept", block="history", before=10, after=10, reason="fits", **more):
    return Decision(
        segment_id=segment_id, block=block, action=action, reason=reason, before=before, after=after, **more
    )


def dropped(segment_id, before=10, block="history", reason="no_room", **more):
    return decision(segment_id, "trimmed", block, before, 0, reason, **more)


class Range:
    """A range of dropped messages that counts how often somebody looks."""

    def __init__(self, size):
        self.looks = 0
        self.part = DecisionRange(
            block="history", action="trimmed", reason="older_than_cut", size=size, expand=self._expand
        )
        self._size = size

    def _expand(self):
        self.looks += 1
        return (dropped(f"m{i}", reason="older_than_cut") for i in range(self._size))


def report(**fields):
    plain = {
        "limit": 1_000,
        "total_tokens": 503,
        "window": 2_000,
        "reserve": 900,
        "safety": 100,
        "overhead": 3,
        "blocks": [
            BlockTotal(name="history", rank=5, granted=600, used=400),
            BlockTotal(name="knowledge", rank=7, granted=100, used=100),
        ],
        "parts": [
            dropped("m0", 250, reason="older_than_cut"),
            dropped("m1", 150, reason="older_than_cut"),
            decision("m2", before=400, after=400),
            decision(
                "d0", "truncated", "knowledge", 300, 100, "partial", detail="Cut after 4 of 9 sentences."
            ),
            dropped("d1", 80, "knowledge"),
        ],
    }
    return BudgetReport(**{**plain, **fields})


def test_a_range_of_ten_thousand_costs_nothing_until_somebody_looks():
    """Making, sizing, printing and the block counts expand nothing; the decisions expand once."""
    old = Range(10_000)
    made = report(parts=[old.part, decision("m10000")])
    assert (made.size, made.block("history").dropped, made.block("history").kept) == (10_001, 10_000, 1)
    assert "10,000" not in repr(made)
    assert "10,000" in made.table()
    assert old.looks == 0
    assert [d.segment_id for d in made.decisions[:2]] == ["m0", "m1"]
    assert len(made.decisions) == 10_001
    assert old.looks == 1


def test_warnings_may_be_made_when_somebody_looks():
    """A function is called once, on the first look."""
    calls = []
    made = report(warnings=lambda: calls.append(1) or ["look out"])
    assert not calls
    assert made.warnings == made.warnings
    assert made.warnings[0] == "look out"
    assert calls == [1]


def test_totals_count_kept_shortened_and_dropped():
    """Each action is counted for its own block."""
    history, knowledge = report().blocks
    assert (history.kept, history.shortened, history.dropped) == (1, 0, 2)
    assert (knowledge.kept, knowledge.shortened, knowledge.dropped) == (0, 1, 1)


def test_utilization_is_a_share_of_the_grant():
    """400 of 600 is two thirds; without a grant there is no share."""
    assert report().block("history").utilization == pytest.approx(2 / 3)
    assert BlockTotal(name="x", rank=1, granted=None, used=5).utilization is None
    assert BlockTotal(name="x", rank=1, granted=0, used=0).utilization == 0


def test_the_table_is_aligned_and_complete():
    """Every block, the overhead, the total and the make-up of the window have a line."""
    assert (
        report(warnings=["history is short"], counter="o200k_base", exact=False, covers="history").table()
        == """\
block      rank  granted  used  usage  kept  shortened  dropped
history       5      600   400    67%     1          0        2
knowledge     7      100   100   100%     0          1        1
overhead                     3
total              1,000   503    50%     1          1        3
window 2,000 = 1,000 for the prompt + 900 reserve + 100 safety
counted with o200k_base (estimated)
covers the history only
warning: history is short
warning: dropped 3 of 5 segments: history 2 of 3, knowledge 1 of 2"""
    )


def test_a_report_is_plain_data():
    """JSON carries all of it, and the way back gives an equal report."""
    made = report(warnings=["history is short"], counter="o200k_base", model="gpt-4o")
    data = json.loads(made.to_json())
    assert data == made.to_dict()
    assert [d["segment_id"] for d in data["decisions"]] == ["m0", "m1", "m2", "d0", "d1"]
    assert data["blocks"][0]["dropped"] == 2
    assert BudgetReport.from_dict(data) == made
    assert BudgetReport.from_dict(data) != report()


@pytest.mark.parametrize("covers", ["history", "documents", "examples", "blocks"])
def test_a_report_of_a_part_says_so_in_every_form(covers):
    """The table, the page and the plain data name what the report covers; otherwise it is the whole prompt."""
    made = report(covers=covers)
    assert f"covers the {covers} only" in made.table()
    assert f"covers the {covers} only" in made.to_html()
    assert BudgetReport.from_dict(made.to_dict()).covers == made.to_dict()["covers"] == covers
    assert "covers the whole prompt" in report().to_html()


def test_a_report_with_ranges_survives_pickle():
    """Ranges travel spelled out."""
    made = report(parts=[Range(3).part])
    assert pickle.loads(pickle.dumps(made)) == made


def test_a_report_never_changes():
    """Attributes can be neither set nor deleted."""
    made = report()
    with pytest.raises(AttributeError, match="limit"):
        made.limit = 5
    with pytest.raises(AttributeError, match="limit"):
        del made.limit


def test_kept_ids_name_what_is_in_the_prompt():
    """Whole and shortened segments are in the prompt, dropped ones are not."""
    assert report().kept_ids() == ("m2", "d0")
    assert report().kept_ids("knowledge") == ("d0",)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (None, "uses 100."),
        (0, "uses 100; no budget would bring it back."),
        (1_080, "uses 100. 1,080 more tokens for the prompt would bring it back."),
    ],
)
def test_explain_says_what_would_bring_a_document_back(more, told):
    """The plan that made the report says how many more tokens; a report that was read has no number."""
    asked = []
    made = report(needs=lambda report: lambda *piece: asked.append(piece) or more)
    said = "d1 (knowledge) was dropped: no_room. It has 80 tokens; the block was granted 100 and "
    assert made.explain("d1") == said + told
    assert asked == [("knowledge", "d1")]
    assert BudgetReport.from_dict(made.to_dict()).explain("d1") == said + "uses 100."


def test_explain_says_when_no_budget_helps():
    """An orphan tool result is dropped at any size."""
    made = report(parts=[dropped("t1", 40, reason="orphan_result", detail="No call asked for it.")])
    assert (
        made.explain("t1")
        == "t1 (history) was dropped: orphan_result. It has 40 tokens; no budget would bring it back. No call asked for it."
    )


def test_explain_says_how_a_text_was_shortened_or_kept():
    """Shortened and kept pieces are explained with their figures."""
    assert (
        report().explain("d0")
        == "d0 (knowledge) was truncated: partial, from 300 to 100 tokens. Cut after 4 of 9 sentences."
    )
    assert report().explain("m2") == "m2 (history) was kept whole: fits, 400 tokens."


def test_unknown_names_are_typed_errors():
    """A segment or block that is not there is named."""
    with pytest.raises(BudgetError, match="no segment 'nope' in block 'history'"):
        report().explain("nope", "history")
    with pytest.raises(BudgetError, match="no block 'mood'; it has 'history', 'knowledge'"):
        report().block("mood")


# ---- warnings -----------------------------------------------------------------------------------------------------------------------
def warned(name, used, parts=(), granted=1_000):
    total = BlockTotal(name=name, rank=5, granted=granted, used=used)
    return report(blocks=[total], parts=parts).warnings


def test_dropped_segments_are_warned_about_once_with_numbers():
    """One sentence has the sum and each block; without drops there is none."""
    assert report().warnings == ("dropped 3 of 5 segments: history 2 of 3, knowledge 1 of 2",)
    assert report(parts=[decision("m2", before=400, after=400)]).warnings == ()


def test_warnings_are_not_added_twice_by_the_way_through_plain_data():
    """A report that was written and read has the warnings it had."""
    made = report(warnings=["look out"])
    again = BudgetReport.from_dict(BudgetReport.from_dict(made.to_dict()).to_dict())
    assert again.warnings == made.warnings
    assert made.noting().warnings == made.warnings


def test_dropping_is_warned_about_once_although_a_host_adds_its_own_warnings():
    """A report with all warnings of another one, and more, says each of them once."""
    made = report()
    again = made.noting(*made.warnings, "look out")
    assert sorted(again.warnings) == sorted([*made.warnings, "look out"])


def test_a_short_history_is_warned_about_only_where_something_was_dropped():
    """A new chat is short, and nothing is lost."""
    lost = "history was cut to 99 tokens: context may be lost"
    assert lost in warned("history", 99, [dropped("m0"), decision("m1", after=99)])
    assert warned("history", 99, [decision("m1", after=99)]) == ()
    assert lost not in warned("history", 100, [dropped("m0"), decision("m1", after=100)])
    for reason in ("orphan_result", "empty_message"):
        broken = dropped("m0", reason=reason)
        assert lost not in warned("history", 99, [broken, decision("m1", after=99)])


@draws()
@given(
    window=st.integers(400, 2_000),
    reserve=st.integers(2, 300),
    safety=st.none() | st.integers(2, 50),
    ceiling=st.none() | st.integers(90, 2_500),
    turns=st.integers(0, 30),
)
def test_the_window_adds_up_and_only_a_cut_is_called_one(window, reserve, safety, ceiling, turns):
    """Whichever limit is the smaller; an orphan result that is dropped is no cut for room."""
    session = BudgetSession(TokenBudget(context_window=window, reserve=reserve, safety=safety))
    said = [("user", "Where is it?"), ("tool", "Here.")]
    said += [("user", "Where is it? " * 3), ("assistant", "It is there. " * 3)] * turns
    chat = [{"role": role, "content": text} for role, text in [*said, ("user", "And now?")]]
    chat[1]["tool_call_id"] = "x"
    made = session.fit(chat, ceiling=ceiling).report
    plain = made.to_dict()
    if made.window is not None:
        assert plain["window"] == sum(plain[name] for name in ("limit", "reserve", "safety", "capped"))
        said = next(line for line in made.table().splitlines() if line.startswith("window"))
        numbers = [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", said)]
        assert numbers[0] == window == sum(numbers[1:])
        assert said in made.to_html()
    cut = any(d.reason in {"older_than_cut", "no_room"} for d in made.decisions)
    short = made.block("history").used < 100
    assert any("history was cut to" in w for w in made.warnings) == (cut and short)
    assert any("dropped" in w for w in made.warnings)


def test_knowledge_that_does_not_fit_is_told_from_knowledge_that_was_not_found():
    """Five documents that are all too large are another problem than none."""
    too_large = [dropped(f"d{i}", 80, "knowledge") for i in range(5)]
    assert warned("knowledge", 0) == ("knowledge is empty: retrieval may have failed",)
    assert warned("knowledge", 0, too_large, granted=40) == (
        "dropped 5 of 5 segments: knowledge 5 of 5",
        "knowledge is empty: none of 5 segments fits the 40 tokens it was granted, 0 of them for its tags",
    )


def test_a_large_system_prompt_and_a_stale_task_are_warned_about():
    """From 80 % of the limit, and from ten turns on."""
    assert warnings_for(window=8_192, system_tokens=1_700, system_limit=2_048, task_turns=12) == [
        "system has 1,700 of at most 2,048 tokens of a window of 8,192: near its limit",
        "task has not changed for 12 turns: it may be stale",
    ]
    assert warnings_for(window=8_192, system_tokens=1_600, system_limit=2_048, task_turns=9) == []
    assert warnings_for(window=None, system_tokens=1_600, system_limit=None, task_turns=0) == []


def test_a_task_that_stays_the_same_for_ten_turns_is_told():
    """A session warns from the tenth turn on, and no longer when the task is another one."""
    budget = TokenBudget(context_window=8_192)
    session = BudgetSession(budget)
    assembler, history = Assembler(budget, session=session), []
    told = []
    for turn in range(13):
        history += [{"role": "user", "content": f"step {turn}"}, {"role": "assistant", "content": "done"}]
        task = "Sort the shelves." if turn < 12 else "Count the books."
        made = assembler.assemble({"task": task, "history": list(history)}, query="next?")
        told.append([w for w in made.report.warnings if w.startswith("task")])
    assert told[:10] == [[]] * 10
    assert told[10:] == [
        ["task has not changed for 10 turns: it may be stale"],
        ["task has not changed for 11 turns: it may be stale"],
        [],
    ]
