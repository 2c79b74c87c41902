"""What each line of a text is inside of: headings, names of columns, records, questions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import regex

from .long_lines import depths_of
from .outline import OTHER, Heading, ends_line, headings_of, is_gap, rules_of, stops, tables_of
from .question import asks
from .words import PAIRED

NONE = -1
_SHAPE = regex.compile(
    r"(?:\W*\d[\d.T+Z-]*[:/]\d\S*+\s)*+\W*+([^\W\d_][\w.-]*+(?: [^\W\d_](?:[^\W\d]|[.-])*+(?!\w))?)"
)
"""What lines of several records have in common: behind dates and times a key, or two words without digits.

In `re` a vowel sign of Thai or Hindi is no part of a word.
"""
_LETTERS = regex.compile(r"[\p{L}\p{M}]+(?: [\p{L}\p{M}]+)?")
_LONGEST = 12
"""Characters that are read of a sentence without spaces: which of them are its key, the others tell."""
_SHARES = 2, 4
"""A key starts one in so many of the lines that begin as most do; several keys may begin alike."""
_GO_ON = 0.8
"""Share of the lines with a start that go on as several others do: it is not yet all of a key."""
_WORDS = regex.compile(r"[\w\s.-]+")
"""What a line has beside its looks: "[db]" and "[web]" look alike, and so do "db:" and "web:"."""
_TAG = re.compile(r"<[^<>]*>")
_MARKS = re.compile(r"(?:[*_\s]|<[^<>]*>)+\Z")
_ASKED = re.compile(r"(?:<[^<>]*>|[\s*_+-])+(?<=[*_>])[^*_<>\n]*[?？؟](?:[*_]+|(?:</[^<>]*>)+)[ \t]*\S")
_LABEL = re.compile(r"\W*\w{1,12}:\s")
_NAMED = re.compile(r"\W{0,6}[^\W\d_][^:.!?\n]{0,40}:[*_]{0,2}\s")
"""What ends a question in bold letters; one at the start of a line that goes on; "Q: "; "Ann Lee: "."""
_END = 80
"""Characters at the end of a line in which these marks are looked for."""
_ROW = re.compile(
    r"(?:[^|\t]*[|\t]){2}|(?:[^,;]*[,;]){2}|\s*(?:<t(?:able|head|body|r)\b[^<>]*>\s*)+<t[dh]\b", re.IGNORECASE
)
"""A row of a table: a record by itself."""
_LIST = re.compile(r"\A\s*\[\r?\n(?=\s*[\[{])")
"""The bracket above the first record of a list: the others are not below that one."""
ALIKE, _IN_TURN = 0.5, 0.8
"""Share of the lines that other records have, too; more, where only that tells where records begin."""
_FEWEST = 4
"""Pieces of two records."""
_NEAR = 8
"""Pieces behind the start of a record among which the one is that names it."""
_NEARLY = 0.8
"""Share of the values that the most telling key has that another one has at least."""


@dataclass(frozen=True, slots=True)
class Tree:
    """What each piece of a text is inside of: the heading, head of a table, line or question above it.

    `parents` has the position of the nearest one; `NONE` for what is inside of nothing. `owners` has it only
    where a piece would be read as another's without it. `stops` says where what is inside of a piece ends.
    """

    parents: Sequence[int]
    owners: Sequence[int]
    stops: Sequence[int]


def above(parents: Sequence[int], i: int) -> Iterator[int]:
    """Yields what a piece is inside of, the nearest first."""
    while (i := parents[i]) != NONE:
        yield i


def joined(of_texts: Sequence[Sequence[int]]) -> list[int]:
    """Returns what the pieces of several texts are inside of, as positions among all pieces."""
    found: list[int] = []
    for parents in of_texts:
        start = len(found)
        found += [i if i == NONE else i + start for i in parents]
    return found


def tree_of(pieces: Sequence[str]) -> Tree:
    r"""Returns what each piece of a text is inside of.

    That is the heading above it, the head of its table, the line that it is indented below, the question that
    it answers, the first one of its paragraph or line, or the one before the fields that come in turn. It
    owns a piece under one of several headings in any text, and other pieces only where several records say
    them: without it, they could be read as another record's. Below a question, the first sentence of a line
    owns the others, which go on with what it answers.

    Example:
        >>> tree_of(("ann:\n", "  tel: 12\n", "bob:\n", "  tel: 34\n")).owners
        [-1, 0, -1, 2]
    """
    has_lines = any(map(ends_line, pieces))  # one line has no headings, and nothing is indented
    rules = rules_of(pieces) if has_lines else set[int]()
    headings = headings_of(pieces, rules) if has_lines else {}
    outline = _outline(pieces, rules, headings) if has_lines else [NONE] * len(pieces)
    headings = {i: heading for i, heading in headings.items() if i not in rules}
    owners, parents = _of_records(pieces, rules, outline)
    if has_lines:
        _add_headings(pieces, owners, outline, headings)
    parents = [parent if own == NONE else own for own, parent in zip(owners, parents, strict=True)]
    tables = list(tables_of(pieces)) if has_lines else []
    _add_inner(pieces, parents, owners, tables)
    # Of a head of several lines, as that of a mail or a table, each names what is below.
    last = {heading.start: heading.stop - 1 for heading in headings.values()}
    last.update({head.start: head.stop - 1 for head, _ in tables})
    for i, start in enumerate(parents):
        if start in last:
            parents[i] = min(i - 1, last[start])
    stops = list(range(1, len(pieces) + 1))
    for i in range(len(pieces) - 1, -1, -1):
        if parents[i] != NONE:
            stops[parents[i]] = max(stops[parents[i]], stops[i])
    return Tree(parents, owners, stops)


def _add_inner(
    pieces: Sequence[str], parents: list[int], owners: list[int], tables: Sequence[tuple[range, range]]
) -> None:
    """Puts rows below the names of their columns, answers below questions, and the inside of brackets."""
    for head, rows in tables:
        title, outer = head.start - 1, parents[head.start]
        if title >= 0 and not is_gap(pieces, title) and parents[title] == outer:
            parents[head.start] = title
        for i in (*head[1:], *rows):
            if parents[i] == outer:
                parents[i] = head.start
    _add_below_questions(pieces, parents)
    _add_answers(pieces, parents, owners)
    first: dict[int, int] = {}  # what begins with a bracket is named by its first line
    for i, parent in enumerate(parents):
        if parent != NONE and not any(map(str.isalnum, pieces[parent])):
            parents[i] = first.get(parent, parent)
            first.setdefault(parent, i)
    if any("{" in piece or "[" in piece for piece in pieces):
        _add_bracketed(pieces, parents, owners)


def _add_below_questions(pieces: Sequence[str], parents: list[int]) -> None:
    """Puts the rest of a question's paragraph below it, or the next one."""
    opened = NONE
    for i, piece in enumerate(pieces):
        is_question = _asks(piece) and ends_line(piece) and (not i or ends_line(pieces[i - 1]))
        if opened != NONE and parents[i] == parents[opened] and not is_question:
            parents[i] = opened
        if opened != NONE and piece.strip() and is_gap(pieces, i):
            opened = NONE
        opened = i if is_question else opened


