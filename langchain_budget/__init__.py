"""One context budget for LangChain: what does not fit is trimmed in rank order, and a report says why.

`langchain-core` alone is enough to import this package; a name that needs more raises an ImportError that
names the extra. docs/langchain.md tells which class goes where.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._supported import require

if TYPE_CHECKING:
    from .compressor import BudgetDocumentCompressor
    from .context_edit import BudgetContextEdit
    from .examples import BudgetExampleSelector
    from .graph import pre_model_hook
    from .memory import BudgetMemory
    from .message_history import BudgetMessageHistory
    from .middleware import BudgetMiddleware
    from .model import budget_model
    from .prompt import BudgetChatPromptTemplate
    from .retriever import BudgetRetriever
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
    "budget_model",
    "pre_model_hook",
    "trim_messages",
]

_HOME = {
    "BudgetChatPromptTemplate": "prompt",
    "BudgetContextEdit": "context_edit",
    "BudgetDocumentCompressor": "compressor",
    "BudgetExampleSelector": "examples",
    "BudgetMemory": "memory",
    "BudgetMessageHistory": "message_history",
    "BudgetMiddleware": "middleware",
    "BudgetRetriever": "retriever",
    "BudgetTrimmer": "trimmer",
    "budget_model": "model",
    "pre_model_hook": "graph",
    "trim_messages": "trim",
}


def __getattr__(name: str) -> Any:
    """Loads a public name on first use."""
    if name not in _HOME:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    require("langchain_core", needed_by=f"{__name__}.{name}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
