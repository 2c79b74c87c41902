"""What the one-call functions hand back: what was kept, and the report that says why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..segment import Segment
from .report import BudgetReport

__all__ = ["FitResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitResult:
    """What `fit_messages`, `fit_documents` and their kin return; what is kept whole are the same objects.

    Args:
        messages: the kept host messages.
        segments: the kept segments.
        text: the kept texts, joined as they were counted.
        report: why every piece was kept, shortened or dropped.
    """

    messages: Sequence[Any] = ()
    segments: Sequence[Segment] = ()
    text: str = ""
    report: BudgetReport
