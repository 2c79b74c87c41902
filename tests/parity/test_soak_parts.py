"""The soak drives the core and both adapters through one and the same conversation."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

pytest.importorskip("langchain_core")
pytest.importorskip("llama_index.core")

TURNS = range(1, 61)


def test_every_part_of_the_soak_reads_the_same_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part and each control stores as many messages, and what is read has the same roles and texts in all parts, tool calls included."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    parts = importlib.import_module("soak_parts").PARTS
    stored, read = set(), []
    for ours, control in parts.values():
        threads = ours(), control()
        stored |= {sum(map(thread.add, TURNS)) for thread in threads}
        assert threads[1].read is None
        seen = threads[0].dicts(threads[0].read())
        read.append(
            [(m["role"], m.get("content") or "", [c["id"] for c in m.get("tool_calls") or ()]) for m in seen]
        )
    assert len(stored) == 1
    assert any(calls for _, _, calls in read[0])
    assert read[1:] == read[:1] * (len(parts) - 1)
