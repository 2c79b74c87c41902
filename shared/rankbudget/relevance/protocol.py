"""What a scorer promises.

Rules:
    1. One finite score for each segment, in order; higher is more relevant; the range is the scorer's own.
    2. The same input gives the same scores; segments are not changed.
    3. An empty query, or a query without a word in common, gives equal scores, never an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ..segment import Segment


@runtime_checkable
class Scorer(Protocol):
    """Rates segments by relevance to a query."""

    def score(self, query: str, segments: Sequence[Segment]) -> list[float]:
        """Returns for each of `segments` how relevant it is to `query`."""
        ...