def _add_answers(pieces: Sequence[str], parents: list[int], owners: list[int]) -> None:
    """Makes the first sentence of an answer's line own the rest, which goes on with what it answers.

    An answer is below a question, or in its line behind one in bold letters or with a label. Where several
    lines begin with a name, each is about that.
    """
    named = _named_lines(pieces)
    answer, is_question = NONE, False
    for i, piece in enumerate(pieces):
        if not i or ends_line(pieces[i - 1]):
            is_question = _asks(piece)
            is_answer = (
                i in named or _ASKED.match(piece) or (parents[i] != NONE and _asks(pieces[parents[i]]))
            )
            answer = i if is_answer else NONE
        elif answer == NONE and is_question:  # without labels, a message that asks what follows is about
            answer = i if _LABEL.match(pieces[i - 1]) and _LABEL.match(piece) else NONE
            is_question = False
        elif answer != NONE and owners[i] < answer:
            owners[answer] = max(owners[answer], owners[i])
            owners[i] = parents[i] = answer


def _named_lines(pieces: Sequence[str]) -> set[int]:
    """Returns where lines begin with a name and a colon, if several do."""
    starts = [i for i in range(len(pieces)) if not i or ends_line(pieces[i - 1])]
    found = {i for i in starts if _NAMED.match(pieces[i]) and not _asks(pieces[i])}
    return found if len(found) > 1 else set()


def _asks(piece: str) -> bool:
    """Returns whether a line is a question, in bold letters or tags, too."""
    return asks(_MARKS.sub("", piece[-_END:]))


def _add_bracketed(pieces: Sequence[str], parents: list[int], owners: Sequence[int]) -> None:
    """Puts what is in brackets below what opens these."""
    start = 0
    for stop in [i + 1 for i, piece in enumerate(pieces) if piece.endswith("\n") or i + 1 == len(pieces)]:
        depths = depths_of(pieces[start:stop]) if stop - start > 1 else None
        opened_at: list[tuple[int, int]] = []
        for i, depth in enumerate(depths or (), start):  # the bracket that begins the line is no depth
            while opened_at and opened_at[-1][0] >= max(1, depth):
                opened_at.pop()
            if opened_at and owners[i] == NONE:
                parents[i] = opened_at[-1][1]
            opened_at.append((max(1, depth), i))
        start = stop


