"""Records in a text: which lines or sentences belong to one that says what was asked."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, groupby, pairwise

from .corpus import BoundedCache, TermIndex
from .long_lines import SHORT, depths_of, is_keyed_list, is_table
from .outline import Heading, above, ends_line, headings_of, is_gap, ruled_tables
from .owners import NONE, named_first
from .question import asks
from .troubles import traces_in
from .words import content_terms, keys_in, names_one, numbered, without_counts

_BEHIND, _LONGEST, _MOST_ABOVE = 3, 12, 8
"""Lines behind a line that belong to it without a mark; the most of a record, and of its headings."""
_FARTHEST = 60
"""Lines above a line among which those are that it is indented below."""
_RULE = re.compile(r"\s*(?:-\[|([-=*_#~])\1{2,})")
"""What stands between records: "---", "-[ RECORD 3 ]", "*** 3. row ***"."""
_OPENING = re.compile(r"\A\s*[\[{(]\r?\n")
_FEWEST, _FEW = 6, 10
"""Pieces that a text has at least; one in so many of them may have a word that tells it from the others."""
_NEARLY = 0.8
"""Share of the rarest words that a sentence has at least to be one of those that were asked for."""
_ELSEWHERE = 1 / 3
"""Share of the words of a question; so many are said elsewhere where a heading names more than is asked."""
_MOST_CODED = 5
"""Pieces that may have a code."""
_STEP = 1e-6
_LEAST_ROWS = 3
_FEW_TRACES = 3
"""So many exceptions in one text are worth as much as the best line of it."""


def records_of(pieces: Sequence[str]) -> Callable[[int], list[int]]:
    """Returns what returns the positions of a record, that of the piece asked for first.

    A record is what is under a heading, a row of a table, a line with those that are indented below it, or a
    short paragraph of lines; else a line with its neighbours, or a sentence with the next one. A line takes
    the headings above it along, and a question the next paragraph.
    """
    return partial(_record_of, pieces, _LAYOUTS.get(tuple(pieces), _Layout))


class _Layout:
    """What is where in a text: its headings, how deep each piece is, and the rows of tables in columns."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self.headings = headings_of(pieces)
        found = list(_tables(pieces))
        self.heads = {i: head for head, rows in found for i in (*head, *rows)}
        self.tables = {i: rows for head, rows in found for i in head}
        self.ruled = {i for table in ruled_tables(pieces) for i in table}  # each row is a record
        self.depths: list[int] = []
        self.data: set[int] = set()
        start = 0
        for stop in (i + 1 for i, piece in enumerate(pieces) if piece.endswith("\n") or i + 1 == len(pieces)):
            inside = depths_of(pieces[start:stop]) if stop - start > 1 else None
            self.data.update(range(start, stop) if inside else ())
            self.depths += [_indent(pieces[start]) + max(1, depth) for depth in inside or ()]
            self.depths += map(_indent, () if inside else pieces[start:stop])
            start = stop
        self.rows = self._rows(pieces)

    def _rows(self, pieces: Sequence[str]) -> dict[int, list[int]]:
        """Returns the cells of the row that a cell is in, behind them the first ones, which have the keys."""
        lists: dict[tuple[int, int], list[int]] = {}
        opened: list[int] = []
        for i, depth in enumerate([*self.depths, -1]):
            while opened and depth <= self.depths[opened[-1]]:
                start = opened.pop()
                lists.setdefault((self.depths[start], i - start), []).append(start)
            if i < len(pieces) and is_keyed_list(pieces[i]):
                opened.append(i)
        found = {}
        for (_, size), starts in lists.items():
            for cell in range(size) if is_table(size - 1, len(starts)) else ():
                row = [start + cell for start in starts]
                found.update({i: [*row[:_LONGEST], *starts[:_LONGEST]] for i in row})
        return found


_LAYOUTS: BoundedCache[tuple[str, ...], _Layout] = BoundedCache(
    max_size=4_000_000, size=lambda pieces: sum(map(len, pieces)) + 64
)


