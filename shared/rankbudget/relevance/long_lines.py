"""Data in one line: the records of JSON, of what Python prints, of HTML and XML, and the items of lists."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

SHORT, LONGEST = 300, 1000
"""Characters of a line up to which it is one piece, and of a record or a list above which it is parted."""
_QUOTED = r'"[^"\\]*(?:\\.[^"\\]*)*"|' + r"'[^'\\]*(?:\\.[^'\\]*)*'"
_MARK = re.compile(rf"[\[{{(,:]\s{{0,2}}(?:{_QUOTED})?|[\]}})]", re.DOTALL)
"""A bracket, comma or colon with the string behind it: quotes anywhere else are apostrophes."""
_MOST_OUTSIDE = 0.2
"""Share of a line that may be outside of its outermost brackets; prose has most of it there."""
_FEWEST, _DEEPEST = 3, 12
"""Cuts of a line at least, and the levels of brackets that are parted."""
_KEYED_LIST = re.compile(rf"[{{\s]*(?:{_QUOTED}|\w+)\s*:\s*\[")
_FEWEST_CELLS, _CELLS_PER_COLUMN = 6, 4
"""A table in columns has far more rows than columns."""
_BLOCK = r"(?:h[1-6]|p|li|tr|div|dt|dd|pre|table|[uo]l|section|article|header|footer|blockquote)"
_BLOCK_END = re.compile(rf"</{_BLOCK}\s*>|<br\s*/?>|(?<=>)\s*(?=<h[1-6]\b)", re.IGNORECASE)
_NO_RECORD = re.compile(r"(?:h[1-6]|p|br|b|i|a|em|span|strong|t[dh])\Z", re.IGNORECASE)
_TAG, _MOST_TAGS = re.compile(r"<(\w[\w:.-]*)"), 8
_ROW = re.compile(
    r"(?:<(?:table|thead|tbody|tfoot)\b[^<>]*>\s*)*<tr\b.{0,1000}?</tr\s*>"
    r"(?:\s*</?(?:table|thead|tbody|tfoot)\b[^<>]*>)*[ \t]*(?:\r?\n)?",
    re.IGNORECASE | re.DOTALL,
)
"""A row of a table in HTML with the tags of the table around it."""
_LISTS = (  # what ends an item, where two of them meet, the fewest of them, and the most characters of one
    (">", re.compile(r"(?<=>)(?=\s?<\w)"), 12, 400),
    ("|;", re.compile(r"(?<=[|;])(?= )"), 6, 400),
    (",", re.compile(r"(?<=,)(?= )"), 20, 100),
)
_CHUNK = re.compile(r".{1,300}(?=\s|\Z)|\S+", re.DOTALL)
"""What a long line without full stops is parted into."""
_SIGN, _SIGN_EVERY = re.compile(r"""\d+|[.,;:!?()\[\]{}<>|=/\\"“”…、。，]|\s\s"""), 100
"""What parts text or is data, and characters for each of them; speech that was written down has fewer."""
_BREATH = re.compile(r".{1,120}(?=\s|\Z)|\S+", re.DOTALL)
"""What such speech is parted into: about as long as a spoken sentence, so that one nearly always fits."""


def with_rows(text: str, part: Callable[[str], Iterable[str]]) -> list[str]:
    """Returns the parts of a text, but each row of a table in HTML as one: its cells may be lines."""
    found, start = list[str](), 0
    for match in _ROW.finditer(text) if "</t" in text or "</T" in text else ():
        indent = len(text[start : match.start()]) - len(text[start : match.start()].rstrip(" \t"))
        begin = match.start() - indent
        found += part(text[start:begin]) if start < begin else ()
        found.append(text[begin : match.end()])
        start = match.end()
    return [*found, *(part(text[start:]) if start < len(text) or not found else ())]


def records_in(line: str) -> list[str]:
    """Returns the records of a line of data; none of a line of prose. Joined, they are the line."""
    cuts = _bracket_cuts(line) if len(line) > SHORT and any(map(line.count, "[{(")) else []
    cuts = cuts or (_tag_cuts(line) if "</" in line else [])
    return [line[start:stop] for start, stop in pairwise([0, *cuts, len(line)])] if cuts else []


def items_in(line: str) -> list[str]:
    """Returns the items of a list in one long line, or parts of one, which no full stop parts."""
    if len(line) <= LONGEST or "\n" in line.strip():
        return [line]
    for signs, ends, fewest, longest in _LISTS:
        if sum(map(line.count, signs)) < fewest - 1:  # nearly always, and seen a hundred times as fast
            continue
        items = ends.split(line)
        if len(items) >= fewest and max(map(len, items)) <= longest:
            return items
    return _CHUNK.findall(line)


