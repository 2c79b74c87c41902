"""What an assembler returns: the prompt as messages and as text, what each block kept, and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..counting.protocol import TokenCounter
from ..errors import BudgetExceededError
from ..fitting.protocol import Fit
from .layout import Layout
from ..report.report import BudgetReport

__all__ = ["Assembly"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """A finished prompt.

    Args:
        messages: the prompt as host messages; those kept whole are the objects that were given.
        history: the part of the conversation that stays, question included when it was its last message.
        kept: what each block kept, by block name.
        report: why every piece was kept, shortened or dropped.
        layout: the parts in their places.
        counter: counted them.
    """

    messages: list[Any]
    history: list[Any]
    kept: Mapping[str, Fit]
    report: BudgetReport
    layout: Layout
    counter: TokenCounter

    @property
    def text(self) -> str:
        """The prompt as tagged text, for completion models; empty blocks hold the specification's placeholders.

        Tags cost other tokens than the framing of messages, so the text is counted when it is asked for.

        Raises:
            BudgetExceededError: the text is over the limit although the messages are not; `Assembler(text=True)` fits both.
        """
        text = self.layout.text()
        tokens = self.counter.count(text)
        if tokens > self.report.limit:
            msg = f"as text the prompt has {tokens:,} tokens, the limit is {self.report.limit:,}; make it with Assembler(text=True), which fits the text, too"
            raise BudgetExceededError(msg, limit=self.report.limit, needed=tokens)
        return text
