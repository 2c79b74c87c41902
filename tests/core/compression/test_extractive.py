"""Extraction: which sentences stay, whole, in order, within the bound."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for
from rankbudget.compression.extractive import extract
from rankbudget.compression.units import split_units
from rankbudget.testing import WordCounter
from tests.drawing import draws

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
    query=st.sampled_from(["", "When was the harbour built?", "What did the lamp cost?"]),
)
def test_bounded_and_nothing_is_torn(pieces, limit, query):
    """The result fits, and every URL, number, quotation, code block, table and JSON in it stands there whole, unless one unit alone is too long or, with a query, a block has no room."""
    text = " ".join(pieces)
    kept = extract(text, limit, EXACT, query=query)
    assert EXACT.count(kept) <= limit
    if kept == text or kept.endswith("..."):
        return
    if query and any(unit.fixed and 2 * EXACT.count(unit.text) > limit for unit in split_units(text)):
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


def test_the_query_decides():
    """The sentence that answers stays, in its own words."""
    text = " ".join(SENTENCES)
    assert (
        extract(text, 8, WORDS, query="What did the lighthouse lamp cost?")
        == "The lamp of the lighthouse cost 4,250.75 crowns."
    )
    assert extract(text, 6, WORDS, query="When was the harbour built?") == "The harbour was built in 1872."


def test_a_sentence_is_rated_in_its_paragraph():
    """Of two equal sentences the one in the paragraph about the question wins."""
    right = "The Vega telescope stands in Chile. It was opened in 2009. Its mirror has eight metres."
    wrong = "The bakery is in Bonn. It was opened in 1950. It sells rye bread."
    kept = extract(
        f"{wrong}\n\n{right}",
        5,
        WORDS,
        query="When was the Vega telescope opened?",
    )
    assert kept == "It was opened in 2009."


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
    kept = extract(text, 8, WORDS, query="alpha beta gamma")
    assert kept.splitlines()[0] == "Alpha beta gamma delta."


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


ASKED = "Which shipment is held at customs in Rotterdam?"
ANSWER = "shipment held at customs in Rotterdam, papers missing"
FORMS = {
    "list of objects": lambda notes: json.dumps([{"id": i, "note": note} for i, note in enumerate(notes)]),
    "indented": lambda notes: json.dumps([{"id": i, "note": note} for i, note in enumerate(notes)], indent=2),
    "list of texts": json.dumps,
    "object": lambda notes: json.dumps({f"k{i}": note for i, note in enumerate(notes)}),
    "wrapped": lambda notes: json.dumps({"rows": [{"note": note} for note in notes]}),
    "table": lambda notes: (
        "| id | note |\n|---|---|\n" + "\n".join(f"| {i} | {n} |" for i, n in enumerate(notes))
    ),
    "tabs": lambda notes: "id\tnote\n" + "\n".join(f"{i}\t{note}" for i, note in enumerate(notes)),
    "fenced JSON": lambda notes: f"```json\n{json.dumps(notes, indent=1)}\n```",
    "fenced code": lambda notes: (
        "```python\n" + "\n".join(f"x{i} = f({n!r})" for i, n in enumerate(notes)) + "\n```"
    ),
    "indented code": lambda notes: "\n" + "\n".join(f"    x{i} = f({n!r})" for i, n in enumerate(notes)),
}


@pytest.mark.parametrize("form", FORMS)
@draws(cases=len(FORMS))
@given(
    count=st.integers(20, 120),
    place=st.integers(0, 19),
    before=st.lists(st.sampled_from((*SENTENCES, "Every shipment has a number.")), max_size=12),
    after=st.sampled_from(["", "Regards", "Ask the customs office."]),
    times=st.sampled_from([1, 20]),
    share=st.floats(0, 1),
)
def test_the_record_that_answers_stays_in_a_block(form, count, place, before, after, times, share):
    """Whatever the form of the records, the prose around them and the limit, from 120 tokens on the answer is there."""
    notes = [f"shipment {i} left the depot on day {i % 28}" for i in range(count)]
    notes[place] = ANSWER
    prose = " ".join(f"{said[:-1]} on {n}." for n in range(times) for said in before)
    text = "\n\n".join(filter(None, [prose, FORMS[form](notes), after]))
    limit = 120 + int(share * (EXACT.count(text) - 120))
    kept = extract(text, limit, EXACT, query=ASKED)
    assert EXACT.count(kept) <= limit
    assert ANSWER in kept
