"""JSON values made shorter: fewer items, shorter strings, every gap counted, never a broken document.

Numbers are carried as they were written, so what is kept is exactly what the tool said.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

__all__ = ["dump", "parse", "shrink", "shrink_lines"]

_TROUBLE = re.compile(
    r"\b(?:error|errors|fail|failed|failure|exception|traceback|fatal|critical|denied|timeout|invalid)\b",
    re.IGNORECASE,
)
_NAMES_FIRST = re.compile(
    r"(?:^|[_.-])(?:id|ids|uuid|key|name|title|status|state|code|error|message|url|path|date|amount|price|total|type)s?$|Id$"
)
_WHOLE_STRING = 48
"""Strings this short are ids, names, dates and codes: cutting them saves little and breaks them."""
_FEWEST_ITEMS = 3
_LEAST_ITEM = 60
_GAP = 24
"""Characters of a marker and its separator."""
_OUTLIER_SIGMAS = 2.0
_RARE_SHARE = 0.05


class _Number(str):
    """A number in the digits it was written with."""

    __slots__ = ()


class _Gap(str):
    """A marker for what was left out."""

    __slots__ = ()


def parse(text: str) -> Any:
    """Returns the JSON value of `text`, numbers in their own digits; None where it is not JSON."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text, parse_float=_Number, parse_int=_Number, parse_constant=_Number)
    except (ValueError, RecursionError):
        return None


