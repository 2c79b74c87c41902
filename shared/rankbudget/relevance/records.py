"""Records in a text: which lines or sentences belong to one that says what was asked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .corpus import TermIndex
from .words import content_terms

_HEADING = re.compile(r"#{1,6} ")
_BEHIND, _LONGEST = 3, 12
"""Lines behind a line that belong to it where nothing marks a record; the most of one."""
_FEWEST, _FEW = 6, 10
"""Pieces that a text has at least; one in so many of them may have a word that tells it from the others."""
_NEARLY = 0.8
"""Share of the rarest words that a sentence has at least to be one of those that were asked for."""
_STEP = 1e-6
_LEAST_ROWS = 3


def record_of(pieces: Sequence[str], i: int) -> list[int]:
    """Returns the positions of a record, that of its piece `i` first, then those behind it.

    A record is what is under a heading, a line with those that are indented below it, or a short paragraph
    of lines; else a line with its neighbours, or a sentence with the next one.
    """
    if not pieces[i].endswith("\n"):
        return [i, i + 1][: len(pieces) - i]
    part = _marked(pieces, i) or _paragraph(pieces, i)
    return [i, *range(i + 1, part.stop), *range(i - 1, part.start - 1, -1)]


def _marked(pieces: Sequence[str], i: int) -> range | None:
    """Returns what is under a heading, or indented below a line; None where neither is."""
    most = range(i + 1, min(i + 1 + _LONGEST, len(pieces)))
    own, following = pieces[i], pieces[i + 1] if most else ""
    if _HEADING.match(own):
        ends = [j for j in most if _HEADING.match(pieces[j])]
    elif following.strip() and _indent(following) > _indent(own):
        ends = [j for j in most if _indent(pieces[j]) <= _indent(own)]
    else:
        return None
    return range(i, ends[0] if ends else most.stop)


def _paragraph(pieces: Sequence[str], i: int) -> range:
    """Returns the paragraph of a line, or its neighbours where that is long."""
    start, stop = i, i + 1
    while start and not _ends(pieces, start - 1) and stop - start < _LONGEST:
        start -= 1
    while stop < len(pieces) and not _ends(pieces, stop - 1) and stop - start < _LONGEST:
        stop += 1
    if stop - start < _LONGEST:
        return range(start, stop)
    return range(max(0, i - 1), min(i + 1 + _BEHIND, len(pieces)))


def with_records(
    query: str, texts: Sequence[tuple[str, ...]], ratings: Sequence[Sequence[float]]
) -> list[list[float]]:
    """Returns ratings of the sentences of texts with those of one record behind the one that was asked for.

    What a record says belongs to its name: without it, the next record's value would be read as its own.
    """
    places = [(i, j) for i, pieces in enumerate(texts) for j in range(len(pieces))]
    index = TermIndex.of(tuple([piece for pieces in texts for piece in pieces]))
    said = [0.0] * len(places)
    for term in set(content_terms(query)):
        holders = index.with_stem(term)
        if len(holders) <= max(1, len(places) // _FEW):
            for number in holders:
                said[number] += 1 / len(holders)
    made = [list(row) for row in ratings]
    best = max(said, default=0.0)
    for (i, j), weight in zip(places, said, strict=True):
        if weight and weight >= _NEARLY * best and len(texts[i]) >= _FEWEST:
            for step, k in enumerate(record_of(texts[i], j)):
                made[i][k] = max(made[i][k], made[i][j] - _STEP * step)
    for pieces, row in zip(texts, made, strict=True):
        for head, lines in _tables(pieces):
            best = max(row[lines.start : lines.stop]) - _STEP / 2
            row[head.start : head.stop] = [max(rating, best) for rating in row[head.start : head.stop]]
    return made


def _tables(pieces: Sequence[str]) -> Iterator[tuple[range, range]]:
    """Yields where the head of each table is, which has no digits, and its rows: lines of as many cells."""
    start, cells = 0, _cells(pieces[0]) if pieces else (0, 0)
    for j in range(1, len(pieces) + 1):
        following = _cells(pieces[j]) if j < len(pieces) else (0, 0)
        if following == cells:
            continue
        behind = start + 1 + (start + 1 < j and not any(map(str.isalnum, pieces[start + 1])))
        if any(cells) and j - behind >= _LEAST_ROWS and not any(map(str.isdigit, pieces[start])):
            yield range(start, behind), range(behind, j)
        start, cells = j, following


def _cells(line: str) -> tuple[int, int]:
    """Returns how many bars or tabs, and how many commas or semicolons, a line has; one comma is none."""
    if not line.endswith("\n"):
        return 0, 0
    bars, commas = line.count("|") + line.count("\t"), line.count(",") + line.count(";")
    return (bars, 0) if bars else (0, commas if commas > 1 else 0)


def _ends(pieces: Sequence[str], j: int) -> bool:
    """Returns whether a paragraph ends behind a piece: a line, or a sentence with its line breaks."""
    return pieces[j].endswith("\n\n") or not pieces[j].strip() or not pieces[j + 1].strip()


def _indent(line: str) -> int:
    """Returns by how many characters a line is indented; a blank one is as deep as any."""
    return len(line) - len(line.lstrip()) if line.strip() else len(line) + _LONGEST
