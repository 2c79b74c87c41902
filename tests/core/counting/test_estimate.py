"""Counters that estimate: their bands hold, they say what they are."""

from __future__ import annotations

import logging
import math
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rankbudget import counter_for
from rankbudget.counting import TokenCounter
from rankbudget.counting.cutting import Sums, cut_text
from rankbudget.counting.estimate import ESTIMATE_BAND, EstimateCounter, SimilarCounter, estimate_tokens
from rankbudget.counting.models import similar_to
from rankbudget.counting.resolve import COUNTERS
from rankbudget.counting.tiktoken_counter import TiktokenCounter
from rankbudget.counting.vocabulary import load_encoding
from rankbudget.testing import CounterConformance
from tests.growth import growth

from .languages import LANGUAGES, WHITESPACE
from .test_tiktoken_counter import texts as awkward

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


# ---- cutting ---------------------------------------------------------------------------------------------
ROWS = "\n".join(f"Line {i} of f: the pallet was moved by crew {i % 7} at dock {i % 11}." for i in range(150))
SIGNS = "今天天气很好，我们去公园散步。" * 700
_GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
WAYS = {
    "o200k_base": lambda: TiktokenCounter("o200k_base"),
    "cl100k_base": lambda: TiktokenCounter("cl100k_base"),
    "an encoding of one's own": lambda: TiktokenCounter(_own_encoding()),
    "the larger of two": lambda: SimilarCounter("o200k_base", exact=False, band=0.3),
    "estimate": lambda: EstimateCounter(why="a test"),
}


def _own_encoding() -> Any:
    tiktoken = pytest.importorskip("tiktoken")
    ranks: dict[bytes, int] = load_encoding("cl100k_base")._mergeable_ranks
    return tiktoken.Encoding("own", pat_str=_GPT2_PATTERN, mergeable_ranks=ranks, special_tokens={})


def _watched(counter: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns the sizes of all texts that the counter measures from now on, whole or in parts."""
    sizes: list[int] = []

    def watch(function: Any) -> Any:
        return lambda text: sizes.append(len(text)) or function(text)

    measure, sums = counter._measure, counter._sums()
    monkeypatch.setattr(counter, "_measure", watch(measure))
    monkeypatch.setattr(counter, "_sums", lambda: sums and sums._replace(of=watch(sums.of)))
    return sizes


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("side", ["right", "left"])
def test_cutting_measures_a_text_a_few_times_at_most(
    way: str, side: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the text is, no counter whose counts add up measures it again for every length it tries."""
    for text, tokens in ((ROWS, 300), (ROWS, 900), (ROWS * 4, 1900), (ROWS * 4, 9000), (SIGNS, 1900)):
        counter: Any = WAYS[way]()
        sizes = _watched(counter, monkeypatch)
        cut = counter.truncate(text, tokens, side=side)
        assert 0.97 * tokens <= counter._measure(cut) <= tokens or cut == text
        assert sum(sizes) - len(cut) <= 4 * len(text) + 8_000, tokens


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_counter_that_adds_nothing_up_measures_what_it_keeps_a_hundred_times(side: Any) -> None:
    """A callable may count as it likes, so each length near the cut is counted whole."""
    sizes: list[int] = []
    counter = counter_for(lambda text: sizes.append(len(text)) or len(text) // 4 + 1)
    cut = counter.truncate(ROWS, 900, side=side)
    assert sum(sizes) <= 120 * (len(cut) + 100)


@pytest.mark.parametrize("way", WAYS)
def test_adding_up_finds_what_counting_whole_finds(way: str) -> None:
    """The start or end that is kept is the one that measuring each length whole would keep."""
    counter, rng = WAYS[way](), random.Random(5)
    for text in (ROWS[:3000], SIGNS[:900], *awkward(29, 40, longest=200)):
        for side in ("right", "left"):
            most = rng.randint(1, max(1, counter.count(text)))
            guess = rng.choice((None, most * 3))
            found = cut_text(text, most, counter._measure, side=side, guess=guess, sums=counter._sums())
            assert found == cut_text(text, most, counter._measure, side=side, guess=guess)


def test_what_does_not_add_up_is_counted_whole() -> None:
    """Sums that a counter wrongly gives are found out: the kept text has other tokens than they say."""
    few = Sums(lambda text: (len(text.split()) - 1,), lambda numbers: numbers[0])
    many = Sums(lambda text: (len(text.split()) + 1,), lambda numbers: numbers[0])
    for sums in (few, many):
        for side in ("right", "left"):
            kept = cut_text(ROWS, 200, lambda text: len(text.split()), side=side, sums=sums)
            assert len(kept.split()) == 200
