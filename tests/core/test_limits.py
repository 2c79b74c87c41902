"""What limits a prompt is resolved in one place, and what metadata says is read in one place."""

from __future__ import annotations

from datetime import datetime, timezone
from fractions import Fraction
from typing import Any

import pytest

from rankbudget import Segment, TokenBudget
from rankbudget.adapters import ModelFacts, check_options, limits_of, segment_signals
from rankbudget.errors import BudgetConfigError, CounterUnavailableError

WIDE = TokenBudget(context_window=1000, reserve=100)


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"max_tokens": 500}, 500),
        ({"context_window": 1000}, 700),
        ({"budget": {"context_window": 1000, "reserve": 200}}, 800),
        ({"budget": TokenBudget(context_window=1000, reserve=200), "max_tokens": 300}, 300),
        ({"budget": TokenBudget(context_window=1000, reserve=200), "max_tokens": 900}, 800),
        ({"model": "gpt-4"}, 8192 - 2457),
        ({"model": "gpt-4", "max_tokens": 100}, 100),
        ({"model": ModelFacts(window=1000)}, 700),
        ({"model": ModelFacts(window=1000, answer=400, answer_chosen=True)}, 600),
        ({"model": ModelFacts(window=1000, answer=100)}, 700),
        ({"model": ModelFacts(window=1000, smallest_fallback=500)}, 350),
        ({"model": ModelFacts(window=1000, smallest_fallback=500), "context_window": 2000}, 350),
        ({"model": ModelFacts(window=1000), "context_window": 2000}, 700),
        ({"model": ModelFacts(window=2000), "context_window": 1000}, 700),
        ({"model": ModelFacts(name="gpt-4"), "context_window": 20_000}, 20_000 - 6000),
        ({"model": ModelFacts(assumed=500)}, 350),
        ({"model": ModelFacts(assumed=500), "max_tokens": 900}, 350),
        ({"model": ModelFacts(assumed=500), "context_window": 1000}, 700),
        ({"budget": WIDE, "model": ModelFacts(assumed=500)}, 900),
        ({"budget": WIDE, "model": ModelFacts(window=500, assumed=400)}, 400),
        ({"budget": WIDE, "model": ModelFacts(window=2000, smallest_fallback=500)}, 400),
        ({"budget": WIDE.replace(context_window=9000), "model": "gpt-4"}, 8092),
        ({"budget": WIDE, "model": ModelFacts(window=1000, answer=400, answer_chosen=True)}, 600),
        ({"budget": WIDE, "model": ModelFacts(window=1000, answer=400)}, 900),
        ({"budget": WIDE, "model": ModelFacts(window=9000, answer=400, answer_chosen=True)}, 900),
        ({"budget": WIDE, "model": ModelFacts(name="gpt-4", answer=8000, answer_chosen=True)}, 192),
        ({"budget": {"context_window": 1000}, "model": ModelFacts(answer=400, answer_chosen=True)}, 600),
        ({"budget": {"context_window": 1000}, "model": ModelFacts(answer=400)}, 600),
        ({"budget": {"context_window": 1000}, "model": ModelFacts(answer=600)}, 700),
        (
            {"budget": {"context_window": 1000}, "model": ModelFacts(window=1100, answer=500)},
            600,
        ),
        (
            {
                "budget": {"context_window": 1000},
                "model": ModelFacts(window=9000, answer=2000, answer_chosen=True),
            },
            700,
        ),
        (
            {
                "budget": {"context_window": 1000, "sizes": {"task": 500}},
                "model": ModelFacts(answer=600, answer_chosen=True),
            },
            400,
        ),
        ({"budget": WIDE, "model": ModelFacts(answer=400, answer_chosen=True)}, 900),
        ({"model": ModelFacts(), "max_tokens": 300}, 300),
        ({"model": ModelFacts(name="unheard-of"), "max_tokens": 300, "counter": "o200k_base"}, 300),
    ],
)
def test_the_limit_is_what_was_said(options: dict[str, Any], most: int) -> None:
    """A budget, a window, a model or a number, alone and beside a number."""
    assert limits_of(**options).most == most


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"context_window": 2.5}, "context_window"),
        ({"budget": 500}, "max_tokens"),
        ({"budget": TokenBudget(), "context_window": 9}, "context_window"),
        ({"model": ModelFacts(shown_as="FakeModel")}, "FakeModel"),
        ({"model": ModelFacts(window=1000, answer=1000, answer_chosen=True)}, "1,000"),
    ],
)
def test_what_cannot_limit_is_named(options: dict[str, Any], words: str) -> None:
    """A wrong option is an error that names it."""
    with pytest.raises(BudgetConfigError, match=words):
        limits_of(**options)


