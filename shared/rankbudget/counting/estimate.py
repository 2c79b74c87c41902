"""Counts without any tokenizer: so many tokens per character of each script, on the high side."""

from __future__ import annotations

import math

from .base import TextCounter

__all__ = ["EstimateCounter"]


class EstimateCounter(TextCounter):
    """Estimates from the bytes of a text, when no vocabulary can be had.

    Example:
        >>> counter = EstimateCounter(why="no vocabulary")
        >>> counter.count("Hello, world!"), counter.exact
        (5, False)
    """

    def __init__(self, *, name: str = "estimate", why: str, band: float = 0.5) -> None:
        super().__init__(name=name, exact=False, why=why, band=band)

    def _measure(self, text: str) -> int:
        return math.ceil(len(text.encode("utf-8", "surrogatepass")) / 3)
