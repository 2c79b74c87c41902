"""What the next tool call will need: names, dates, codes and amounts said before, and how likely each is an argument again.

The strongest signs: it has digits without being a mere count or price, it was an argument of the newest call with several (a call that is
tried again or continued), the newest answer says it (what the assistant is about to do), the user said it, it keeps coming up. Against it: the
newest answer says what was an argument already (it reports what is done), or the newest attempt succeeded and nobody asked for more.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["WEIGHTS", "Value", "likely", "values_of"]

WEIGHTS = {
    "base": -3.92,
    "told": 0.31,
    "called": 0.97,
    "attempt": 3.14,
    "done": -2.96,
    "user": 1.34,
    "announced": 2.62,
    "reported": -3.82,
    "digit": 1.84,
    "capitals": -3.37,
    "amount": -4.33,
    "age": -0.04,
}
"""What each sign adds to the odds that a value is an argument of the next call. Fitted to airline-support conversations: a logistic regression, then
on to the weights under which, of a dozen or so choices for each conversation and each of six budgets from 5 to 30 %, those that hold most worth
keep most arguments. Fitted to all tasks, they keep .582 of the arguments at 10 % of the tokens; fitted to all but one, .574 in the one left out (benchmarks/fit_next_call.py).
Only the age, which hardly counts, changes its direction with the task that is left out."""
ATTEMPT = 3
"""Arguments that make a call more than a look-up."""
_LONGEST = 40
_SHORTEST = 3
_WORD = re.compile(r"""[^\s"'{}\[\](),:;!?<>*|`]+""")
_AMOUNT = re.compile(r"[$€£¥].*|[\d.,+%]{1,7}|\d+[:.]\d[\d:.]*")
"""Counts, prices and times of day; a longer run of digits is a number of something."""
_Read = tuple[str, Sequence[str], Sequence[str], bool]


@dataclass(slots=True)
class Value:
    """A name or number, the units that hold it, and what happened to it."""

    units: set[int] = field(default_factory=set)
    called: bool = False
    """It was an argument."""
    attempt: bool = False
    """It was an argument of the newest call that had several."""
    asked: bool = False
    """The user said it."""
    announced: bool = False
    """The newest answer says it."""
    done: float = 0.0
    """Share of the newest attempt that its result repeats, where this was an argument of it and the user said nothing since."""


def values_of(units: Sequence[_Read]) -> dict[str, Value]:
    """Returns the names and numbers a next call may need, and the units that hold each.

    Args:
        units: text, arguments of calls (JSON), results of tools, and whether the user speaks; oldest first.

    Example:
        >>> found = values_of([("I am mia_li_3668.", [], [], True), ("", ['{"user_id": "mia_li_3668"}'], [], False)])
        >>> {name: (sorted(value.units), value.called, value.asked) for name, value in found.items()}
        {'mia_li_3668': ([0, 1], True, True)}
    """
    found: dict[str, Value] = {}
    places: dict[str, list[int]] = {}
    newest_attempt: list[str] = []
    done = 0.0
    for n, (text, calls, results, asked) in enumerate(units):
        arguments = [leaf for call in calls for leaf in _leaves(call)]
        if len(arguments) >= ATTEMPT:
            newest_attempt, done = arguments, _repeated(arguments, " ".join(results))
        elif asked:
            done = 0.0
        words = dict.fromkeys([word.strip(".") for word in _WORD.findall(text)])
        for word in words:
            places.setdefault(word, []).append(n)
        plain = [
            leaf for result in results for leaf in _leaves(result) if " " not in leaf and not leaf.isdigit()
        ]
        for name in dict.fromkeys([*filter(_names_something, words), *arguments, *plain]):
            found.setdefault(name, Value()).units.add(n)
        for name in arguments:
            found[name].called = True
    for name in newest_attempt:
        found[name].attempt, found[name].done = True, done
    answer = next((n for n in range(len(units) - 1, -1, -1) if not any(units[n][1:])), -1)
    for name, value in found.items():
        value.units.update(
            places.get(name, ())
        )  # a plain word that was an argument or a result counts wherever it stands
        if value.called and " " in name:
            value.units.update(n for n, (text, *_) in enumerate(units) if name in text)
        value.asked = any(units[n][3] for n in value.units)
        value.announced = answer in value.units
    return found


def likely(name: str, value: Value, size: int) -> float:
    """Returns how likely a value is an argument of the next call.

    Example:
        What was an argument of the newest attempt is more likely than a price that was said twice.

        >>> likely("HAT136", Value({3}, called=True, attempt=True), 9) > likely("$255", Value({3, 5}), 9)
        True
    """
    weights = WEIGHTS
    digit = any(character.isdigit() for character in name)
    odds = (
        weights["base"]
        + weights["told"] * math.log(len(value.units))
        + weights["called"] * value.called
        + weights["attempt"] * value.attempt
        + weights["done"] * value.done
        + weights["user"] * value.asked
        + weights["announced"] * value.announced
        + weights["reported"] * (value.announced and value.called)
        + weights["digit"] * digit
        + weights["capitals"] * (not digit and name.isupper())
        + weights["amount"] * bool(_AMOUNT.fullmatch(name))
        + weights["age"] * math.log(size - max(value.units))
    )
    return 1 / (1 + math.exp(-odds))


def _names_something(word: str) -> bool:
    if not _SHORTEST <= len(word) <= _LONGEST:
        return False
    return "_" in word or word.isupper() or any(character.isdigit() for character in word)


def _repeated(arguments: Sequence[str], result: str) -> float:
    return sum([argument in result for argument in arguments]) / len(arguments)


def _leaves(text: str) -> Iterator[str]:
    """Yields the short texts and numbers a JSON text holds; nothing for any other text."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return
    stack: list[Any] = [data]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
        elif item is not None and not isinstance(item, bool) and _SHORTEST <= len(str(item)) <= _LONGEST:
            yield str(item)
