"""Selective fitting: what is preserved, what is said shorter, what goes, and the rules of every strategy."""

from __future__ import annotations

import pytest

from rankbudget import Assembler, Block, BudgetExceededError, Segment
from rankbudget.errors import BudgetConfigError
from rankbudget.fitting.block import fit_block
from rankbudget.fitting.selective import Selective, plan_segments
from rankbudget.testing import FitStrategyConformance, WordCounter
from rankbudget.testing.conformance.fit_strategy import segments

WORDS = WordCounter()


def chat(*texts: str) -> list[Segment]:
    return [
        Segment(id=f"m{i}", text=text, role="user" if i % 2 == 0 else "assistant")
        for i, text in enumerate(texts)
    ]


def fit(segments, limit, **options):
    return fit_block(segments, strategy=Selective(**options), limit=limit, counter=WORDS, block="history")


def shown(result):
    return [piece.rendition.text for piece in result.pieces]


class TestSelectiveStrategy(FitStrategyConformance):
    """`Selective` keeps every rule of a fitting strategy."""

    def make(self):
        return Selective(recent=2)


class TestPlannedSelectiveStrategy(FitStrategyConformance):
    """With a plan the rules hold as well."""

    def make(self):
        return Selective(plan={"preserve_full": ["s1"], "summarize": ["s2"], "discard": ["s0", "s3"]})

    def test_rule_5_what_fits_comes_back_untouched(self):
        """With room for all, only what the plan discards goes, and only what it summarizes is said shorter."""

        @self._for_all(segments())
        def check(drawn):
            fit = self._fit(drawn, 1_000_000)
            assert fit is not None
            stay = {"s1", *[s.id for s in drawn if s.pinned]}
            safe = {s.group for s in drawn if s.id in stay and s.group is not None}
            gone = {s.id for s in drawn if s.id in {"s0", "s3"} and s.id not in stay and s.group not in safe}
            doomed = {s.group for s in drawn if s.id in gone and s.group is not None}
            expected = [s for s in drawn if s.id not in gone and s.group not in doomed]
            assert [p.segment for p in fit.pieces] == expected
            assert all(p.whole or p.segment.id == "s2" for p in fit.pieces)


LONG = "the garden was full of roses and the roses were full of bees and the bees were busy all day long until the evening came"


def test_key_moments_stay_filler_is_said_shorter_or_goes():
    """A decision stays whole, a long aside becomes "[Earlier: ...]", a pleasantry is gone, the newest stay."""
    segments = chat(
        "We decided to use JWT for the login.", "Thanks a lot!", LONG, "go on", "next step please"
    )
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
    result = fit(
        segments,
        9,
        plan={"discard": ["m0"], "preserve_full": ["m1"], "summarize": ["m2"]},
        recent=1,
        earlier_tokens=6,
    )
    kept = {piece.segment.id: piece.rendition for piece in result.pieces}
    assert "m0" not in kept
    assert kept["m1"].kind == "whole"
    assert kept["m2"].kind == "summarized"


def test_the_plan_holds_even_where_everything_fits():
    """As specified: what is to be discarded is skipped, what is to be summarized is said shorter, however much room there is."""
    talk = chat("We decided to use JWT.", LONG, "Thanks!", LONG)
    result = fit(talk, 1000, plan={"discard": ["m0"], "summarize": ["m1"]}, earlier_tokens=6)
    assert [piece.segment.id for piece in result.pieces] == ["m1", "m2", "m3"]
    assert shown(result)[0].startswith("[Earlier: the garden was")
    assert [(d.action, d.reason) for d in result.decisions] == [
        ("trimmed", "discarded"), ("summarized", "filler"), ("kept", "fits"), ("kept", "fits"),
    ]  # fmt: skip
    assert result.tokens == sum(WORDS.count(text) for text in shown(result))
    again = [Segment(id=p.segment.id, text=p.rendition.text, role=p.segment.role) for p in result.pieces]
    assert shown(fit(again, 1000, plan={"discard": ["m0"], "summarize": ["m1"]}, earlier_tokens=6)) == shown(
        result
    )


