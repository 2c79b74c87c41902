"""A text as units that are kept or dropped whole: sentences, code, JSON, tables; joined they are the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ..relevance.sentences import split_sentences
from .json_values import parse

UnitKind = Literal["sentence", "code", "json", "table"]

_FENCED = r"[ \t]*(`{3,}(?!`)|~{3,}(?!~)).*\n(?:(?![ \t]*\1[ \t\r]*$).*\n)*.*\n?"
_ROW = r"[ \t]*\|.*\|[ \t]*|[^|\n]+\|[^|\n]+\|.*|[^\t\n]+\t[^\t\n]+"
_BLOCKS: tuple[tuple[UnitKind, re.Pattern[str]], ...] = (
    ("code", re.compile(_FENCED, re.MULTILINE)),
    ("table", re.compile(rf"(?:(?:{_ROW})(?:\n|\Z)){{2,}}")),
    # An indented block needs a blank line before it: otherwise it continues a list item.
    ("code", re.compile(r"(?:(?<![^\n]\n)|(?<=\n\r\n))(?:(?: {4,}|\t)\S.*(?:\n|\Z)){2,}")),
)
_BRACKET = re.compile(r"[ \t]*[{\[]")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*(?:"|$)')
_PARAGRAPH = re.compile(r"\n[ \t]*\n")
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
    for kind, block in split_blocks(text):
        if kind != "sentence":
            units.append(Unit(block, kind, paragraph + 1))
            paragraph += 2
            continue
        for piece in _joined_quotes(split_sentences(block)):
            units.append(Unit(piece, kind, paragraph))
            paragraph += bool(_PARAGRAPH.search(piece))
    return units


def split_blocks(text: str) -> Iterator[tuple[UnitKind, str]]:
    """Yields the blocks of a text, and as "sentence" the prose between them."""
    prose = at = tried = 0
    while at < len(text):
        found = ((kind, match.end()) for kind, pattern in _BLOCKS if (match := pattern.match(text, at)))
        kind, end = next(found, ("sentence", at))
        if end == at >= tried and _BRACKET.match(text, at):
            kind = "json"
            end, tried = _json_end(text, at)  # brackets that hold no JSON are read once
        if end > at:
            if prose < at:
                yield "sentence", text[prose:at]
            yield kind, text[at:end]
            prose = at = end
        else:
            at = text.find("\n", at) + 1 or len(text)
    if prose < len(text):
        yield "sentence", text[prose:]


def _json_end(text: str, at: int) -> tuple[int, int]:
    """Returns the end of the JSON at a line (`at` where there is none) and of what was read."""
    depth, end = 0, at
    while end < len(text):
        start, end = end, text.find("\n", end) + 1 or len(text)
        bare = _STRING.sub("", text[start:end])
        depth += sum(map(bare.count, "{[")) - sum(map(bare.count, "}]"))
        if depth <= 0:
            return (at if parse(text[at:end]) is None else end), end
    return at, len(text)


def _joined_quotes(pieces: tuple[str, ...]) -> list[str]:
    """Joins the sentences of a short quotation."""
    out: list[str] = []
    for piece in pieces:
        if out and "\n" not in out[-1] and _spans(out[-1], piece):
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
