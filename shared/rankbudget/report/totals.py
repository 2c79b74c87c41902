"""One block in figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTotal:
    """One block in figures.

    Args:
        name: the block.
        rank: its importance, 1 = cut last.
        granted: tokens it was allowed; None where only the window limits it.
        used: tokens that are in the prompt.
        wanted: tokens it would have used, where known.
        frame: tokens of the grant that go to its tags as soon as it has a piece; `used` is without them.
        kept: segments kept whole; the report counts these, and those `shortened` and `dropped`.
        dropped_for_room: of the dropped, those that more room would have kept.

    Example:
        >>> BlockTotal(name="history", rank=5, granted=400, used=100).utilization
        0.25
    """

    name: str
    rank: int
    granted: int | None
    used: int
    wanted: int | None = None
    frame: int = 0
    kept: int = 0
    shortened: int = 0
    dropped: int = 0
    dropped_for_room: int = 0

    @property
    def size(self) -> int:
        """How many segments it has, dropped ones included."""
        return self.kept + self.shortened + self.dropped

    @property
    def utilization(self) -> float | None:
        """Share of the grant that is used, 0 to 1; None without a grant."""
        if self.granted is None:
            return None
        return self.used / self.granted if self.granted else 0.0