def dump(value: Any) -> str:
    """Returns dense JSON.

    Example:
        >>> dump(parse('{"price": 1.50, "ids": [1, 2]}'))
        '{"price":1.50,"ids":[1,2]}'
    """
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return (
            "{"
            + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{dump(item)}" for key, item in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def shrink(value: Any, target: int) -> Any:
    """Returns `value` in about `target` characters of dense JSON."""
    if _size(value) <= target:
        return value
    if isinstance(value, dict):
        return _shrink_object(value, target)
    if isinstance(value, list):
        return _shrink_array(value, target)
    if isinstance(value, str) and not isinstance(value, _Number):
        return _shrink_string(value, target)
    return value


def shrink_lines(values: Sequence[Any], target: int) -> str:
    """Returns one JSON value a line in about `target` characters, gaps as `{"omitted": "3 items"}`."""
    kept = _shrink_array(list(values), target)
    return "\n".join(dump({"omitted": item}) if isinstance(item, _Gap) else dump(item) for item in kept)


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 2 + sum(len(key) + 4 + _size(item) for key, item in value.items())
    if isinstance(value, list):
        return 2 + sum(1 + _size(item) for item in value)
    return len(value) + (0 if isinstance(value, _Number) else 2) if isinstance(value, str) else 5


def _shrink_string(value: str, target: int) -> str:
    if len(value) <= _WHOLE_STRING or not re.search(r"\s", value[: 4 * _WHOLE_STRING]):
        return value if len(value) <= max(target, _WHOLE_STRING * 4) else f"{value[:_WHOLE_STRING]}..."
    room = max(target - _GAP, _WHOLE_STRING)
    if room >= len(value):
        return value
    start, end = value[: room * 2 // 3], value[-(room // 3) :]
    start = start.rsplit(None, 1)[0] if re.search(r"\s\S", start) else start
    end = end.split(None, 1)[-1]
    return f"{start} [{len(value) - len(start) - len(end)} chars] {end}"


def _shrink_object(value: dict[str, Any], target: int) -> dict[str, Any]:
    sizes = {key: _size(item) for key, item in value.items()}
    names = sum(len(key) + 4 for key in value) + 2
    if names + sum(min(size, 12) for size in sizes.values()) > target and len(value) > _FEWEST_ITEMS:
        return _shrink_keys(value, sizes, target)
    # Small values stay whole, what they leave is shared by the large ones; ids, names and errors come before their neighbours.
    room = max(target - names, 0)
    order = sorted(
        value,
        key=lambda key: (not (_NAMES_FIRST.search(key) and sizes[key] <= 4 * _WHOLE_STRING), sizes[key]),
    )
    shares: dict[str, int] = {}
    for position, key in enumerate(order):
        share = max(room // (len(order) - position), 0)
        preferred = bool(_NAMES_FIRST.search(key)) and sizes[key] <= 4 * _WHOLE_STRING
        shares[key] = sizes[key] if preferred else min(sizes[key], share)
        room -= shares[key]
    return {key: shrink(item, shares[key]) for key, item in value.items()}


def _shrink_keys(value: dict[str, Any], sizes: dict[str, int], target: int) -> dict[str, Any]:
    room = target - _GAP
    ranked = sorted(value, key=lambda key: (not _trouble(key), not _NAMES_FIRST.search(key), sizes[key]))
    chosen: dict[str, Any] = {}
    for key in ranked:
        item = shrink(value[key], room - len(key) - 4)
        size = len(key) + 4 + _size(item)
        if size <= room and not _hollow(item):
            chosen[key] = item
            room -= size
    kept = {key: chosen[key] for key in value if key in chosen}
    left_out = len(value) - len(kept)
    if left_out:
        kept["..."] = _Gap(f"{left_out} more keys")
    return kept


def _shrink_array(value: list[Any], target: int) -> list[Any]:
    room = target - _GAP
    sizes = [_size(item) + 1 for item in value]
    fewest = max(min(len(value), _FEWEST_ITEMS, room // _LEAST_ITEM), 1)
    kept: dict[int, Any] = {}
    for i in _importance(value):
        share = room // max(fewest - len(kept), 1)
        if sizes[i] <= (room if len(kept) >= fewest else 2 * share):
            kept[i] = value[i]
            room -= sizes[i]
        elif len(kept) < fewest:
            shorter = shrink(value[i], min(share, room) - 1)
            size = _size(shorter) + 1
            if size <= room and not _hollow(shorter):
                kept[i] = shorter
                room -= size
    return _with_gaps(value, kept)


def _hollow(value: Any) -> bool:
    """Returns whether nothing but markers is left: such an item says less than the count of what is missing."""
    if isinstance(value, dict):
        return bool(value) and all(isinstance(item, _Gap) or _hollow(item) for item in value.values())
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, _Gap) or _hollow(item) for item in value)
    )


def _with_gaps(value: list[Any], kept: dict[int, Any]) -> list[Any]:
    # One marker a list, where most is missing: markers in every gap would cost what the gaps save.
    missing = len(value) - len(kept)
    if not missing:
        return [kept[i] for i in sorted(kept)]
    places = [-1, *sorted(kept), len(value)]
    widest = max(range(len(places) - 1), key=lambda i: places[i + 1] - places[i])
    out: list[Any] = []
    for i, place in enumerate(places[:-1]):
        if place >= 0:
            out.append(kept[place])
        if i == widest:
            out.append(_Gap(f"... {missing} more items ..."))
    return out


def _importance(value: list[Any]) -> list[int]:
    """Returns positions, most worth keeping first: troubles, the first and last, outliers, then from both ends to the middle."""
    count = len(value)
    odd = _outliers(value)
    trouble = [i for i, item in enumerate(value) if _trouble(item)]
    if len(trouble) * 2 > count:
        trouble = []  # where most items mention an error, none of them stands out
    ends = [i for pair in zip(range(count), reversed(range(count)), strict=True) for i in pair]
    return list(dict.fromkeys([*ends[:1], *trouble, *ends[:2], *odd, *ends]))


def _trouble(item: Any) -> bool:
    if isinstance(item, dict):
        return any(
            (_trouble(key) and bool(inner) and inner != "0") or _trouble(inner) for key, inner in item.items()
        )
    if isinstance(item, list):
        return any(map(_trouble, item[:20]))
    return isinstance(item, str) and bool(_TROUBLE.search(item[:400]))


def _outliers(value: list[Any]) -> list[int]:
    rows = [item if isinstance(item, dict) else {"": item} for item in value]
    found: set[int] = set()
    for key in dict.fromkeys(key for row in rows for key in row):
        cells = [row.get(key) for row in rows]
        numbers = [(i, float(cell)) for i, cell in enumerate(cells) if isinstance(cell, _Number)]
        if len(numbers) > _FEWEST_ITEMS:
            mean = sum(n for _, n in numbers) / len(numbers)
            sigma = math.sqrt(
                sum((n - mean) * (n - mean) for _, n in numbers) / len(numbers)
            )  # * overflows to inf, ** raises
            found.update(i for i, n in numbers if sigma and abs(n - mean) > _OUTLIER_SIGMAS * sigma)
            continue
        # A status, level or type that few rows have.
        words = [cell if isinstance(cell, (str, bool)) or cell is None else None for cell in cells]
        frequency = Counter(words)
        if len(frequency) <= max(len(rows) * _RARE_SHARE, 2):
            rare = {word for word, n in frequency.items() if n <= max(len(rows) * _RARE_SHARE, 1)}
            found.update(i for i, word in enumerate(words) if word in rare)
    return sorted(found) if len(found) * 3 <= len(value) else []
