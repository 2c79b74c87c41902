"""The outline of a text: which lines are headings, as people and programs write them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_DEPTH = re.compile(r"(#{1,6})\s|(?:</\w+>\s?)*<h([1-6])\b", re.IGNORECASE)
_UNDERLINE = re.compile(r"([=~^*+\"'`-])\1{2,}\s*")
_STYLES = {
    "bold": re.compile(r"(\*\*|__)(?!\s)[^*_]+\1:?"),
    "numbered": re.compile(
        r"(?:§+|(?:art(?:icle|ikel|ículo|icolo)?|section|clause|chapter|part|kapitel|abschnitt|cap[ií]tulo"
        r"|chapitre|titre|annex|appendix|step|schritt)\b\.?)\s*(?:\d|[ivx]+\b).*",
        re.IGNORECASE,
    ),
}
"""Lines that are headings wherever they stand."""
_CLAUSE = re.compile(r"\d{1,3}(?:\.\d{1,2}){0,3}[.)]?\s+[^\W\d].*")
_ITEM = re.compile(r"[-*•+>|]")
_STOPS = ".,;?!…。，；？！"
_FIELD = re.compile(r"[\w][\w .-]{0,23}:\s")
_CHANGES = re.compile(r"\b[0-9a-f]{7,}\b|\d+")
_LONGEST_HEADING, _MOST_WORDS = 100, 12
_RECURS, _HEADER_LINES = 3, 6
_COLUMNS, _CELLS = re.compile(r"\S(\s{2,})(?=\S)"), re.compile(r"[^\s,;|]+")
_LEAST_ROWS, _MOST_ROWS = 3, 0.75
"""Rows that a table has at least, and the share of them that has the form of its head."""
_OTHER = 10
"""Styles without a depth of their own are deeper than those with one, in the order of their first use."""


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a text: the positions of its lines, and how deep it is."""

    start: int
    stop: int
    level: int


def headings_of(pieces: Sequence[str]) -> list[Heading]:
    """Returns the headings among the lines or sentences of a text, in order.

    The order in which styles are used first tells which is under which, as in reStructuredText.
    """
    order: dict[str, int] = {}
    found = []
    recurring = _recurring(pieces)
    rows = {i for table in ruled_tables(pieces) for i in table}
    for i, piece in enumerate(pieces):
        line, begins = piece.strip("\r\n"), not i or is_gap(pieces, i - 1)
        if i in rows or not _may_be_heading(pieces, i):
            continue
        depth = _DEPTH.match(line)
        if depth:
            found.append(Heading(i, i + 1, len(depth[1] or "") or int(depth[2])))
        elif begins and _mask(line) in recurring and (stop := _header_end(pieces, i)):
            header = (
                f"header {_mask(line)}"  # a record's text may look like a header, too, and is under its own
            )
            found.append(Heading(i, stop, order.setdefault(header, _OTHER + len(order))))
        elif style := _style(pieces, i, line.rstrip(), begins=begins):
            found.append(Heading(i, i + 1, order.setdefault(style, _OTHER + len(order))))
    return found


def _may_be_heading(pieces: Sequence[str], i: int) -> bool:
    """Returns whether a piece is a line of its own that is not indented."""
    alone = (not i or ends_line(pieces[i - 1])) and ends_line(pieces[i])
    line = pieces[i].strip("\r\n")
    return alone and bool(line.strip()) and not line[0].isspace()


def ends_line(piece: str) -> bool:
    """Returns whether a line ends with a piece of a text: in HTML with a tag."""
    return piece.endswith(("\n", ">"))


def is_gap(pieces: Sequence[str], i: int) -> bool:
    """Returns whether a blank line, or the end of the text, is behind a line or sentence."""
    if i + 1 >= len(pieces) or not pieces[i].strip() or not pieces[i + 1].strip():
        return True
    own, following = pieces[i], pieces[i + 1]
    ends = own[len(own.rstrip()) :].count("\n")
    return ends + following[: len(following) - len(following.lstrip())].count("\n") > 1


