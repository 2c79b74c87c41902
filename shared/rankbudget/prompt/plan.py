"""What one turn keeps of everything, the form that was counted, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..conversation.state import ThreadState
from ..counting.protocol import TokenCounter
from ..errors import BudgetExceededError
from ..fitting.protocol import Fit
from ..report.report import BudgetReport
from .layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A finished prompt."""

    messages: Sequence[Any]  # the prompt; messages kept whole are the objects that were given
    history: Sequence[Any]  # what stays of the conversation, with the question when it was its last message
    kept: Mapping[str, Fit]  # what each block kept, by block name
    report: BudgetReport  # why every piece was kept, shortened or dropped
    counter: TokenCounter
    granted: Mapping[str, int]  # tokens granted to each block; the history's under "history"
    layout: Layout | None = None  # the parts in their places; None where only a history was asked for
    state: ThreadState | None = None  # what a session remembers of the conversation; None without one
    unsummarized: bool = False  # some of what was dropped is in no summary, although there is a summarizer

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
