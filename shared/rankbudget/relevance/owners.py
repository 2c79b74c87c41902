"""Whose a line is: in a text of records alike, the line above each one that says which record it is of."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, takewhile

import regex

from .outline import OTHER, Heading, ends_line, headings_of, is_gap, rules_of
from .question import asks
from .words import raw_words

NONE = -1
_SHAPE = regex.compile(r"\W*+([^\W\d_][\w.-]*+(?: [^\W\d_][\w.-]*+)?)")
"""What lines of several records have in common: a key, or the first two words of a sentence.

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
_ROW = re.compile(r"(?:[^|\t]*[|\t]){2}|(?:[^,;]*[,;]){2}")
"""A row of a table: a record by itself."""
_LIST = re.compile(r"\A\s*\[\r?\n(?=\s*[\[{])")
"""The bracket above the first record of a list: the others are not below that one."""
_ALIKE, _IN_TURN = 0.5, 0.8
"""Share of the lines that other records have, too; more, where only that tells where records begin."""
_FEWEST = 4
"""Pieces of two records."""
_NEAR = 8
"""Pieces behind the start of a record among which the one is that names it."""
_FEW = 3
"""One in so many records may be named by a question."""
_NEARLY = 0.8
"""Share of what the best record says that another one that is named says at least."""


def owners_of(pieces: Sequence[str]) -> list[int]:
    r"""Returns for each piece the position of the one that says whose it is; `NONE` where no record is.

    That is the heading above it, the line that it is indented below, the first one of its paragraph or line,
    or the one before the fields that come in turn: without it, a piece could be read as another record's.
    A piece under one of several headings has one in any text; other pieces only where several records say it.
    Below a question, the sentences of a line have its first one, which answers.

    Example:
        >>> owners_of(("ann:\n", "  tel: 12\n", "bob:\n", "  tel: 34\n"))
        [-1, 0, -1, 2]
    """
    if not any(map(ends_line, pieces)):  # one line has no headings, and nothing is indented
        return _of_records(pieces, set(), [NONE] * len(pieces))
    rules = rules_of(pieces)
    headings = _headings_at(pieces, rules)
    outline = _outline(pieces, rules, headings)
    found = _of_records(pieces, rules, outline)
    _add_headings(pieces, found, outline, headings)
    _add_answers(pieces, found)
    return found


def _of_records(pieces: Sequence[str], rules: Container[int], outline: Sequence[int]) -> list[int]:
    """Returns the owners of what several records say."""
    inside = [_TAG.sub("", piece) for piece in pieces]  # "<li>tel: 12</li>" has its key there
    for texts in [pieces] if inside == list(pieces) else [inside, pieces]:
        for shapes in _shapes(texts) if len(pieces) >= _FEWEST else ():
            keys = list(filter(None, shapes))
            is_alike = len(set(keys)) < len(keys)
            found = _owners(pieces, shapes, rules, list(outline)) if is_alike else []
            if any(own != NONE for own in found):
                return found
    return [NONE] * len(pieces)


def _add_headings(
    pieces: Sequence[str], owners: list[int], outline: Sequence[int], headings: Container[int]
) -> None:
    """Gives each piece without an owner its nearest heading, where several headings have text."""
    under = {i: own for i, own in enumerate(outline) if own in headings and i not in headings}
    if len({own for i, own in under.items() if pieces[i].strip()}) > 1:
        for i, own in under.items():
            owners[i] = own if owners[i] == NONE else owners[i]


def _add_answers(pieces: Sequence[str], owners: list[int]) -> None:
    """Gives the sentences of a line below a question its first one: they go on with what that answers."""
    first = NONE
    for i, own in enumerate(owners):
        if not i or ends_line(pieces[i - 1]):
            first = i
        elif own != NONE and own == owners[first] and asks(pieces[own]):
            owners[i] = first


def _owners(
    pieces: Sequence[str], shapes: Sequence[str], rules: Container[int], owners: list[int]
) -> list[int]:
    below = _children(owners)
    plain = ["" if i in below else shape for i, shape in enumerate(shapes)]
    for run in below.values():
        gaps = {i for i in run if i == run[0] or is_gap(pieces, i - 1)}
        behind = {i for i in run if i == run[0] or i - 1 in rules}
        for starts, share in (
            *([(behind, _ALIKE)] if len(behind) > 1 else ()),
            (gaps, _ALIKE),
            ({i for i in run if i == run[0] or ends_line(pieces[i - 1])}, _ALIKE),
            *[(starts, _IN_TURN) for starts in _in_turn(pieces, plain, run)],
        ):
            parted = list(_parted(run, starts, rules if starts is behind else gaps))
            if _alike(parted, shapes, share):
                for i, start in parted:
                    owners[i] = start
                break
    _give_names(pieces, shapes, owners)
    return _needed(owners, shapes)


def _shapes(pieces: Sequence[str]) -> Iterator[list[str]]:
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
    return found[1].casefold() if found and not _ROW.match(piece) else ""


def _run(shape: str) -> str:
    """Returns the first letters of a shape that has no spaces between its words; "" of any other one."""
    found = None if shape.isascii() else _LETTERS.match(shape[:_LONGEST])
    return found[0] if found and len(raw_words(found[0])) > found[0].count(" ") + 1 else ""


