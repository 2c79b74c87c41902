"""Which items of a tool result are worth most: its ends, what the question names, what tells of errors."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from ..relevance.troubles import tells_trouble as text_tells_trouble
from ..relevance.troubles import traces_in
from ..relevance.words import content_words, keys_in, numbered, raw_words, stem, without_counts
from .json_values import dump

Words = frozenset[str]
"""The words, names and numbers of a question, in one form each, and numbers with the word they belong to."""
_HUMP = re.compile(r"(?<=[a-z\d])(?=[A-Z][a-z])")
_NUMBER = re.compile(
    r"(?<![\w.,])(?:[1-9]\d{0,2}(?:[,.'’\u202f\xa0]\d{3})+(?:[.,]\d{1,2})?|\d+[.,]\d{1,2})(?![.,]?\d|\w)"
)
_BETWEEN = re.compile(r"[,.'’\u202f\xa0](?=\d{3}(?!\d))")
"""What stands between the thousands of a number."""
_ESCAPED = re.compile(r"\\+[nrt]")
"""White space in a string of JSON, or of JSON in such a string: its letter is no part of a word."""
_FEW = 10
"""One item in ten, or one, may have a word that tells it from the others."""
_NEARLY, _SOME, _FEW_EXCEPTIONS = 0.8, 3, 3


@lru_cache(maxsize=64)
def words_of(question: str) -> Words:
    """Returns the words, names and numbers of a question that are worth looking for."""
    plain = without_counts(question)
    words = [*map(stem, content_words(_apart(plain))), *content_words(plain)]
    return frozenset([*words, *_names(question), *_pairs(question)])


def by_importance(
    items: Sequence[Any],
    asked: Words,
    *,
    ends_first: int,
    beside: Sequence[int] = (),
    ranked: Ranked | None = None,
) -> list[int]:
    """Returns positions, most worth keeping first.

    First are the items that say what was asked, each with a word that none before it says, `ends_first` ends,
    exceptions if few, what is `beside` such items, further ones, and those that tell of trouble; then those
    that say some of it, and all others from the ends towards the middle. `ranked` is what `ranked_by_words`
    said of them, where known.
    """
    count = len(items)
    ends = [i for pair in zip(range(count), reversed(range(count)), strict=True) for i in pair]
    near, others, telling = ranked or ranked_by_words(items, asked)
    exceptions, told = troubles(items)
    first = exceptions if len(exceptions) <= _FEW_EXCEPTIONS else []
    return list(
        dict.fromkeys(
            [*telling, *ends[:ends_first], *first, *beside, *near, *exceptions, *told, *others, *ends]
        )
    )


def saying(items: Sequence[Any], asked: Words) -> list[int]:
    """Returns the positions of items that say what was asked as few items do, the best first.

    An item has a word that few have, or more of the rarer ones than any other: a first name and a surname.
    """
    return ranked_by_words(items, asked)[0]


Ranked = tuple[list[int], list[int], list[int]]


def ranked_by_words(items: Sequence[Any], asked: Words) -> Ranked:
    """Returns where items say what was asked, the best first, where some of it, and which come first.

    Those are the best one and each with a rare word that none before it says: the head of a table may say
    more words of the question than the row with the number.
    """
    return ranked_by_held(words_in_each(items, asked)) if asked else ([], [], [])


def ranked_by_held(held: Sequence[Words]) -> Ranked:
    """Returns the same, given which of the words each item has."""
    times = Counter(chain.from_iterable(held))
    few = max(1, len(held) // _FEW)
    # Rounded once: the order in which a set holds its words differs from one process to the next.
    hits = [math.fsum([1 / times[word] for word in words]) for words in held]
    best = max(hits, default=0.0)
    most_of = [i for i, hit in enumerate(hits) if hit and hit >= _NEARLY * best]
    rare = {i: {word for word in words if times[word] <= few} for i, words in enumerate(held)}
    most_of = most_of if len(most_of) <= few else []
    first = hits.index(best) if hits else 0

    def worth(i: int) -> tuple[float, int, int]:
        return -hits[i], abs(i - first), -i  # of equals the one beside what says most is of its record

    near = sorted({*filter(rare.get, rare), *most_of}, key=worth)
    some = {i for i, words in enumerate(held) if any(times[word] <= _SOME * few for word in words)}
    return near, sorted(some.difference(near), key=worth), _adding(near, rare)


def words_in_each(items: Sequence[Any], asked: Words) -> list[Words]:
    """Returns which of the words asked for each item has.

    A number belongs to the words before it, where an item has both: 88 people are not department 88.
    """
    texts = [item if isinstance(item, str) else _ESCAPED.sub(" ", dump(item)) for item in items]
    held = list(map(_reader(asked), texts))
    times = Counter(chain.from_iterable(held))
    bound: dict[str, set[str]] = {}
    for pair in [word for word in asked if " " in word and times[word]]:
        bound.setdefault(pair.rpartition(" ")[2], set()).add(pair)
    return [frozenset([w for w in words if w not in bound or words & bound[w]]) for words in held]


def says_half(text: str, asked: Words) -> bool:
    """Returns whether a text has at least half of the words that were asked for."""
    return bool(asked) and 2 * len(_reader(asked)(text)) >= len(asked)


def _adding(near: Sequence[int], rare: Mapping[int, set[str]]) -> list[int]:
    """Returns the first item, and each that has a rare word that none before it has."""
    found, said = list(near[:1]), set[str]()
    for i in near:
        if not rare[i] <= said:
            found.append(i)
            said |= rare[i]
    return found


def _reader(asked: Words) -> Callable[[str], Words]:
    """Returns what finds the words asked for in a text, and reads it for no names, numbers or pairs else."""
    numbers = {word.rpartition(" ")[2] for word in asked if " " in word}
    plain = [word for word in asked if " " not in word]
    names = any(not word.isalnum() for word in plain)
    digits = any(word[0].isdigit() for word in plain)

    def words_in(text: str) -> Words:
        words, apart = raw_words(text), _apart(text)
        found = [*words, *map(stem, words if apart == text else raw_words(apart))]
        if names:
            found += keys_in(text)
        if digits:
            found += map(_plain_number, _NUMBER.findall(text))
        if not numbers.isdisjoint(words):
            found += _pairs(text)
        return asked.intersection(found)

    return words_in


def _pairs(text: str) -> list[str]:
    return [f"{word} {number}" for word, number in numbered(text)]


def _names(text: str) -> list[str]:
    """Returns the names of several words in a text, and its numbers in one form each."""
    return [*keys_in(text), *map(_plain_number, _NUMBER.findall(text))]


def _apart(text: str) -> str:
    """Returns a text with the words of identifiers apart: "computeRefund" says "compute refund"."""
    return _HUMP.sub(" ", text)


def _plain_number(number: str) -> str:
    """Returns a number without marks between thousands and without zeros behind its decimal mark."""
    digits = _BETWEEN.sub("", number)
    whole, mark, rest = digits.replace(",", ".").partition(".")
    return f"{whole}.{rest.rstrip('0')}".rstrip(".") if mark else digits


def troubles(items: Sequence[Any]) -> tuple[list[int], list[int]]:
    """Returns the positions of the exceptions of stack traces, and of other items that tell of errors.

    Those are with the line that a colon announces, none where most do, as none of them is special; then come
    the frames beside the exceptions.
    """
    lines = [item if isinstance(item, str) else "" for item in items]
    exceptions: list[int] = []
    frames: dict[int, None] = {}
    for lines_of, own in traces_in(lines):
        exceptions += lines_of
        frames.update(dict.fromkeys(own))
    told = [i for i, item in enumerate(items) if i not in frames and tells_trouble(item)]
    if len(told) * 2 > len(items) - len(frames):
        told = []
    opened = [i + 1 for i in told if lines[i].rstrip().endswith(":") and i + 1 < len(items)]
    beside = [j for i in exceptions for j in (i - 1, i - 2, i + 1, i + 2) if j in frames]
    return exceptions, [*sorted({*told, *opened}.difference(frames)), *beside]


def tells_trouble(item: Any) -> bool:
    """Returns whether a text or a JSON value tells of an error."""
    if isinstance(item, dict):
        return any(
            (tells_trouble(key) and inner and inner != "0") or tells_trouble(inner)
            for key, inner in item.items()
        )
    if isinstance(item, list):
        return any(map(tells_trouble, item[:20]))
    return isinstance(item, str) and text_tells_trouble(item)