def _style(pieces: Sequence[str], i: int, line: str, *, begins: bool) -> str:
    """Returns the style of a heading that is one line without a mark of its depth; "" for any other line."""
    if len(line) > _LONGEST_HEADING or not any(map(str.isalnum, line)):
        return ""
    if rule := _rule_below(pieces, i):
        return rule
    for name, form in _STYLES.items():
        if form.fullmatch(line):
            return name
    if not begins or line[-1] in _STOPS:
        return ""
    if line[-1] == ":":
        return "colon"
    if _CLAUSE.fullmatch(line):
        return f"clause {line.split(maxsplit=1)[0].rstrip('.)').count('.')}"
    return _title(line) if is_gap(pieces, i) else ""


def _rule_below(pieces: Sequence[str], i: int) -> str:
    """Returns the sign of the rule that underlines a line; "" where none does."""
    rule, line = None if is_gap(pieces, i) else _UNDERLINE.fullmatch(pieces[i + 1]), pieces[i].rstrip()
    return rule[1] if rule and 2 * len(rule[0].strip()) >= len(line) and not _FIELD.match(line) else ""


def ruled_tables(pieces: Sequence[str]) -> list[range]:
    """Returns where tables are whose head is underlined as a heading is: the head, its rule and the rows."""
    found = []
    for rule in [i for i, piece in enumerate(pieces) if i and _UNDERLINE.fullmatch(piece)]:
        stop = rule + 1
        while stop < len(pieces) and not is_gap(pieces, stop - 1) and not _UNDERLINE.fullmatch(pieces[stop]):
            stop += 1
        rows, head = pieces[rule + 1 : stop], pieces[rule - 1].rstrip()
        if len(rows) < _LEAST_ROWS or not _rule_below(pieces, rule - 1):
            continue
        gaps = [match.span(1) for match in _COLUMNS.finditer(head[:_LONGEST_HEADING])]
        cells = len(_CELLS.findall(head))
        alike = [_in_columns(row, gaps) or len(_CELLS.findall(row)) == cells > 1 for row in rows]
        if sum(alike) >= _MOST_ROWS * len(rows):
            found.append(range(rule - 1, stop))
    return found


def _in_columns(row: str, gaps: Sequence[tuple[int, int]]) -> bool:
    """Returns whether a row is blank at an end of each gap: its cells are aligned left or right."""
    return bool(gaps) and all(not row[a : a + 1].strip() or not row[b - 1 : b].strip() for a, b in gaps)


def _title(line: str) -> str:
    """Returns the style of a line that stands alone; "" where it is an item or too long for a title."""
    if _ITEM.match(line) or line[0].islower() or len(line.split()) > _MOST_WORDS:
        return ""
    return "capitals" if line.isupper() else "title"


def _recurring(pieces: Sequence[str]) -> set[str]:
    """Returns how the first lines of the paragraphs begin that may be the headers of records."""
    starts = (i for i in range(len(pieces)) if not i or is_gap(pieces, i - 1))
    counts = Counter(_mask(pieces[i]) for i in starts if pieces[i].strip() and _header_end(pieces, i))
    return {mask for mask, count in counts.items() if count >= _RECURS}


def _mask(line: str) -> str:
    """Returns the first word of a line, with one sign for its numbers and hashes."""
    return _CHANGES.sub("0", line.split(maxsplit=1)[0]) if line.strip() else ""


def _header_end(pieces: Sequence[str], i: int) -> int:
    """Returns where the paragraph ends that begins with a line, if it has fields as "Date: today"; else 0."""
    if not pieces[i].endswith("\n") or pieces[i][0].isspace():
        return 0
    stop = i
    while stop < len(pieces) and stop - i < _HEADER_LINES and pieces[stop].strip():
        stop += 1
        if is_gap(pieces, stop - 1):
            break
    fields = sum(bool(_FIELD.match(piece)) for piece in pieces[i:stop])
    return stop if stop - i > 1 and fields * 2 >= stop - i else 0


def above(headings: Sequence[Heading], i: int) -> Iterator[Heading]:
    """Yields the headings under which a line stands, the nearest first."""
    level: float = float("inf")
    for heading in reversed(headings):
        if heading.stop <= i and heading.level < level:
            level = heading.level
            yield heading
