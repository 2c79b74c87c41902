"""What an assembler returns: the prompt as messages and as text, what each block kept, and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .fitting.protocol import Fit
from .prompt import Layout
from .report import BudgetReport

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
    """

    messages: list[Any]
    history: list[Any]
    kept: Mapping[str, Fit]
    report: BudgetReport
    layout: Layout

    @property
    def text(self) -> str:
        """The prompt as tagged text, for completion models; empty blocks hold the specification's placeholders."""
        return self.layout.text()
