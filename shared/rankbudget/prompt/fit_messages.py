"""Fitting one conversation in one call: `fit_messages` and its async twin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..messages.codec import Codec, DictCodec
from ..conversation.fit import CutMode, Fitted, Request, Summarizer, fit_steps
from ..counting import counter_for
from ..counting.profiles import RenderingProfile, apply_profile, profile_for
from ..counting.protocol import Tool
from .._drivers import Steps, adrive, drive
from ..errors import BudgetConfigError, BudgetExceededError
from ..conversation.arguments import check_arguments
from ..messages.measure import CodecMeasure, Measure
from ..report.report import BlockTotal, BudgetReport
from ..report.result import FitResult
from ..conversation.summary import SUMMARY_TIMEOUT

if TYPE_CHECKING:
    from .session import BudgetSession

__all__ = ["afit_messages", "fit_messages", "read_profile", "report_on"]


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
    summary_timeout: float | None = SUMMARY_TIMEOUT,
    strict: bool = False,
    session: BudgetSession | None = None,
    profile: RenderingProfile | str | None = None,
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
        min_exchanges: question-and-answer pairs that stay if that can be, from 0.
        message_cap: most tokens a long text keeps when those pairs do not fit, from 200; None never shortens.
        summarizer: `(text, max_tokens) -> str`, writes a summary of what is dropped; None writes none.
        summary_timeout: seconds one call of the summarizer may take, above 0; after that the conversation is fitted without a summary and
            a warning says so. A blocking summarizer runs in a thread of its own, so that it can be left behind. None waits for ever, in the
            caller's thread.
        strict: refuses a broken conversation instead of repairing it.
        session: remembers the cut and the summary between calls.
        profile: what the provider demands of a conversation ("anthropic", "mistral", "alternating", a model's name): late system messages are
            moved and neighbours of one role joined, in copies; for OpenAI-style dicts.

    Returns:
        `.messages` are the same objects where they are kept whole; `.report` has a reason for every message.

    Raises:
        BudgetConfigError: an argument that is not allowed; all of them at once.
        BudgetExceededError: system messages, tools and the current question alone exceed `max_tokens`.
        MessageError: `messages` is no list, a message has no role, or `strict` and the conversation is broken.

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
    summary_timeout: float | None = SUMMARY_TIMEOUT,
    strict: bool = False,
    session: BudgetSession | None = None,
    profile: RenderingProfile | str | None = None,
) -> FitResult:
    """Returns what `fit_messages` returns, without blocking the event loop while a summary is written."""
    return await adrive(_steps(messages, locals()))


def _steps(messages: Sequence[Any], given: dict[str, Any]) -> Steps[FitResult]:
    check_arguments(given)
    codec = given["codec"] or DictCodec()
    profile = read_profile(given["profile"], codec)
    counter = counter_for(given["counter"])
    request = Request(
        messages=messages,
        limit=int(given["max_tokens"]),
        codec=codec,
        counter=counter,
        measure=given["measure"] or CodecMeasure(codec, counter, given["tools"]),
        cut=given["cut"],
        min_exchanges=given["min_exchanges"],
        message_cap=given["message_cap"],
        summarizer=given["summarizer"],
        summary_timeout=given["summary_timeout"],
        strict=given["strict"],
        query=given["query"],
    )
    session: BudgetSession | None = given["session"]
    if session is not None:
        result: FitResult = yield from session.steps(request)
        return result if profile is None else _profiled(result, request, profile, given["tools"])
    fitted = yield from fit_steps(request)
    result = FitResult(messages=fitted.messages, report=report_on(fitted, request))
    return result if profile is None else _profiled(result, request, profile, given["tools"])


def _profiled(
    result: FitResult, request: Request, profile: RenderingProfile, tools: Sequence[Tool] | None
) -> FitResult:
    """Returns the same conversation as a provider demands it; joining messages saves framing, so it never grows, and it is counted again."""
    messages = apply_profile(result.messages, profile)
    tokens = request.counter.count_messages(messages, tools)
    if tokens > request.limit:
        msg = f"as the profile demands it the conversation has {tokens} tokens, the limit is {request.limit}; raise the limit"
        raise BudgetExceededError(msg, limit=request.limit, needed=tokens)
    report = result.report.replace(
        total_tokens=tokens, overhead=result.report.overhead + tokens - result.report.total_tokens
    )
    return FitResult(messages=messages, report=report)


def read_profile(given: RenderingProfile | str | None, codec: Codec) -> RenderingProfile | None:
    """Returns the profile that is meant, None when every conversation is accepted as it is."""
    if given is None:
        return None
    if not isinstance(codec, DictCodec):
        msg = f"profile is {given!r} and the messages are read by {type(codec).__name__}, allowed: OpenAI-style dicts; other hosts render for their provider"
        raise BudgetConfigError(msg)
    profile = profile_for(given) if isinstance(given, str) else given
    return None if profile.free else profile


def report_on(fitted: Fitted, request: Request, *, rank: int = 5) -> BudgetReport:
    """Returns the report of a conversation fitted on its own."""
    overhead = request.measure.overhead
    return BudgetReport(
        limit=request.limit,
        total_tokens=fitted.tokens,
        overhead=overhead,
        blocks=(
            BlockTotal(
                name=request.block, rank=rank, granted=request.limit - overhead, used=fitted.tokens - overhead
            ),
        ),
        parts=fitted.parts,
        warnings=tuple(fitted.warnings),
        counter=request.counter.name,
        exact=request.counter.exact,
    )
