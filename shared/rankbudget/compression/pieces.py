"""Whether a text is what was left of another one: pieces of it, in order, and marks for what is missing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

MARKS = re.compile(
    r"\[\.\.\. [\d,]+ (?:line|part)s? \.\.\.\]|\.\.\. [\d,]+ more items? \.\.\.|\[\d+ chars\]"
    r"|^\d+ more keys$|^omitted$|\.\.\."
)
"""What a shortened text says where something is missing."""
SHORT = 200
"""Characters of a text in which "..." is what its writer put there: shorter ones are hardly ever cut."""


def is_cut(texts: Sequence[str], wholes: Sequence[str]) -> bool:
    """Returns whether the texts of a message are those of another one, some of them shortened."""
    return len(texts) == len(wholes) and texts != wholes and all(map(_is_left_of, texts, wholes))


def _is_left_of(text: str, whole: str) -> bool:
    """Returns whether a text is another one, whole, marked where it is cut, or JSON without white space.

    A mark alone leaves nothing of a text: who writes that wants the rest to go.
    """
    if text == whole:
        return True
    if len(text) >= len(whole):
        return False
    parts = MARKS.split(text)
    if len(parts) > 1 and len(whole) >= SHORT and any(part.strip() for part in parts):
        return is_made_of(text, whole)
    leaves = _leaves(text)
    return bool(leaves) and leaves == _leaves(whole)


def is_made_of(text: str, whole: str) -> bool:
    """Returns whether a text is only pieces of another one, in order, and marks for what is missing."""
    mine, theirs = _leaves(text), _leaves(whole)
    if mine is None or theirs is None:
        mine, theirs = [text], [whole]
    source, at = "\n".join(theirs), 0
    for piece in [piece.strip() for leaf in mine for piece in MARKS.split(leaf)]:
        found = source.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def _leaves(text: str) -> list[str] | None:
    """Returns the keys, texts and numbers of JSON, of one value or one a line; None for any other text."""
    for values in ([text], [line for line in text.splitlines() if line.strip()]):
        try:
            read = [json.loads(value, parse_int=str, parse_float=str) for value in values]
        except (ValueError, RecursionError):
            continue
        if read and all(isinstance(value, (dict, list)) for value in read):
            return [leaf for value in read for leaf in _leaves_of(value)]
    return None


def _leaves_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _leaves_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves_of(item)
    else:
        yield str(value)
