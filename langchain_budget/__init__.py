"""One context budget for LangChain: what does not fit is trimmed in rank order, and a report says why.

`langchain-core` alone is enough to import this package; a name that needs more raises an ImportError that
names the extra. docs/langchain.md shows which class goes where.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._supported import require

if TYPE_CHECKING:
    from .agents import BudgetContextEdit, pre_model_hook
    from .documents import BudgetDocumentCompressor, BudgetRetriever
    from .examples import BudgetExampleSelector
    from .graph_backend import GraphBackend
    from .langsmith import add_run_metadata
    from .memories import MemoryRetriever, memory_tools
    from .memory import BudgetMemory
    from .memory_vectors import MemoryVectors
    from .message_history import BudgetMessageHistory
    from .middleware import BudgetMiddleware
    from .model import budget_model
    from .prompt import BudgetChatPromptTemplate
    from .stored_history import StoredMessageHistory
    from .stored_thread import StoredThreadMiddleware
    from .trim import trim_messages
    from .trimmer import BudgetTrimmer

__all__ = [
    "BudgetChatPromptTemplate", "BudgetContextEdit", "BudgetDocumentCompressor",
    "BudgetExampleSelector", "BudgetMemory", "BudgetMessageHistory", "BudgetMiddleware",
    "BudgetRetriever", "BudgetTrimmer", "GraphBackend", "MemoryRetriever", "MemoryVectors",
    "StoredMessageHistory", "StoredThreadMiddleware", "add_run_metadata", "budget_model",
    "memory_tools", "pre_model_hook", "trim_messages",
]  # fmt: skip

_HOMES = {
    "agents": ("BudgetContextEdit", "pre_model_hook"),
    "documents": ("BudgetDocumentCompressor", "BudgetRetriever"),
    "examples": ("BudgetExampleSelector",),
    "graph_backend": ("GraphBackend",),
    "langsmith": ("add_run_metadata",),
    "memories": ("MemoryRetriever", "memory_tools"),
    "memory": ("BudgetMemory",),
    "memory_vectors": ("MemoryVectors",),
    "message_history": ("BudgetMessageHistory",),
    "middleware": ("BudgetMiddleware",),
    "model": ("budget_model",),
    "prompt": ("BudgetChatPromptTemplate",),
    "stored_history": ("StoredMessageHistory",),
    "stored_thread": ("StoredThreadMiddleware",),
    "trim": ("trim_messages",),
    "trimmer": ("BudgetTrimmer",),
}  # fmt: skip
_WHERE = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Loads a public name on first use."""
    if name not in _WHERE:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    require("langchain_core", needed_by=f"{__name__}.{name}")
    value = globals()[name] = getattr(import_module(f".{_WHERE[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
