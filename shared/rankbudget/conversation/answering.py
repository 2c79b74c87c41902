"""Which steps and messages say what the question asks, as few others do."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from ..compression.importance import Words, words_in_each, words_of
from ..compression.json_values import parse
from ..relevance.words import PAIRED, stem

MOST = 0.6
"""Share of what is asked, by the weight of its words, above which a step may answer it."""
UNSAID = 0.5
"""Part of the weight of the rarest words that a word which no step has counts: it may be said otherwise."""
PAIR = 0.125
"""Part of a word that a character or a pair of them is, in scripts without spaces."""
NEARLY = 0.8
"""Steps count whose best record says so much of what the best one says."""
_AMOUNT = frozenset(["much", "many", stem("many")])
"""What asks for a number is no word of the answer."""
FEW = 3
"""Where more steps say as much, none of them stands out."""


def answering(query: str, steps: Sequence[Sequence[str]], count: int = 0) -> list[int]:
    """Returns which steps, given by their texts, say most of what is asked; the best first, `FEW` at most.

    Where many have its words, those count that have them in one record: a line, or an item of a JSON list.
    `count` is how many steps there are with those that have no word of it.

    Example:
        >>> others = [["Berg was served"], ["Holm was served"], ["Lind was served"], ["Berg has paid"]]
        >>> answering("Why was Lund not served?", [*others, ["Lund was not served: no stock"]])
        [4]
    """
    asked = words_of(query) - _AMOUNT
    said = _shares(asked, ["\n".join(texts) for texts in steps], count)
    found = [n for n, share in enumerate(said) if share > MOST]
    records = [(n, record) for n in found for text in steps[n] for record in _records(text)]
    best = dict.fromkeys(found, 0.0)
    for (n, _), share in zip(records, _shares(asked, [record for _, record in records]), strict=True):
        best[n] = max(best[n], share)
    least = NEARLY * max(best.values(), default=0.0)
    found = sorted([n for n in found if best[n] >= least], key=lambda n: (-best[n], -n))
    return found if len(found) <= FEW else []


def _shares(asked: Words, items: Sequence[Any], count: int = 0) -> list[float]:
    """Returns which share of what is asked each item says; words that few items have weigh more."""
    count = max(count, len(items))
    held = words_in_each(items, asked)
    times = Counter(chain.from_iterable(held))
    weights = {word: math.log(1 + count / n) for word, n in times.items()}
    lacking = sum([PAIR if PAIRED.match(word) else 1 for word in asked - times.keys()])
    unsaid = UNSAID * math.log(1 + count) * lacking
    total = math.fsum([*weights.values(), unsaid])
    return [math.fsum([weights[word] for word in words]) / total if words else 0.0 for words in held]


def _records(text: str) -> Iterator[Any]:
    value = parse(text)
    yield from value if isinstance(value, list) else text.splitlines()
