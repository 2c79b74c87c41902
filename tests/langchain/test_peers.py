"""The counters that `trim_messages` is timed with count what ours counts, or the race would be between different tasks."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from rankbudget import counter_for
from rankbudget.counting.vocabulary import vocabulary_file


def test_all_counters_count_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every counter gives the same total for the same conversation."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    vocabulary = vocabulary_file("o200k_base")
    assert vocabulary is not None
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(vocabulary.parent))
    peers = importlib.import_module("peers")
    thread = peers.langchain_thread(40, "seed")
    roles = {"system": "system", "human": "user", "ai": "assistant"}
    ours = counter_for("o200k_base").count_messages(
        [{"role": roles[m.type], "content": m.content} for m in thread]
    )
    counters = {name: make() for name, make in peers.COUNTERS.items()}
    counted = {
        name: count(thread) if callable(count) else count.get_num_tokens_from_messages(thread)
        for name, count in counters.items()
    }
    assert counted == dict.fromkeys(counters, ours)
