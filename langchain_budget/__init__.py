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
    "BudgetChatPromptTemplate",
    "BudgetContextEdit",
    "BudgetDocumentCompressor",
    "BudgetExampleSelector",
    "BudgetMemory",
    "BudgetMessageHistory",
    "BudgetMiddleware",
    "BudgetRetriever",
    "BudgetTrimmer",
    "GraphBackend",
    "MemoryRetriever",
    "MemoryVectors",
    "StoredMessageHistory",
    "StoredThreadMiddleware",
    "add_run_metadata",
    "budget_model",
    "memory_tools",
    "pre_model_hook",
    "trim_messages",
]

_HOMES = {
    "BudgetChatPromptTemplate": "prompt",
    "BudgetContextEdit": "agents",
    "BudgetDocumentCompressor": "documents",
    "BudgetExampleSelector": "examples",
    "BudgetMemory": "memory",
    "BudgetMessageHistory": "message_history",
    "BudgetMiddleware": "middleware",
    "BudgetRetriever": "documents",
    "BudgetTrimmer": "trimmer",
    "GraphBackend": "graph_backend",
    "MemoryRetriever": "memories",
    "MemoryVectors": "memory_vectors",
    "StoredMessageHistory": "stored_history",
    "StoredThreadMiddleware": "stored_thread",
    "add_run_metadata": "langsmith",
    "budget_model": "model",
    "memory_tools": "memories",
    "pre_model_hook": "agents",
    "trim_messages": "trim",
}


def __getattr__(name: str) -> Any:
    """Loads a public name on first use."""
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    require("langchain_core", needed_by=f"{__name__}.{name}")
    value = globals()[name] = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
