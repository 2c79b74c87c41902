"""A text as units that are kept or dropped whole: sentences, and blocks that lose their meaning when cut.

Code, JSON and tables are one unit each, a quoted name is never torn in two, and all units put together are the text again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ..relevance.sentences import split_sentences
from .json_shrink import parse

__all__ = ["Unit", "UnitKind", "split_units"]

UnitKind = Literal["sentence", "code", "json", "table", "heading"]

_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[^\n]*\n.*?(?:^[ \t]*\1[ \t]*$\n?|\Z)", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^[ \t]*\|.*\|[ \t]*$|^[^\n|]+\|[^\n|]+\|[^\n]*$|^[^\t\n]+\t[^\n]+$")
_INDENTED = re.compile(r"^(?: {4,}|\t)\S.*$")
_HEADING = re.compile(r"^[ \t]*(?:#{1,6} \S.*|[A-Z][^.!?\n]{0,60}:)[ \t]*\n+$")
_PARAGRAPH = re.compile(r"\n[ \t]*\n")
_NUMBERING = re.compile(r"^\s*(?:\d{1,3}|[A-Za-z])\.\s*$")
_LONGEST_QUOTE = 120


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece that is kept or dropped whole.

    Args:
        text: a copy of the source, white space included.
        kind: what it is.
        paragraph: number of the paragraph it stands in.
    """

    text: str
    kind: UnitKind
    paragraph: int


def split_units(text: str) -> list[Unit]:
    r"""Returns the units of `text`, in order.

    Example:
        >>> [(u.kind, u.text) for u in split_units("One. Two.\n```\nx = 1. Y\n```\n")]
        [('sentence', 'One.'), ('sentence', ' Two.\n'), ('code', '```\nx = 1. Y\n```\n')]
    """
    units: list[Unit] = []
    paragraph = 0
    for kind, block in _blocks(text):
        if kind == "sentence":
            for piece in _whole_quotes(split_sentences(block)):
                units.append(Unit(piece, "heading" if _HEADING.match(piece) else "sentence", paragraph))
                paragraph += bool(_PARAGRAPH.search(piece))
        else:
            paragraph += 1
            units.append(Unit(block, kind, paragraph))
            paragraph += 1
    return units


def _blocks(text: str) -> Iterator[tuple[UnitKind, str]]:
    start = 0
    for match in _FENCE.finditer(text):
        yield from _plain_blocks(text[start : match.start()])
        yield "code", match.group()
        start = match.end()
    yield from _plain_blocks(text[start:])


def _plain_blocks(text: str) -> Iterator[tuple[UnitKind, str]]:
    if not text:
        return
    if "\n" not in text and text[:1] not in "{[":
        yield "sentence", text
        return
    lines = text.splitlines(keepends=True)
    prose = 0
    i = 0
    while i < len(lines):
        kind, end = _block_at(lines, i)
        if kind is None:
            i += 1
            continue
        if prose < i:
            yield "sentence", "".join(lines[prose:i])
        yield kind, "".join(lines[i:end])
        prose = i = end
    if prose < len(lines):
        yield "sentence", "".join(lines[prose:])


def _block_at(lines: list[str], i: int) -> tuple[UnitKind | None, int]:
    line = lines[i]
    if line.lstrip()[:1] in ("{", "["):
        end = _json_end(lines, i)
        if end:
            return "json", end
    for kind, pattern, fewest in (("table", _ROW, 2), ("code", _INDENTED, 2)):
        end = i
        while end < len(lines) and pattern.match(lines[end].rstrip("\n")):
            end += 1
        # An indented block needs a blank line (or the start) before it: otherwise it continues a list item.
        if end - i >= fewest and (kind == "table" or i == 0 or not lines[i - 1].strip()):
            return kind, end  # type: ignore[return-value]  # the two literals above
    return None, i


def _json_end(lines: list[str], start: int) -> int:
    depth = 0
    joined: list[str] = []
    for i in range(start, len(lines)):
        bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", lines[i])
        depth += bare.count("{") + bare.count("[") - bare.count("}") - bare.count("]")
        joined.append(lines[i])
        if depth <= 0:
            return i + 1 if parse("".join(joined)) is not None else 0
    return 0


def _whole_quotes(pieces: tuple[str, ...]) -> list[str]:
    """Joins pieces that belong together: what a quotation of at most a line spans, and the number of a list item with its sentence."""
    out: list[str] = []
    for piece in pieces:
        if out and "\n" not in out[-1] and (_NUMBERING.match(out[-1]) or _spans(out[-1], piece)):
            out[-1] += piece
        else:
            out.append(piece)
    return out


def _spans(one: str, other: str) -> bool:
    return len(one) + len(other) < 4 * _LONGEST_QUOTE and _inside_quote(one) and _closes_early(other)


def _inside_quote(text: str) -> bool:
    if text.count('"') % 2 == 1:
        return len(text) - text.rindex('"') <= _LONGEST_QUOTE
    opened = max(text.rfind(mark) for mark in "“«")
    return opened > max(text.rfind(mark) for mark in "”»") and len(text) - opened <= _LONGEST_QUOTE


def _closes_early(text: str) -> bool:
    return any(0 <= text.find(mark) <= _LONGEST_QUOTE for mark in '"”»')
