"""Conformance suites, one for each protocol.

Subclass one in a test file and say how to make your part; every numbered rule of its protocol becomes a test.

    class TestMyCounter(CounterConformance):
        def make(self):
            return MyCounter()

The classes are collected by pytest through your subclass only; they need pytest and hypothesis.
"""

from __future__ import annotations

from .adapter import AdapterConformance
from .counter import CounterConformance
from .fit_strategy import FitStrategyConformance
from .memory import MemoryConformance
from .store import StoreConformance

__all__ = [
    "AdapterConformance",
    "CounterConformance",
    "FitStrategyConformance",
    "MemoryConformance",
    "StoreConformance",
]
