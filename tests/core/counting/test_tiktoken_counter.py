"""Counting texts with tiktoken's encodings."""

from __future__ import annotations

from rankbudget import counter_for
from rankbudget.counting import TokenCounter
from rankbudget.testing import CounterConformance


class TestO200k(CounterConformance):
    def make(self) -> TokenCounter:
        from rankbudget.counting.tiktoken_counter import TiktokenCounter

        return TiktokenCounter("o200k_base")


class TestCallable(CounterConformance):
    def make(self) -> TokenCounter:
        return counter_for(lambda text: len(text.split()))