def test_a_discarded_call_takes_its_result_along_unless_that_is_preserved():
    """A group goes whole or stays whole: pinned and preserved members hold the others."""
    pair = [
        Segment(id="call", text="look it up", group="g"),
        Segment(id="result", text="it is sunny", group="g"),
        Segment(id="q", text="so?"),
    ]

    def left(**plan):
        return [piece.segment.id for piece in fit(pair, 1000, plan=plan).pieces]

    assert left(discard=["call"]) == ["q"]
    assert left(discard=["call"], preserve_full=["result"]) == ["call", "result", "q"]
    pinned = [Segment(id="p", text="one", pinned=True)]
    assert [piece.segment.id for piece in fit(pinned, 1000, plan={"discard": ["p"]}).pieces] == ["p"]


def test_a_block_can_name_it():
    """`Block(strategy="selective")` keeps the decision, says the long aside shorter and leaves the pleasantry out."""
    talk = [
        *chat("We decided to use JWT for the login.", "Thanks a lot!", LONG * 4),
        *[Segment(id=f"n{i}", text="go on") for i in range(6)],
    ]
    made = Assembler(120).assemble(
        [Block(name="notes", segments=talk, strategy="selective")], query="What now?"
    )
    decisions = {d.segment_id: d.action for d in made.report.decisions if d.block == "notes"}
    assert (decisions["m0"], decisions["m1"], decisions["m2"]) == ("kept", "trimmed", "summarized")
    assert "[Earlier: " in made.text


def test_a_segments_own_summary_is_used():
    """Where a message brings its summary, that is what "[Earlier: ...]" says."""
    segments = [
        Segment(id="a", text=LONG, metadata={"summary": "garden, roses, bees"}),
        Segment(id="b", text="and now"),
    ]
    assert shown(fit(segments, 10, recent=1)) == ["[Earlier: garden, roses, bees]", "and now"]


def test_old_filler_is_discarded_near_filler_is_not():
    """Only filler further back than `old` goes without a word."""
    plan = plan_segments(
        [Segment(id=str(i), text="and it went on like that for a while") for i in range(10)], recent=2, old=5
    )
    assert plan["discard"] == {"0", "1", "2", "3", "4"}
    assert plan["summarize"] == {"5", "6", "7"}
    assert plan["preserve_full"] == {"8", "9"}


def test_of_two_that_say_the_same_the_later_one_stays():
    """A long message that is repeated stays once; one that adds a word is another message."""
    asked = "please check the red valve in hall seven today and tell me what you find there"
    segments = [
        Segment(id="a", role="user", text=asked),
        Segment(id="b", role="user", text=asked.capitalize() + "!"),
        Segment(id="c", role="user", text=asked + " again"),
        Segment(id="d", role="assistant", text=LONG),
    ]
    result = fit(segments, 60)
    assert [(d.segment_id, d.reason) for d in result.decisions if d.action == "trimmed"] == [
        ("a", "duplicate")
    ]


def test_negations_are_not_merged_away():
    """A message that takes back the one before shares most of its words and is still another message."""
    segments = [
        Segment(id="a", role="user", text="delete the table"),
        Segment(id="b", role="user", text="do not delete the table"),
        Segment(id="c", text=LONG),
    ]
    result = fit(segments, 15)
    assert {d.segment_id: d.reason for d in result.decisions}["a"] != "duplicate"


def test_groups_live_or_die_together():
    """A call and its result are kept whole or dropped whole, never said shorter one by one."""
    call = [
        Segment(id="call", text="look up the weather in Oslo", group="g"),
        Segment(id="result", text=LONG, group="g"),
    ]
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
        Selective(plan={"keep": ["a"]})
    with pytest.raises(BudgetConfigError, match="got 'a' in several"):
        Selective(plan={"discard": ["a"], "summarize": ["a"]})
    with pytest.raises(BudgetConfigError, match=r"recent must.*-1.*old must.*-2"):
        Selective(recent=-1, old=-2)
