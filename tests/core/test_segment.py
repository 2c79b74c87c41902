"""What the first station refuses: blocks and segments that cannot work, and inputs that are none."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from rankbudget import (
    Assembler,
    Block,
    BudgetConfigError,
    BudgetSession,
    MessageError,
    Provenance,
    Segment,
    TokenBudget,
    fit_documents,
    fit_messages,
    fit_text,
)
from rankbudget.testing import WordCounter

COUNTER = WordCounter()


@pytest.mark.parametrize(
    ("fields", "seen"),
    [
        ({"ratio": math.inf}, "ratio of block 'b' is inf"),
        ({"ratio": math.nan}, "ratio of block 'b' is nan"),
        ({"ratio": -0.1}, "ratio of block 'b' is -0.1"),
        ({"ratio": "0.5"}, "ratio of block 'b' is '0.5'"),
        ({"ratio": True}, "ratio of block 'b' is True"),
        ({"size": "10"}, "size of block 'b' is '10'"),
        ({"size": 10.5}, "size of block 'b' is 10.5"),
        ({"size": -1}, "size of block 'b' is -1"),
        ({"rank": -1}, "rank of block 'b' is -1"),
        ({"rank": 0}, "rank of block 'b' is 0"),
        ({"rank": 1.5}, "rank of block 'b' is 1.5"),
        ({"size": 100, "ratio": 0.5}, "block 'b' must have a ratio or a size is both"),
        ({"size": 0, "ratio": 0.0}, "block 'b' must have a ratio or a size is both"),
    ],
)
def test_a_block_that_cannot_work_is_refused_where_it_is_made(fields: dict[str, Any], seen: str) -> None:
    """The error names the block, what was seen and what is allowed, before anything is granted."""
    with pytest.raises(BudgetConfigError) as caught:
        Block(name="b", **fields)
    what, _, value = seen.partition(" is ")
    assert what in str(caught.value)
    assert f"(got {value})" in str(caught.value)


def test_all_problems_of_a_block_come_at_once() -> None:
    """Three mistakes are one error."""
    with pytest.raises(
        BudgetConfigError, match=r"rank of .*; size of .*; ratio of .*; .* must have a ratio or a size"
    ):
        Block(name="b", rank=0, ratio=2, size=-5)


def test_every_allowed_number_is_taken() -> None:
    """The ends of what is allowed, and numbers of other types."""
    assert Block(name="b", rank=1, ratio=1).ratio == 1
    assert Block(name="b", ratio=Decimal("0.5")).ratio == 0.5
    assert Block(name="b", size=0).size == 0


@pytest.mark.parametrize("text", [None, 5, b"bytes", ["a"]])
def test_a_segment_has_a_text(text: Any) -> None:
    """An empty database field is told where the segment is made, with its id."""
    with pytest.raises(BudgetConfigError, match=r"the text of segment 's7' must be a str \(got "):
        Segment(id="s7", text=text)


def test_a_kind_of_text_is_a_text() -> None:
    """A subclass of str stays what it is."""

    class Marked(str):
        __slots__ = ()

    assert type(Segment(id="s", text=Marked("x")).text) is Marked


def test_confidence_may_be_unknown() -> None:
    """No caller has to invent a number for it: the prompt then names the source alone."""
    found = Segment(id="a", text="Blue.", provenance=Provenance(source_id="a.md", confidence=None))
    made = Assembler(TokenBudget(), counter=COUNTER).assemble({"knowledge": [found]}, query="Which colour?")
    assert '<document source="a.md">\nBlue.' in made.text


@pytest.mark.parametrize("given", [None, 5, "hello", {"role": "user", "content": "hello"}])
def test_a_conversation_is_a_list(given: Any) -> None:
    """One message, a text or nothing at all is told as such, in one call and in a session."""
    with pytest.raises(MessageError, match=r"messages must be a list of messages, oldest first \(got "):
        fit_messages(given, max_tokens=100, counter=COUNTER)
    with pytest.raises(MessageError, match=r"messages must be a list of messages, oldest first \(got "):
        BudgetSession(100, counter=COUNTER).fit(given)


def test_any_sequence_or_iterator_is_a_conversation() -> None:
    """Tuples and generators are read as lists are."""
    chat = [{"role": "user", "content": "hello"}]
    assert fit_messages(tuple(chat), max_tokens=100, counter=COUNTER).messages == chat
    one_by_one: Any = iter(chat)
    assert fit_messages(one_by_one, max_tokens=100, counter=COUNTER).messages == chat


def test_a_text_is_a_text() -> None:
    """`fit_text(None)` names it, and the limit that is none beside it."""
    nothing: Any = None
    with pytest.raises(BudgetConfigError, match=r"text must be .*got None.*; max_tokens .*got -1"):
        fit_text(nothing, max_tokens=-1, counter=COUNTER)


@pytest.mark.parametrize("query", [None, "ninety"])
def test_the_report_of_a_text_keeps_the_limit_that_was_asked(query: str | None) -> None:
    """Where an estimate's band is kept free, limit and safety add up to `max_tokens`."""
    report = fit_text("One is ninety. " * 90, max_tokens=90, counter="estimate", query=query).report
    assert report.safety > 0
    assert (report.window, report.limit + report.safety) == (90, 90)
    assert report.total_tokens <= report.limit
    exact = fit_text("One. " * 90, max_tokens=90, counter=COUNTER, query=query).report
    assert (exact.window, exact.limit, exact.safety) == (None, 90, 0)


def test_documents_are_texts_or_segments() -> None:
    """Each that is neither is named by its place."""
    some: Any = ["a", None, 3]
    with pytest.raises(BudgetConfigError, match=r".1. must be .*got None.; .*.2. must be .*got 3"):
        fit_documents(some, max_tokens=10, query="q", counter=COUNTER)
    with pytest.raises(BudgetConfigError, match=r"texts_or_segments must be .*got None"):
        fit_documents(None, max_tokens=10, query="q", counter=COUNTER)  # type: ignore[arg-type]  # what is tested
