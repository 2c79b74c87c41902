"""What one turn asks for, and what it gets: a `PromptRequest`, and a `Plan`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..budget.token_budget import TokenBudget
from ..conversation.state import ThreadState
from ..conversation.thread import SUMMARY_TIMEOUT, CutMode, Summarizer
from ..counting.profiles import RenderingProfile
from ..counting.protocol import TokenCounter, Tool
from ..errors import BudgetExceededError
from ..fitting.protocol import Cost, Fit
from ..messages.codec import Codec
from ..messages.measure import Measure
from ..messages.tags import NOTICE
from ..relevance.protocol import Scorer
from ..report.report import BudgetReport, Covers
from ..segment import Block, Decision, Scope, Segment
from .layout import Layout

Render = Callable[[Mapping[str, Fit], list[Any]], Sequence[Any]]
"""Makes the final host messages from the kept pieces by block and the kept history: a host's own template."""
Shown = Callable[[str, Segment, str], str]
"""Returns how a text kept of a segment of a block reads in the prompt, where the host renders it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRequest:
    """What one turn asks for."""

    budget: TokenBudget  # the limits of the whole prompt
    counter: TokenCounter  # counts texts
    codec: Codec  # reads the host's messages
    measure: Measure | None = None  # counts messages as the host does; None counts their neutral form
    tools: Sequence[Tool] | None = None  # tool schemas sent along; they are counted
    blocks: Sequence[Block] = ()  # everything but system prompt, history and question
    system: Sequence[Any] = ()  # system messages that come first and always stay
    history: Sequence[Any] | None = None  # the conversation, oldest first; None where there is none
    history_block: Block | None = None  # where it was given as one: its rank, its share, ids of its segments
    question: Any = None  # the current question as a host message; None when it is in the history
    question_text: str = ""  # what blocks should answer; "" takes the history's last question
    asked_last: bool = False  # the last message of the history was given as the question: it stays
    asked_elsewhere: bool = False  # the host adds the question itself, so all of the history may go
    sent: bool = False  # goes to the model as it is: a call that still waits for results is dropped
    held: bool = False  # the provider adds older messages that it stores; they are not counted
    ceiling: int | None = None  # most tokens of the whole prompt, beside the budget
    history_tokens: int | None = None  # most tokens of the kept history, beside the budget
    extra_tokens: int = 0  # tokens of the prompt that are in none of these
    beside: Mapping[str, int] = field(default_factory=dict)
    """Tokens of a segment's media, by its id. A `render` shows those of all blocks but "knowledge"."""
    sources: frozenset[str] | None = None
    """The blocks this prompt may ever have; the shares of others go to them. None: all of the budget's."""
    render: Render | None = None  # makes the final messages; None takes the usual order and tags
    frames: Mapping[str, int] = field(default_factory=dict)
    """Tokens that a `render` puts around the pieces of a block, by its name, while it has any."""
    shown: Shown | None = None  # how a piece reads in the prompt, where the host renders it
    cost: Cost | None = None
    """Tokens of a text kept of a segment; None counts it as rendered. With it, blocks may want all room."""
    hidden: tuple[Decision, ...] = ()  # on what was left out before, because its reader may not see it
    notes: tuple[str, ...] = ()  # what the report warns of beside what it sees
    scope: Scope | None = None  # who reads; None sees only what is open to all
    notice: str | None = NOTICE  # the sentence before inserted text; None leaves it out
    text: bool = False  # the prompt is also used as tagged text, which must fit too
    profile: RenderingProfile | None = None  # what the provider demands of a conversation
    scorer: Scorer | None = None  # rates segments that have no score of their own
    cut: CutMode | None = "fill"
    """"fill" keeps as much history as fits; "stable" moves its start rarely; None: see `cut_of_request`."""
    query: str | None = None  # what older messages should be relevant to; None keeps by age alone
    min_exchanges: int | None = None  # exchanges that stay if that can be; None asks the budget
    last_turns: int | None = None  # turns of the history that may stay; None asks the budget
    message_cap: int | None = 1000  # None never shortens a long text so that the last exchanges fit
    shorten_question: bool | None = None
    """Cuts a question that does not fit; so does the budget's own. None: the host shows it uncut."""
    strict: bool = False  # refuses a broken conversation instead of repairing it
    summarizer: Summarizer | None = None  # writes a summary of the history that is dropped
    summary_timeout: float | None = SUMMARY_TIMEOUT  # seconds one call of it may take; None: no timeout
    covers: Covers = "prompt"  # what the report covers: the whole prompt, or what this entry point sees
    repeatable: bool = True  # with other limits the host would give the same parts
    task_turns: int = 0  # for how many turns the task block has been the same

    @property
    def moves(self) -> bool:
        """Whether the profile makes other messages than those that were counted."""
        own, made = getattr(self.counter, "profile", None), self.profile
        return made is not None and (
            made != own or made.system != "anywhere" or made.one_system or made.alternate
        )


@dataclass(frozen=True, slots=True)
class Turn:
    """What a session adds to a request."""

    sources: frozenset[str] | None  # names of the blocks that its prompts may ever have
    awaited: frozenset[str] = frozenset()  # blocks that another call of this turn brings; share reserved
    known: Sequence[ThreadState] = ()  # what the session remembers, of each conversation in the thread
    granted_history: int | None = None  # what an earlier call of this turn granted it; None without one
    taken: Mapping[str, int] = field(default_factory=dict)  # tokens of blocks in earlier calls of this turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A finished prompt.

    Args:
        messages: the prompt; messages kept whole are the objects that were given.
        history: what stays of the conversation, with the question when it was its last message.
        kept: what each block kept, by block name.
        report: why every piece was kept, shortened or dropped.
        counter: what counted the prompt.
        granted: tokens granted to each block; the history's under "history".
        layout: the parts in their places; None where only a history was asked for.
        state: what a session remembers of the conversation; None without one.
        unsummarized: some of what was dropped is in no summary, although there is a summarizer.
        edits: shortened copies in `history`, by the position of the message among those that were given.
    """

    messages: Sequence[Any]
    history: Sequence[Any]
    kept: Mapping[str, Fit]
    report: BudgetReport
    counter: TokenCounter
    granted: Mapping[str, int]
    layout: Layout | None = None
    state: ThreadState | None = None
    unsummarized: bool = False
    edits: Mapping[int, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The prompt as tagged text, for completion models; empty blocks hold the usual placeholders.

        Tags cost other tokens than the framing of messages, so the text is counted when it is asked for.

        Raises:
            BudgetExceededError: the text is over the limit although the messages are not;
                `Assembler(text=True)` fits both.
        """
        text = self.layout.text() if self.layout is not None else ""
        tokens = self.counter.count(text)
        if tokens > self.report.limit:
            msg = (
                f"the prompt as text must have at most {self.report.limit:,} tokens (got {tokens:,}). "
                "Make it with Assembler(text=True), which fits the text, too."
            )
            raise BudgetExceededError(msg, limit=self.report.limit, needed=tokens)
        return text


Assembly = Plan
"""What `Assembler.assemble` returns."""