def _record_of(pieces: Sequence[str], layout: _Layout, i: int) -> list[int]:
    if i in layout.rows:
        return list(dict.fromkeys([i, *layout.rows[i]]))
    headings = layout.headings
    own = next((h for h in headings if h.start <= i < h.stop), None)
    over = [j for h in above(headings, own.start if own else i) for j in range(h.start, h.stop)]
    if own is not None:
        part = _under(pieces, headings, own)
    elif i not in layout.data and not (ends_line(pieces[i]) and (not i or ends_line(pieces[i - 1]))):
        part = range(i, min(i + 2, len(pieces)))  # a sentence, be it the last one of its line
    else:
        parents = _parents(pieces, layout, i)
        over = [*layout.heads.get(i, ()), *parents, *over]
        around = [*reversed(parents), i]
        blocks = [block for j in around if (block := _indented(pieces, layout.depths, j)) and i in block]
        is_row = i in layout.data or i in layout.ruled
        alone = range(i, i + 1) if is_row else _paragraph(pieces, i)
        part = next(iter(blocks), alone)
    return list(
        dict.fromkeys([i, *range(i + 1, part.stop), *over[:_MOST_ABOVE], *range(i - 1, part.start - 1, -1)])
    )


def _under(pieces: Sequence[str], headings: Sequence[Heading], own: Heading) -> range:
    """Returns a heading and what is under it, as far as that is short."""
    stop, lines, end = own.stop, 0, _end_of(own, headings, len(pieces))
    while stop < end and lines < _LONGEST:
        lines += bool(pieces[stop].strip())
        stop += 1
    return range(own.start, stop)


def _section(headings: Sequence[Heading], i: int, size: int) -> range:
    """Returns what is under the heading at a place, empty where none is, in a text of so many pieces."""
    own = next((heading for heading in headings if heading.start <= i < heading.stop), None)
    return range(0) if own is None else range(own.stop, _end_of(own, headings, size))


def _end_of(own: Heading, headings: Sequence[Heading], size: int) -> int:
    """Returns where the section of a heading ends in a text of so many pieces."""
    ends = (h.start for h in headings if h.start >= own.stop and h.level <= own.level)
    return next(ends, size)


def _indented(pieces: Sequence[str], depths: Sequence[int], i: int) -> range | None:
    """Returns a line with those that are indented below it; None where none are."""
    most = range(i + 1, min(i + 1 + _LONGEST, len(pieces)))
    if not most or not pieces[i + 1].strip() or depths[i + 1] <= depths[i]:
        return None
    ends = [j for j in most if depths[j] <= depths[i]]
    return range(i, ends[0] if ends else most.stop)


def _parents(pieces: Sequence[str], layout: _Layout, i: int) -> list[int]:
    """Returns the lines that a line is indented below, the nearest first."""
    found, least = [], layout.depths[i]
    for j in range(i - 1, max(-1, i - _FARTHEST), -1):
        if not least:
            break
        if layout.depths[j] < least and (j in layout.data or ends_line(pieces[j])):
            least = layout.depths[j]
            found.append(j)
    return found


def _paragraph(pieces: Sequence[str], i: int) -> range:
    """Returns the paragraph of a line, with the next where it asks; of a long one the neighbours."""
    start, stop = i, i + 1
    while start and not is_gap(pieces, start - 1) and stop - start < _LONGEST:
        start -= 1
    while stop < len(pieces) and not is_gap(pieces, stop - 1) and stop - start < _LONGEST:
        stop += 1
    if stop - start >= _LONGEST:
        return _between_rules(pieces, i)
    if asks(pieces[stop - 1]):
        following = next((j for j in range(stop, len(pieces)) if pieces[j].strip()), None)
        stop = stop if following is None else _paragraph_end(pieces, following)
    return range(start, stop)


def _between_rules(pieces: Sequence[str], i: int) -> range:
    """Returns the lines around one up to the rules that part records; its neighbours without such rules."""
    before = [j for j in range(i, max(-1, i - _LONGEST), -1) if _RULE.match(pieces[j])]
    behind = [j for j in range(i + 1, min(i + _LONGEST, len(pieces))) if _RULE.match(pieces[j])]
    if not before and not behind:
        is_long = len(pieces[i]) > SHORT // 2  # a paragraph of its own
        return range(i, i + 1) if is_long else range(max(0, i - 1), min(i + 1 + _BEHIND, len(pieces)))
    start = before[0] if before else max(0, i - _LONGEST)
    return range(start, behind[0] if behind else min(i + _LONGEST, len(pieces)))


def _paragraph_end(pieces: Sequence[str], i: int) -> int:
    stop = i + 1
    while stop < len(pieces) and not is_gap(pieces, stop - 1) and stop - i < _BEHIND:
        stop += 1
    return stop


