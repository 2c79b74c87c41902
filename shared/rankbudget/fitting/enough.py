"""Says when the share of the expected evidence that was asked for is in.

What ranks well is not yet a probability, so ratings are brought to one here; their order stays as it was.
`benchmarks/quality.py --floor 0.95` prints how near expectation and truth are.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..relevance.evidence import probability
from .rater import Rated
from .sentence_packing import SentencePacking

__all__ = ["CHANCES", "Enough"]

CHANCES: dict[Rated, tuple[float, float]] = {
    "documents": (-0.15, 1.2),
    "sentences": (0.6, 1.8),
    "turns": (-6.7, 0.63),
    "scores": (-6.2, 0.8),
}
"""Base and slope from a rating to log-odds. Scores a caller brings are the roughest."""


class Enough:
    """Adds up the expected evidence of what is kept.

    Args:
        rated: what was rated.
        odds: a row for each segment: its rating, or the ratings of its sentences.
        floor: the share that is enough; None asks for no share, and nothing is worked out.
        packing: what is kept.
    """

    def __init__(
        self, rated: Rated, odds: Sequence[Sequence[float]], floor: float | None, packing: SentencePacking
    ) -> None:
        self._floor = floor
        self._packing = packing
        self._weights = [_chances(rated, row) for row in odds] if floor is not None else []
        self._complete = False
        self._count()

    def split(self, rated: Rated, odds: Sequence[Sequence[float]]) -> None:
        """Shares what each segment was expected to hold among its sentences."""
        for i, weights in enumerate(self._weights):
            chances = _chances(rated, odds[i])
            total = sum(chances)
            if total:
                self._weights[i] = [sum(weights) * chance / total for chance in chances]
        self._count()

    def took(self, i: int, j: int | None = None) -> None:
        """Counts a segment that was tried whole, or its sentence `j`, tried once; each as far as it is in."""
        if self._floor is None:
            return
        if j is None:
            before, self._kept[i] = self._kept[i], self._packing.kept_of(i, self._weights[i])
            self._in += self._kept[i] - before
        elif self._packing.holds(i, j):
            self._kept[i] += self._weights[i][j]
            self._in += self._weights[i][j]

    def reached(self) -> bool:
        """Returns whether enough is kept."""
        self._complete = self._floor is not None and self._in >= self._floor * self._total
        return self._complete

    def share(self) -> float:
        """Returns the share of the expected evidence that is kept, 1 where none was asked for."""
        self._count()
        return self._in / self._total if self._total else 1.0

    def reason(self) -> tuple[str, str] | None:
        """Returns why the rest was not needed; None where it had no room."""
        if not self._complete:
            return None
        detail = (
            f"{self.share():.0%} of the expected evidence is kept without it, asked for: {self._floor:.0%}"
        )
        return "enough", detail

    def _count(self) -> None:
        self._kept = [self._packing.kept_of(i, row) for i, row in enumerate(self._weights)]
        self._in = sum(self._kept)
        self._total = sum([sum(row) for row in self._weights])


def _chances(rated: Rated, ratings: Sequence[float]) -> list[float]:
    base, slope = CHANCES[rated]
    return [probability(base + slope * rating) for rating in ratings]
