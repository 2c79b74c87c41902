"""Fitting one conversation in one call: `fit_messages`, and `afit_messages`, its async form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._drivers import Steps, awaiting, blocking
from ..budget.validation import EVERY_TURN, LEAST_MESSAGE_CAP, NO_CAP
from ..conversation.thread import SUMMARY_TIMEOUT, CutMode, Summarizer
from ..counting import counter_for
from ..counting.profiles import RenderingProfile, profile_for
from ..counting.protocol import TokenCounter, Tool
from ..errors import (
    BudgetConfigError,
    MessageError,
    check_choice,
    check_count,
    check_number,
    refuse,
    shown,
)
from ..messages.codec import Codec, DictCodec
from ..messages.measure import Measure
from ..report.report import FitResult
from .kinds import check_kinds
from .request import PromptRequest
from .stages import budget_of, plan_steps

if TYPE_CHECKING:
    from .session import BudgetSession

_ALONE = frozenset({"history"})
_DEFAULT_COUNTER = "o200k_base"


@blocking
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
    last_turns: int | None = None,
    message_cap: int | None = 1000,
    shorten_question: bool = False,
    summarizer: Summarizer | None = None,
    summary_timeout: float | None = SUMMARY_TIMEOUT,
    strict: bool = False,
    session: BudgetSession | None = None,
    profile: RenderingProfile | str | None = None,
) -> Steps[FitResult]:
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
        min_exchanges: question-and-answer pairs that stay if that can be, from 0; a question that waits for
            its answer is one of them.
        last_turns: the newest turns that may stay, from 1, the current question's among them; older ones are
            dropped though they fit, or go into the summary. None keeps as many as fit.
        message_cap: a number from 200 lets long texts of those pairs be shortened, largest first, when the
            pairs do not fit, and of older steps and exchanges before these are dropped. None never shortens.
        shorten_question: cuts the current question to what is free when it does not fit; otherwise it raises.
        summarizer: `(text, max_tokens) -> str`, writes a summary of what is dropped; None writes none.
        summary_timeout: seconds one call of the summarizer may take, above 0; after that a warning says that
            there is no summary. A blocking summarizer runs in a thread of its own. None: no timeout; it runs
            in the caller's thread.
        strict: refuses a broken conversation instead of repairing it.
        session: remembers the cut and the summary between calls; its codec, measure, counter, tools and
            summarizer are used where the call gives none.
        profile: what the provider demands of a conversation ("anthropic", "mistral", "alternating", a model's
            name): late system messages are moved and neighbours of one role joined, in copies; for
            OpenAI-style dicts. None takes what the chat template of the counter demands, if it has one;
            `RenderingProfile()` demands nothing.

    Returns:
        `.messages` are the same objects where they are kept whole; `.report` has a reason for every message.

    Raises:
        BudgetConfigError: an argument that is not allowed; all of them at once.
        BudgetExceededError: system messages, tools and the current question alone exceed `max_tokens`.
        MessageError: `messages` is no list, a message has no role, or `strict` and the conversation is
            broken.

    Example:
        >>> chat = [{"role": "user", "content": f"question {i}"} for i in range(100)]
        >>> result = fit_messages(chat, max_tokens=24)  # 3 to prime the reply, 7 for each message
        >>> [m["content"] for m in result.messages], result.report.total_tokens
        (['question 97', 'question 98', 'question 99'], 24)
    """
    _check(locals())
    if session is not None:
        codec, measure = codec or session.codec, measure or session.measure
        tools = session.tools if tools is None else tools
        counter = session.counter if counter == _DEFAULT_COUNTER else counter
    codec, counter = codec or DictCodec(), counter_for(counter)
    request = PromptRequest(
        budget=budget_of(max_tokens),
        counter=counter,
        codec=codec,
        measure=measure,
        tools=tools,
        history=check_messages(messages),
        sources=_ALONE,
        profile=read_profile(profile, codec, counter),
        cut=cut,
        query=query,
        min_exchanges=min_exchanges,
        last_turns=last_turns,
        message_cap=message_cap,
        shorten_question=shorten_question,
        strict=strict,
        summarizer=summarizer,
        summary_timeout=summary_timeout,
    )
    plan = yield from plan_steps(request) if session is None else session.plan_steps(request)
    return FitResult(messages=plan.messages, report=plan.report)


afit_messages = awaiting(fit_messages)


def read_profile(
    given: RenderingProfile | str | None, codec: Codec, counter: TokenCounter
) -> RenderingProfile | None:
    """Returns the profile that is meant, None when every conversation is accepted as it is."""
    if given is None:
        own = getattr(counter, "profile", None) if isinstance(codec, DictCodec) else None
        return own if isinstance(own, RenderingProfile) and own != RenderingProfile() else None
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
    return None if profile == RenderingProfile() else profile


def _check(given: Mapping[str, Any]) -> None:
    """Raises BudgetConfigError that names every number and word of a call that is not allowed."""
    limit, minimum, cap = given["max_tokens"], given["min_exchanges"], given["message_cap"]
    numbers = type(limit) is type(minimum) is type(cap) is int
    words = given["cut"] == "fill" and given["shorten_question"] is False
    words = words and given["last_turns"] is None
    objects = {name: given[name] for name in ("codec", "measure", "summarizer", "session")}
    usual = numbers and words and given["summary_timeout"] == SUMMARY_TIMEOUT
    usual = usual and all(value is None for value in objects.values())
    if usual and limit > 0 and minimum >= 0 and cap >= LEAST_MESSAGE_CAP:
        return  # nearly every call
    problems: list[str] = []
    check_count("max_tokens", limit, problems, low=1)
    check_choice("cut", given["cut"], problems, ("fill", "stable"))
    check_count("min_exchanges", minimum, problems)
    if given["last_turns"] is not None:
        check_count("last_turns", given["last_turns"], problems, low=1, instead=EVERY_TURN)
    if cap is not None:
        check_count("message_cap", cap, problems, low=LEAST_MESSAGE_CAP, instead=NO_CAP)
    check_timeout(given["summary_timeout"], problems)
    refuse(problems)
    check_kinds(objects)


def check_timeout(seconds: Any, problems: list[str]) -> None:
    """Adds a problem when a summarizer cannot be given so many seconds."""
    if seconds is not None:
        words = "seconds above 0, or None for no timeout"
        check_number("summary_timeout", seconds, problems, above=True, allowed=words)


def check_messages(messages: Any) -> Sequence[Any]:
    """Returns a conversation that can be read by position; raises MessageError for what is no list."""
    if isinstance(messages, list):
        return messages
    if isinstance(messages, (str, bytes, bytearray, Mapping)) or not isinstance(messages, Iterable):
        hint = "Put it in a list" if messages else "Give [] for an empty conversation"
        msg = f"messages must be a list of messages, oldest first (got {shown(messages)}). {hint}."
        raise MessageError(msg)
    return messages if isinstance(messages, Sequence) else list(messages)
