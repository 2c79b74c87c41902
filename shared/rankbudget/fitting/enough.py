"""Says when the share of the expected evidence that was asked for is in.

What ranks well is not yet a probability, so ratings are brought to one here; their order stays as it was. Base and slope make the evidence of the
quality benchmark's questions likeliest. They were fitted to one half of the documents and checked on the other, both ways round, and lie between
the two. `benchmarks/quality.py --floor 0.95` prints how near expectation and truth are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..relevance.evidence import probability
from .sentence_packing import SentencePacking

__all__ = ["CHANCES", "Enough", "Rated"]

Rated = Literal["documents", "sentences", "turns", "scores"]
"""What was rated: documents, sentences of documents, turns of a conversation, or segments that brought a score of their own."""
CHANCES: dict[Rated, tuple[float, float]] = {
    "documents": (-0.15, 1.2),
    "sentences": (0.6, 1.8),
    "turns": (-6.7, 0.63),
    "scores": (-6.2, 0.8),
}
"""Base and slope from a rating to log-odds. Scores a caller brings are the roughest: between those of BM25, of embeddings and of both together."""


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
        self._rated: Rated = rated
        self._floor = floor
        self._packing = packing
        self._weights = (
            [[_chance(rated, rating) for rating in row] for row in odds] if floor is not None else []
        )
        self._said_yes = False
        self._count()

    def split(self, rated: Rated, odds: Sequence[Sequence[float]]) -> None:
        """Shares what each segment was expected to hold among its sentences, from here on taken one by one."""
        if self._floor is None:
            return
        for i, row in enumerate(odds):
            chances = [_chance(rated, rating) for rating in row]
            total = sum(chances)
            if total:
                self._weights[i] = [sum(self._weights[i]) * chance / total for chance in chances]
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
        self._said_yes = self._floor is not None and self._in >= self._floor * self._total
        return self._said_yes

    def share(self) -> float:
        """Returns the share of the expected evidence that is kept, 1 where none was asked for."""
        self._count()
        return self._in / self._total if self._total else 1.0

    def left_out(self) -> dict[str, str]:
        """Returns why the rest was not needed; nothing where it had no room."""
        if not self._said_yes:
            return {}
        return {
            "reason": "enough",
            "detail": f"{self.share():.0%} of the expected evidence is kept without it, asked for: {self._floor:.0%}",
        }

    def _count(self) -> None:
        self._kept = [self._packing.kept_of(i, row) for i, row in enumerate(self._weights)]
        self._in = sum(self._kept)
        self._total = sum([sum(row) for row in self._weights])


def _chance(rated: Rated, rating: float) -> float:
    base, slope = CHANCES[rated]
    return probability(base + slope * rating)
