"""What long and repetitive texts can do: every one is counted, cut and packed within the limit."""

from __future__ import annotations

import os

import pytest

from rankbudget import counter_for, fit_documents, fit_messages, fit_text
from rankbudget.messages.tags import escape_text
from rankbudget.testing import WordCounter


@pytest.mark.slow
def test_long_runs_of_one_character_are_counted() -> None:
    """A million letters, spaces or fence characters without a break have twenty times the tokens of fifty thousand."""
    counter = counter_for("o200k_base")
    for unit in ("a", " ", "\n", "-", "`", "é", "汉", "😀", "ab" * 9 + "😀"):
        small, large = unit * (50_000 // len(unit)), unit * (1_000_000 // len(unit))
        assert counter.count(large) == pytest.approx(20 * counter.count(small), rel=0.01), repr(unit[:3])


ATTACKS = {
    "spaces": " " * 60_000,
    "dots": "." * 60_000,
    "dot spaces": ". " * 30_000,
    "words without an end": "a" * 60_000,
    "capitals": "A B " * 15_000,
    "quotes": '"' * 60_000,
    "open brackets": "[" * 60_000,
    "open tags": "<" * 60_000,
    "half tags": "</ " * 20_000,
    "tag spaces": ("<" + " " * 30_000) * 2 + "x",
    "pipes": "<|" * 30_000,
    "newlines": "\n" * 60_000,
    "tabs and breaks": "\t\r\n" * 20_000,
    "hyphens": "a-" * 30_000,
    "digits": "1." * 30_000,
    "fences": "```\n" * 15_000,
    "json": '{"a":' * 12_000,
    "abbreviations": "e.g. i.e. Dr. " * 4_000,
    "combining": "e\u0301" * 30_000,
    "joiners": "👩\u200d" * 20_000,
    "urls": "http://" * 8_000,
    "mixed": "x.Y!z?\u2026)]\u201d " * 6_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_no_text_makes_regular_expressions_blow_up(name: str) -> None:
    """Counting, cutting, escaping, scoring and packing 60,000 hostile characters all finish; backtracking would take hours."""
    text = ATTACKS[name]
    counter = WordCounter()
    assert len(escape_text(text)) >= len(text)
    assert counter.count(fit_text(text, max_tokens=50, counter=counter).text) <= 50
    packed = fit_documents(
        [text, "a plain document", text[:5000]],
        max_tokens=60,
        query=text[:300] + " document",
        counter=counter,
    )
    fitted = fit_messages(
        [{"role": "user", "content": text}, {"role": "user", "content": "now"}],
        max_tokens=60,
        counter=counter,
    )
    assert packed.report.total_tokens <= 60
    assert fitted.report.total_tokens <= 60


HUGE = 10 if os.environ.get("RANKBUDGET_HUGE") else 1
"""RANKBUDGET_HUGE=1 takes 100 MB and a million documents; by default a tenth of that, for everyday runs."""


@pytest.mark.slow
def test_a_hundred_megabytes_of_text() -> None:
    """A message of 100 MB in an old turn is left out, and a document of 100 MB is cut."""
    giant = "The quick brown fox jumps over the lazy dog. " * 233_000 * HUGE
    assert len(giant) > 10_000_000 * HUGE
    chat = [
        {"role": "user", "content": giant},
        {"role": "assistant", "content": "ok"},
        {"role": "user", "content": "now"},
    ]
    result = fit_messages(chat, max_tokens=4000)
    assert result.messages[-1]["content"] == "now"
    assert result.report.total_tokens <= 4000
    kept = fit_documents([giant, "short"], max_tokens=1000, query="fox")
    assert sum(counter_for("o200k_base").count_many([s.text for s in kept.segments])) <= 1000


@pytest.mark.slow
def test_a_million_documents_of_one_token() -> None:
    """A million tiny documents are packed within the limit in one pass."""
    half = 50_000 * HUGE
    kept = fit_documents(["tea"] * half + ["ice"] * half, max_tokens=500, query="tea", counter=WordCounter())
    assert kept.segments
    assert kept.report.total_tokens <= 500
