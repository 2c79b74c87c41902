"""What to fit of one conversation and how; what came out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..counting.protocol import TokenCounter
from ..messages.codec import Codec
from ..messages.measure import Measure
from ..segment import Decision, DecisionRange
from .state import ThreadState

CutMode = Literal["fill", "stable"]


def cut_of_request(messages: Sequence[Any], codec: Codec) -> CutMode:
    """Returns how a request is cut where no thread is named: a question gets all of the room.

    While an agent works on it, request after request, the start of what is kept moves rarely.
    """
    return "stable" if messages and codec.role(messages[-1]) in {"tool", "assistant"} else "fill"


Summarizer = Callable[..., Any]
"""`(text: str, max_tokens: int) -> str`, blocking or awaitable."""

SUMMARY_TIMEOUT = 60.0
"""Seconds one call of a summarizer may take by default: a summarizer that hangs must not hang the chat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """One conversation on its way into a prompt; what has no comment is as in `PromptRequest`."""

    messages: Sequence[Any]
    codec: Codec
    counter: TokenCounter
    measure: Measure  # counts messages, as the whole request holds them
    cut: CutMode
    min_exchanges: int
    last_turns: int | None
    message_cap: int | None
    shorten_question: bool
    summarizer: Summarizer | None
    summary_timeout: float | None
    strict: bool
    for_question: bool  # shortened texts keep what the current question names, too
    query: str | None
    question: str  # the text of the current question where the host gave it apart, or ""
    answered: bool  # a step without its answer may not be before a question
    asked_elsewhere: bool  # the current question is not among the messages, so that all of them may go
    sent: bool
    held: bool
    remembers: bool  # a session remembers the cut, and moves it down to half of the room when it must
    known: Sequence[ThreadState]  # what the session remembers, of each conversation in the thread

    @property
    def most_turns(self) -> int | None:
        """Turns of the messages that may stay; the current question is one, wherever it is."""
        return None if self.last_turns is None else self.last_turns - self.asked_elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedThread:
    """A conversation that fits, and why it looks as it does."""

    messages: list[Any]  # what stays; the objects that were given where they are whole
    tokens: int  # of the whole request: messages, tools, priming
    decide: Callable[[], list[Decision | DecisionRange]]  # makes the decisions, when the report is read
    warnings: tuple[str, ...]  # what went wrong on the way
    question: int | None  # index of the current question in `messages`
    state: ThreadState | None  # what a session should remember; None where nothing is
    unsummarized: bool = False  # some of what was dropped is in no summary, although there is a summarizer
    edits: Mapping[int, Any] = field(default_factory=dict)  # shortened copies by the position of the message
    summary: Any = None  # the message that shows the summary
