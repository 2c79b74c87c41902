"""JSON read and written with every number in its own digits."""

from __future__ import annotations

import json
from typing import Any


class Number(str):
    """A number in the digits it was written with."""

    __slots__ = ()


def parse(text: str) -> Any:
    """Returns the JSON object, array or string of `text`, numbers in their own digits; None without one."""
    if text.lstrip()[:1] not in ("{", "[", '"'):
        return None
    try:
        return json.loads(text, parse_float=Number, parse_int=Number, parse_constant=Number)
    except (ValueError, RecursionError):
        return None


def dump(value: Any) -> str:
    """Returns dense JSON."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        items = [f"{json.dumps(key, ensure_ascii=False)}:{dump(item)}" for key, item in value.items()]
        return "{" + ",".join(items) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
