"""The one seam: all that an adapter imports from the core besides public names.

An adapter builds a `PromptRequest` from its host's objects, runs `plan_steps` (or a session's), and hands out
parts of the `Plan`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._drivers import Call, Steps, adrive, awaiting, blocking, drive, is_blocking, send_report
from .budget.context_windows import assumed_window_of, context_window_of, window_asked_of
from .compression.abstractive import summarize_steps
from .compression.truncate import truncate_text
from .conversation.capping import fair_level
from .conversation.refusals import refuse_empty, refuse_empty_question
from .conversation.thread import SUMMARY_TIMEOUT, Summarizer
from .conversation.timeline import Timeline
from .counting.blocks import block_text, call_reference, called_in, in_turn, results_in, without_answered
from .errors import check_options
from .fitting.protocol import Fit, Piece
from .messages.call_ids import with_clear_ids
from .messages.codec import PINNED_ROLES, ROLES, finished
from .messages.measure import CodecMeasure, ListMeasure, Measure
from .messages.tags import (
    JOINT,
    NO_CONTEXT,
    NOTICE,
    PLACEHOLDERS,
    escape_text,
    render_block,
    tag_name,
    wrapper_of,
)
from .messages.texts import content_text, replace_text, spread_text
from .prompt.beside import is_text, sent_beside
from .prompt.limits import Limits, ModelFacts, holds, limits_of, window_notes, within_window
from .prompt.request import Plan, PromptRequest, Shown
from .prompt.signals import segment_signals
from .prompt.stages import plain_budget, plan_steps

if TYPE_CHECKING:
    from .fitting.evidence import Evidence
    from .optimizer.few_shot import example_text
    from .prompt.pool import SessionPool
    from .prompt.settings import (
        function_name,
        function_named,
        read_counter,
        read_session,
        summarizer_or_warning,
        typed_errors,
        write_counter,
        write_session,
    )
    from .relevance.embedding import EmbeddingScorer, default_embedder
    from .report.observers import report_figures

_LATER = {
    "EmbeddingScorer": "relevance.embedding",
    "Evidence": "fitting.evidence",
    "SessionPool": "prompt.pool",
    "default_embedder": "relevance.embedding",
    "example_text": "optimizer.few_shot",
    "report_figures": "report.observers",
}
"""Loaded only where it is used, as is what writes and reads settings."""

__all__ = [
    "JOINT",
    "NOTICE",
    "NO_CONTEXT",
    "PINNED_ROLES",
    "PLACEHOLDERS",
    "ROLES",
    "SUMMARY_TIMEOUT",
    "Call",
    "CodecMeasure",
    "EmbeddingScorer",
    "Evidence",
    "Fit",
    "Limits",
    "ListMeasure",
    "Measure",
    "ModelFacts",
    "Piece",
    "Plan",
    "PromptRequest",
    "SessionPool",
    "Shown",
    "Steps",
    "Summarizer",
    "Timeline",
    "adrive",
    "assumed_window_of",
    "awaiting",
    "block_text",
    "blocking",
    "call_reference",
    "called_in",
    "check_options",
    "content_text",
    "context_window_of",
    "default_embedder",
    "drive",
    "escape_text",
    "example_text",
    "fair_level",
    "finished",
    "function_name",
    "function_named",
    "holds",
    "in_turn",
    "is_blocking",
    "is_text",
    "limits_of",
    "plain_budget",
    "plan_steps",
    "read_counter",
    "read_session",
    "refuse_empty",
    "refuse_empty_question",
    "render_block",
    "replace_text",
    "report_figures",
    "results_in",
    "segment_signals",
    "send_report",
    "sent_beside",
    "spread_text",
    "summarize_steps",
    "summarizer_or_warning",
    "tag_name",
    "truncate_text",
    "typed_errors",
    "window_asked_of",
    "window_notes",
    "with_clear_ids",
    "within_window",
    "without_answered",
    "wrapper_of",
    "write_counter",
    "write_session",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    home = _LATER.get(name, "prompt.settings")
    return getattr(import_module(f".{home}", __package__), name)