def _outline(pieces: Sequence[str], rules: Container[int], headings: Mapping[int, Heading]) -> list[int]:
    """Returns the heading that each piece is under, or the line that it is indented below.

    A rule ends all that is above it but the headings that have a depth of their own.
    """
    owners, stop = [NONE] * len(pieces), 0
    opened: list[tuple[tuple[bool, int], int]] = []
    for i, piece in enumerate(pieces):
        if i < stop:  # a heading of several lines
            owners[i] = opened[-1][1]
        elif i and not ends_line(pieces[i - 1]):
            owners[i] = owners[i - 1]
        elif piece.strip():
            heading = headings.get(i)
            depth = (False, OTHER) if i in rules else _depth(piece, heading)
            while opened and opened[-1][0] >= depth:
                opened.pop()
            owners[i] = opened[-1][1] if opened else NONE
            opened += [] if i in rules else [(depth, i)]
            stop = heading.stop if heading else 0
    return owners


def _headings_at(pieces: Sequence[str], rules: Container[int]) -> dict[int, Heading]:
    """Returns the headings by where they start, but rules, and lines as deep as the next one written so."""
    found = {heading.start: heading for heading in headings_of(pieces) if heading.start not in rules}
    return {i: h for i, h in found.items() if is_gap(pieces, i) or not pieces[i].rstrip().endswith(":")}


def _depth(piece: str, heading: Heading | None) -> tuple[bool, int]:
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


def _most_alike(parted: Sequence[tuple[int, int]], shapes: Sequence[str]) -> bool:
    """Returns whether most owners have mostly lines that others have: a table behind one counts once."""
    lines: dict[int, list[str]] = {}
    for i, own in parted:
        lines.setdefault(own, []).append(shapes[i])
    times = Counter(shape for said in lines.values() for shape in set(said) if shape)
    alike = [sum([times[shape] > 1 for shape in said]) >= _ALIKE * len(said) for said in lines.values()]
    return sum(alike) > max(1, _ALIKE * len(lines))


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
        near = [j for j in range(i + 1, min(i + 1 + _NEAR, len(pieces))) if i in _above(owners, j)]
        name = _naming(near, shapes, uses, told) or below[i][0]
        if i in again or told[shapes[i]] < _NEARLY * told.get(shapes[name], 0):
            for j in filter(name.__lt__, below[i]):
                owners[j] = name


def _naming(
    near: Sequence[int], shapes: Sequence[str], uses: Mapping[str, int], told: Mapping[str, int]
) -> int | None:
    """Returns the first line whose key has no value twice, or nearly as many values as any other."""
    keys = {j: told[shapes[j]] for j in near if shapes[j]}
    least = _NEARLY * max(keys.values(), default=0)
    return next((j for j, n in keys.items() if n == uses[shapes[j]] or n >= least), None)


def _needed(owners: Sequence[int], shapes: Sequence[str]) -> list[int]:
    """Returns the owners of lines of records alike, and theirs."""
    above = set(owners)
    lines = [(i, own) for i, own in enumerate(owners) if i not in above and own != NONE]
    groups: dict[int, list[tuple[int, int]]] = {}
    for i, own in lines:
        groups.setdefault(owners[own], []).append((i, own))
    needed: set[int] = set()
    for group in [lines] if _alike(lines, shapes, _ALIKE) else groups.values():
        for i, _ in group if _alike(group, shapes, _ALIKE) or _most_alike(group, shapes) else ():
            needed.update(takewhile(lambda j: j not in needed, _above(owners, i)))
    return [own if i in needed else NONE for i, own in enumerate(owners)]


def named_first(
    owners: Sequence[int], holders: Mapping[str, Iterable[int]], ratings: Sequence[float] = ()
) -> list[list[int]]:
    """Returns the pieces of the records that say most of what was asked, the one that says most first.

    `holders` are the pieces that have each word of the question. A word above a record counts for all of it,
    and comes before one in it: other records may refer to the one that is named. So do the lines of a record
    for those inside it, as the name of a customer for the address. Of records that say as much the one with
    most of it in lines of its own comes first, then the one with the best of the `ratings`. Of too many those
    are left that say it above their lines; none where none stands out.
    """
    above, records = set(owners), dict[int, list[int]]()
    said: dict[int, set[str]] = {}
    for word, held in holders.items():
        for i in held:
            said.setdefault(i, set()).add(word)
    over: dict[int, set[str]] = {NONE: set()}
    for i, own in enumerate(owners):
        if i in above:
            over[i] = said.get(i, set()) | over[own]
        elif own != NONE:
            records.setdefault(own, []).append(i)
    lines = {own: set[str]().union(*[said.get(i, ()) for i in places]) for own, places in records.items()}
    words = {own: over[own].union(*[lines[i] for i in _above(owners, own) if i in lines]) for own in records}
    times, count = Counter(chain.from_iterable(words.values())), len(records)
    rarity = {word: math.log(1 + (count - n + 0.5) / (n + 0.5)) for word, n in times.items()}
    weights = {  # exact sums: a set has no order
        own: [math.fsum(map(rarity.__getitem__, part)) for part in (found, over[own], lines[own])]
        for own, found in words.items()
    }
    least = _NEARLY * max(weights.values(), default=[0.0])[0]
    best = [own for own in records if 0 < least <= weights[own][0]]
    kinds = {frozenset(words[own]) for own in best}
    named = [own for own in best if not any(words[own] < kind for kind in kinds)]
    most = max(1, count // _FEW)
    if len(named) > most:  # a name is above the lines of its record
        least = _NEARLY * max([weights[own][1] for own in named])
        named = [own for own in named if 0 < least <= weights[own][1]]
    if len(named) > most:
        return []
    if ratings:
        named.sort(key=lambda own: max([ratings[i] for i in records[own]]), reverse=True)
    named.sort(key=weights.__getitem__, reverse=True)
    around = {
        own: [i for k in _above(owners, owners[own]) for i in records.get(k, ()) if i in said]
        for own in named
    }
    return [[*_above(owners, own), *around[own], *records[own]] for own in named]


def _above(owners: Sequence[int], i: int) -> Iterator[int]:
    while i != NONE:
        yield i
        i = owners[i]
