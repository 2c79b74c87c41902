"""One context budget for LlamaIndex: postprocessor, memories, helper and agent share a `BudgetSession`.

A prompt is blocks; a block is segments; every segment ends as kept, shortened or dropped, and the
report says why. Everything here only translates: what is cut, and why, is decided in `rankbudget`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._supported import require_llama_index

if TYPE_CHECKING:
    from ._events import BudgetEvent
    from ._limits import RequestExceededError, RequestMessageError
    from ._sharing import budget_for, use_session
    from .agent import BudgetFunctionAgent
    from .block_memory import BudgetMemory
    from .blocks import (
        BudgetMemoryBlock,
        HistorySummaryMemoryBlock,
        KnowledgeMemoryBlock,
        ProjectMemoryBlock,
        SystemMemoryBlock,
        TaskMemoryBlock,
    )
    from .examples import few_shot_function
    from .memory import BudgetChatMemoryBuffer
    from .memory_vectors import MemoryVectors
    from .model import budget_model
    from .models import OfflineEmbedding, embedder, summarizer
    from .postprocessor import BudgetNodePostprocessor
    from .prompt_helper import BudgetPromptHelper
    from .stored_chat import StoredAsyncChatStore, StoredChatStore
    from .stored_memories import StoredMemoryBlock

_HOMES = {
    "_events": ("BudgetEvent",),
    "_limits": ("RequestExceededError", "RequestMessageError"),
    "_sharing": ("budget_for", "use_session"),
    "agent": ("BudgetFunctionAgent",),
    "block_memory": ("BudgetMemory",),
    "blocks": (
        "BudgetMemoryBlock", "HistorySummaryMemoryBlock", "KnowledgeMemoryBlock", "ProjectMemoryBlock",
        "SystemMemoryBlock", "TaskMemoryBlock",
    ),
    "examples": ("few_shot_function",),
    "memory": ("BudgetChatMemoryBuffer",),
    "memory_vectors": ("MemoryVectors",),
    "model": ("budget_model",),
    "models": ("OfflineEmbedding", "embedder", "summarizer"),
    "postprocessor": ("BudgetNodePostprocessor",),
    "prompt_helper": ("BudgetPromptHelper",),
    "stored_chat": ("StoredAsyncChatStore", "StoredChatStore"),
    "stored_memories": ("StoredMemoryBlock",),
}  # fmt: skip
_WHERE = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "BudgetChatMemoryBuffer", "BudgetEvent", "BudgetFunctionAgent", "BudgetMemory", "BudgetMemoryBlock",
    "BudgetNodePostprocessor", "BudgetPromptHelper", "HistorySummaryMemoryBlock",
    "KnowledgeMemoryBlock", "MemoryVectors", "OfflineEmbedding", "ProjectMemoryBlock",
    "RequestExceededError", "RequestMessageError", "StoredAsyncChatStore", "StoredChatStore",
    "StoredMemoryBlock", "SystemMemoryBlock", "TaskMemoryBlock", "budget_for", "budget_model",
    "embedder", "few_shot_function", "summarizer", "use_session",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    require_llama_index()
    return getattr(import_module(f".{_WHERE[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
