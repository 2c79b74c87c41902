"""Memories and conversations that outlive a process: texts with an owner in, a budgeted choice of them out."""

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
