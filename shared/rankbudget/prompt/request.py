"""What one turn asks for: blocks, conversation, question, limits, and how a host renders them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..budget.token_budget import TokenBudget
from ..conversation.state import ThreadState
from ..conversation.thread import SUMMARY_TIMEOUT, CutMode, Summarizer
from ..counting.profiles import RenderingProfile
from ..counting.protocol import TokenCounter, Tool
from ..fitting.protocol import Cost, Fit
from ..messages.codec import Codec
from ..messages.measure import Measure
from ..messages.tags import NOTICE
from ..relevance.protocol import Scorer
from ..report.report import Covers
from ..segment import Block, Decision, Scope, Segment

__all__ = ["PromptRequest", "Render", "Shown", "Turn"]

Render = Callable[[Mapping[str, Fit], list[Any]], Sequence[Any]]
"""Makes the final host messages from the kept pieces by block and the kept history: a host's own template."""
Shown = Callable[[str, Segment, str], str]
"""Returns how a text kept of a segment of a block reads in the prompt, where the host renders it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRequest:
    """What one turn asks for.

    Args:
        budget: the limits of the whole prompt.
        counter: counts texts.
        codec: reads the host's messages.
        measure: counts messages as the host does; None counts their neutral form.
        tools: tool schemas sent along; they are counted.
        blocks: everything but system prompt, history and question.
        system: system messages that come first and always stay.
        history: the conversation; None where there is none.
        question: the current question as a host message of its own; None when it is in the history.
        question_text: what blocks should answer; "" takes the history's last question.
        asked_elsewhere: the host adds the current question itself, so all of the history may go.
        ceiling: most tokens of the whole prompt, beside the budget.
        history_tokens: most tokens of the kept history, beside the budget.
        extra_tokens: tokens of the prompt that are in none of these.
        beside: tokens that a segment costs beside its text, by its id: its pictures, sound and film. A
            `render` shows those of all blocks but "knowledge".
        sources: names of the blocks that this prompt may ever have; the shares of others are shared out.
            None: all of the budget's.
        render: makes the final messages; None takes the usual order and tags.
        frames: tokens that a `render` puts around the pieces of a block, by its name, while it has any.
        shown: how a piece reads in the prompt, where the host renders it.
        cost: tokens of a text kept of a segment of any block; None counts it as it is rendered. Where it is
            given, each block may want all of the room.
        hidden: decisions on what was left out before, because its reader may not see it.
        scope: who reads; None sees only what is open to all.
        notice: the sentence before inserted text; None leaves it out.
        text: the prompt is also used as tagged text, which must fit too.
        profile: what the provider demands of a conversation.
        scorer: rates segments that have no score of their own.
        cut: "fill" keeps as much history as fits; "stable" moves its start rarely.
        query: what older messages should be relevant to; None keeps by age alone.
        min_exchanges: question-and-answer pairs that stay if that can be; None asks the budget.
        message_cap: None never shortens a long text so that the last exchanges fit.
        shorten_question: cuts a question that does not fit to what is free; so does the budget's own.
        strict: refuses a broken conversation instead of repairing it.
        summarizer: writes a summary of the history that is dropped.
        summary_timeout: seconds one call of it may take; None for no timeout.
        covers: what the report covers: the whole prompt, or only what this entry point sees.
        task_turns: for how many turns the task block has been the same.
    """

    budget: TokenBudget
    counter: TokenCounter
    codec: Codec
    measure: Measure | None = None
    tools: Sequence[Tool] | None = None
    blocks: Sequence[Block] = ()
    system: Sequence[Any] = ()
    history: Block | None = None
    question: Any = None
    question_text: str = ""
    asked_elsewhere: bool = False
    ceiling: int | None = None
    history_tokens: int | None = None
    extra_tokens: int = 0
    beside: Mapping[str, int] = field(default_factory=dict)
    sources: frozenset[str] | None = None
    render: Render | None = None
    frames: Mapping[str, int] = field(default_factory=dict)
    shown: Shown | None = None
    cost: Cost | None = None
    hidden: tuple[Decision, ...] = ()
    scope: Scope | None = None
    notice: str | None = NOTICE
    text: bool = False
    profile: RenderingProfile | None = None
    scorer: Scorer | None = None
    cut: CutMode = "fill"
    query: str | None = None
    min_exchanges: int | None = None
    message_cap: int | None = 1000
    shorten_question: bool = False
    strict: bool = False
    summarizer: Summarizer | None = None
    summary_timeout: float | None = SUMMARY_TIMEOUT
    covers: Covers = "prompt"
    task_turns: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """What a session adds to a request.

    Args:
        sources: names of the blocks that its prompts may ever have.
        awaited: blocks of this turn that another call will bring; their share stays reserved.
        known: what the session remembers of the conversation.
        granted_history: what an earlier call of this turn granted the history; None where there was none.
    """

    sources: frozenset[str] | None
    awaited: frozenset[str] = frozenset()
    known: ThreadState | None = None
    granted_history: int | None = None
