"""Errors, and the checks of values; a message has the form "X must be Z (got Y). What to do.".

BudgetError(ValueError)
├── BudgetConfigError            a budget, profile or argument that cannot work
├── BudgetExceededError          what must stay does not fit
├── CounterUnavailableError      a tokenizer or a context window that cannot be found (also ImportError)
├── EmbeddingIndexError          a saved index that is damaged or does not match
├── MessageError                 a message the codec cannot read, or a broken history under strict=True
└── SummaryError                 a summarizer that failed, hung or answered too much
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from contextlib import suppress
from reprlib import Repr
from typing import Any

__all__ = [
    "BudgetConfigError",
    "BudgetError",
    "BudgetExceededError",
    "CounterUnavailableError",
    "EmbeddingIndexError",
    "MessageError",
    "SummaryError",
    "check_choice",
    "check_count",
    "check_number",
    "shown",
]

_repr = Repr()
_repr.maxstring = _repr.maxother = 80
_repr.maxdict = _repr.maxlist = 8
_repr.maxlevel = 2
_LONGEST = 200


class BudgetError(ValueError):
    """Base of all errors of this library."""


class BudgetConfigError(BudgetError):
    """Says what is wrong with a configuration; lists every problem at once.

    Example:
        >>> str(BudgetConfigError.of(["reserve must be 0 or more (got -1)", "give one of both"]))
        'reserve must be 0 or more (got -1); give one of both'
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


def shown(value: object) -> str:
    """Returns a short `repr` for messages, however large or deep the value is."""
    text = _repr.repr(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


# A check adds what is wrong with a value to `problems`, so that one error can name all of it, and returns the
# value in its plain form.


def check_number(
    name: str, value: Any, problems: list[str], *, allowed: str, high: float = math.inf, above: bool = False
) -> float:
    """Returns a finite number from 0 (above 0 when `above`) to `high`; `allowed` says so in words."""
    number = math.nan
    if not isinstance(value, (bool, str, bytes)) and hasattr(value, "__float__"):
        with suppress(OverflowError, TypeError, ValueError):
            number = float(value)
    if not math.isfinite(number) or not 0 <= number <= high or (above and number == 0):
        problems.append(f"{name} must be {allowed} (got {shown(value)})")
    return int(number) if number > 1 and number.is_integer() else number


def check_flag(name: str, value: Any, problems: list[str]) -> bool:
    """Returns True or False; anything else is a problem."""
    if not isinstance(value, bool):
        problems.append(f"{name} must be True or False (got {shown(value)})")
    return bool(value)


def check_count(name: str, value: Any, problems: list[str], *, low: int = 0, instead: str = "") -> int:
    """Returns a whole number of at least `low`; a float, a bool or a text is a problem."""
    try:
        count = operator.index(value)
    except TypeError:
        count = low - 1
    if isinstance(value, bool) or count < low:
        problems.append(f"{name} must be a whole number from {low}{instead} (got {shown(value)})")
    return count


def check_choice(name: str, value: Any, problems: list[str], allowed: tuple[str | None, ...]) -> Any:
    """Returns one of the allowed words."""
    if not (value is None or isinstance(value, str)) or value not in allowed:
        words = ", ".join(map(repr, allowed))
        problems.append(f"{name} must be one of {words} (got {shown(value)})")
    return value
