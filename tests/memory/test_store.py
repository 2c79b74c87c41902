"""What a MemoryStore promises, on every kind of database."""

from __future__ import annotations

from rankbudget import Scope
from rankbudget.memory import MemoryStore

ANN = Scope(user="ann")


def test_a_memory_is_read_back(store: MemoryStore) -> None:
    """What was put is found by key and by id, in exactly its scope."""
    put = store.put("Prefers tabs.", scope=ANN, key="indent", kind="preference")
    assert store.get("indent", scope=ANN) == store.get(put.id, scope=ANN) == put
    assert store.get("indent", scope=Scope(user="bob")) is None
