"""Checks the values of a budget by one table of rules, and collects every broken one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn, TypeVar

from ..errors import check_choice, check_count, check_flag, check_number, shown
from ..segment import by_block, check_block_name

_Value = TypeVar("_Value")
PARTS = 1_000_000_000
"""Shares are computed in billionths: 29 % of 100 is 29, although 100 * 0.29 is 28.999... in floats."""
NO_CAP = ", or None to leave every message whole"
EVERY_TURN = ", or None to keep as many as fit"
LEAST_MESSAGE_CAP = 200
"""No message is capped to fewer tokens: so little of it tells the model nothing."""
_ROUNDING = 1e-9


class FrozenDict(dict[str, _Value]):
    """A dict that cannot change and can be hashed, so that a budget can be shared and used as a key."""

    __slots__ = ()

    def _refuse(self, *_args: object, **_fields: object) -> NoReturn:
        msg = "a TokenBudget cannot change; make another one with budget.replace(...)"
        raise TypeError(msg)

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # dict is unhashable because it can change
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[object, ...]:
        return (FrozenDict, (dict(self),))


DEFAULT_RATIOS = FrozenDict({"memory": 0.30, "history": 0.40})
DEFAULT_RESERVE = 0.30


def _check_name(name: str, value: Any, problems: list[str]) -> Any:
    if not isinstance(value, str):
        problems.append(f"{name} must be a model's name; a counter takes objects (got {shown(value)})")
    return value


SHARE: Mapping[str, Any] = {"high": 1, "allowed": "a share from 0 to 1"}
_TOKENS_OR_SHARE = partial(check_number, allowed="tokens above 1, or a share from 0 to 1")
_RULES: dict[str, Callable[[str, Any, list[str]], Any]] = {
    "context_window": partial(check_count, low=1),
    "reserve": _TOKENS_OR_SHARE,
    "safety": _TOKENS_OR_SHARE,
    "keep_band": check_flag,
    "max_system_ratio": partial(check_number, high=1, above=True, allowed="a share above 0 to 1, or None"),
    "min_exchanges": check_count,
    "last_turns": partial(check_count, low=1, instead=EVERY_TURN),
    "message_cap": partial(check_count, low=LEAST_MESSAGE_CAP, instead=NO_CAP),
    "shorten_question": check_flag,
    "model": _check_name,
    "max_output": partial(check_count, low=1),
    "surplus": partial(check_choice, allowed=("waterfall", "borrow", "keep")),
    "preset": partial(check_choice, allowed=(None, "chat", "rag")),
}
_MAY_BE_NONE = ("safety", "max_system_ratio", "last_turns", "message_cap", "model", "max_output")
_ENTRY_RULES: dict[str, tuple[str, Callable[[str, Any, list[str]], Any]]] = {
    "ratios": ("ratio", partial(check_number, **SHARE)),
    "sizes": ("size", check_count),
    "ranks": ("rank", partial(check_count, low=1)),
}


def checked_fields(given: Any, problems: list[str]) -> dict[str, Any]:
    """Returns a budget's fields in their plain form, a "reserve" among the ratios as its reserve."""
    values = {name: getattr(given, name) for name in (*_RULES, *_ENTRY_RULES)}
    if values["ratios"] is None:
        values["ratios"] = DEFAULT_RATIOS
    for field, (word, check) in _ENTRY_RULES.items():
        values[field] = _entries(field, values[field], word, check, problems)
    ratios, reserve = values["ratios"], values["reserve"]
    if "reserve" in ratios:
        if reserve not in (DEFAULT_RESERVE, ratios["reserve"]):
            said = f"{shown(reserve)} beside a ratio of {ratios['reserve']:g}"
            problems.append(f"reserve must be given once (got {said})")
        values["reserve"] = ratios.pop("reserve")
    for name in sorted({"system", "query", "tools"} & set(ratios)):
        advice = "It always stays whole: bound it with max_system_ratio or sizes"
        problems.append(f"ratios must not name {name!r}. {advice}")
    for name, rule in _RULES.items():
        if values[name] is not None or name not in _MAY_BE_NONE:
            values[name] = rule(name, values[name], problems)
    return {**values, **{field: FrozenDict(values[field]) for field in _ENTRY_RULES}}


def _entries(
    field: str, value: Any, word: str, check: Callable[[str, Any, list[str]], Any], problems: list[str]
) -> dict[str, Any]:
    """Returns the checked entries of a mapping from block names."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        problems.append(f"{field} must be a mapping from block names to numbers (got {shown(value)})")
        return {}
    entries: dict[str, Any] = {}
    for key, entry in by_block(value, field, problems).items():
        if key != "reserve":
            check_block_name(f"each key of {field}", key, problems)
        entries[key] = check(f"{word} of {shown(key)}", entry, problems)
    return entries


def ratio_problems(ratios: Mapping[str, float], sizes: Mapping[str, int], reserve: float) -> list[str]:
    """Returns what contradicts between ratios, sizes and the reserve."""
    problems = []
    both = ", ".join(map(repr, sorted(set(ratios) & set(sizes))))
    if both:
        problems.append(f"a block must have a ratio or a size (got both for {both})")
    if "reserve" in sizes:
        problems.append("sizes must not name 'reserve'. Give reserve=<tokens>")
    is_share = 0 < reserve <= 1 and ratios != DEFAULT_RATIOS  # which share what any reserve leaves
    terms = {**ratios, "reserve": reserve} if is_share else ratios
    total = sum(terms.values())
    words = " + ".join(f"{name} {ratio:g}" for name, ratio in terms.items())
    if ratios and is_share and not 0.95 - _ROUNDING <= total <= 1.05 + _ROUNDING:
        problems.append(f"ratios and reserve must sum to 0.95 to 1.05 (got {total:.4g}: {words})")
    elif ratios and not 0 < total <= 1.05 + _ROUNDING:
        problems.append(
            f"ratios beside a reserve in tokens must sum to at most 1.05 (got {total:.4g}: {words})"
        )
    return problems
