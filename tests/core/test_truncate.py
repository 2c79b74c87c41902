"""Cutting inside a text: where the cut falls, how exact the bound is, and what the strategy of text blocks keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import BudgetExceededError, counter_for
from rankbudget.compression.truncate import truncate_text
from rankbudget.errors import BudgetConfigError
from rankbudget.fitting.block import fit_block
from rankbudget.fitting.truncate import Truncate
from rankbudget.segment import Segment
from rankbudget.testing import FitStrategyConformance, RecordingCounter, WordCounter

WORDS = WordCounter()
EXACT = counter_for("o200k_base")
MESSY = st.lists(
    st.sampled_from(
        [*"ab. \n!?é漢。👩‍👩‍👧\t'\"", "the ", "word ", " Hello", "123", "\n\n", "Sentence one. ", "第一。"]
    ),
    max_size=60,
).map("".join)


@given(
    text=MESSY,
    limit=st.integers(0, 40),
    keep=st.sampled_from(["start", "both"]),
    ellipsis=st.sampled_from(["...", "…", "[cut]", ""]),
)
def test_never_over_the_limit_whatever_the_text(text, limit, keep, ellipsis):
    """The finished text, marker included, counts at most the limit on a real tokenizer."""
    cut = truncate_text(text, limit, EXACT, keep=keep, ellipsis=ellipsis)
    assert EXACT.count(cut) <= limit
    if limit and EXACT.count(text) <= limit:
        assert cut == text


@given(text=MESSY, limit=st.integers(1, 40))
def test_keeps_a_start_of_the_source(text, limit):
    """What stands before the marker is the start of the source, white space and all."""
    cut = truncate_text(text, limit, EXACT)
    if cut and cut != text:
        assert cut.endswith("...")
        assert text.startswith(cut[:-3])


def test_cuts_at_the_end_of_a_sentence():
    """The last whole sentence that fits ends the text, with the white space of the source inside it."""
    assert truncate_text("One  two.\nThree four. Five six seven.", 6, WORDS) == "One  two.\nThree four...."


def test_cuts_between_words_when_no_sentence_fits():
    """Without a whole sentence the cut falls between two words."""
    assert truncate_text("one two three four five", 4, WORDS) == "one two three..."


def test_a_tiny_first_sentence_does_not_swallow_the_second():
    """A sentence that would leave most of the room empty is no reason to cut there."""
    text = "Yes. " + "word " * 60
    assert WORDS.count(truncate_text(text, 40, WORDS)) >= 39


def test_cuts_scripts_without_spaces_at_their_full_stop():
    """A Chinese sentence ends a cut as a Latin one does."""
    cut = truncate_text("今天天气很好。我们去公园散步。晚上一起吃饭，然后看电影。", 14, EXACT)
    assert cut.rstrip(".") in {"今天天气很好。", "今天天气很好。我们去公园散步。"}


def test_never_splits_a_grapheme():
    """A family of joined emoji is cut off whole."""
    text = "👩‍👩‍👧‍👦" * 20
    body = truncate_text(text, 30, EXACT, ellipsis="")
    assert len(body) % len("👩‍👩‍👧‍👦") == 0
    assert body


def test_no_room_for_the_marker_leaves_nothing():
    """A limit below the marker's own tokens gives the empty text."""
    assert truncate_text("one two three four", 1, EXACT, ellipsis="[this part was cut away]") == ""
    assert truncate_text("one two", 0, WORDS) == ""


def test_keep_both_keeps_start_and_end():
    """Long questions keep the words at both ends, at sentence boundaries where there are some."""
    text = "Here is my log. " + "noise " * 200 + "\nNow tell me why it fails."
    cut = truncate_text(text, 16, WORDS, keep="both")
    assert cut.startswith("Here is my log.")
    assert cut.endswith("Now tell me why it fails.")
    assert WORDS.count(cut) <= 16


def test_an_unknown_part_is_refused():
    """`keep` names what it allows."""
    with pytest.raises(BudgetConfigError, match="'start' or 'both'"):
        truncate_text("a", 1, WORDS, keep="end")  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("keep", ["start", "both"])
def test_work_is_bounded_by_the_text(keep):
    """A long text is tokenized about once to see that it does not fit, and its kept part about once more."""
    recorder = RecordingCounter(EXACT)
    text = "The quick brown fox jumps over the lazy dog. It was far away! " * 500
    truncate_text(text, 1000, recorder, keep=keep)
    assert recorder.characters <= 2 * len(text)


def segment(name: str, text: str, **fields: object) -> Segment:
    return Segment(id=name, text=text, **fields)  # type: ignore[arg-type]  # fields of many types


class TestTruncateStrategy(FitStrategyConformance):
    """`Truncate` keeps every rule of a fitting strategy."""

    def make(self):
        return Truncate()


def test_truncate_keeps_segments_in_order_and_cuts_the_last():
    """Segments stay from the first on; the one at the edge is cut, the ones behind it go."""
    given_segments = [
        segment("a", "one two."),
        segment("b", "three four five. Six seven."),
        segment("c", "eight"),
    ]
    fit = fit_block(given_segments, strategy=Truncate(), limit=6, counter=WORDS, block="project")
    assert [p.rendition.text for p in fit.pieces] == ["one two.", "three four five...."]
    assert [(d.segment_id, d.action, d.reason) for d in fit.decisions] == [
        ("a", "kept", "fits"),
        ("b", "truncated", "no_room"),
        ("c", "trimmed", "no_room"),
    ]
    assert fit.tokens == 5


def test_truncate_places_pinned_segments_first():
    """A pinned segment at the end keeps its room, whatever stands before it."""
    fit = fit_block(
        [segment("a", "one two three four"), segment("b", "must stay", pinned=True)],
        strategy=Truncate(),
        limit=4,
        counter=WORDS,
        block="task",
    )
    assert [p.rendition.text for p in fit.pieces] == ["one...", "must stay"]
    with pytest.raises(BudgetExceededError, match="need 2 tokens, allowed: 1"):
        fit_block(
            [segment("b", "must stay", pinned=True)],
            strategy=Truncate(),
            limit=1,
            counter=WORDS,
            block="task",
        )


def test_truncate_never_cuts_inside_a_group():
    """Segments that live or die together are dropped together, not cut."""
    pair = [segment("q", "a b c", group="g"), segment("r", "d e f", group="g")]
    fit = fit_block(pair, strategy=Truncate(), limit=4, counter=WORDS, block="task")
    assert fit.pieces == ()
