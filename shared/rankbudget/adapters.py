"""The one seam: all that an adapter imports from the core besides public names.

An adapter translates. It reads and makes host messages with a `Codec`, counts them with a `Measure`, builds a
`PromptRequest` from what its host gives it, runs `plan_steps` (or a session's `plan_steps`) with `drive` or
`adrive`, and hands out parts of the `Plan`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._drivers import Call, Steps, adrive, drive
from .compression.abstractive import summarize_steps
from .compression.truncate import truncate_text
from .conversation.thread import SUMMARY_TIMEOUT, CutMode, Summarizer
from .conversation.timeline import Timeline, Unit
from .counting.base import CallableCounter, whole_tokens
from .counting.blocks import block_text, call_reference, called_in, results_in, without_answered
from .counting.protocol import Message, Tool
from .errors import check_options
from .fitting.protocol import Cost, Fit, Piece
from .messages.codec import (
    KNOWN_ROLES,
    PINNED_ROLES,
    ROLES,
    content_text,
    finished,
    replace_text,
    spread_text,
)
from .messages.measure import CodecMeasure, ListMeasure, Measure
from .messages.tags import (
    JOINT,
    NOTICE,
    PLACEHOLDERS,
    escape_text,
    render_block,
    wrapper_of,
)
from .prompt.limits import Limits, ModelFacts, limits_of
from .prompt.plan import Plan
from .prompt.request import PromptRequest, Render, Shown
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

_LATER = {
    "SessionPool": "prompt.pool",
    **dict.fromkeys(
        (
            "function_name",
            "function_named",
            "read_counter",
            "read_session",
            "summarizer_or_warning",
            "typed_errors",
            "write_counter",
            "write_session",
        ),
        "prompt.settings",
    ),
    "EmbeddingScorer": "relevance.embedding",
    "Evidence": "fitting.evidence",
    "default_embedder": "relevance.embedding",
    "example_text": "optimizer.few_shot",
}
"""What ranks texts, writes settings or serves many threads is loaded only where it is used."""

__all__ = [
    "JOINT",
    "KNOWN_ROLES",
    "NOTICE",
    "PINNED_ROLES",
    "PLACEHOLDERS",
    "ROLES",
    "SUMMARY_TIMEOUT",
    "Call",
    "CallableCounter",
    "CodecMeasure",
    "Cost",
    "CutMode",
    "EmbeddingScorer",
    "Evidence",
    "Fit",
    "Limits",
    "ListMeasure",
    "Measure",
    "Message",
    "ModelFacts",
    "Piece",
    "Plan",
    "PromptRequest",
    "Render",
    "SessionPool",
    "Shown",
    "Steps",
    "Summarizer",
    "Timeline",
    "Tool",
    "Unit",
    "adrive",
    "block_text",
    "call_reference",
    "called_in",
    "check_options",
    "content_text",
    "default_embedder",
    "drive",
    "escape_text",
    "example_text",
    "finished",
    "function_name",
    "function_named",
    "limits_of",
    "plain_budget",
    "plan_steps",
    "read_counter",
    "read_session",
    "render_block",
    "replace_text",
    "results_in",
    "segment_signals",
    "spread_text",
    "summarize_steps",
    "summarizer_or_warning",
    "truncate_text",
    "typed_errors",
    "whole_tokens",
    "without_answered",
    "wrapper_of",
    "write_counter",
    "write_session",
]


def __getattr__(name: str) -> Any:
    home = _LATER.get(name)
    if home is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f".{home}", __package__), name)
