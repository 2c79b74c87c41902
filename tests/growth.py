"""How time grows with the input: the best of several runs at two sizes, without the garbage collector."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any, NamedTuple

FLOOR = 0.01
"""Seconds below which a clock and a busy machine decide; what is quadratic takes a hundred times as long at ten times the size."""
ATTEMPTS = 8


class Growth(NamedTuple):
    """Whether the time stayed within the bound, and the best seconds at the small and at the large size."""

    linear: bool
    small: float
    large: float


def growth(
    work: Callable[[Any], object], make: Callable[[int], Any], short: int, times: int, most: float
) -> Growth:
    """Compares the best time for `make(short)` with the best for `times` as much; a disturbed clock gets more attempts."""
    small = large = float("inf")
    for attempt in range(ATTEMPTS):
        small = min(small, seconds(work, make(short + attempt)))
        large = min(large, seconds(work, make((short + attempt) * times)))
        if large <= most * max(small, FLOOR):
            return Growth(True, small, large)
    return Growth(False, small, large)


def seconds(work: Callable[[Any], object], given: Any) -> float:
    """Returns the processor seconds of one call."""
    gc.disable()
    try:
        started = time.process_time()
        work(given)
        return time.process_time() - started
    finally:
        gc.enable()
