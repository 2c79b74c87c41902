"""Counts for a model whose tokenizer is not at hand, with the vocabulary that comes nearest."""

from __future__ import annotations

import math

from .estimate import estimate_tokens
from .media import MediaTable
from .tiktoken_counter import TiktokenCounter

__all__ = ["SimilarCounter"]


class SimilarCounter(TiktokenCounter):
    """Counts the larger of what another model's vocabulary and the estimate say.

    A vocabulary of 200,000 pieces is generous with scripts and numbers that others spell out; the estimate is not.

    Example:
        >>> counter = SimilarCounter("o200k_base", name="acme-1", why="an example", band=0.5)
        >>> counter.count("1234567890"), TiktokenCounter("o200k_base").count("1234567890")  # ten digits, or pieces of three
        (10, 4)
    """

    def __init__(
        self, encoding: str, *, name: str, why: str, band: float, media: MediaTable | None = None
    ) -> None:
        super().__init__(encoding, name=name, exact=False, why=why, band=band, media=media)

    def _measure(self, text: str) -> int:
        return max(super()._measure(text), math.ceil(estimate_tokens(text)))
