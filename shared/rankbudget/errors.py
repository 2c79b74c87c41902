"""Errors: every one says what was seen, what was allowed and what to change.

BudgetError(ValueError)
├── BudgetConfigError            a budget, profile or argument that cannot work
├── BudgetExceededError          what must stay does not fit
├── CounterUnavailableError      a tokenizer or a context window that cannot be found (also ImportError)
├── EmbeddingIndexError          a saved index that is damaged or does not match
├── MessageError                 a message the codec cannot read, or a broken history under strict=True
└── SummaryError                 a summarizer that failed, hung or answered too much
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = [
    "BudgetConfigError",
    "BudgetError",
    "BudgetExceededError",
    "CounterUnavailableError",
    "EmbeddingIndexError",
    "MessageError",
    "SummaryError",
]


class BudgetError(ValueError):
    """Base of all errors of this library."""


class BudgetConfigError(BudgetError):
    """Says what is wrong with a configuration; lists every problem at once.

    Example:
        >>> str(BudgetConfigError.of(["reserve is -1, allowed: 0 or more", "ratios sum to 1.4"]))
        'reserve is -1, allowed: 0 or more; ratios sum to 1.4'
    """

    @classmethod
    def of(cls, problems: Iterable[str]) -> BudgetConfigError:
        """Returns one error that carries all `problems`."""
        return cls("; ".join(problems))


class BudgetExceededError(BudgetError):
    """Says that what must stay needs more tokens than there are, and where they are.

    Args:
        message: what was seen and what to change.
        limit: tokens allowed.
        needed: tokens that must stay.
        blocks: tokens that must stay, by block name.
    """

    def __init__(
        self, message: str, *, limit: int, needed: int, blocks: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(message)
        self.limit = limit
        self.needed = needed
        self.blocks = dict(blocks or {})

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_exceeded, (str(self), self.limit, self.needed, self.blocks))


def _rebuild_exceeded(message: str, limit: int, needed: int, blocks: dict[str, int]) -> BudgetExceededError:
    return BudgetExceededError(message, limit=limit, needed=needed, blocks=blocks)


class CounterUnavailableError(BudgetError, ImportError):
    """Says which tokenizer, context window or optional library is missing and how to get it."""


class EmbeddingIndexError(BudgetError):
    """Says why a saved embedding index cannot be used."""


class MessageError(BudgetError):
    """Says which message cannot be read, or which repair `strict=True` forbids."""


class SummaryError(BudgetError):
    """Says how a summarizer failed; what it was given is still where it was."""
