"""Fitting one conversation in one call: `fit_messages` and its async twin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .codec import Codec, DictCodec
from .conversation import CutMode, Fitted, Request, Summarizer, fit_steps
from .counting import counter_for
from .counting.protocol import Tool
from .effects import Steps, adrive, drive
from .errors import BudgetConfigError
from .measure import CodecMeasure, Measure
from .report import BlockTotal, BudgetReport
from .result import FitResult

if TYPE_CHECKING:
    from .session import BudgetSession

__all__ = ["afit_messages", "fit_messages", "report_on"]


def fit_messages(
    messages: Sequence[Any],
    *,
    max_tokens: int,
    counter: Any = "o200k_base",
    tools: Sequence[Tool] | None = None,
    query: str | None = None,
    codec: Codec | None = None,
    measure: Measure | None = None,
    cut: CutMode = "fill",
    min_exchanges: int = 3,
    message_cap: int | None = 1000,
    summarizer: Summarizer | None = None,
    strict: bool = False,
    session: BudgetSession | None = None,
) -> FitResult:
    """Returns the newest part of a conversation that fits, always a valid conversation.

    Args:
        messages: the conversation, oldest first, in OpenAI-style dicts or what `codec` reads; never changed.
        max_tokens: room for the whole prompt: messages, tools and reply priming.
        counter: a model or encoding name, or anything `counter_for` takes.
        tools: tool schemas sent along; they are counted.
        query: what older messages should be relevant to; None keeps by age alone.
        codec: reads host messages that are not dicts.
        measure: counts host messages in the host's own way instead of through codec and counter.
        cut: "fill" keeps as much as fits; "stable" moves the start of what is kept as rarely as it can, for prompt caches.
        min_exchanges: question-and-answer pairs that stay if that can be.
        message_cap: most tokens a long text keeps when those pairs do not fit; None never shortens.
        summarizer: `(text, max_tokens) -> str`, writes a summary of what is dropped; None writes none.
        strict: refuses a broken conversation instead of repairing it.
        session: remembers the cut and the summary between calls.

    Returns:
        `.messages` are the same objects where they are kept whole; `.report` has a reason for every message.

    Raises:
        BudgetExceededError: system messages, tools and the current question alone exceed `max_tokens`.
        MessageError: a message has no role, or `strict` and the conversation is broken.

    Example:
        >>> chat = [{"role": "user", "content": f"question {i}"} for i in range(100)]
        >>> result = fit_messages(chat, max_tokens=24)  # 3 to prime the reply, 7 for each message: 3 framing, 1 role, 3 content
        >>> [m["content"] for m in result.messages], result.report.total_tokens
        (['question 97', 'question 98', 'question 99'], 24)
    """
    return drive(_steps(messages, locals()))


async def afit_messages(
    messages: Sequence[Any],
    *,
    max_tokens: int,
    counter: Any = "o200k_base",
    tools: Sequence[Tool] | None = None,
    query: str | None = None,
    codec: Codec | None = None,
    measure: Measure | None = None,
    cut: CutMode = "fill",
    min_exchanges: int = 3,
    message_cap: int | None = 1000,
    summarizer: Summarizer | None = None,
    strict: bool = False,
    session: BudgetSession | None = None,
) -> FitResult:
    """Returns what `fit_messages` returns, without blocking the event loop while a summary is written."""
    return await adrive(_steps(messages, locals()))


def _steps(messages: Sequence[Any], given: dict[str, Any]) -> Steps[FitResult]:
    max_tokens, session = given["max_tokens"], given["session"]
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1:
        msg = f"max_tokens is {max_tokens!r}, allowed: 1 or more; give the tokens the prompt may have"
        raise BudgetConfigError(msg)
    if given["cut"] not in ("fill", "stable"):
        msg = f"cut is {given['cut']!r}, allowed: 'fill' or 'stable'"
        raise BudgetConfigError(msg)
    codec = given["codec"] or DictCodec()
    counter = counter_for(given["counter"])
    request = Request(
        messages=messages,
        limit=max_tokens,
        codec=codec,
        counter=counter,
        measure=given["measure"] or CodecMeasure(codec, counter, given["tools"]),
        cut=given["cut"],
        min_exchanges=given["min_exchanges"],
        message_cap=given["message_cap"],
        summarizer=given["summarizer"],
        strict=given["strict"],
        query=given["query"],
    )
    if session is not None:
        result: FitResult = yield from session.steps(request)
        return result
    fitted = yield from fit_steps(request)
    return FitResult(messages=fitted.messages, report=report_on(fitted, request))


def report_on(fitted: Fitted, request: Request, *, rank: int = 5) -> BudgetReport:
    """Returns the report of a conversation fitted on its own."""
    overhead = request.measure.overhead
    return BudgetReport(
        limit=request.limit,
        total_tokens=fitted.tokens,
        overhead=overhead,
        blocks=(BlockTotal(name=request.block, rank=rank, granted=request.limit - overhead, used=fitted.tokens - overhead),),
        parts=fitted.parts,
        warnings=tuple(fitted.warnings),
        counter=request.counter.name,
        exact=request.counter.exact,
    )
