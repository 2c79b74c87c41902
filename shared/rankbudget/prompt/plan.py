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

__all__ = ["Assembly", "Plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A finished prompt.

    Args:
        messages: the prompt as host messages; those kept whole are the objects that were given.
        history: the part of the conversation that stays, question included when it was its last message.
        kept: what each block kept, by block name.
        report: why every piece was kept, shortened or dropped.
        layout: the parts in their places; None where only a history was asked for.
        counter: counted them.
        granted: tokens granted to each block; the history's under "history".
        state: what a session remembers of the conversation; None without one.
    """

    messages: Sequence[Any]
    history: Sequence[Any]
    kept: Mapping[str, Fit]
    report: BudgetReport
    counter: TokenCounter
    granted: Mapping[str, int]
    layout: Layout | None = None
    state: ThreadState | None = None

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
