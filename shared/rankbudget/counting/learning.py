"""What a counter that estimates learns from the usage a provider reports."""

from __future__ import annotations

import threading
from collections import deque

__all__ = ["Learned"]

_REMEMBERED = 64
_FEWEST = 3  # reports before anything changes: one odd request teaches nothing
_LEAST_BAND = 0.02
_STEP = 0.01  # a smaller change of the factor is not worth counting everything again
_MOST, _LEAST = 4.0, 0.25  # a report that is further off counted something else


class Learned:
    """The factor between what was counted and what was reported, and how far single requests were from it.

    Args:
        band: by what share a count may be too low before anything was learned.

    Example:
        >>> learned = Learned(0.5)
        >>> [learned.observe(100, reported) for reported in (120, 118, 122)]  # the third report is enough
        [False, False, True]
        >>> learned.scaled(100), round(learned.band, 2)
        (120, 0.07)
    """

    def __init__(self, band: float) -> None:
        self._prior = band
        self._permille = 1_000
        self._band = band
        self._seen: deque[tuple[float, int]] = deque(maxlen=_REMEMBERED)
        self._lock = threading.Lock()

    @property
    def band(self) -> float:
        return self._band

    def scaled(self, tokens: int) -> int:
        """Returns a count as it is expected to be reported, rounded up."""
        return -(-tokens * self._permille // 1_000)

    def unscaled(self, tokens: int) -> int:
        """Returns the largest count that scales to at most `tokens`."""
        return tokens * 1_000 // self._permille

    def observe(self, counted: int, reported: int) -> bool:
        """Takes one report in; returns whether counts have changed."""
        if counted <= 0 or reported <= 0:
            return False
        with self._lock:
            plain = counted * 1_000 / self._permille
            if not _LEAST <= reported / plain <= _MOST:
                return False
            self._seen.append((plain, reported))
            if len(self._seen) < _FEWEST:
                return False
            factor = sum(r for _, r in self._seen) / sum(p for p, _ in self._seen)
            changed = abs(factor * 1_000 - self._permille) >= _STEP * self._permille
            if changed:
                self._permille = round(factor * 1_000)
            worst = max(r * 1_000 / (p * self._permille) - 1 for p, r in self._seen)
            self._band = min(
                self._prior, max(_LEAST_BAND, worst * 2) + 0.1 / len(self._seen)
            )  # the next may be worse than the worst so far
            return changed
