"""Selective fitting: what is preserved, what is said shorter, what goes, and the rules of every strategy."""

from __future__ import annotations

import pytest

from rankbudget import BudgetExceededError, Segment
from rankbudget.errors import BudgetConfigError
from rankbudget.fitting.selective import Selective, SelectivePlan, plan_segments
from rankbudget.testing import FitStrategyConformance, WordCounter

WORDS = WordCounter()


def chat(*texts: str) -> list[Segment]:
    return [Segment(id=f"m{i}", text=text, role="user" if i % 2 == 0 else "assistant") for i, text in enumerate(texts)]


def fit(segments, limit, **options):
    return Selective(**options).fit(segments, limit=limit, counter=WORDS, block="history")


def shown(result):
    return [piece.rendition.text for piece in result.pieces]


class TestSelectiveStrategy(FitStrategyConformance):
    """`Selective` keeps every rule of a fitting strategy."""

    def make(self):
        return Selective(recent=2)


class TestPlannedSelectiveStrategy(FitStrategyConformance):
    """With a plan the rules hold as well."""

    def make(self):
        return Selective(plan={"preserve_full": ["s1"], "summarize": ["s2"], "discard": ["s0", "s3"]}, merge_share=None)


LONG = "the garden was full of roses and the roses were full of bees and the bees were busy all day long until the evening came"


def test_key_moments_stay_filler_is_said_shorter_or_goes():
    """A decision stays whole, a long aside becomes "[Earlier: ...]", a pleasantry is gone, the newest stay."""
    segments = chat("We decided to use JWT for the login.", "Thanks a lot!", LONG, "go on", "next step please")
    result = fit(segments, 27, recent=2, earlier_tokens=8)
    assert shown(result)[0] == "We decided to use JWT for the login."
    assert shown(result)[1].startswith("[Earlier: the garden was")
    assert shown(result)[2:] == ["go on", "next step please"]
    actions = {d.segment_id: (d.action, d.reason) for d in result.decisions}
    assert actions == {
        "m0": ("kept", "key_moment"),
        "m1": ("trimmed", "filler"),
        "m2": ("summarized", "filler"),
        "m3": ("kept", "key_moment"),
        "m4": ("kept", "key_moment"),
    }
    assert result.tokens == sum(WORDS.count(text) for text in shown(result)) <= 27


def test_what_fits_is_not_analysed_away():
    """Pleasantries stay when there is room for them."""
    segments = chat("Thanks!", "You are welcome!", LONG)
    assert shown(fit(segments, 100)) == [s.text for s in segments]


def test_the_plan_overrules_the_analysis():
    """The specification's three sets decide, whatever the texts say."""
    segments = chat("We decided to use JWT.", "Thanks!", LONG, "and so on")
    result = fit(segments, 9, plan={"discard": ["m0"], "preserve_full": ["m1"], "summarize": ["m2"]}, recent=1, earlier_tokens=6)
    kept = {piece.segment.id: piece.rendition for piece in result.pieces}
    assert "m0" not in kept
    assert kept["m1"].kind == "whole"
    assert kept["m2"].kind == "summarized"


def test_a_segments_own_summary_is_used():
    """Where a message brings its summary, that is what "[Earlier: ...]" says."""
    segments = [Segment(id="a", text=LONG, metadata={"summary": "garden, roses, bees"}), Segment(id="b", text="and now")]
    assert shown(fit(segments, 10, recent=1)) == ["[Earlier: garden, roses, bees]", "and now"]


def test_old_filler_is_discarded_near_filler_is_not():
    """Only filler further back than `old` goes without a word."""
    plan = plan_segments([Segment(id=str(i), text="and it went on like that for a while") for i in range(10)], recent=2, old=5)
    assert plan.discard == {"0", "1", "2", "3", "4"}
    assert plan.summarize == {"5", "6", "7"}
    assert plan.preserve_full == {"8", "9"}


def test_near_duplicate_neighbours_are_merged():
    """Of two messages of one role in almost the same words the later one stays."""
    segments = [
        Segment(id="a", role="user", text="please check the red valve in hall seven today"),
        Segment(id="b", role="user", text="please check the red valve in hall seven today now"),
        Segment(id="c", role="assistant", text="it was checked twice and it is tight again as far as one can see"),
    ]
    result = fit(segments, 25)
    assert next(iter(result.decisions)).reason == "repeats_next"
    assert "b" in {piece.segment.id for piece in result.pieces}
    kept = {piece.segment.id for piece in fit(segments, 25, merge_share=None).pieces}
    assert "b" in kept


def test_negations_are_not_merged_away():
    """A message that takes back the one before shares most of its words and is still another message."""
    segments = [
        Segment(id="a", role="user", text="delete the table"),
        Segment(id="b", role="user", text="do not delete the table"),
        Segment(id="c", text=LONG),
    ]
    result = fit(segments, 15)
    assert {d.segment_id: d.reason for d in result.decisions}["a"] != "repeats_next"


def test_groups_live_or_die_together():
    """A call and its result are kept whole or dropped whole, never said shorter one by one."""
    call = [Segment(id="call", text="look up the weather in Oslo", group="g"), Segment(id="result", text=LONG, group="g")]
    assert fit([*call, Segment(id="q", text="so?")], 20, recent=1).pieces[-1].segment.id == "q"
    assert {p.segment.id for p in fit([*call, Segment(id="q", text="so?")], 20, recent=1).pieces} == {"q"}
    roomy = [Segment(id="x", text=LONG + LONG), *call, Segment(id="q", text="so?")]
    assert {"call", "result"} <= {p.segment.id for p in fit(roomy, 45, recent=1).pieces}


def test_pinned_content_that_cannot_fit_is_an_error():
    """The error says how much is missing."""
    with pytest.raises(BudgetExceededError) as caught:
        fit([Segment(id="a", text="one two three", pinned=True)], 2)
    assert (caught.value.limit, caught.value.needed) == (2, 3)


def test_wrong_plans_and_options_are_refused():
    """Unknown sets, an id with two fates and impossible numbers are named."""
    with pytest.raises(BudgetConfigError, match="'keep'"):
        SelectivePlan.of({"keep": ["a"]})
    with pytest.raises(BudgetConfigError, match="'a' twice"):
        SelectivePlan.of({"discard": ["a"], "summarize": ["a"]})
    with pytest.raises(BudgetConfigError, match=r"recent is -1.*merge_share is 2"):
        Selective(recent=-1, merge_share=2)
