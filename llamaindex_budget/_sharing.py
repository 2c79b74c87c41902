"""One session for the parts of one call, and the budget of a LlamaIndex model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.response_synthesizers.refine import DEFAULT_RESPONSE_PADDING_SIZE

from rankbudget import BudgetSession, TokenBudget

from ._codec import STORED, ChatCodec
from ._counters import counter_of

__all__ = [
    "active_session",
    "adopt",
    "budget_for",
    "budget_of",
    "one_call_limit",
    "use_session",
    "with_limits",
]

_TEMPLATE_TOKENS = 160
"""More than LlamaIndex's own templates have."""
_active: ContextVar[BudgetSession | None] = ContextVar("rankbudget_session", default=None)


@contextmanager
def use_session(session: BudgetSession) -> Iterator[BudgetSession]:
    """Makes all parts that are called inside share `session`: for an engine that serves many users.

    Example:
        >>> session = BudgetSession(TokenBudget(context_window=4096))
        >>> with use_session(session):
        ...     active_session() is session
        True
        >>> active_session() is None
        True
    """
    token = _active.set(adopt(session))
    try:
        yield session
    finally:
        _active.reset(token)


def active_session() -> BudgetSession | None:
    """Returns the session of the current context."""
    return _active.get()


def adopt(session: BudgetSession) -> BudgetSession:
    """Makes a session that was made for plain dicts read LlamaIndex's messages."""
    if not isinstance(session.codec, ChatCodec):
        session.codec = STORED
    return session


def budget_for(llm: BaseLLM, **fields: Any) -> TokenBudget:
    """Returns the budget of a LlamaIndex model: its window, and its answer as reserve.

    Args:
        llm: the model; its metadata tell window and answer.
        fields: other fields of the budget.
    """
    metadata = llm.metadata
    reserve = metadata.num_output if metadata.num_output > 1 else 256
    return TokenBudget(
        **{"context_window": metadata.context_window, "reserve": reserve, "max_system_ratio": None, **fields}
    )


def one_call_limit(llm: BaseLLM) -> int:
    """Returns the most tokens of a prompt with nodes that a synthesizer does not split into two calls.

    The synthesizer keeps tokens free for an answer to refine, beside the larger of its two templates.
    """
    limit = budget_for(llm).limit()
    return max(limit - DEFAULT_RESPONSE_PADDING_SIZE - _TEMPLATE_TOKENS, limit // 2)


def budget_of(budget: Any, llm: BaseLLM | None, session: BudgetSession | None) -> TokenBudget | None:
    """Returns a part's budget: its own, else its LLM's where it shares no session; None for a bare limit."""
    if isinstance(budget, dict):
        budget = TokenBudget.from_dict(budget)
    if budget is None and llm is not None and session is None:
        return budget_for(llm)
    own: TokenBudget | None = budget
    return own


def with_limits(
    data: dict[str, Any], session: BudgetSession | None, llm: Any, counter: Any
) -> tuple[dict[str, Any], Any, bool]:
    """Returns a memory's fields with its limits, its counter, and whether its token limit is a ceiling."""
    budget = budget_of(data.get("budget"), llm, session)
    limits = budget or (session.budget if session is not None else None)
    given = data.get("token_limit")
    made = {**data, "budget": budget}
    if given is None and limits is not None:
        made["token_limit"] = limits.limit() if isinstance(limits, TokenBudget) else limits
    if counter is None and data.get("tokenizer_fn") is None and (llm or budget):
        counter = counter_of(None, llm=llm, budget=budget)
    return made, counter, given is not None and limits is not None
