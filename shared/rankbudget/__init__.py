"""One context budget for all that competes for a model's window.

A prompt is blocks; a block is segments; every segment ends as kept, shortened or dropped, and the report says why.

    data in     segment.py, codec.py, timeline.py    blocks, segments, a conversation read through a codec
    counted     counting/                            text, messages, tools, media -> tokens
    scored      relevance/                           how well a segment answers the query
    granted     allocation.py                        budget + demands -> tokens for each block, integers only
    fitted      fitting/, conversation.py            each block within its grant
    rendered    rendering.py, prompt.py              messages, tagged text
    report out  report.py                            a decision and a reason for every segment

`Assembler` runs the stations and verifies the result. Names load on first use: importing the package loads no model, no framework and no
configuration class.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "AnalyzerConfig": "relevance.analyzer",
    "Assembler": "assembler",
    "Assembly": "assembly",
    "Block": "segment",
    "BlockAssembler": "block_assembler",
    "BlockTotal": "report",
    "BudgetConfigError": "errors",
    "BudgetError": "errors",
    "BudgetExceededError": "errors",
    "BudgetReport": "report",
    "BudgetSession": "session",
    "Codec": "codec",
    "CompressionResult": "compression.compressor",
    "CompressorConfig": "compression.compressor",
    "ContextAnalyzer": "relevance.analyzer",
    "CounterUnavailableError": "errors",
    "Decision": "segment",
    "DictCodec": "codec",
    "EmbeddingIndex": "relevance.index",
    "EmbeddingIndexError": "errors",
    "FewShotSelector": "examples",
    "FitResult": "result",
    "FitStrategy": "fitting.protocol",
    "MessageError": "errors",
    "OptimizationResult": "optimizer",
    "OptimizerConfig": "optimizer",
    "PromptCompressor": "compression.compressor",
    "Provenance": "segment",
    "Rendition": "segment",
    "Scope": "segment",
    "Scorer": "relevance.protocol",
    "Segment": "segment",
    "SegmentScore": "relevance.analyzer",
    "SummaryError": "errors",
    "TokenBudget": "budget",
    "TokenCounter": "counting.protocol",
    "TokenOptimizer": "optimizer",
    "afit_messages": "messages",
    "build_constrained_prompt": "constrained",
    "counter_for": "counting",
    "fit_documents": "documents",
    "fit_messages": "messages",
    "fit_text": "texts",
    "truncate_text": "fitting.truncate",
}

__all__ = [
    "AnalyzerConfig",
    "Assembler",
    "Assembly",
    "Block",
    "BlockAssembler",
    "BlockTotal",
    "BudgetConfigError",
    "BudgetError",
    "BudgetExceededError",
    "BudgetReport",
    "BudgetSession",
    "Codec",
    "CompressionResult",
    "CompressorConfig",
    "ContextAnalyzer",
    "CounterUnavailableError",
    "Decision",
    "DictCodec",
    "EmbeddingIndex",
    "EmbeddingIndexError",
    "FewShotSelector",
    "FitResult",
    "FitStrategy",
    "MessageError",
    "OptimizationResult",
    "OptimizerConfig",
    "PromptCompressor",
    "Provenance",
    "Rendition",
    "Scope",
    "Scorer",
    "Segment",
    "SegmentScore",
    "SummaryError",
    "TokenBudget",
    "TokenCounter",
    "TokenOptimizer",
    "afit_messages",
    "build_constrained_prompt",
    "counter_for",
    "fit_documents",
    "fit_messages",
    "fit_text",
    "truncate_text",
]

if TYPE_CHECKING:
    from .assembler import Assembler
    from .assembly import Assembly
    from .block_assembler import BlockAssembler
    from .budget import TokenBudget
    from .codec import Codec, DictCodec
    from .compression.compressor import CompressionResult, CompressorConfig, PromptCompressor
    from .constrained import build_constrained_prompt
    from .counting import counter_for
    from .counting.protocol import TokenCounter
    from .documents import fit_documents
    from .errors import (
        BudgetConfigError,
        BudgetError,
        BudgetExceededError,
        CounterUnavailableError,
        EmbeddingIndexError,
        MessageError,
        SummaryError,
    )
    from .examples import FewShotSelector
    from .fitting.protocol import FitStrategy
    from .fitting.truncate import truncate_text
    from .messages import afit_messages, fit_messages
    from .optimizer import OptimizationResult, OptimizerConfig, TokenOptimizer
    from .relevance.analyzer import AnalyzerConfig, ContextAnalyzer, SegmentScore
    from .relevance.index import EmbeddingIndex
    from .relevance.protocol import Scorer
    from .report import BlockTotal, BudgetReport
    from .result import FitResult
    from .segment import Block, Decision, Provenance, Rendition, Scope, Segment
    from .session import BudgetSession
    from .texts import fit_text


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