Marks = tuple[list[tuple[range, range]], list[tuple[list[int], range]]]
"""Of a text the head and the rows of each table, the exception and the frames of each stack trace."""


def marks_of(pieces: Sequence[str]) -> Marks:
    """Returns where the tables and the stack traces of a text are."""
    return list(_tables(pieces)), list(traces_in(pieces))


def with_records(
    query: str,
    texts: Sequence[tuple[str, ...]],
    marks: Mapping[int, Marks],
    ratings: Sequence[Sequence[float]],
    index: TermIndex,
    owners: Sequence[int],
) -> list[list[float]]:
    """Returns ratings of the sentences of texts with those of one record behind the one that was asked for.

    What a record says belongs to its name: without it, the next record's value would be read as its own.
    `index` is of all sentences; `marks` are those of the texts that have some; `owners` say whose a sentence
    is that other records have, too: that one is kept before it.
    """
    starts = list(accumulate(map(len, texts), initial=0))
    made = [list(row) for row in ratings]
    pieces = list(chain.from_iterable(texts))
    holders, times = _holders(query, pieces, index)
    few = max(1, len(pieces) // _FEW)
    every = [sorted(held) for held in holders.values() if held]
    rare = [sorted(held) for term, held in holders.items() if held and times[term] <= few]
    coded = _coded(holders, times, few)
    places = sorted(coded.union(_asked_for(holders, times, few)))
    for i, asked in groupby(places, key=lambda place: bisect_right(starts, place) - 1):
        here = [k - starts[i] for k in asked if k in coded or len(texts[i]) >= _FEWEST]
        if here:
            held_here, rare_here = (
                [[k - starts[i] for k in _within(held, starts[i], starts[i + 1])] for held in words]
                for words in (every, rare)
            )
            _rate_records(texts[i], made[i], here, rare_here, held_here)
    for number, (tables, traces) in marks.items():
        row = made[number]
        for head, lines in tables:
            best = max(row[lines.start : lines.stop]) - _STEP / 2
            row[head.start : head.stop] = [max(rating, best) for rating in row[head.start : head.stop]]
        for exception, frames in traces:
            of_frames = max(row[frames.start : frames.stop]) + _STEP / 2
            best = max(of_frames, max(row) - _STEP / 2) if len(traces) <= _FEW_TRACES else of_frames
            for i in exception:
                row[i] = max(row[i], best)
    if not owners:
        return made
    own, flat = list(chain.from_iterable(ratings)), list(chain.from_iterable(made))
    named = [sorted(record, key=lambda i: -own[i]) for record in named_first(owners, holders, own)]
    _lift(flat, list(dict.fromkeys(chain.from_iterable(named))), owners)
    return [flat[start:stop] for start, stop in pairwise(starts)]


def _rate_records(
    pieces: tuple[str, ...],
    row: list[float],
    asked: Sequence[int],
    rare: Sequence[Sequence[int]],
    held: Sequence[Sequence[int]],
) -> None:
    """Rates what is in one record with pieces that were `asked` for.

    What has another word of the question below a heading, or in a row of a table, is asked for, too: its
    record comes before what else is there. Nothing else comes with a heading where much of what is asked is
    said elsewhere: the title of a manual names all of its chapters.

    Args:
        pieces: the sentences of one text.
        row: their ratings, which are raised.
        asked: the positions of those that were asked for.
        rare: the positions of those that have each rare word of the question, in order.
        held: the same of each word of the question.
    """
    layout, left, seen = _LAYOUTS.get(pieces, _Layout), list(asked), set(asked)
    for j in left:
        below = _below(layout, j, len(pieces))
        inner = _named_in(below, [places for places in rare if not _has(places, j, j + 1)])
        best = min(row[j], max([row[k] for k in inner], default=row[j]))
        inner.sort(key=lambda k: -row[k])
        for n, k in enumerate(inner):
            row[k] = max(row[k], best - _STEP * n)
        behind = _MOST_ABOVE + 2 * _LONGEST if inner else 0  # as many as the longest record has
        here = [_has(places, j, j + 1) or _has(places, below.start, below.stop) for places in held if below]
        if here.count(False) < _ELSEWHERE * len(held):
            for step, k in enumerate(_record_of(pieces, layout, j)):
                row[k] = max(row[k], best - _STEP * (behind + step))
        left += [k for k in inner if k not in seen]
        seen.update(inner)


def _below(layout: _Layout, i: int, size: int) -> range:
    """Returns the rows below the head of a table, or what is under a heading, in a text of so many pieces."""
    return layout.tables.get(i) or _section(layout.headings, i, size)


def _named_in(part: range, rare: Sequence[Sequence[int]]) -> list[int]:
    """Returns the pieces of a part that have most of some rare words, given those that have each."""
    said: dict[int, float] = {}
    for held in rare if part else ():
        for k in _within(held, part.start, part.stop):
            said[k] = said.get(k, 0.0) + 1 / len(held)
    least = _NEARLY * max(said.values(), default=0.0)
    return sorted([k for k, weight in said.items() if weight >= least])


def _within(places: Sequence[int], start: int, stop: int) -> Sequence[int]:
    """Returns those of some places, in order, that are between two others."""
    return places[bisect_left(places, start) : bisect_left(places, stop)]


def _has(places: Sequence[int], start: int, stop: int) -> bool:
    """Returns whether some places, in order, have one that is between two others."""
    return bisect_left(places, start) < bisect_left(places, stop)


def _lift(ratings: list[float], first: Sequence[int], owners: Sequence[int]) -> None:
    """Rates some pieces of records above all others of records, and what says whose one is above that one."""
    best = max([max(ratings[i], ratings[owner]) for i, owner in enumerate(owners) if owner != NONE])
    for rank, i in enumerate(reversed(first), start=1):
        ratings[i] = best + _STEP * rank
    for i in range(len(ratings) - 1, -1, -1):
        if owners[i] != NONE:
            ratings[owners[i]] = max(ratings[owners[i]], math.nextafter(ratings[i], math.inf))


def _holders(
    query: str, pieces: Sequence[str], index: TermIndex
) -> tuple[dict[str, list[int]], dict[str, int]]:
    """Returns which pieces hold each word and key of a question, and how many.

    A number belongs to the word before it, where a piece has both: 88 people are not department 88.
    """
    few = max(1, len(pieces) // _FEW)
    holders = {term: list(index.with_stem(term)) for term in content_terms(without_counts(query))}
    holders.update({key: list(index.with_key(key)) for key in keys_in(query)})
    times = {term: len(held) for term, held in holders.items()}
    for word, number in numbered(query):
        having = index.with_stem(number)
        both = [i for i in having if (word, number) in numbered(pieces[i])] if len(having) <= few else []
        if both:
            holders[number], times[number] = both, len(having)
    return holders, times


def _coded(holders: Mapping[str, Sequence[int]], times: Mapping[str, int], few: int) -> set[int]:
    """Returns the positions of the few pieces that have a code that is asked for, whatever else is said."""
    codes = [term for term, n in times.items() if n <= min(few, _MOST_CODED) and names_one(term)]
    return set(chain.from_iterable([holders[term] for term in codes]))


def _asked_for(holders: Mapping[str, Sequence[int]], times: Mapping[str, int], few: int) -> list[int]:
    """Returns the positions of the pieces that say what was asked as few others do.

    They have a word that few have, or more of the rarer ones than any other: a first name and a surname.
    """
    rare, shared = dict[int, float](), dict[int, float]()
    for term, held in holders.items():
        for i in held:
            shared[i] = shared.get(i, 0.0) + 1 / times[term]
            if times[term] <= few:
                rare[i] = rare.get(i, 0.0) + 1 / times[term]
    for said in (rare, shared):
        best = max(said.values(), default=0.0)
        found = [i for i, weight in said.items() if weight >= _NEARLY * best]
        if found and (said is rare or len(found) <= few):
            return found
    return []


def _tables(pieces: Sequence[str]) -> Iterator[tuple[range, range]]:
    """Yields where the head of each table is, and its rows.

    They are lines of as many cells below a head without digits, or what is below one with a rule.
    """
    for table in ruled_tables(pieces):
        yield range(table.start, table.start + 2), range(table.start + 2, table.stop)
    start, cells = 0, _cells(pieces[0]) if pieces else (0, 0)
    for j in range(1, len(pieces) + 1):
        is_last = j + 1 == len(pieces)  # its line may end with the text
        following = _cells(pieces[j] + "\n" * is_last) if j < len(pieces) else (0, 0)
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


def _indent(line: str) -> int:
    """Returns a line's indentation in characters, behind a line that is a bracket; a blank one is deepest."""
    line = _OPENING.sub("", line)
    return len(line) - len(line.lstrip()) if line.strip() else len(line) + _LONGEST