def _of_records(
    pieces: Sequence[str], rules: Container[int], outline: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Returns the owners of what several records say, and what each piece is inside of."""
    plain = [piece if not i or stops(pieces[i - 1]) else "" for i, piece in enumerate(pieces)]
    inside = [_TAG.sub("", piece) for piece in plain]  # "<li>tel: 12</li>" has its key there
    for texts in [plain] if inside == plain else [inside, plain]:
        for shapes in shapes_of(texts) if len(pieces) >= _FEWEST else ():
            keys = list(filter(None, shapes))
            is_alike = len(set(keys)) < len(keys)
            made = _owners(pieces, shapes, rules, list(outline)) if is_alike else []
            found = _needed(made, shapes)
            if any(own != NONE for own in found):
                return found, made
    return [NONE] * len(pieces), list(outline)


def _add_headings(
    pieces: Sequence[str], owners: list[int], outline: Sequence[int], headings: Mapping[int, Heading]
) -> None:
    """Gives each piece without an owner its nearest heading, where several headings have text."""
    beside = Counter([outline[i] for i in headings])
    under = {
        i: own
        for i, own in enumerate(outline)
        if own in headings and (i not in headings or beside[outline[own]] > 1)
    }
    if len({own for i, own in under.items() if pieces[i].strip()}) > 1:
        for i, own in under.items():
            owners[i] = own if owners[i] == NONE else owners[i]


def _owners(
    pieces: Sequence[str], shapes: Sequence[str], rules: Container[int], owners: list[int]
) -> list[int]:
    below = _children(owners)
    plain = ["" if i in below else shape for i, shape in enumerate(shapes)]
    for run in below.values():
        gaps = {i for i in run if i == run[0] or is_gap(pieces, i - 1)}
        behind = {i for i in run if i == run[0] or i - 1 in rules}
        for starts, share in (
            *([(behind, ALIKE)] if len(behind) > 1 else ()),
            (gaps, ALIKE),
            ({i for i in run if i == run[0] or ends_line(pieces[i - 1])}, ALIKE),
            *[(starts, _IN_TURN) for starts in _in_turn(pieces, plain, run)],
        ):
            parted = list(_parted(run, starts, rules if starts is behind else gaps))
            if _alike(parted, shapes, share):
                for i, start in parted:
                    owners[i] = start
                break
    _give_names(pieces, shapes, owners)
    return owners


def shapes_of(pieces: Sequence[str]) -> Iterator[list[str]]:
    """Yields what each piece has in common with others; in scripts without spaces there may be two ways."""
    shapes = list(map(_shape, pieces))
    # With a line break: a key that ends is told from one that goes on.
    runs = {i: f"{run}\n" for i, shape in enumerate(shapes) if (run := _run(shape))}
    times = Counter(run[:n] for run in runs.values() for n in range(2, len(run) + 1))
    most = max(times.values(), default=0)
    for share in _SHARES if runs else [1]:
        least = max(2, most / share)
        keyed = Counter[str]()  # how many of the lines that begin so go on as several others do
        for start, n in times.items():
            keyed[start[:-1]] += n if n >= least else 0
        for i, run in runs.items():
            end = 2 if times[run[:2]] >= least else len(run)
            while end < len(run) and keyed[run[:end]] >= _GO_ON * times[run[:end]]:
                end += 1
            shapes[i] = run[:end]
        yield shapes


def _shape(piece: str) -> str:
    found = _SHAPE.match(piece)
    return found[1].casefold() if found and not _ROW.match(piece.lstrip()) else ""


def _run(shape: str) -> str:
    """Returns the first letters of a shape that has no spaces between its words; "" of any other one."""
    found = None if shape.isascii() else _LETTERS.match(shape[:_LONGEST])
    return found[0] if found and PAIRED.search(found[0]) else ""


def _outline(pieces: Sequence[str], rules: Container[int], headings: Mapping[int, Heading]) -> list[int]:
    """Returns the heading that each piece is under, or the line that it is indented below.

    A rule ends all that is above it but the headings that have a depth of their own.
    """
    owners, stop = [NONE] * len(pieces), 0
    opened: list[tuple[tuple[bool, float], int]] = []
    for i, piece in enumerate(pieces):
        if i < stop:  # a heading of several lines
            owners[i] = opened[-1][1]
        elif i and not ends_line(pieces[i - 1]):
            owners[i] = owners[i - 1]
        elif piece.strip():
            heading = headings.get(i)
            depth = (False, float(OTHER)) if i in rules and not heading else _depth(piece, heading)
            while opened and opened[-1][0] >= depth:
                opened.pop()
            owners[i] = opened[-1][1] if opened else NONE
            opened += [] if i in rules else [(depth, i)]
            stop = heading.stop if heading else 0
    return owners


def _depth(piece: str, heading: Heading | None) -> tuple[bool, float]:
    """Returns how deep a line is: any heading is above what is indented."""
    line = _LIST.sub("", piece.lstrip("\r\n\f"))
    return (False, heading.level) if heading else (True, len(line) - len(line.lstrip()))


def _children(owners: Sequence[int]) -> dict[int, list[int]]:
    """Returns the pieces that each owner has, in order."""
    found: dict[int, list[int]] = {}
    for i, owner in enumerate(owners):
        found.setdefault(owner, []).append(i)
    return found


def _in_turn(pieces: Sequence[str], shapes: Sequence[str], run: Sequence[int]) -> list[set[int]]:
    """Returns where records may begin whose fields come in turn: at the names before these, at the first."""
    times = Counter(shapes[i] for i in run if shapes[i])
    most = max(times.values(), default=0)
    fields = {shape for shape, n in times.items() if n > 1 and 2 * n >= most}
    n = next((n for n, i in enumerate(run) if shapes[i] in fields), 0)
    look = _WORDS.sub("", pieces[run[n - 1]]) if n else None
    names = {i for i in run if shapes[i] not in fields and _WORDS.sub("", pieces[i]) == look}
    return [names, {i for i in run if shapes[i] == shapes[run[n]]}]


def _parted(run: Sequence[int], starts: Container[int], gaps: Container[int]) -> Iterator[tuple[int, int]]:
    """Yields the pieces of a run that start no record, each with the start of its own, in one paragraph."""
    own = NONE
    for i in run:
        if i in starts:
            own = i
        elif i in gaps:
            own = NONE
        elif own != NONE:
            yield i, own


def _alike(parted: Sequence[tuple[int, int]], shapes: Sequence[str], share: float) -> bool:
    """Returns whether so many of the pieces have a shape that others of other owners have."""
    said = {(own, shapes[i]) for i, own in parted if shapes[i]}
    times = Counter(shape for _, shape in said)
    return sum([times[shape] > 1 for _, shape in said]) >= max(1, share * len(parted))


def _give_names(pieces: Sequence[str], shapes: Sequence[str], owners: list[int]) -> None:
    """Lets the first line below one that names nothing, as "<person>", say whose the others are.

    A key that tells few records apart, as in "kind: Service", is passed over for one that tells most of them.
    """
    below, uses, said = _children(owners), Counter(shapes), dict[str, set[str]]()
    for shape, piece in zip(shapes, pieces, strict=True):
        said.setdefault(shape, set()).add(piece.strip())
    told = {shape: len(texts) for shape, texts in said.items() if shape}
    same = Counter((owners[i], pieces[i].strip()) for i in below if i != NONE)
    again = {i for i in below if i != NONE and same[owners[i], pieces[i].strip()] > 1}
    alike = {(owners[i], shapes[i]) for i in again if shapes[i]}  # "kind: Service" beside two of another kind
    for i in [i for i in below if i in again or (owners[i], shapes[i]) in alike]:
        near = [j for j in range(i + 1, min(i + 1 + _NEAR, len(pieces))) if i in above(owners, j)]
        name = _naming(near, shapes, uses, told) or below[i][0]
        if i in again or told[shapes[i]] < _NEARLY * told.get(shapes[name], 0):
            for j in filter(name.__lt__, below[i]):
                owners[j] = name


def _naming(
    near: Sequence[int], shapes: Sequence[str], uses: Mapping[str, int], told: Mapping[str, int]
) -> int | None:
    """Returns the first line whose key has no value twice."""
    return next((j for j in near if shapes[j] and told[shapes[j]] == uses[shapes[j]]), None)


def _needed(owners: Sequence[int], shapes: Sequence[str]) -> list[int]:
    """Returns the owners of lines of records alike, and theirs."""
    openers = set(owners)
    lines = [(i, own) for i, own in enumerate(owners) if i not in openers and own != NONE]
    groups: dict[int, list[tuple[int, int]]] = {}
    for i, own in lines:
        groups.setdefault(owners[own], []).append((i, own))
    needed: set[int] = set()
    for group in [lines] if _alike(lines, shapes, ALIKE) else groups.values():
        for i, _ in group if _alike(group, shapes, ALIKE) else ():
            needed.add(i)
            needed.update(takewhile(lambda j: j not in needed, above(owners, i)))
    return [own if i in needed else NONE for i, own in enumerate(owners)]
