"""JSON and fenced blocks among prose, as people paste them: each part of a text by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .json_values import parse
from .units import UnitKind, split_blocks

_MAY_HOLD = re.compile(r"^[ \t]*(?:[{\[]|`{3}|~{3})", re.MULTILINE)
_FENCES = "```", "~~~"
_SHORTEST = 200
"""Characters of a block from which on it is data that may be shortened; less belongs to the prose."""
_LEAST_SHARE = 4
"""Data is at least one in so many characters of a text: else its prose says more."""
_MOST_PARTS = 9

Part = tuple[bool, str]
"""Whether a part is data, and its text."""


def parts_with_data(text: str) -> list[Part]:
    """Returns the prose and the data of a text, in order; none where it is not data for the most part.

    Joined, they are the text. JSON that is one value a line is one part.
    """
    if not _MAY_HOLD.search(text):
        return []
    parts = _joined([(is_data and len(part) >= _SHORTEST, part) for is_data, part in all_parts(text)])
    size = sum(len(part) for is_data, part in parts if is_data)
    return parts if 1 < len(parts) <= _MOST_PARTS and _LEAST_SHARE * size >= len(text) else []


def all_parts(text: str) -> list[Part]:
    """Returns the prose and the data of a text, however small, in order."""
    return _joined(_read(text))


def _read(text: str) -> Iterator[Part]:
    for kind, block in split_blocks(text):
        for n, part in enumerate(_at_fences(block) if kind == "code" else (block,)):
            yield n == 1 or _is_json(kind, part), part


def _at_fences(block: str) -> tuple[str, ...]:
    """Returns a fenced block as its first line, what is inside, and its last line; any other one whole."""
    start = block.find("\n") + 1
    end = block.rstrip().rfind("\n") + 1
    if not 0 < start < end or not block.lstrip().startswith(_FENCES):
        return (block,)
    is_closed = block[end:].lstrip().startswith(_FENCES)
    return (block[:start], block[start:end], block[end:]) if is_closed else (block,)


def _is_json(kind: UnitKind, block: str) -> bool:
    return kind == "json" or (kind == "code" and parse(block) is not None)


def _joined(parts: Iterator[Part] | Sequence[Part]) -> list[Part]:
    """Returns parts with prose beside prose as one, and JSON of one line beside such JSON as one."""
    found: list[Part] = []
    for is_data, part in parts:
        before = found[-1] if found else (not is_data, "")
        if before[0] == is_data and (
            not is_data or (_starts_with_json(before[1]) and _starts_with_json(part))
        ):
            found[-1] = is_data, before[1] + part
        else:
            found.append((is_data, part))
    return found


def _starts_with_json(block: str) -> bool:
    """Returns whether the first line of a block is a JSON value."""
    return parse(block.lstrip().partition("\n")[0]) is not None
