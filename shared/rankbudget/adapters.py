"""The one seam: all that an adapter imports from the core besides public names.

An adapter builds a `PromptRequest` from its host's objects, runs `plan_steps` (or a session's), and hands out
parts of the `Plan`.

Names load on first use: what checks options needs nothing of a plan.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._drivers import Call, Steps, adrive, awaiting, blocking, drive, is_blocking, send_report
    from .budget.context_windows import assumed_window_of, context_window_of, window_asked_of
    from .compression.abstractive import summarize_steps
    from .compression.sections import sections_of
    from .compression.truncate import truncate_text
    from .conversation.capping import fair_level
    from .conversation.reading import ReadOnce
    from .conversation.refusals import refuse_empty, refuse_empty_question, refuse_results
    from .conversation.state import digest_of
    from .conversation.summary import SUMMARY_START
    from .conversation.thread import SUMMARY_TIMEOUT, Summarizer
    from .conversation.timeline import Timeline
    from .counting.blocks import (
        ROLES,
        arguments_of,
        as_block,
        block_text,
        call_reference,
        called_in,
        function_of,
        in_turn,
        results_in,
        with_results,
        without_answered,
    )
    from .counting.media_forms import PDF, Media, media_of
    from .errors import check_options
    from .fitting.evidence import Evidence
    from .fitting.protocol import Fit, Piece
    from .messages.call_ids import with_clear_ids
    from .messages.codec import PINNED_ROLES, finished
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
    from .messages.unsent import Client, sends_thought
    from .optimizer.few_shot import example_text
    from .prompt.beside import is_text, sent_beside
    from .prompt.fit_documents import fit_one_block
    from .prompt.limits import (
        Limits,
        ModelFacts,
        answer_notes,
        holds,
        limits_of,
        window_notes,
        within_window,
    )
    from .prompt.pool import SessionPool
    from .prompt.pydantic_errors import typed_errors
    from .prompt.request import Plan, PromptRequest, Shown
    from .prompt.settings import (
        function_name,
        function_named,
        read_counter,
        read_session,
        summarizer_or_warning,
        write_counter,
        write_session,
    )
    from .prompt.signals import segment_signals
    from .prompt.stages import plain_budget, plan_steps, whole_request_budget
    from .relevance.embedding import EmbeddingScorer, default_embedder
    from .report.following import following
    from .report.observers import report_figures

_HOMES = {
    "_drivers": ("Call", "Steps", "adrive", "awaiting", "blocking", "drive", "is_blocking", "send_report"),
    "budget.context_windows": ("assumed_window_of", "context_window_of", "window_asked_of"),
    "compression.abstractive": ("summarize_steps",),
    "compression.sections": ("sections_of",),
    "compression.truncate": ("truncate_text",),
    "conversation.capping": ("fair_level",),
    "conversation.reading": ("ReadOnce",),
    "conversation.refusals": ("refuse_empty", "refuse_empty_question", "refuse_results"),
    "conversation.state": ("digest_of",),
    "conversation.summary": ("SUMMARY_START",),
    "conversation.thread": ("SUMMARY_TIMEOUT", "Summarizer"),
    "conversation.timeline": ("Timeline",),
    "counting.blocks": (
        "ROLES", "arguments_of", "as_block", "block_text", "call_reference", "called_in", "function_of",
        "in_turn", "results_in", "with_results", "without_answered",
    ),
    "counting.media_forms": ("PDF", "Media", "media_of"),
    "errors": ("check_options",),
    "fitting.evidence": ("Evidence",),
    "fitting.protocol": ("Fit", "Piece"),
    "messages.call_ids": ("with_clear_ids",),
    "messages.codec": ("PINNED_ROLES", "finished"),
    "messages.measure": ("CodecMeasure", "ListMeasure", "Measure"),
    "messages.tags": (
        "JOINT", "NOTICE", "NO_CONTEXT", "PLACEHOLDERS", "escape_text", "render_block", "tag_name",
        "wrapper_of",
    ),
    "messages.texts": ("content_text", "replace_text", "spread_text"),
    "messages.unsent": ("Client", "sends_thought"),
    "optimizer.few_shot": ("example_text",),
    "prompt.beside": ("is_text", "sent_beside"),
    "prompt.fit_documents": ("fit_one_block",),
    "prompt.limits": (
        "Limits", "ModelFacts", "answer_notes", "holds", "limits_of", "window_notes", "within_window",
    ),
    "prompt.pool": ("SessionPool",),
    "prompt.pydantic_errors": ("typed_errors",),
    "prompt.request": ("Plan", "PromptRequest", "Shown"),
    "prompt.settings": (
        "function_name", "function_named", "read_counter", "read_session", "summarizer_or_warning",
        "write_counter", "write_session",
    ),
    "prompt.signals": ("segment_signals",),
    "prompt.stages": ("plain_budget", "plan_steps", "whole_request_budget"),
    "relevance.embedding": ("EmbeddingScorer", "default_embedder"),
    "report.following": ("following",),
    "report.observers": ("report_figures",),
}  # fmt: skip

__all__ = [
    "JOINT", "NOTICE", "NO_CONTEXT", "PDF", "PINNED_ROLES", "PLACEHOLDERS", "ROLES", "SUMMARY_START",
    "SUMMARY_TIMEOUT", "Call", "Client", "CodecMeasure", "EmbeddingScorer", "Evidence", "Fit", "Limits",
    "ListMeasure", "Measure", "Media", "ModelFacts", "Piece", "Plan", "PromptRequest", "ReadOnce",
    "SessionPool", "Shown", "Steps", "Summarizer", "Timeline", "adrive", "answer_notes", "arguments_of",
    "as_block", "assumed_window_of", "awaiting", "block_text", "blocking", "call_reference", "called_in",
    "check_options", "content_text", "context_window_of", "default_embedder", "digest_of", "drive",
    "escape_text", "example_text", "fair_level", "finished", "fit_one_block", "following", "function_name",
    "function_named", "function_of", "holds", "in_turn", "is_blocking", "is_text", "limits_of", "media_of",
    "plain_budget", "plan_steps", "read_counter", "read_session", "refuse_empty", "refuse_empty_question",
    "refuse_results", "render_block", "replace_text", "report_figures", "results_in", "sections_of",
    "segment_signals", "send_report", "sends_thought", "sent_beside", "spread_text", "summarize_steps",
    "summarizer_or_warning", "tag_name", "truncate_text", "typed_errors", "whole_request_budget",
    "window_asked_of", "window_notes", "with_clear_ids", "with_results", "within_window",
    "without_answered", "wrapper_of", "write_counter", "write_session",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Loads a name on first use."""
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = globals()[name] = getattr(import_module(f".{home}", __package__), name)
    return value
