"""Counters that estimate: their bands hold, they say what they are, and they learn from what providers report."""

from __future__ import annotations

import logging
import math
import random
import subprocess
import sys
from pathlib import Path

import pytest

from rankbudget import counter_for
from rankbudget.counting import TokenCounter, resolve
from rankbudget.counting.estimate import ESTIMATE_BAND, EstimateCounter
from rankbudget.counting.learning import Learned
from rankbudget.counting.models import similar_to
from rankbudget.testing import CounterConformance

sys.path.insert(0, str(Path(__file__).parents[3]))

from benchmarks.texts_by_kind import KINDS, texts

PUBLISHED = ("English", "German", "Chinese", "Arabic", "code", "JSON", "uuid", "emoji")


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


@pytest.mark.parametrize("kind", KINDS)
def test_a_similar_count_covers_a_small_vocabulary(kind: str) -> None:
    """What is counted for a model nobody knows covers a vocabulary of 32,000 pieces within its band."""
    tokenizers = pytest.importorskip("tokenizers")
    wordllama = pytest.importorskip("wordllama")
    file = next(Path(wordllama.__file__).parent.glob("tokenizers/*.json"))
    small = tokenizers.Tokenizer.from_file(str(file))
    similar = counter_for("acme-unheard-of-1")
    for text in texts(kind, many=40, seed=98):
        assert len(small.encode(text, add_special_tokens=False)) <= math.ceil(
            similar.count(text) * (1 + similar.band)
        )


def test_an_unknown_model_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """A model without a tokenizer is counted with another's, says why and how wrong it may be, and warns once."""
    resolve._by_name.pop("acme-2", None)
    with caplog.at_level(logging.WARNING, logger="rankbudget.counting"):
        counter = counter_for("acme-2")
        assert counter_for("acme-2") is counter
    assert [record.getMessage().count("acme-2") for record in caplog.records] == [1]
    assert (counter.name, counter.exact, counter.band) == ("acme-2", False, 0.5)
    for part in ("acme-2", "o200k_base", "50%"):
        assert part in counter.why
    assert counter_for("claude-sonnet-4-5").band == similar_to("claude-sonnet-4-5").band == 0.3


def test_a_counter_learns_what_a_provider_reports() -> None:
    """After three reports of a fifth more, counts are a fifth more and the band is small; one report changes nothing."""
    counter = EstimateCounter(why="a test")
    text = "a text of several words, told twice. " * 20
    before = counter.count(text)
    counter.observe(before, round(before * 1.2))
    assert counter.count(text) == before
    for factor in (1.19, 1.21, 1.2):
        counter.observe(counter.count(text), round(before * factor))
    assert abs(counter.count(text) - 1.2 * before) <= 0.02 * before
    assert counter.band < 0.1
    assert counter.count_messages([{"role": "user", "content": text}]) >= counter.count(text)
    cut = counter.truncate(text, 30)
    assert 25 <= counter.count(cut) <= 30


def test_learning_converges_and_the_band_covers_what_was_seen() -> None:
    """Whatever a provider's true factor is, counts meet it, and no report seen so far is outside the band."""
    rng = random.Random(43)
    for factor in (0.6, 0.9, 1.0, 1.3, 2.0):
        learned = Learned(0.5)
        for _ in range(100):
            plain = rng.randint(500, 5_000)
            reported = round(plain * factor * rng.uniform(0.97, 1.03))
            learned.observe(learned.scaled(plain), reported)
        assert abs(learned.scaled(10_000) - 10_000 * factor) < 250
        assert 0.02 <= learned.band <= 0.12
        assert learned.scaled(learned.unscaled(777)) <= 777


def test_nonsense_reports_teach_nothing() -> None:
    """Zero, negative and absurd reports are ignored; an exact counter has nothing to learn."""
    learned = Learned(0.5)
    for counted, reported in ((0, 5), (5, 0), (-1, 5), (10, 10_000), (10_000, 10)) * 3:
        assert learned.observe(counted, reported) is False
    assert (learned.scaled(100), learned.band) == (100, 0.5)
    exact = counter_for("gpt-4o")
    for _ in range(5):
        exact.observe(100, 200)  # type: ignore[attr-defined]
    assert exact.count("Hello, world!") == 4
    assert exact.band == 0


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