def breaths_in(line: str) -> list[str]:
    """Returns the parts of speech that was written down without full stops; of any other text all of it."""
    one = not SHORT < len(line) <= LONGEST or "\n" in line.strip()
    return [line] if one or not _is_speech(line) else _BREATH.findall(line)


def _is_speech(line: str) -> bool:
    """Returns whether a text has neither an end nor other signs, as captions and transcripts of calls."""
    return line.rstrip()[-1:] not in ".!?…" and len(_SIGN.findall(line)) < len(line) // _SIGN_EVERY


def depths_of(pieces: Sequence[str]) -> list[int] | None:
    """Returns in how many brackets each piece of a line starts; None for a line of prose."""
    marks, is_data = _marks("".join(pieces))
    ends = [end for end, *_ in marks]
    behind = [bisect_right(ends, start) for start in accumulate(map(len, pieces[:-1]), initial=0)]
    return [marks[n - 1][1] if n else 0 for n in behind] if is_data else None


def _marks(line: str) -> tuple[list[tuple[int, int, bool]], bool]:
    """Returns where brackets and commas end, with depth and whether it is a comma; whether it is data."""
    found: list[tuple[int, int, bool]] = []
    held: Counter[int] = Counter()
    depth = last = 0
    for mark in _MARK.finditer(line):
        sign, start = mark.group()[0], mark.start()
        held[depth] += start - last
        last = start
        if sign != ":":
            depth += (sign in "[{(") - (sign in "]})")
            found.append((start + 1, depth, sign == ","))
    held[depth] += len(line) - last
    low = min(held)
    # A part of a data set may start inside of a record: what its brackets leave is outside.
    return [(end, depth - low, comma) for end, depth, comma in found], held[low] <= _MOST_OUTSIDE * len(line)


def _bracket_cuts(line: str) -> list[int]:
    """Returns the ends of the records: of the outermost ones that are short, and of the cells of columns."""
    marks, is_data = _marks(line)
    levels: dict[int, list[int]] = {}
    for end, depth, comma in marks:
        if comma:
            levels.setdefault(depth, []).append(end)
    cuts: list[int] = []
    for depth in sorted(levels)[:_DEEPEST] if is_data else ():
        edges, deeper = [0, *cuts, len(line)], levels.get(depth + 1, [])
        columns = _columns(edges, levels[depth], line)
        is_list = len(deeper) >= len(levels[depth]) >= _FEWEST
        is_list = is_list or bool(_columns([0, *levels[depth], len(line)], deeper, line))
        most = SHORT if is_list and not cuts else LONGEST
        parted = [edge for edge in pairwise(edges) if edge[1] - edge[0] > most or edge[0] in columns]
        cuts = sorted([*cuts, *_inside(levels[depth], parted)])
    return cuts if len(cuts) >= _FEWEST else []


def _columns(edges: Sequence[int], commas: Sequence[int], line: str) -> set[int]:
    """Returns where lists start that have keys, equally many cells, and far more cells than lists."""
    sizes = {
        start: bisect_left(commas, stop) - bisect_right(commas, start) + 1
        for start, stop in pairwise(edges)
        if _KEYED_LIST.match(line, start)
    }
    times = Counter(sizes.values())
    return {start for start, size in sizes.items() if is_table(size, times[size])}


def is_keyed_list(piece: str) -> bool:
    """Returns whether a piece starts with a key and the bracket of its list."""
    return bool(_KEYED_LIST.match(piece))


def is_table(rows: int, columns: int) -> bool:
    """Returns whether lists of equal length may be the columns of a table."""
    return columns > 1 and rows >= max(_FEWEST_CELLS, _CELLS_PER_COLUMN * columns)


def _inside(ends: Sequence[int], parts: Sequence[tuple[int, int]]) -> Iterator[int]:
    """Yields the positions that are inside of these parts."""
    for start, stop in parts:
        yield from ends[bisect_right(ends, start) : bisect_left(ends, stop)]


def _tag_cuts(line: str) -> list[int]:
    """Returns where the outermost short records begin that have a tag of their own; else where blocks end."""
    counts = Counter(_TAG.findall(line))
    outermost = [tag for tag, n in counts.items() if n > _FEWEST and not _NO_RECORD.match(tag)]
    for tag in outermost[:_MOST_TAGS]:
        ends = rf"(?<=>)(?=\s?<{re.escape(tag)}\b)|(?<=</{re.escape(tag)}>)(?=\s?<)"  # a heading between two
        cuts = [found.start() for found in re.finditer(ends, line)]
        longest = max([stop - start for start, stop in pairwise([0, *cuts, len(line)])])
        if len(cuts) >= _FEWEST and longest <= LONGEST:
            return cuts
    last = len(line.rstrip())
    return sorted({found.end() for found in _BLOCK_END.finditer(line) if 0 < found.end() < last})
