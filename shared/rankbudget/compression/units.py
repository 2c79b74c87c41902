"""A text as units that are kept or dropped whole: sentences, code, JSON, tables; joined they are the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ..relevance.sentences import split_sentences
from .json_shrink import parse

__all__ = ["Unit", "UnitKind", "split_units"]

UnitKind = Literal["sentence", "code", "json", "table"]

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
_ROW = re.compile(r"[ \t]*\|.*\|[ \t]*$|[^|]+\|[^|]+\|.*$|[^\t]+\t[^\t]+$")
_INDENTED = re.compile(r"(?: {4,}|\t)\S")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*(?:"|$)')
_PARAGRAPH = re.compile(r"\n[ \t]*\n")
_NUMBERING = re.compile(r"\s*(?:\d{1,3}|[A-Za-z])\.\s*$")
_LONGEST_QUOTE = 120


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece that is kept or dropped whole: a copy of the source, white space included."""

    text: str
    kind: UnitKind
    paragraph: int

    @property
    def fixed(self) -> bool:
        """Whether no word of it may change: code, JSON, a table."""
        return self.kind != "sentence"


def split_units(text: str) -> list[Unit]:
    """Returns the units of `text`, in order."""
    units: list[Unit] = []
    paragraph = 0
    for kind, block in _blocks(text):
        if kind != "sentence":
            units.append(Unit(block, kind, paragraph + 1))
            paragraph += 2
            continue
        for piece in _joined_quotes(split_sentences(block)):
            units.append(Unit(piece, kind, paragraph))
            paragraph += bool(_PARAGRAPH.search(piece))
    return units


def _blocks(text: str) -> Iterator[tuple[UnitKind, str]]:
    """Yields the blocks of a text, and as "sentence" the prose between them."""
    lines = text.splitlines(keepends=True)
    prose = i = tried = 0
    while i < len(lines):
        kind, end = _block_at(lines, i)
        if end == i and i >= tried and lines[i].lstrip()[:1] in ("{", "["):
            kind = "json"
            end, tried = _json_at(lines, i)  # brackets that hold no JSON are read once
        if end == i:
            i += 1
            continue
        if prose < i:
            yield "sentence", "".join(lines[prose:i])
        yield kind, "".join(lines[i:end])
        prose = i = end
    if prose < len(lines):
        yield "sentence", "".join(lines[prose:])


def _block_at(lines: list[str], start: int) -> tuple[UnitKind, int]:
    """Returns which block begins at a line, and the line after its end (`start` where none begins)."""
    fence = _FENCE.match(lines[start])
    if fence and lines[start].endswith("\n"):
        end = start + 1
        while end < len(lines) and lines[end].strip() != fence.group(1):
            end += 1
        return "code", min(end + 1, len(lines))
    end = _run_end(lines, start, _ROW)
    if end > start:
        return "table", end
    # An indented block needs a blank line before it: otherwise it continues a list item.
    if start == 0 or not lines[start - 1].strip():
        return "code", _run_end(lines, start, _INDENTED)
    return "sentence", start


def _run_end(lines: list[str], start: int, pattern: re.Pattern[str]) -> int:
    """Returns the end of the matching lines from `start` on; `start` where fewer than two match."""
    end = start
    while end < len(lines) and pattern.match(lines[end].rstrip("\n")):
        end += 1
    return end if end - start > 1 else start


def _json_at(lines: list[str], start: int) -> tuple[int, int]:
    """Returns the end of the JSON at a line (`start` where there is none) and of the lines read."""
    depth = 0
    for end in range(start + 1, len(lines) + 1):
        bare = _STRING.sub("", lines[end - 1])
        depth += sum(map(bare.count, "{[")) - sum(map(bare.count, "}]"))
        if depth <= 0:
            return (start if parse("".join(lines[start:end])) is None else end), end
    return start, len(lines)


def _joined_quotes(pieces: tuple[str, ...]) -> list[str]:
    """Joins the sentences of a short quotation, and the number of a list item with its sentence."""
    out: list[str] = []
    for piece in pieces:
        if out and "\n" not in out[-1] and (_NUMBERING.match(out[-1]) or _spans(out[-1], piece)):
            out[-1] += piece
        else:
            out.append(piece)
    return out


def _spans(one: str, other: str) -> bool:
    """Returns whether a short quotation that `one` opens ends in `other`."""
    start = one.rfind('"') if one.count('"') % 2 else -1
    if start < 0:
        opened = max(map(one.rfind, "“«"))
        start = opened if opened > max(map(one.rfind, "”»")) else -1
    short = start >= 0 and len(one) - start <= _LONGEST_QUOTE and len(one) + len(other) < 4 * _LONGEST_QUOTE
    return short and any(0 <= other.find(mark) <= _LONGEST_QUOTE for mark in '"”»')
