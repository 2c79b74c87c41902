"""What the next tool call will need: names, dates and codes, and how likely each is an argument again."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

WEIGHTS = {"base": -4.0, "attempt": 3.0, "digit": 2.0, "amount": -4.0}
"""What each sign adds to the log-odds that a value is an argument of the next call."""
ATTEMPT = 3
"""Arguments that make a call more than a look-up."""
_LONGEST = 40
_SHORTEST = 3
_WORD = re.compile(r"""[^\s"'{}\[\](),:;!?<>*|`]+""")
_DIGIT = re.compile(r"\d")
_AMOUNT = re.compile(r"[$€£¥].*|[\d.,+%]{1,7}|\d+[:.]\d[\d:.]*")
"""Counts, prices and times of day; a longer run of digits is a number of something."""


class Said(NamedTuple):
    """What a unit holds: all its text, and the arguments of its calls (JSON)."""

    text: str
    calls: Sequence[str] = ()


@dataclass(slots=True)
class Value:
    """A name or number: the units that hold it, and whether the newest call with several arguments did."""

    units: set[int] = field(default_factory=set)
    attempt: bool = False


def values_of(units: Sequence[Said]) -> dict[str, Value]:
    """Returns the names and numbers a next call may need, and the units, oldest first, that hold each.

    Example:
        >>> found = values_of([Said("I am mia_li_3668."), Said("", ['{"user": "mia_li_3668"}'])])
        >>> {name: sorted(value.units) for name, value in found.items()}
        {'mia_li_3668': [0, 1]}
    """
    found: dict[str, Value] = {}
    words_of = [words_in(unit.text) for unit in units]
    called: set[str] = set()
    newest_attempt: list[str] = []
    for n, unit in enumerate(units):
        arguments = [leaf for call in unit.calls for leaf in _leaves(call)]
        if len(arguments) >= ATTEMPT:
            newest_attempt = arguments
        called.update(arguments)
        names = [w for w in words_of[n] if _SHORTEST <= len(w) <= _LONGEST and ("_" in w or _DIGIT.search(w))]
        for name in [*names, *arguments]:
            found.setdefault(name, Value()).units.add(n)
    for n, words in enumerate(words_of):  # a plain word that was an argument counts wherever it is said
        for name in called.intersection(words):
            found[name].units.add(n)
    for name in newest_attempt:
        found[name].attempt = True
    return found


def words_in(text: str) -> dict[str, None]:
    """Returns the words, names and numbers of a text, in order."""
    return dict.fromkeys([word.strip(".") for word in _WORD.findall(text)])


def is_number(name: str) -> bool:
    """Returns whether a word is a code or number that may name one thing, and no price, count or time."""
    return bool(_DIGIT.search(name)) and not _AMOUNT.fullmatch(name) and len(name) >= _SHORTEST


def likely(name: str, value: Value) -> float:
    """Returns how likely a value is an argument of the next call.

    Example:
        What was an argument of the newest attempt is more likely than a price that was said twice.

        >>> likely("HAT136", Value({3}, attempt=True)) > likely("$255", Value({3, 5}))
        True
    """
    odds = WEIGHTS["base"] + WEIGHTS["attempt"] * value.attempt
    odds += WEIGHTS["digit"] * bool(_DIGIT.search(name)) + WEIGHTS["amount"] * bool(_AMOUNT.fullmatch(name))
    return 1 / (1 + math.exp(-odds))


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
