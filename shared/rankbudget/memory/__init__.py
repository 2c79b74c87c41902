"""Memories and conversations that outlive a process: kept with an owner, chosen within a budget."""

from __future__ import annotations

from .memory import BlockType, Memory, MemoryBlock, digest_of, levels_of, route_memory_to_block
from .protocol import MemoryBackend, Receipt
from .store import MemoryStore

__all__ = [
    "BlockType",
    "Memory",
    "MemoryBackend",
    "MemoryBlock",
    "MemoryStore",
    "Receipt",
    "digest_of",
    "levels_of",
    "route_memory_to_block",
]
