"""A writer killed at any point loses nothing that it was told is kept; `python benchmarks/memory.py kill` kills 200."""

from __future__ import annotations

import random

from rankbudget import Scope
from rankbudget.memory import MemoryStore
from rankbudget.testing.conformance._agreement import disagreements
from rankbudget.testing.conformance._processes import killed_writer, put_times

ANN = Scope(user="ann")


def test_killed_writers_lose_nothing(shared_store: MemoryStore) -> None:
    """All that was acknowledged is there, once, and its words agree with it."""
    draws, told = random.Random(4), []
    for burst in range(5):
        told += killed_writer(put_times, (shared_store, ANN, f"{burst}-"), draws.randint(0, 9))
    kept = [shared_store.get(name, scope=ANN) for name in told]
    assert [memory.text for memory in kept if memory] == [f"Text {name}." for name in told]
    assert [len(shared_store.versions(name, scope=ANN)) for name in told] == [1] * len(told)
    assert disagreements(shared_store.backend.database) == []
