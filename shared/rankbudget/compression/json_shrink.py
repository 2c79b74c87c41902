"""JSON values made shorter: fewer items, shorter strings, every gap counted, numbers in their own digits."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from ..relevance.words import raw_words

_NAME = re.compile(r"(?<!\w)\w+(?:[-./:@#]\w+)+")
"""It starts at the start of a word alone: a long run of letters is read once, not from each of them."""
_TROUBLE = re.compile(
    r"\b(?:errors?|fail(?:ed|ure)?|exception|traceback|fatal|critical|panic|denied|timed? ?out|invalid)\b"
    r"|^\s+File \"",
    re.IGNORECASE,
)
_NAMES_FIRST = re.compile(
    r"(?:^|[_.-])(?:id|uuid|key|name|title|status|state|code|error|message|url|path|date|amount|price"
    r"|total|type)s?$|Id$"
)
_WHOLE_STRING = 48
"""Strings this short are ids, names, dates and codes: cutting them saves little and breaks them."""
Words = frozenset[str]
"""The words of a question, folded; none where no question is known."""
_FEW = 10
"""One item in ten, or one, may have a word that tells it from the others."""
_FEWEST_ITEMS = 3
_LEAST_ITEM = 60
_GAP = 30
"""Characters of a marker and its separator."""


class _Number(str):
    """A number in the digits it was written with."""

    __slots__ = ()


def parse(text: str) -> Any:
    """Returns the JSON object or array of `text`, numbers in their own digits; None where there is none."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text, parse_float=_Number, parse_int=_Number, parse_constant=_Number)
    except (ValueError, RecursionError):
        return None


