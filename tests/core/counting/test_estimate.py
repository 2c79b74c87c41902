"""Counters that estimate: their bands hold, they say what they are."""

from __future__ import annotations

import logging
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rankbudget import counter_for
from rankbudget.counting import TokenCounter
from rankbudget.counting.estimate import ESTIMATE_BAND, EstimateCounter, estimate_tokens
from rankbudget.counting.models import similar_to
from rankbudget.counting.resolve import COUNTERS
from rankbudget.testing import CounterConformance
from tests.growth import growth

from .languages import LANGUAGES, WHITESPACE

sys.path.insert(0, str(Path(__file__).parents[3]))

from benchmarks.texts_by_kind import KINDS, texts

PUBLISHED = ("English", "German", "Chinese", "Arabic", "code", "JSON", "uuid", "emoji")


def small_tokenizer() -> Any:
    """Returns a tokenizer with a vocabulary of 32,000 pieces, that of Llama 2."""
    tokenizers = pytest.importorskip("tokenizers")
    wordllama = pytest.importorskip("wordllama")
    file = next(Path(wordllama.__file__).parent.glob("tokenizers/*.json"))
    return tokenizers.Tokenizer.from_file(str(file))


class TestEstimate(CounterConformance):
    def make(self) -> TokenCounter:
        return EstimateCounter(why="a test")


class TestSimilar(CounterConformance):
    def make(self) -> TokenCounter:
        return counter_for("acme-unheard-of-1")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoding", ["o200k_base", "cl100k_base"])
def test_no_estimate_is_too_low_by_more_than_its_band(kind: str, encoding: str) -> None:
    """On every kind of text, drawn anew, the true count is at most the estimate and its band."""
    assert set(PUBLISHED) <= set(KINDS)
    estimate, exact = counter_for("estimate"), counter_for(encoding)
    assert estimate.band == ESTIMATE_BAND
    for text in texts(kind, many=100, seed=99):
        assert exact.count(text) <= math.ceil(estimate.count(text) * (1 + estimate.band))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LANGUAGES, *WHITESPACE])
def test_no_language_is_estimated_too_low(name: str) -> None:
    """Languages, scripts and blanks that vocabularies take in small pieces, as whole texts and as sentences."""
    text = {**LANGUAGES, **WHITESPACE}[name]
    estimate, exact, small = counter_for("estimate"), counter_for("cl100k_base"), small_tokenizer()
    similar = counter_for("acme-unheard-of-1")
    for part in [text, *(one for one in re.split(r"(?<=[.;։።]) ", text) if len(one) > 60)]:
        assert exact.count(part) <= math.ceil(estimate.count(part) * (1 + estimate.band))
        pieces = len(small.encode(part, add_special_tokens=False))
        assert pieces <= math.ceil(similar.count(part) * (1 + similar.band))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_similar_count_covers_a_small_vocabulary(kind: str) -> None:
    """What is counted for an unknown model covers a vocabulary of 32,000 pieces within its band."""
    small = small_tokenizer()
    similar = counter_for("acme-unheard-of-1")
    for text in texts(kind, many=40, seed=98):
        assert len(small.encode(text, add_special_tokens=False)) <= math.ceil(
            similar.count(text) * (1 + similar.band)
        )


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["\u00a0", "\u3000", " ", "\n", " \n", ".", "a", "\u0301", "9", "\t "])
def test_estimates_take_linear_time(unit: str) -> None:
    """Long runs of one character cost no more for each than short ones."""
    found = growth(estimate_tokens, lambda size: unit * size, short=500_000, times=10, most=14)
    assert found.linear, found


@pytest.mark.parametrize(("name", "advised"), [("claude-haiku-4-5", False), ("gpt-9o", True)])
def test_only_an_unknown_model_is_advised_another_name(
    name: str, advised: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A model of a known family is no misspelling of another one."""
    COUNTERS.pop(name, None)
    with caplog.at_level(logging.WARNING, logger="rankbudget.counting"):
        counter_for(name)
    assert ("did you mean" in caplog.text) is advised


def test_an_unknown_model_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """A model without a tokenizer is counted with another's, says why and how wrong it may be, and warns once."""
    COUNTERS.pop("acme-2", None)
    with caplog.at_level(logging.WARNING, logger="rankbudget.counting"):
        counter = counter_for("acme-2")
        assert counter_for("acme-2") is counter
    assert [record.getMessage().count("acme-2") for record in caplog.records] == [1]
    assert (counter.name, counter.exact, counter.band) == ("acme-2", False, 0.5)
    for part in ("acme-2", "o200k_base", "50%"):
        assert part in counter.why
    assert counter_for("claude-sonnet-4-5").band == similar_to("claude-sonnet-4-5")[1] == 0.3


@pytest.mark.slow
def test_the_published_table_is_what_the_command_prints() -> None:
    """docs/counting.md shows the table that the benchmark prints now."""
    pytest.importorskip("wordllama")
    pytest.importorskip("tokenizers")
    folder = Path(__file__).parents[3]
    made = subprocess.run(
        [sys.executable, "bench_counting.py", "--table"],
        cwd=folder / "benchmarks",
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    ).stdout.strip()
    assert made.count("\n") == len(KINDS) + 1
    assert made in (folder / "docs" / "counting.md").read_text(encoding="utf-8")
