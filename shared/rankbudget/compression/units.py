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
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
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
    prose = i = 0
    unclosed = False
    while i < len(lines):
        end = 0
        kind: UnitKind = "json"
        if not unclosed and lines[i].lstrip()[:1] in ("{", "["):
            end = _json_end(lines, i)
            unclosed = end < 0  # a bracket that never closes is looked for once
        if end <= 0:
            kind, end = _run_at(lines, i)
        if end <= i:
            i += 1
            continue
        if prose < i:
            yield "sentence", "".join(lines[prose:i])
        yield kind, "".join(lines[i:end])
        prose = i = end
    if prose < len(lines):
        yield "sentence", "".join(lines[prose:])


def _run_at(lines: list[str], start: int) -> tuple[UnitKind, int]:
    """Returns the kind of block that begins at a line, and its end; the start where none does."""
    end = start
    while end < len(lines) and _ROW.match(lines[end].rstrip("\n")):
        end += 1
    if end - start > 1:
        return "table", end
    # An indented block needs a blank line (or the start) before it: otherwise it continues a list item.
    end = start
    while (
        (start == 0 or not lines[start - 1].strip())
        and end < len(lines)
        and _INDENTED.match(lines[end].rstrip("\n"))
    ):
        end += 1
    return ("code", end) if end - start > 1 else ("sentence", start)


def _json_end(lines: list[str], start: int) -> int:
    """Returns where the JSON that begins at a line ends, 0 where it is none, -1 where its brackets never close."""
    depth = 0
    for i in range(start, len(lines)):
        bare = _STRING.sub("", lines[i])
        depth += bare.count("{") + bare.count("[") - bare.count("}") - bare.count("]")
        if depth <= 0:
            return i + 1 if parse("".join(lines[start : i + 1])) is not None else 0
    return -1


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
