"""What the next tool call will need: names, dates and codes, and how likely each is an argument again.

Four signs speak for a value: it has digits without being a count or a price, it was an argument of the newest
call with several, the newest answer says it and it was no argument yet, the user said it.
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
    "base": -4.0,
    "attempt": 3.0,
    "user": 1.5,
    "announced": 2.5,
    "digit": 2.0,
    "capitals": -3.0,
    "amount": -4.0,
}
"""What each sign adds to the log-odds that a value is an argument of the next call."""
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


def values_of(units: Sequence[_Read]) -> dict[str, Value]:
    """Returns the names and numbers a next call may need, and the units that hold each.

    Args:
        units: text, arguments of calls (JSON), results of tools, and whether the user speaks; oldest first.

    Example:
        >>> found = values_of(
        ...     [("I am mia_li_3668.", [], [], True), ("", ['{"user_id": "mia_li_3668"}'], [], False)]
        ... )
        >>> {name: (sorted(value.units), value.called, value.asked) for name, value in found.items()}
        {'mia_li_3668': ([0, 1], True, True)}
    """
    found: dict[str, Value] = {}
    places: dict[str, list[int]] = {}
    newest_attempt: list[str] = []
    for n, (text, calls, results, _) in enumerate(units):
        arguments = [leaf for call in calls for leaf in _leaves(call)]
        if len(arguments) >= ATTEMPT:
            newest_attempt = arguments
        words = dict.fromkeys([word.strip(".") for word in _WORD.findall(text)])
        for word in words:
            places.setdefault(word, []).append(n)
        for name in [*filter(_names_something, words), *arguments, *_plain_leaves(results)]:
            found.setdefault(name, Value()).units.add(n)
        for name in arguments:
            found[name].called = True
    for name in newest_attempt:
        found[name].attempt = True
    answer = next((n for n in range(len(units) - 1, -1, -1) if not any(units[n][1:])), -1)
    for name, value in found.items():
        value.units.update(
            places.get(name, ())
        )  # a plain word that was an argument counts wherever it stands
        if value.called and " " in name:
            value.units.update(n for n, (text, *_) in enumerate(units) if name in text)
        value.asked = any(units[n][3] for n in value.units)
        value.announced = answer in value.units
    return found


def likely(name: str, value: Value) -> float:
    """Returns how likely a value is an argument of the next call.

    Example:
        What was an argument of the newest attempt is more likely than a price that was said twice.

        >>> likely("HAT136", Value({3}, called=True, attempt=True)) > likely("$255", Value({3, 5}))
        True
    """
    digit = any(character.isdigit() for character in name)
    signs = {
        "base": True,
        "attempt": value.attempt,
        "user": value.asked,
        "announced": value.announced and not value.called,
        "digit": digit,
        "capitals": not digit and name.isupper(),
        "amount": bool(_AMOUNT.fullmatch(name)),
    }
    return 1 / (1 + math.exp(-sum([WEIGHTS[sign] for sign, holds in signs.items() if holds])))


def _names_something(word: str) -> bool:
    if not _SHORTEST <= len(word) <= _LONGEST:
        return False
    return "_" in word or word.isupper() or any(character.isdigit() for character in word)


def _plain_leaves(results: Sequence[str]) -> Iterator[str]:
    """Yields the single words in JSON results that are no mere number."""
    for result in results:
        for leaf in _leaves(result):
            if " " not in leaf and not leaf.isdigit():
                yield leaf


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
