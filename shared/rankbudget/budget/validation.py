"""What a budget refuses: every rule for the numbers a user gives, all broken ones told at once.

Each check takes a value and the list of problems so far, adds what it finds and returns the value in its plain form.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from reprlib import Repr
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from .token_budget import TokenBudget

__all__ = [
    "DEFAULT_RATIOS",
    "DEFAULT_RESERVE",
    "LEAST_MESSAGE_CAP",
    "NO_CAP",
    "FrozenDict",
    "check_choice",
    "check_count",
    "check_mapping",
    "check_number",
    "check_ratios",
    "contradictions",
    "parts_of",
    "shown",
]

_Value = TypeVar("_Value")
_PARTS = 1_000_000_000
_repr = Repr()
_repr.maxstring = _repr.maxother = 80
_repr.maxdict = _repr.maxlist = 8
_repr.maxlevel = 2
_LONGEST = 200
NO_CAP = ", or None to leave every message whole"
LEAST_MESSAGE_CAP = 200
"""No message is capped to fewer tokens: less than that says nothing any more."""


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


DEFAULT_RATIOS = FrozenDict({"memory": 0.30, "history": 0.40})
DEFAULT_RESERVE = 0.30
_FIXED_BLOCKS = ("system", "query", "tools")
_RATIOS_LOW, _RATIOS_HIGH = 0.95, 1.05
_ROUNDING = 1e-9


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
    name: str,
    value: Any,
    problems: list[str],
    *,
    low: float = 0.0,
    high: float = math.inf,
    above: bool = False,
    allowed: str = "",
) -> float:
    """Returns a finite number between `low` (not `low` itself when `above`) and `high`."""
    allowed = allowed or f"a number {'above' if above else 'from'} {low:g}" + (
        f" to {high:g}" if high < math.inf else ""
    )
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


def check_count(name: str, value: Any, problems: list[str], *, low: int = 0, instead: str = "") -> int:
    """Returns a whole number of at least `low`; a float, a bool or a text is a problem."""
    try:
        count = operator.index(value)
    except TypeError:
        count = low - 1
    if isinstance(value, bool) or count < low:
        problems.append(f"{name} is {shown(value)}, allowed: a whole number from {low}{instead}")
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


def check_ratios(given: Any, problems: list[str]) -> dict[str, float]:
    """Returns the ratios as given; a "reserve" among them is the budget's reserve, as profiles write it."""
    ratios: dict[str, float] = {}
    for name, ratio in check_mapping(
        "ratios", DEFAULT_RATIOS if given.ratios is None else given.ratios, problems
    ):
        if name in _FIXED_BLOCKS:
            problems.append(
                f"ratios name {name!r}, which always stays whole; bound the system prompt with max_system_ratio or sizes"
            )
        else:
            ratios[name] = check_number(
                f"ratio of {shown(name)}", ratio, problems, high=1, allowed="a share from 0 to 1"
            )
    if "reserve" in ratios and given.reserve not in (DEFAULT_RESERVE, ratios["reserve"]):
        problems.append(
            f"reserve is {shown(given.reserve)} and ratios say {ratios['reserve']:g}, allowed: one of them"
        )
    return ratios


def contradictions(budget: TokenBudget) -> list[str]:
    """Returns what is wrong between values that are each allowed."""
    problems = []
    both = sorted(set(budget.ratios) & set(budget.sizes))
    if both:
        problems.append(
            f"ratios and sizes both name {', '.join(map(repr, both))}, allowed: one of them for each block"
        )
    if "reserve" in budget.sizes:
        problems.append("sizes name 'reserve', allowed: reserve=<tokens>")
    total = sum(budget.ratios.values())
    terms = [f"{name} {ratio:g}" for name, ratio in budget.ratios.items()]
    if budget.ratios and budget.reserve <= 1:
        total += budget.reserve
        if not _RATIOS_LOW - _ROUNDING <= total <= _RATIOS_HIGH + _ROUNDING:
            terms.append(f"reserve {budget.reserve:g}")
            problems.append(
                f"ratios and reserve sum to {total:.4g} ({' + '.join(terms)}), allowed: 0.95 to 1.05"
            )
    elif budget.ratios and not 0 < total <= _RATIOS_HIGH + _ROUNDING:
        problems.append(
            f"ratios sum to {total:.4g} ({' + '.join(terms)}), allowed: above 0 to 1.05 beside a reserve in tokens"
        )
    if budget.surplus == "keep" and not budget.ratios and not budget.sizes:
        problems.append(
            "ratios and sizes are empty and surplus is 'keep', so no block would get a token; name shares or another surplus"
        )
    if budget.reserve == 1 or budget.reserve >= budget.context_window:
        problems.append(
            f"reserve is {budget.reserve:g}, the whole window of {budget.context_window:,}; leave room for a prompt"
        )
    elif (
        budget.safety is not None
        and budget.safety_tokens() + budget.reserve_tokens() >= budget.context_window
    ):
        problems.append(
            f"reserve {budget.reserve:g} and safety {budget.safety:g} leave nothing of the window of {budget.context_window:,}"
        )
    elif budget.sizes and budget.grand_total > budget.context_window:
        problems.append(
            f"sizes, reserve and safety need {budget.grand_total:,} tokens, the window has {budget.context_window:,}"
        )
    return problems
