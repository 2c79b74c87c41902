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

_HOMES = {
    "application": ("Application", "MemoryItem", "reproduction"),
    "conformance": (
        "AdapterConformance", "CounterConformance", "FitStrategyConformance", "MemoryConformance",
        "StoreConformance",
    ),
    "fakes": ("RecordingCounter", "WordCounter", "ListCounter"),
    "laws": (
        "LAWS", "LawBroken", "check_delimited", "check_laws", "check_outcome", "check_prefix",
        "check_refusal", "check_same", "check_scopes", "check_superset",
    ),
    "payloads": ("HOSTILE",),
    "repairs": ("is_broken", "pairing_errors", "repaired", "waiting_from"),
    "snapshots": ("snapshot",),
    "strategies": ("applications", "conversations", "texts", "tools"),
}  # fmt: skip
_WHERE = {name: module for module, names in _HOMES.items() for name in names}

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
    if name in _WHERE:
        return getattr(import_module(f".{_WHERE[name]}", __name__), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted(__all__)
