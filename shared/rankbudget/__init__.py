"""One context budget for all that competes for a model's window.

A prompt is blocks; a block is segments; every segment ends as kept, shortened or dropped, and the report says
why.

    messages/, counting/       host messages and texts -> tokens
    budget/                    limits and demands -> tokens for each block, integers only
    relevance/, compression/   how well a text answers the question; shorter texts
    fitting/, conversation/    each block, and the conversation, within its grant
    prompt/                    one plan for a whole prompt: read, price, grant, fit, verify, report
    report/                    a decision and a reason for every segment

Names load on first use: importing the package loads no model, no framework and no configuration class.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "budget.token_budget": ("TokenBudget",),
    "compression.truncate": ("truncate_text",),
    "counting": ("counter_for",),
    "counting.protocol": ("TokenCounter",),
    "errors": (
        "BudgetConfigError", "BudgetError", "BudgetExceededError", "CounterUnavailableError",
        "EmbeddingIndexError", "MessageError", "RowError", "StoreConflictError", "StoreError",
        "StoreUnsupportedError", "SummaryError",
    ),
    "fitting.protocol": ("FitStrategy",),
    "messages.codec": ("Codec", "DictCodec"),
    "optimizer.analyzer": ("AnalyzerConfig", "ContextAnalyzer", "SegmentScore"),
    "optimizer.compressor": ("CompressionResult", "CompressorConfig", "PromptCompressor"),
    "optimizer.few_shot": ("FewShotSelector",),
    "optimizer.optimizer": ("OptimizationResult", "OptimizerConfig", "TokenOptimizer"),
    "prompt.assembler": ("Assembler",),
    "prompt.constrained": ("build_constrained_prompt",),
    "prompt.fit_documents": ("fit_documents",),
    "prompt.fit_messages": ("afit_messages", "fit_messages"),
    "prompt.fit_text": ("fit_text",),
    "prompt.five_block_text": ("BlockAssembler",),
    "prompt.request": ("Assembly",),
    "prompt.session": ("BudgetSession",),
    "relevance.index": ("EmbeddingIndex",),
    "relevance.protocol": ("Scorer",),
    "report.observers": ("log_reports", "trace_reports"),
    "report.page": ("save_html",),
    "report.ratios": ("RatioChange", "adapt_ratios", "ratio_changes"),
    "report.report": ("BudgetReport", "FitResult"),
    "report.totals": ("BlockTotal",),
    "report.usage": ("BlockUsage", "debug_context", "usage_of"),
    "segment": ("Block", "Decision", "Provenance", "Rendition", "Scope", "Segment"),
}  # fmt: skip
_WHERE = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AnalyzerConfig", "Assembler", "Assembly", "Block", "BlockAssembler", "BlockTotal", "BlockUsage",
    "BudgetConfigError", "BudgetError", "BudgetExceededError", "BudgetReport", "BudgetSession", "Codec",
    "CompressionResult", "CompressorConfig", "ContextAnalyzer", "CounterUnavailableError", "Decision",
    "DictCodec", "EmbeddingIndex", "EmbeddingIndexError", "FewShotSelector", "FitResult", "FitStrategy",
    "MessageError", "OptimizationResult", "OptimizerConfig", "PromptCompressor", "Provenance",
    "RatioChange", "Rendition", "RowError", "Scope", "Scorer", "Segment", "SegmentScore",
    "StoreConflictError", "StoreError", "StoreUnsupportedError", "SummaryError", "TokenBudget",
    "TokenCounter", "TokenOptimizer", "adapt_ratios", "afit_messages", "build_constrained_prompt",
    "counter_for", "debug_context", "fit_documents", "fit_messages", "fit_text", "log_reports",
    "ratio_changes", "save_html", "trace_reports", "truncate_text", "usage_of",
]  # fmt: skip

if TYPE_CHECKING:
    from .budget.token_budget import TokenBudget
    from .compression.truncate import truncate_text
    from .counting import counter_for
    from .counting.protocol import TokenCounter
    from .errors import (
        BudgetConfigError,
        BudgetError,
        BudgetExceededError,
        CounterUnavailableError,
        EmbeddingIndexError,
        MessageError,
        RowError,
        StoreConflictError,
        StoreError,
        StoreUnsupportedError,
        SummaryError,
    )
    from .fitting.protocol import FitStrategy
    from .messages.codec import Codec, DictCodec
    from .optimizer.analyzer import AnalyzerConfig, ContextAnalyzer, SegmentScore
    from .optimizer.compressor import CompressionResult, CompressorConfig, PromptCompressor
    from .optimizer.few_shot import FewShotSelector
    from .optimizer.optimizer import OptimizationResult, OptimizerConfig, TokenOptimizer
    from .prompt.assembler import Assembler
    from .prompt.constrained import build_constrained_prompt
    from .prompt.fit_documents import fit_documents
    from .prompt.fit_messages import afit_messages, fit_messages
    from .prompt.fit_text import fit_text
    from .prompt.five_block_text import BlockAssembler
    from .prompt.request import Assembly
    from .prompt.session import BudgetSession
    from .relevance.index import EmbeddingIndex
    from .relevance.protocol import Scorer
    from .report.observers import log_reports, trace_reports
    from .report.page import save_html
    from .report.ratios import RatioChange, adapt_ratios, ratio_changes
    from .report.report import BudgetReport, FitResult
    from .report.totals import BlockTotal
    from .report.usage import BlockUsage, debug_context, usage_of
    from .segment import Block, Decision, Provenance, Rendition, Scope, Segment


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = globals()[name] = getattr(import_module(f".{_WHERE[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
