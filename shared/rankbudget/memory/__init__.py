"""Memories and conversations that outlive a process: kept with an owner, chosen within a budget."""

from __future__ import annotations

from .foreign_vectors import VectorIndex
from .forms import HostForm
from .histories import HistoryStore
from .history_thread import StoredThread
from .memory import BlockType, Memory, MemoryBlock, digest_of, levels_of, route_memory_to_block
from .protocol import MemoryBackend, Receipt
from .reading import ThreadMessages
from .records import TurnFigures
from .store import MemoryStore

__all__ = [
    "BlockType", "HistoryStore", "HostForm", "Memory", "MemoryBackend", "MemoryBlock", "MemoryStore",
    "Receipt", "StoredThread", "ThreadMessages", "TurnFigures", "VectorIndex", "digest_of", "levels_of",
    "route_memory_to_block",
]  # fmt: skip
