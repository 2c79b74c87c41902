"""fastokens as a drop-in: the same numbers."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from rankbudget import counter_for
from rankbudget.counting import resolve, tiktoken_counter
from rankbudget.counting.tiktoken_counter import TiktokenCounter
from rankbudget.errors import CounterUnavailableError

from .test_tiktoken_counter import texts


@pytest.mark.slow
@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base"])
def test_fast_counts_equal(name: str) -> None:
    """20,000 fuzzed texts count what tiktoken counts, lone surrogates included."""
    pytest.importorskip("fastokens")
    fast, plain = counter_for(name, fast=True), counter_for(name)
    drawn = list(texts(47, 20_000))
    assert fast.count_many(drawn) == plain.count_many(drawn)
    assert counter_for(f"{name}+fast") is fast
    assert (fast.exact, fast.name) == (True, f"{name}+fast")
    for text in (" " * 300_000, "a\ud800b", "<|endoftext|>", "word " * 30_000):
        assert fast.count(text) == plain.count(text)
        assert fast.truncate(text, 50) == plain.truncate(text, 50)


def test_without_fastokens_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for speed without the library is an error that names the extra; an encoding it was not proved on is refused too."""
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "fastokens":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    tiktoken_counter._fast_encoding.cache_clear()
    with pytest.raises(CounterUnavailableError, match=r"rankbudget\[fast\]"):
        resolve._from_name("gpt-4o+fast")
    with pytest.raises(CounterUnavailableError, match="encoding must be"):
        TiktokenCounter("p50k_base", fast=True)
