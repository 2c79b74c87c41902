"""What a fitting strategy promises.

A strategy picks what stays of one block. `fit_block` does everything around it: it puts pinned segments
aside, hands the members of a group over as one `Group`, and makes a decision for every segment.

Rules, each with a test in `rankbudget.testing.FitStrategyConformance`:
    1. The pieces cost at most `limit`, as `cost` counts; when nothing fits the fit is empty, not an error.
    2. Every piece is of a segment that was given, no segment twice.
    3. A `Group` is kept whole or not at all.
    4. What is kept is in the order the strategy promises: the original order unless it says otherwise.
    5. What fits comes back untouched: when all segments fit, all are kept whole.
    6. The segments given are not changed, and the same input gives the same pieces.

`Evidence`, `Memories` and `Truncate` promise more: what is kept at a limit is kept at every larger one, or a
longer part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from ..counting.protocol import TokenCounter
from ..segment import Decision, DecisionRange, Rendition, Segment

Cost = Callable[[Segment, str], int]
"""Tokens of `text` where it represents `segment` in the prompt, wrapping and separator included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Segment):
    """Segments that live or die together, as a strategy sees them: one segment with the texts of all."""

    members: tuple[Segment, ...]


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
    """What is kept of a block.

    Args:
        pieces: what is kept, in the order of the prompt.
        tokens: what the pieces cost.
        decisions: why, for every segment; `fit_block` makes them, a strategy leaves them out.
        reasons: a strategy's own reason and detail by segment id, where it has a better one; a detail alone
            has the reason "".
        needed: makes the smallest limit that keeps something of each dropped segment, by its id; one that is
            left out has no known limit. Worked out only when called: it prices all that was dropped.
    """

    pieces: tuple[Piece, ...]
    tokens: int
    decisions: Sequence[Decision | DecisionRange] = field(default=(), compare=False)
    reasons: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    needed: Callable[[], Mapping[str, int]] = field(default=dict, compare=False)


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
        """Returns pieces of `segments`, those of `block`, that cost at most `limit` tokens by `counter`.

        `query` is what they should answer; `cost` is by default the text and a newline.
        """
        ...


def members_of(segment: Segment) -> tuple[Segment, ...]:
    """Returns the members of a group; any other segment alone."""
    return segment.members if isinstance(segment, Group) else (segment,)


def plain_cost(counter: TokenCounter) -> Cost:
    """Returns the cost of a text on a line of its own."""
    return lambda segment, text: counter.count(text + "\n")


def asked_once(price: Cost) -> Cost:
    """Returns the same prices, asked for once for each whole segment; a whole group costs its members."""
    known: dict[str, int] = {}

    def cost(segment: Segment, text: str) -> int:
        if text != segment.text:
            return price(segment, text)
        if isinstance(segment, Group):
            return sum([cost(member, member.text) for member in segment.members])
        tokens = known.get(segment.id)
        if tokens is None:
            tokens = known[segment.id] = price(segment, text)
        return tokens

    return cost


def whole(segment: Segment, tokens: int) -> Piece:
    """Returns the segment as it is."""
    return Piece(segment, Rendition(kind="whole", text=segment.text, tokens=tokens))
