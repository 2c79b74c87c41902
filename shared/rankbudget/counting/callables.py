"""Counts with any callable from text to tokens, as hosts and users bring them."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import BudgetError, CounterUnavailableError
from .base import TextCounter, whole_tokens

__all__ = ["CallableCounter"]


class CallableCounter(TextCounter):
    """Counts texts with a callable and frames messages as OpenAI does.

    Args:
        count: tokens of a text, fractions rounded up; called once for each text that is not remembered.
        name: what it counts for; None takes the callable's own name.
    """

    def __init__(self, count: Callable[[str], int], *, name: str | None = None) -> None:
        own = name or getattr(count, "__name__", None) or type(count).__name__
        super().__init__(name=own, exact=True, why=f"the callable {own!r} is trusted")
        self._callable = count

    def _measure(self, text: str) -> int:
        try:
            counted = self._callable(text)
        except BudgetError:
            raise
        except Exception as error:
            msg = f"the counter {self.name!r} must count every text (it raised {type(error).__name__}: {error})."
            raise CounterUnavailableError(msg) from error
        return whole_tokens(counted, self.name)
