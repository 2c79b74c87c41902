"""What a fitting strategy promises.

Rules, each with a test in `rankbudget.testing.FitStrategyConformance`:
    1. `Fit.tokens <= limit`, counted as `cost` counts; when nothing fits the fit is empty, not an error.
    2. Every segment has exactly one decision; pinned segments are kept or `BudgetExceededError` is raised.
    3. A group is kept or dropped whole.
    4. What is kept stands in the order the strategy promises (original order unless it says otherwise), no segment twice.
    5. What fits comes back untouched: when all segments fit, all are kept whole.
    6. The segments given are not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ..counting.protocol import TokenCounter
from ..segment import Decision, DecisionRange, Rendition, Segment

__all__ = ["Cost", "Fit", "FitStrategy", "Piece", "plain_cost"]

Cost = Callable[[Segment, str], int]
"""Tokens of `text` where it stands for `segment` in the prompt, wrapping and separator included."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A segment in the rendition that was picked for it."""

    segment: Segment
    rendition: Rendition

    @property
    def whole(self) -> bool:
        """Whether the segment stands untouched."""
        return self.rendition.kind == "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What a strategy kept, what it costs, and why for every segment."""

    pieces: tuple[Piece, ...]
    tokens: int
    decisions: tuple[Decision | DecisionRange, ...]


@runtime_checkable
class FitStrategy(Protocol):
    """Makes the segments of one block fit a limit."""

    def fit(
        self,
        segments: Sequence[Segment],
        *,
        limit: int,
        counter: TokenCounter,
        block: str,
        query: str = "",
        cost: Cost | None = None,
    ) -> Fit:
        """Returns pieces that cost at most `limit` tokens; without `cost` each text costs itself and a newline."""
        ...


def plain_cost(counter: TokenCounter) -> Cost:
    """Returns the cost of a text on a line of its own."""
    return lambda segment, text: counter.count(text + "\n")
