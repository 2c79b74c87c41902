"""JSON values made shorter: fewer items, shorter strings, every gap counted, numbers in their own digits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import counted
from .excerpts import excerpt_of
from .importance import Words, by_importance, ranked_by_words, saying, tells_trouble
from .json_columns import as_columns, as_rows
from .json_values import Number, dump, parse

_NAMES_FIRST = re.compile(
    r"(?:^|[_.-])(?:id|uuid|key|name|title|status|state|code|error|message|url|path|date|amount|price"
    r"|total|type)s?$|Id$"
)
_NAMES = re.compile(r"(?:^|[_.-])(?:id|uuid|key|name|title)s?$|Id$")
_WHOLE_STRING = 48
"""Strings this short are ids, names, dates and codes: cutting them saves little and breaks them."""
_SMALL = 4 * _WHOLE_STRING
"""Values up to this size stay whole where their key is a name or was asked for."""
_FEWEST_ITEMS = 3
_LEAST_ITEM = 60
_GAP = 30
"""Characters of a marker and its separator."""


T = TypeVar("T")


class Asked:
    """What is asked about one text, and what was found out of its values for all lengths that are tried."""

    def __init__(self, words: Words) -> None:
        self.words = words
        self._known: dict[tuple[Callable[[Any], Any], int], tuple[Any, Any]] = {}

    def once(self, find: Callable[[Any], T], value: Any) -> T:
        """Returns what `find` finds out about a value, which is held so that no other gets its id."""
        key = (find, id(value))
        if key not in self._known:
            self._known[key] = value, find(value)
        found: T = self._known[key][1]
        return found

    def order(self, value: list[Any]) -> tuple[list[int], list[int]]:
        """Returns where an array says best what was asked, and all its places, most worth keeping first."""
        ranked = ranked_by_words(value, self.words)
        return ranked[0][:1], by_importance(value, self.words, ends_first=1, ranked=ranked)


def shrink(value: Any, target: int, asked: Asked, *, is_item: bool = False) -> Any:
    """Returns `value` in about `target` characters of dense JSON; an item of several keeps its name."""
    if _size(value) <= target:
        return value
    if isinstance(value, dict):
        return _shrink_object(value, target, asked, is_item=is_item)
    if isinstance(value, list):
        return _shrink_array(value, target, asked)
    if isinstance(value, str) and not isinstance(value, Number):
        return _shrink_string(value, target, asked)
    return value


def shrink_lines(values: list[Any], target: int, asked: Asked) -> str:
    """Returns one JSON value a line in about `target` characters, gaps as `{"omitted": "3 items"}`."""
    return "\n".join(map(dump, _shrink_array(values, target, asked, lambda said: {"omitted": said})))


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 2 + sum(len(key) + 4 + _size(item) for key, item in value.items())
    if isinstance(value, list):
        return 2 + sum(1 + _size(item) for item in value)
    return len(value) + 2 if isinstance(value, str) else 5


def _shrink_string(value: str, target: int, asked: Asked) -> str:
    """Returns a string with the lines or sentences that were asked for; one that is JSON stays JSON."""
    room = max(target - _GAP, _WHOLE_STRING)
    if room >= len(value):
        return value
    inner = asked.once(parse, value)
    if inner is not None:
        return dump(shrink(inner, room, asked))
    if len(value) <= _WHOLE_STRING or not re.search(r"\s", value[: 4 * _WHOLE_STRING]):
        return value if len(value) <= max(target, _WHOLE_STRING * 4) else f"{value[:_WHOLE_STRING]}..."
    excerpt = excerpt_of(value, asked.words)
    if excerpt is not None and (made := excerpt(room)):
        return made
    start, end = value[: room * 2 // 3], value[-(room // 3) :]
    start = start.rsplit(None, 1)[0] if len(start.split(None, 1)) > 1 else start
    end = end.split(None, 1)[-1]
    return f"{start} [{len(value) - len(start) - len(end)} chars] {end}"


def _shrink_object(
    value: dict[str, Any], target: int, asked: Asked, *, is_item: bool = False
) -> dict[str, Any]:
    """Returns an object with ids, names and errors whole; larger values share what is left.

    Those that were asked for share first. Columns of a table lose the same rows.
    """
    rows = asked.once(as_rows, value)
    if rows is not None:
        columns = as_columns(rows, _shrink_object(rows.value, target, asked))
        if columns is not None:
            return columns
    sizes = {key: _size(item) for key, item in value.items()}
    order = sorted(value, key=lambda key: (not tells_trouble(key), not _NAMES_FIRST.search(key), sizes[key]))
    keys = list(value)
    named = dict.fromkeys(
        [keys[i] for i in saying([[key, item] for key, item in value.items()], asked.words)]
    )
    large = [key for key in named if sizes[key] > _SMALL]
    room = target - _GAP
    beside = sum(len(key) + 4 + size for key, size in sizes.items() if size <= _SMALL)
    if len(large) < sum(size > _SMALL for size in sizes.values()):
        beside = max(beside, room // 4)
    share = (room - min(beside, room // 2)) // max(1, len(large))
    short = [*filter(lambda key: sizes[key] <= _WHOLE_STRING, keys)]
    naming = [*filter(_NAMES.search, short), *short][:is_item]
    order = list(dict.fromkeys([*naming, *large, *named, *order]))
    chosen: dict[str, Any] = {}
    for left, key in zip(range(len(order), 0, -1), order, strict=True):
        whole = (key in (*naming, *named) or _NAMES_FIRST.search(key)) and sizes[key] <= _SMALL
        most = share if key in large else room if whole else room // left
        item = shrink(value[key], most - len(key) - 4, asked)
        size = len(key) + 4 + _size(item)
        if size <= room:
            chosen[key] = item
            room -= size
    if not chosen.keys() >= {*naming}:  # without its name, what it says could be another's
        chosen = {}
    kept = {key: chosen[key] for key in filter(chosen.__contains__, value)}
    if len(kept) < len(value):
        kept["..."] = counted(len(value) - len(kept), "more key")
    return kept


def _shrink_array(
    value: list[Any], target: int, asked: Asked, marker: Callable[[str], Any] = str
) -> list[Any]:
    """Returns an array with a few items, shortened where they must be, then with more that fit whole."""
    room = target - _GAP
    fewest = max(min(len(value), _FEWEST_ITEMS, room // _LEAST_ITEM), 1)
    kept: dict[int, Any] = {}
    named, order = asked.once(asked.order, value)
    for i in order:
        item, missing = value[i], fewest - len(kept)
        share = room // min(missing, 2 if i in named else missing) if missing > 0 else 0
        size = _size(item)
        if missing > 0 and size >= min(2 * share, room):
            item = shrink(item, share - 1, asked, is_item=True)
            size = _size(item)
        if size < room:
            kept[i] = item
            room -= size + 1
    out = [kept[i] for i in sorted(kept)]
    if len(kept) < len(value):
        places = [-1, *sorted(kept), len(value)]
        # One marker, where most is missing: one in every gap would cost too much.
        widest = max(range(len(places) - 1), key=lambda i: places[i + 1] - places[i])
        out.insert(widest, marker(f"... {counted(len(value) - len(kept), 'more item')} ..."))
    return out
