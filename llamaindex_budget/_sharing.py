"""One session for the parts of one engine or one call: found in the context, in the engine's memory, or made for the engine's window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.base.llms.generic_utils import messages_to_history_str
from llama_index.core.base.llms.types import ChatMessage, TextBlock

from rankbudget import BudgetSession, TokenBudget, TokenCounter
from rankbudget.messages.codec import DictCodec

from ._convert import CODEC, defused
from ._frame import Frame
from ._measured import measured, underestimate

__all__ = [
    "active_session",
    "adopt",
    "budget_for",
    "engine_session",
    "fixed_tokens",
    "for_templates",
    "set_aside",
    "slot_tokens",
    "tokens_around",
    "use_session",
]

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
    if isinstance(session.codec, DictCodec):
        session.codec = CODEC
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


def engine_session(frame: Frame, like: BudgetSession, most: int | None = None) -> BudgetSession:
    """Returns a session over the window of the engine at work, or over `most` tokens of it, counting and summarizing like another one."""
    window = frame.window if most is None else min(frame.window, most + frame.num_output)
    budget = TokenBudget(context_window=window, reserve=frame.num_output, max_system_ratio=None)
    return BudgetSession(
        budget,
        counter=like.counter,
        codec=like.codec,
        summarizer=like.summarizer,
        summary_timeout=like.summary_timeout,
        tools=like.tools,
    )


def fixed_tokens(session: BudgetSession, frame: Frame | None) -> int:
    """Returns the tokens an engine adds around history, nodes and question, and what its own limit lies below the session's."""
    if frame is None:
        return 0
    budget = session.budget
    ours = budget.limit() if isinstance(budget, TokenBudget) else budget
    return tokens_around(session, frame) + max(0, ours - (frame.window - frame.num_output - frame.padding))


def tokens_around(session: BudgetSession, frame: Frame) -> int:
    """Returns the tokens an engine adds around history, nodes and question."""
    counter, codec = session.counter, session.codec
    around = 0
    for variant in frame.variants:
        neutral = [codec.to_dict(m) for m in variant]
        size = (
            sum(map(counter.count_message, neutral))
            if counter.additive
            else counter.count_messages(neutral)
            if neutral
            else 0
        )
        around = max(around, size)
    if frame.host_counts:
        around += max((underestimate(variant, counter) for variant in frame.variants), default=0)
    return around


def for_templates(messages: Sequence[ChatMessage], counter: TokenCounter) -> None:
    """Changes copies that an engine takes for templates: texts have no slot of its own, other blocks cost what we count."""
    for message in messages:
        message.blocks = [measured(block, counter) for block in message.blocks]
        for block in message.blocks:
            if isinstance(block, TextBlock):
                block.text = defused(block.text)


_LEAST_STEP = 64


def set_aside(
    session: BudgetSession, frame: Frame | None, messages: Sequence[ChatMessage], spare: int
) -> int:
    """Returns the tokens to keep free for what `messages` grow by: `spare` when that is enough, else more.

    Fewer messages grow by less, so what is kept free goes up by the share of the growth, not by all of it.

    Args:
        session: counts.
        frame: the engine at work.
        messages: what was kept while `spare` tokens stayed free.
        spare: tokens kept free so far.
    """
    grown = grown_tokens(session, frame, messages)
    if grown <= spare:
        return spare
    kept = session.counter.count_messages([session.codec.to_dict(m) for m in messages])
    return min(grown, max(spare + _LEAST_STEP, (kept + spare) * grown // (kept + grown)))


def grown_tokens(session: BudgetSession, frame: Frame | None, messages: Sequence[ChatMessage]) -> int:
    """Returns what messages grow by on their way into an engine's request: defused where it takes them for templates, written out as one text."""
    return (
        0
        if frame is None
        else max(slot_tokens(session, frame, messages), _written_tokens(session, frame, messages))
    )


def _written_tokens(session: BudgetSession, frame: Frame, messages: Sequence[ChatMessage]) -> int:
    if not frame.writes_history or not messages:
        return 0
    counter = session.counter
    neutral = [session.codec.to_dict(m) for m in messages]
    return max(
        0,
        counter.count(messages_to_history_str(messages))
        - (counter.count_messages(neutral) - counter.overhead()),
    )


def slot_tokens(session: BudgetSession, frame: Frame | None, messages: Sequence[ChatMessage]) -> int:
    """Returns what messages grow by when an engine that takes them for templates must not fill them in; 0 elsewhere."""
    if frame is None or not frame.formats_history:
        return 0
    texts = [
        block.text
        for m in messages
        for block in m.blocks
        if isinstance(block, TextBlock) and "{" in block.text
    ]
    changed = [(text, safe) for text in texts if (safe := defused(text)) != text]
    return sum(max(1, session.counter.count(safe) - session.counter.count(text)) for text, safe in changed)