def test_reports_warn_of_a_window_that_nobody_gave() -> None:
    """Without any limit 8,192 tokens are assumed, and each report says so; a given limit needs no warning."""
    [note] = limits_of().notes
    assert "no limit was given, so a window of 8,192 tokens is assumed" in note
    assert not any(
        limits_of(**given).notes for given in ({"max_tokens": 9}, {"model": "gpt-4"}, {"budget": WIDE})
    )


def test_an_unknown_window_is_an_error_that_says_what_to_give() -> None:
    """A name that no table has is refused where nothing else limits the prompt."""
    with pytest.raises(CounterUnavailableError, match="context_window="):
        limits_of(model="unheard-of")


def test_the_counter_is_the_nearest_that_was_named() -> None:
    """The user's counter goes before the model's own, this before its name, this before the budget's."""
    budget = TokenBudget(model="gpt-4")
    facts = ModelFacts(name="gpt-4o", counter=len)
    names = [
        limits_of(budget=budget, model=facts, counter="o200k_base").counter.name,
        limits_of(budget=budget, model=facts).counter.name,
        limits_of(budget=budget, model="gpt-4o").counter.name,
        limits_of(budget=budget).counter.name,
    ]
    assert names == ["o200k_base", "len", "gpt-4o", "gpt-4"]


def test_a_default_answer_that_would_eat_the_window_warns() -> None:
    """An integration's default is no reserve; the user is told."""
    with pytest.warns(UserWarning, match="900"):
        assert limits_of(model=ModelFacts(window=1000, answer=900)).most == 700


def test_every_misspelt_option_is_named() -> None:
    """All problems at once, the nearest name for each that has one."""
    with pytest.raises(BudgetConfigError, match=r"'max_tokens'.*'zzz'; allowed: max_tokens, counter"):
        check_options("Part", ["max_token", "zzz"], ["max_tokens", "counter"])


def test_metadata_that_says_nothing_adds_nothing() -> None:
    """Unknown confidence stays unknown; words, bounds and infinities are not read as numbers."""
    for metadata in (
        {},
        {"score": "0.9"},
        {"priority": 101},
        {"confidence": 2},
        {"relevance_score": float("inf")},
        {"score": 10**400, "priority": -(10**400), "created_at": 10**400, "confidence": Fraction(10**400)},
    ):
        assert segment_signals(metadata, name="d1") == {}
    sourced = segment_signals({"source": "a.md"})["provenance"]
    assert (sourced.source_id, sourced.confidence) == ("a.md", None)


def test_metadata_becomes_fields_of_a_segment() -> None:
    """Score, priority, date, confidence and title in the forms that stores keep them."""
    when = datetime(2025, 3, 1, tzinfo=timezone.utc)
    said = {"score": 0.4, "priority": 80, "confidence": 0.5, "title": "Tea", "kind": "fact"}
    for date in (when, when.isoformat(), when.timestamp()):
        made = Segment(id="d1", text="t", **segment_signals({**said, "created_at": date}, name="d1"))
        assert (made.score, made.priority, made.title, made.kind, made.created_at) == (
            0.4,
            80,
            "Tea",
            "fact",
            when,
        )
        assert made.provenance is not None
        assert (made.provenance.source_id, made.provenance.confidence) == ("d1", 0.5)
