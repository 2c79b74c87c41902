"""Fitting one conversation in one call: `fit_messages` and its async twin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._drivers import Steps, adrive, drive
from ..conversation.arguments import check_arguments, check_messages
from ..conversation.thread import SUMMARY_TIMEOUT, CutMode, Summarizer
from ..counting import counter_for
from ..counting.profiles import RenderingProfile, profile_for
from ..counting.protocol import Tool
from ..errors import BudgetConfigError
from ..messages.codec import Codec, DictCodec
from ..messages.measure import Measure
from ..report.result import FitResult
from ..segment import Block
from .plain import plain_budget
from .request import PromptRequest
from .stages import plan_steps

if TYPE_CHECKING:
    from .session import BudgetSession

__all__ = ["afit_messages", "fit_messages", "read_profile"]

_ALONE = frozenset({"history"})
_DEFAULT_COUNTER = "o200k_base"


def fit_messages(
    messages: Sequence[Any],
    *,
    max_tokens: int,
    counter: Any = _DEFAULT_COUNTER,
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
        cut: "fill" keeps as much as fits; "stable" moves the start of what is kept as rarely as it can, for
            prompt caches.
        min_exchanges: question-and-answer pairs that stay if that can be, from 0.
        message_cap: a number from 200 lets long texts of those pairs be shortened, largest first, when the pairs do
            not fit; they keep all the room there is. None never shortens.
        summarizer: `(text, max_tokens) -> str`, writes a summary of what is dropped; None writes none.
        summary_timeout: seconds one call of the summarizer may take, above 0; after that the conversation is
            fitted without a summary and a warning says so. A blocking summarizer runs in a thread of its own,
            so that it can be left behind. None waits for ever, in the caller's thread.
        strict: refuses a broken conversation instead of repairing it.
        session: remembers the cut and the summary between calls.
        profile: what the provider demands of a conversation ("anthropic", "mistral", "alternating", a model's
            name): late system messages are moved and neighbours of one role joined, in copies; for
            OpenAI-style dicts.

    Returns:
        `.messages` are the same objects where they are kept whole; `.report` has a reason for every message.

    Raises:
        BudgetConfigError: an argument that is not allowed; all of them at once.
        BudgetExceededError: system messages, tools and the current question alone exceed `max_tokens`.
        MessageError: `messages` is no list, a message has no role, or `strict` and the conversation is
            broken.

    Example:
        >>> chat = [{"role": "user", "content": f"question {i}"} for i in range(100)]
        >>> result = fit_messages(chat, max_tokens=24)  # 3 to prime the reply, 7 for each message: 3 framing, 1 role, 3 content
        >>> [m["content"] for m in result.messages], result.report.total_tokens
        (['question 97', 'question 98', 'question 99'], 24)
    """
    return drive(_steps(messages, dict(locals())))


async def afit_messages(
    messages: Sequence[Any],
    *,
    max_tokens: int,
    counter: Any = _DEFAULT_COUNTER,
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
    return await adrive(_steps(messages, dict(locals())))


def _steps(messages: Sequence[Any], given: dict[str, Any]) -> Steps[FitResult]:
    check_arguments(given)
    session: BudgetSession | None = given["session"]
    if session is not None:
        given = _with_session(given, session)
    codec = given["codec"] or DictCodec()
    request = PromptRequest(
        budget=plain_budget(given["max_tokens"]),
        counter=counter_for(given["counter"]),
        codec=codec,
        measure=given["measure"],
        tools=given["tools"],
        history=Block(name="history", messages=check_messages(messages)),
        sources=_ALONE,
        profile=None if given["profile"] is None else read_profile(given["profile"], codec),
        cut=given["cut"],
        query=given["query"],
        min_exchanges=given["min_exchanges"],
        message_cap=given["message_cap"],
        strict=given["strict"],
        summarizer=given["summarizer"],
        summary_timeout=given["summary_timeout"],
    )
    plan = yield from plan_steps(request) if session is None else session.plan_steps(request)
    return FitResult(messages=plan.messages, report=plan.report)


def _with_session(given: dict[str, Any], session: BudgetSession) -> dict[str, Any]:
    """Returns the arguments with the session's own where the caller gave none."""
    own = {
        "codec": session.codec,
        "measure": session.measure,
        "tools": session.tools,
        "summarizer": session.summarizer,
    }
    filled = {name: value if given[name] is None else given[name] for name, value in own.items()}
    counter = session.counter if given["counter"] == _DEFAULT_COUNTER else given["counter"]
    return {**given, **filled, "counter": counter}


def read_profile(given: RenderingProfile | str | None, codec: Codec) -> RenderingProfile | None:
    """Returns the profile that is meant, None when every conversation is accepted as it is."""
    if given is None:
        return None
    if not isinstance(codec, DictCodec):
        msg = (
            f"profile must be None where {type(codec).__name__} reads the messages (got {given!r}). "
            "Only OpenAI-style dicts are moved and joined; other hosts render for their provider."
        )
        raise BudgetConfigError(msg)
    profile: Any = profile_for(given) if isinstance(given, str) else given
    if not isinstance(profile, RenderingProfile):
        msg = f"profile must be a RenderingProfile or a name (got {given!r})."
        raise BudgetConfigError(msg)
    return None if profile.free else profile
