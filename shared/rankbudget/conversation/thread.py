"""What to fit of one conversation and how; what came out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..counting.protocol import TokenCounter
from ..messages.codec import Codec
from ..messages.measure import Measure
from ..segment import Decision, DecisionRange
from .state import ThreadState

__all__ = ["SUMMARY_TIMEOUT", "CutMode", "FittedThread", "Summarizer", "Thread"]

CutMode = Literal["fill", "stable"]
Summarizer = Callable[..., Any]
"""`(text: str, max_tokens: int) -> str`, blocking or awaitable."""

SUMMARY_TIMEOUT = 60.0
"""Seconds one call of a summarizer may take by default: a summarizer that hangs must not hang the chat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """One conversation on its way into a prompt; most fields are those of the `PromptRequest`.

    Args:
        measure: counts messages, as the whole request holds them.
        block: the block's name in the report.
        asked_elsewhere: the current question is not among the messages, so that all of them may go.
        sent: the messages go to the model as they are, so that no call at their end still waits.
        remembers: a session remembers the cut: it starts as it was, and moves down to half of the room when
            it must.
        known: what the session remembers.
    """

    messages: Sequence[Any]
    codec: Codec
    counter: TokenCounter
    measure: Measure
    cut: CutMode = "fill"
    min_exchanges: int = 3
    message_cap: int | None = 1000
    shorten_question: bool = False
    summarizer: Summarizer | None = None
    summary_timeout: float | None = SUMMARY_TIMEOUT
    strict: bool = False
    query: str | None = None
    block: str = "history"
    asked_elsewhere: bool = False
    sent: bool = False
    remembers: bool = False
    known: ThreadState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedThread:
    """A conversation that fits, and why it looks as it does.

    Args:
        messages: what stays; the objects that were given where they are whole.
        tokens: of the whole request: messages, tools, priming.
        untouched: everything stays as it was given.
        decide: makes the decisions; they are read only with the report.
        warnings: what went wrong on the way.
        question: index of the current question in `messages`.
        state: what a session should remember; None where nothing is.
    """

    messages: list[Any]
    tokens: int
    untouched: bool
    decide: Callable[[], list[Decision | DecisionRange]]
    warnings: tuple[str, ...] = field(default_factory=tuple)
    question: int | None = None
    state: ThreadState | None = None
