"""Everything a third party needs to prove its own parts, and the product's, right.

`applications()` draws one application at a time; `check_laws` says which law a result breaks; the conformance
classes hold one test for each numbered rule of a protocol; the fakes are real counters with numbers one can
check in the head. Nothing here imports a framework; hypothesis is imported when a strategy is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .application import Application, MemoryItem, reproduction
    from .conformance import (
        AdapterConformance,
        CounterConformance,
        FitStrategyConformance,
        MemoryConformance,
        StoreConformance,
    )
    from .fakes import ListCounter, RecordingCounter, WordCounter
    from .laws import (
        LAWS,
        LawBroken,
        check_delimited,
        check_laws,
        check_outcome,
        check_prefix,
        check_refusal,
        check_same,
        check_scopes,
        check_superset,
    )
    from .payloads import HOSTILE
    from .repairs import is_broken, pairing_errors, repaired, waiting_from
    from .snapshots import snapshot
    from .strategies import applications, conversations, texts, tools

_HOME = {
    "AdapterConformance": "conformance",
    "CounterConformance": "conformance",
    "FitStrategyConformance": "conformance",
    "MemoryConformance": "conformance",
    "StoreConformance": "conformance",
    "HOSTILE": "payloads",
    "LAWS": "laws",
    "Application": "application",
    "LawBroken": "laws",
    "MemoryItem": "application",
    "RecordingCounter": "fakes",
    "WordCounter": "fakes",
    "applications": "strategies",
    "check_delimited": "laws",
    "check_laws": "laws",
    "ListCounter": "fakes",
    "check_outcome": "laws",
    "check_prefix": "laws",
    "check_refusal": "laws",
    "check_same": "laws",
    "check_scopes": "laws",
    "check_superset": "laws",
    "conversations": "strategies",
    "is_broken": "repairs",
    "pairing_errors": "repairs",
    "repaired": "repairs",
    "reproduction": "application",
    "snapshot": "snapshots",
    "texts": "strategies",
    "tools": "strategies",
    "waiting_from": "repairs",
}

__all__ = [
    "HOSTILE",
    "LAWS",
    "AdapterConformance",
    "Application",
    "CounterConformance",
    "FitStrategyConformance",
    "LawBroken",
    "ListCounter",
    "MemoryConformance",
    "MemoryItem",
    "RecordingCounter",
    "StoreConformance",
    "WordCounter",
    "applications",
    "check_delimited",
    "check_laws",
    "check_outcome",
    "check_prefix",
    "check_refusal",
    "check_same",
    "check_scopes",
    "check_superset",
    "conversations",
    "is_broken",
    "pairing_errors",
    "repaired",
    "reproduction",
    "snapshot",
    "texts",
    "tools",
    "waiting_from",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted(__all__)
