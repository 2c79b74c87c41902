"""Counts with any callable from text to tokens, as hosts and users bring them."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import BudgetConfigError
from .base import TextCounter

__all__ = ["CallableCounter"]


class CallableCounter(TextCounter):
    """Counts texts with a callable and frames messages as OpenAI does.

    Args:
        count: tokens of a text; asked once for each text that is not remembered.
        name: what it counts for; None takes the callable's own name.

    Example:
        >>> CallableCounter(lambda text: len(text.split())).count("three short words")
        3
    """

    def __init__(self, count: Callable[[str], int], *, name: str | None = None) -> None:
        shown = name or getattr(count, "__name__", None) or type(count).__name__
        super().__init__(name=shown, exact=True, why=f"the callable {shown!r} is taken at its word")
        self._callable = count

    def _measure(self, text: str) -> int:
        counted = self._callable(text)
        try:
            tokens = int(counted)
        except (TypeError, ValueError):
            tokens = -1
        if tokens < 0:
            msg = f"the counter {self._name!r} returned {counted!r} for a text; allowed: a whole number of tokens, 0 or more"
            raise BudgetConfigError(msg)
        return tokens
