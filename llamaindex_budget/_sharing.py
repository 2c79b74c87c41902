"""One session for the parts of one call, and the budget of a LlamaIndex model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.constants import DEFAULT_NUM_OUTPUTS

from rankbudget import BudgetSession, TokenBudget
from rankbudget.adapters import plain_budget, within_window

from ._codec import STORED, ChatCodec, codec_for
from ._counters import answer_of, known_window, window_of
from ._options import check_values
from .models import as_summarizer

_RULES = (
    *("ratios", "ranks", "surplus", "preset", "min_exchanges", "last_turns", "message_cap"),
    "shorten_question",
)
"""Fields of a budget that say how a prompt is fitted."""
active: ContextVar[BudgetSession | None] = ContextVar("rankbudget_session", default=None)
"""The session that all parts share in this context."""


@contextmanager
def use_session(session: BudgetSession) -> Iterator[BudgetSession]:
    """Makes all parts that are called inside share `session`: for an engine that serves many users.

    Args:
        session: the session of the user who is served.

    Example:
        >>> session = BudgetSession(TokenBudget(context_window=4096))
        >>> with use_session(session):
        ...     active.get() is session
        True
    """
    token = active.set(adopt(session))
    try:
        yield session
    finally:
        active.reset(token)


def adopt(session: BudgetSession, client: str | None = None) -> BudgetSession:
    """Makes a session read LlamaIndex's messages and summarize with LlamaIndex's models.

    The first client that leaves blocks out, as `client_of` names it, is the one that it reads for.
    """
    check_values({"session": session}, "session")
    if not isinstance(session.codec, ChatCodec) or (client is not None and session.codec is STORED):
        session.read_with(codec_for(client, stored=True))
    session.summarizer = as_summarizer(session.summarizer)
    return session


def budget_for(llm: BaseLLM, **fields: Any) -> TokenBudget:
    """Returns the budget of a LlamaIndex model: its window, and its answer as reserve.

    Where no answer is set, 30 % of the window are reserved, at most the model's largest answer. A
    `budget_model` gives its limit for the window, and all else from its own budget.

    Args:
        llm: the model; its metadata state window and answer.
        fields: other fields of the budget.

    Raises:
        BudgetConfigError: a field is wrong.
    """
    check_values({"llm": llm}, "llm")
    limit = getattr(llm, "request_limit", None)  # of a `budget_model`
    window, answer = window_of(llm), answer_of(llm)
    reserve = answer or DEFAULT_NUM_OUTPUTS  # as the metadata of a `budget_model` have it
    if limit is not None:
        window = limit + reserve
    elif answer is None:
        window = fields.get("context_window", window)
        reserve = TokenBudget.for_model(llm, context_window=window).reserve_tokens()
    own = {"context_window": window, "reserve": reserve, "max_system_ratio": None}
    if limit is not None and getattr(llm, "request_counter").band:  # noqa: B009 - the same
        own["safety"] = 0  # the limit leaves it free
    made = TokenBudget.from_dict({**_rules_of(llm, window - reserve), **own, **fields})
    return within_window(made, known_window(llm), type(llm).__name__) if limit is None else made


def _rules_of(llm: BaseLLM, room: int) -> dict[str, Any]:
    """Returns the fields of a bounded LLM's budget that are no part of its limit of `room` tokens.

    Its `model` is left out, because the LLM says what counts. Sizes that its limit cannot hold are left out.
    """
    given: TokenBudget | None = getattr(llm, "request_budget", None)
    if given is None:
        return {}
    found = {name: getattr(given, name) for name in _RULES}
    sizes = {name: size for name, size in given.sizes.items() if name not in {"system", "query"}}
    return {**found, "sizes": sizes} if sum(sizes.values()) < room else found


def budget_of(budget: Any, llm: BaseLLM | None, session: BudgetSession | None) -> TokenBudget | None:
    """Returns a part's budget: its own, else its LLM's where it shares no session; None for a bare limit.

    A smaller window of its LLM counts, and the answer that it asks for where the budget chose no reserve.
    """
    if budget is None:
        return budget_for(llm) if llm is not None and session is None else None
    given = budget if isinstance(budget, TokenBudget) else TokenBudget.from_dict(budget)
    if llm is None:
        return given
    own, limit = known_window(llm), getattr(llm, "request_limit", None)
    if limit is not None:  # of a `budget_model`, which leaves its answer free
        reserve, own = given.reserve_tokens(), None
        if given.limit() > limit:
            given, own = given.replace(reserve=reserve), limit + reserve
    return within_window(given, own, type(llm).__name__, answer_of(llm))


def one_call_of(llm: BaseLLM) -> int:
    """Returns the most tokens that a synthesizer sends in one call; 256 are left if no answer is set."""
    limit: int | None = getattr(llm, "request_limit", None)
    return window_of(llm) - (answer_of(llm) or DEFAULT_NUM_OUTPUTS) if limit is None else limit


def within(limits: TokenBudget | int, llm: BaseLLM | None) -> int:
    """Returns the most tokens of a prompt within given limits and the window of an LLM, if there is one."""
    if isinstance(limits, TokenBudget):
        return (budget_of(limits, llm, None) or limits).limit()
    return limits if llm is None else min(limits, budget_for(llm).limit())


def shared_budget(budget: Any, session: BudgetSession | None) -> TokenBudget | None:
    """Returns the limits of a whole prompt: a part's own, else its session's."""
    found = budget_of(budget, None, None) or (session.budget if session is not None else None)
    return plain_budget(found) if isinstance(found, int) else found
