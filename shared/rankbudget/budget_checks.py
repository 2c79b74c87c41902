"""What a budget refuses: every rule for the numbers a user gives, all broken ones told at once.

Each check takes a value and the list of problems so far, adds what it finds and returns the value in its plain form.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from reprlib import Repr
from typing import Any, NoReturn, TypeVar

__all__ = ["FrozenDict", "check_choice", "check_count", "check_mapping", "check_number", "parts_of", "shown"]

_Value = TypeVar("_Value")
_PARTS = 1_000_000_000
_repr = Repr()
_repr.maxstring = _repr.maxother = 80
_repr.maxdict = _repr.maxlist = 8
_repr.maxlevel = 2
_LONGEST = 200


class FrozenDict(dict[str, _Value]):
    """A dict that cannot change and can be hashed, so that a budget can be shared and used as a key."""

    __slots__ = ()

    def _refuse(self, *_args: object, **_fields: object) -> NoReturn:
        msg = "a TokenBudget cannot change; make another one with budget.replace(...)"
        raise TypeError(msg)

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # dict says None: it can change, this one cannot
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[object, ...]:
        return (FrozenDict, (dict(self),))


def shown(value: object) -> str:
    """Returns a short `repr` for messages, however large or deep the value is."""
    text = _repr.repr(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def parts_of(ratio: float) -> int:
    """Returns a ratio as billionths, so that shares are computed in integers.

    Example:
        >>> int(100 * 0.29), 100 * parts_of(0.29) // 1_000_000_000
        (28, 29)
    """
    return round(ratio * _PARTS)


def check_number(
    name: str, value: Any, problems: list[str], *, low: float = 0.0, high: float = math.inf, above: bool = False, allowed: str = ""
) -> float:
    """Returns a finite number between `low` (not `low` itself when `above`) and `high`."""
    allowed = allowed or f"a number {'above' if above else 'from'} {low:g}" + (f" to {high:g}" if high < math.inf else "")
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
        problems.append(f"{name} is {shown(value)}, allowed: {allowed}")
        return math.nan
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < low or number > high or (above and number == low):
        problems.append(f"{name} is {shown(value)}, allowed: {allowed}")
        return math.nan
    return int(number) if number > 1 and number.is_integer() else number


def check_count(name: str, value: Any, problems: list[str], *, low: int = 0) -> int:
    """Returns a whole number of at least `low`; a float, a bool or a text is a problem."""
    try:
        count = operator.index(value)
    except TypeError:
        count = low - 1
    if isinstance(value, bool) or count < low:
        problems.append(f"{name} is {shown(value)}, allowed: a whole number from {low}")
        return low
    return count


def check_choice(name: str, value: Any, problems: list[str], allowed: tuple[str | None, ...]) -> None:
    """Adds a problem when `value` is none of the allowed words."""
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in allowed):
        problems.append(f"{name} is {shown(value)}, allowed: {', '.join(repr(a) for a in allowed)}")


def check_mapping(name: str, value: Any, problems: list[str]) -> Iterator[tuple[str, Any]]:
    """Yields the entries of a mapping from block names."""
    if value is None:
        return
    if not isinstance(value, Mapping):
        problems.append(f"{name} is {shown(value)}, allowed: a mapping from block names to numbers")
        return
    for key, entry in value.items():
        if isinstance(key, str) and key:
            yield key, entry
        else:
            problems.append(f"{name} has the key {shown(key)}, allowed: block names as 'memory' or 'history'")
