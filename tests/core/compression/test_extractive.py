"""Extraction: which sentences stay, whole, in order, within the bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for
from rankbudget.compression.extractive import extract
from rankbudget.compression.units import split_units
from rankbudget.testing import WordCounter

EXACT = counter_for("o200k_base")
WORDS = WordCounter()
SENTENCES = (
    "The harbour was built in 1872.",
    "It never froze, not even in 1929.",
    'The captain said "Dr. Smith is aboard. Wait for him." twice.',
    "See https://example.org/a.b?c=1 for the plans.",
    "Nobody was allowed on the pier without a pass.",
    "Fish was sold until noon.",
    "The lamp of the lighthouse cost 4,250.75 crowns.",
    "Gulls are birds.",
)
BLOCKS = ("```python\nx = 1. \ny = 2\n```\n", "| a | b |\n|---|---|\n| 1 | 2 |\n", '{"id": 7, "ok": true}\n')


@given(
    pieces=st.lists(st.sampled_from(SENTENCES + tuple("\n" + b for b in BLOCKS)), min_size=1, max_size=14),
    limit=st.integers(1, 160),
)
def test_bounded_and_nothing_is_torn(pieces, limit):
    """The result fits, and every URL, number, quotation, code block, table and JSON in it stands there whole, unless one unit alone is too long."""
    text = " ".join(pieces)
    kept = extract(text, limit, EXACT)
    assert EXACT.count(kept) <= limit
    if kept == text or kept.endswith("..."):
        return
    units = [" ".join(unit.text.split()) for unit in split_units(text)]
    rest = " ".join(kept.split())
    for unit in sorted(set(units), key=len, reverse=True):
        rest = rest.replace(unit, "")
    assert not rest.strip() or rest.strip().startswith("{"), (rest, kept)


def test_units_put_together_are_the_text():
    """Splitting loses nothing."""
    text = (
        "Intro.\n\n"
        + "".join(BLOCKS)
        + "\nEnd. "
        + " ".join(SENTENCES)
        + "\n\n    indented = 1\n    code = 2\n"
    )
    assert "".join(unit.text for unit in split_units(text)) == text
    assert {unit.kind for unit in split_units(text)} >= {"code", "table", "json", "sentence"}


def test_a_quoted_name_with_a_full_stop_is_one_piece():
    """A quotation of a line is not torn at the full stop inside it."""
    units = [unit.text.strip() for unit in split_units(" ".join(SENTENCES))]
    assert SENTENCES[2] in units


def test_order_is_kept_and_repeats_go_first():
    """Sentences keep their old order, a repeated one once."""
    text = "Rule one is honesty in figures. Rule two is care in words. Rule one is honesty in figures. Rule three is rest."
    kept = extract(text, 16, WORDS)
    assert kept.count("Rule one") == 1
    assert kept.index("Rule one") < kept.index("Rule two")


def test_without_a_query_facts_beat_filler():
    """Decisions, names and numbers stay before pleasantries."""
    text = "Thank you so much! We decided to ship version 2.4 on Friday. Have a nice day. Sounds good."
    assert extract(text, 9, WORDS) == "We decided to ship version 2.4 on Friday."


def test_paragraphs_stay_apart():
    """Sentences of different paragraphs do not run into one line."""
    text = "Alpha beta gamma delta. Filler filler filler.\n\nAlpha beta gamma epsilon. Filler again here."
    lines = extract(text, 8, WORDS).splitlines()
    assert [line for line in lines if line] == ["Alpha beta gamma delta.", "Alpha beta gamma epsilon."]


@pytest.mark.parametrize("text", ["", "   ", "\n\n"])
def test_empty_input(text):
    """Nothing in, nothing but white space out."""
    assert extract(text, 5, WORDS).strip() == ""


def test_a_single_long_sentence_is_cut():
    """When not even one sentence fits, the best one is cut to the bound."""
    text = (
        "word " * 50
        + "end. Other words follow here and there and everywhere all the time in this second sentence of the text."
    )
    kept = extract(text, 10, WORDS)
    assert WORDS.count(kept) <= 10
    assert kept.endswith("...")