def dump(value: Any) -> str:
    """Returns dense JSON."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        items = [f"{json.dumps(key, ensure_ascii=False)}:{dump(item)}" for key, item in value.items()]
        return "{" + ",".join(items) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def shrink(value: Any, target: int, asked: Words = frozenset()) -> Any:
    """Returns `value` in about `target` characters of dense JSON."""
    if _size(value) <= target:
        return value
    if isinstance(value, dict):
        return _shrink_object(value, target, asked)
    if isinstance(value, list):
        return _shrink_array(value, target, asked)
    if isinstance(value, str) and not isinstance(value, _Number):
        return _shrink_string(value, target)
    return value


def shrink_lines(values: list[Any], target: int, asked: Words) -> str:
    """Returns one JSON value a line in about `target` characters, gaps as `{"omitted": "3 items"}`."""
    return "\n".join(map(dump, _shrink_array(values, target, asked, lambda said: {"omitted": said})))


def by_importance(items: Sequence[Any], asked: Words, *, ends_first: int, around: int = 0) -> list[int]:
    """Returns positions, most worth keeping first.

    First are `ends_first` ends, items that say what was asked with `around` neighbours, and those that tell
    of trouble; then all others from the ends towards the middle.
    """
    count = len(items)
    ends = [i for pair in zip(range(count), reversed(range(count)), strict=True) for i in pair]
    near = [i + n for i in saying(items, asked) for n in (*range(around + 1), -1) if 0 <= i + n < count]
    return list(dict.fromkeys([*ends[:ends_first], *near, *troubles(items), *ends]))


def saying(items: Sequence[Any], asked: Words) -> list[int]:
    """Returns the positions of items with asked words that few items have, the rarest words first."""
    if not asked:
        return []
    texts = [item if isinstance(item, str) else dump(item) for item in items]
    held = [asked.intersection([*raw_words(text), *names_in(text)]) for text in texts]
    times = Counter(chain.from_iterable(held))
    few = max(1, len(items) // _FEW)
    hits = {i: sum([1 / times[word] for word in words if times[word] <= few]) for i, words in enumerate(held)}
    return sorted([i for i, n in hits.items() if n], key=lambda i: -hits[i])


def names_in(text: str) -> list[str]:
    """Returns the names in a text that are made of several words, as K-10, 00:10 or ann@corp.com."""
    return _NAME.findall(text.casefold())


def troubles(items: Sequence[Any]) -> list[int]:
    """Returns the positions of items that tell of errors; none where most do, as none of them is special."""
    told = [i for i, item in enumerate(items) if tells_trouble(item)]
    return told if len(told) * 2 <= len(items) else []


def tells_trouble(item: Any) -> bool:
    """Returns whether a text or a JSON value tells of an error."""
    if isinstance(item, dict):
        return any(
            (tells_trouble(key) and inner and inner != "0") or tells_trouble(inner)
            for key, inner in item.items()
        )
    if isinstance(item, list):
        return any(map(tells_trouble, item[:20]))
    return isinstance(item, str) and bool(_TROUBLE.search(item))


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 2 + sum(len(key) + 4 + _size(item) for key, item in value.items())
    if isinstance(value, list):
        return 2 + sum(1 + _size(item) for item in value)
    return len(value) + 2 if isinstance(value, str) else 5


def _shrink_string(value: str, target: int) -> str:
    if len(value) <= _WHOLE_STRING or not re.search(r"\s", value[: 4 * _WHOLE_STRING]):
        return value if len(value) <= max(target, _WHOLE_STRING * 4) else f"{value[:_WHOLE_STRING]}..."
    room = max(target - _GAP, _WHOLE_STRING)
    if room >= len(value):
        return value
    start, end = value[: room * 2 // 3], value[-(room // 3) :]
    start = start.rsplit(None, 1)[0] if len(start.split(None, 1)) > 1 else start
    end = end.split(None, 1)[-1]
    return f"{start} [{len(value) - len(start) - len(end)} chars] {end}"


def _shrink_object(value: dict[str, Any], target: int, asked: Words) -> dict[str, Any]:
    """Returns an object with ids, names and errors whole; larger values share what is left."""
    sizes = {key: _size(item) for key, item in value.items()}
    order = sorted(value, key=lambda key: (not tells_trouble(key), not _NAMES_FIRST.search(key), sizes[key]))
    keys = list(value)
    named = dict.fromkeys([keys[i] for i in saying([[key, item] for key, item in value.items()], asked)])
    order = list(dict.fromkeys([*named, *order]))
    room = target - _GAP
    chosen: dict[str, Any] = {}
    for left, key in zip(range(len(order), 0, -1), order, strict=True):
        first = (key in named or _NAMES_FIRST.search(key)) and sizes[key] <= 4 * _WHOLE_STRING
        item = shrink(value[key], (room if first else room // left) - len(key) - 4, asked)
        size = len(key) + 4 + _size(item)
        if size <= room:
            chosen[key] = item
            room -= size
    kept = {key: chosen[key] for key in value if key in chosen}
    if len(kept) < len(value):
        kept["..."] = f"{len(value) - len(kept)} more keys"
    return kept


def _shrink_array(
    value: list[Any], target: int, asked: Words, marker: Callable[[str], Any] = str
) -> list[Any]:
    """Returns an array with a few items, shortened where they must be, then with more that fit whole."""
    room = target - _GAP
    fewest = max(min(len(value), _FEWEST_ITEMS, room // _LEAST_ITEM), 1)
    kept: dict[int, Any] = {}
    for i in by_importance(value, asked, ends_first=1):
        item, missing = value[i], fewest - len(kept)
        if missing > 0 and _size(item) >= room // missing * 2:
            item = shrink(item, room // missing - 1, asked)
        size = _size(item) + 1
        if size <= room:
            kept[i] = item
            room -= size
    out = [kept[i] for i in sorted(kept)]
    if len(kept) < len(value):
        places = [-1, *sorted(kept), len(value)]
        # One marker, where most is missing: one in every gap would cost too much.
        widest = max(range(len(places) - 1), key=lambda i: places[i + 1] - places[i])
        out.insert(widest, marker(f"... {len(value) - len(kept)} more items ..."))
    return out
