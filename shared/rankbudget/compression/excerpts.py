"""Excerpts of a text: whole lines or sentences with counted gaps, and the records that a question names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from ..errors import counted
from ..relevance.corpus import BoundedCache
from ..relevance.long_lines import LONGEST, with_rows
from ..relevance.named import Named
from ..relevance.outline import stops
from ..relevance.question import asks as is_asked
from ..relevance.records import records_of
from ..relevance.sentences import last_end, split_sentences
from ..relevance.tree import NONE, Tree, above, tree_of
from ..relevance.turns import exchanges_of
from ..relevance.words import raw_words, stem
from .importance import (
    Ranked,
    Words,
    by_importance,
    ranked_by_held,
    ranked_by_words,
    says_half,
    words_in_each,
    words_of,
)

Excerpt = Callable[[int], str]
"""Makes an excerpt in about so many characters."""

_FEWEST_LINES, _FEWEST = 3, 3
_LONGEST_SHARE, _SHORT = 4, 80
_MARKER, _GAP = 24, " ... "
_ROUNDS, _NARROW = 3, 24
_SHORT_ABOVE = 120
"""Characters of a line that stays with each one inside it that is asked for."""
_PREFIX = 2
"""Characters that a word and its stem have in common at least."""
_WORD = re.compile(r"[-+$€£]?\w+(?:[.:/@'’+-]+\w+|(?<=\d),\d+|%)*")
"""A word, number, date, address or path: half of one would be read as another."""


def excerpt_of(text: str, asked: Words, asking: str = "") -> Excerpt | None:
    """Returns what makes excerpts of a list, or of a text that says what was asked or tells of errors.

    Lines of `asking` ask for something: those that are in the text, as above a pasted log, stay first.
    """
    return _EXCERPTS.get((text, asked, asking), lambda _: (_excerpt_of(text, asked, asking),))[0]


_EXCERPTS: BoundedCache[tuple[str, Words, str], tuple[Excerpt | None]] = BoundedCache(
    max_size=1_000_000, size=lambda key: 3 * len(key[0]) + 64
)


def _excerpt_of(text: str, asked: Words, asking: str) -> Excerpt | None:
    lines = [line for line in text.splitlines() if line.strip()]
    of_lines = len(lines) >= _FEWEST_LINES
    pieces, kind = _pieces_of(text, of_lines=of_lines, asked=asked)
    if len(pieces) < _FEWEST and not says_half(text, asked):
        return None  # one word of the question in it is no reason to lose its start and its end
    others = _others_question(asking, text) or asked
    asks = _places_of(asking, pieces)
    ranked, held = _ranked(pieces, asks, others, asked)
    first, last = _run(pieces, ranked[0][0]) if ranked[0] else (0, 0)
    if last - first > 1:
        pieces[first:last] = ["".join(pieces[first:last])]
        asks = _places_of(asking, pieces)
        ranked, held = _ranked(pieces, asks, others, asked)
    near, some, _ = ranked
    if not of_lines and not near and not some:
        return None
    return _maker(pieces, asks, ranked, held, asked, kind)


def _maker(
    pieces: list[str], asks: Sequence[int], ranked: Ranked, held: Sequence[Words], asked: Words, kind: str
) -> Excerpt:
    """Returns what makes excerpts: first of what asks, then of the records asked for, then of all else."""
    tree = exchanges_of(pieces) or tree_of(pieces)
    hits, beside = _named(pieces, tree, asks, held, ranked[0])
    told = _without(pieces, asks)
    order = [*hits, *by_importance(told, asked, ends_first=2, beside=beside, ranked=ranked)]
    changes = {i: added for i, added in _changes(pieces).items() if i not in asks}
    order = [*chain.from_iterable([i, changes.get(i, i)][::-1] for i in order), *asks]
    # Without what says whose it is, a line would be read as another record's.
    order = [*chain.from_iterable([*reversed([*above(tree.owners, i)]), i] for i in [*asks, *order])]
    owned = {i: {own} for i, own in enumerate(tree.owners) if own != NONE and i not in asks}
    for removed, added in changes.items():
        owned.setdefault(removed, set()).add(added)
    named = dict.fromkeys([*asks, *hits, *ranked[0]], asked)
    best = [*hits, *ranked[0]][:1]
    return partial(_pick, pieces, list(dict.fromkeys(order)), named, best, owned, kind=kind)


def _named(
    pieces: Sequence[str], tree: Tree, asks: Sequence[int], held: Sequence[Words], near: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Returns the records asked for, first lines that say something new; and what is around `near` lines."""
    holders: dict[str, list[int]] = {}
    for i, words in enumerate(held):
        is_question = i in asks and is_asked(pieces[i])
        for word in () if is_question else sorted(set(map(stem, words))):  # "decided" and its stem are one
            holders.setdefault(word, []).append(i)
    named, record_at = Named(tree.parents, holders), records_of(pieces, tree)
    hits, inside, beside = list[int](), list[int](), list[int]()
    for record in named.records:
        told, is_inside = named.over(record[0]), tree.parents[record[0]] != NONE
        for i in record if is_inside else ():
            if i == record[0] or named.own[i] & ~told:
                hits += [j for j in reversed(list(above(tree.parents, i))) if len(pieces[j]) <= _SHORT_ABOVE]
                hits.append(i)
                told |= named.own[i]
        found = [*named.around(record[0]), *record, *record_at(record[0])]
        (inside if is_inside else beside).extend(found)
    return list(dict.fromkeys([*hits, *inside])), [*beside, *chain.from_iterable(map(record_at, near))]


def _ranked(
    pieces: Sequence[str], asks: Sequence[int], others: Words, asked: Words
) -> tuple[Ranked, list[Words]]:
    """Returns what `ranked_by_words` says of a text, first for what others ask than the text itself.

    And which words of that each piece has.
    """
    told = _without(pieces, asks)
    held = words_in_each(told if others == asked else pieces, others)
    first = ranked_by_held(held)
    second = first if others == asked else ranked_by_words(told, asked)
    near, some, telling = (list(dict.fromkeys([*a, *b])) for a, b in zip(first, second, strict=True))
    return (near, [i for i in some if i not in near], telling), held


def _others_question(asking: str, text: str) -> Words:
    """Returns the words of the lines of `asking` that are not of the text itself."""
    lines = {line.strip() for line in text.splitlines()} if asking else set()
    asked = [line.strip() for line in asking.splitlines()]
    others = [line for line in asked if line not in lines and not (" " in line and line in text)]
    return words_of("\n".join(others))


def _changes(pieces: Sequence[str]) -> dict[int, int]:
    """Returns for each line that a diff removes the one that it adds instead."""
    is_diff = any(piece.startswith("@@ ") for piece in pieces)
    signs = "".join(piece[:1] or " " for piece in pieces) if is_diff else ""
    return {
        i: min(i + len(found[1]), found.end() - 1)
        for found in re.finditer(r"(-+)\++", signs)
        for i in range(*found.span(1))
    }


def _without(pieces: Sequence[str], asks: Sequence[int]) -> list[str]:
    """Returns the pieces without those that ask, which do not answer."""
    return ["" if i in asks else piece for i, piece in enumerate(pieces)]


def _run(pieces: Sequence[str], at: int) -> tuple[int, int]:
    """Returns where a piece starts and stops with neighbours that only a bound parts: a fact may cross it."""
    first, last = at, at + 1
    if at and not stops(pieces[at - 1]):
        first -= 1
    if last < len(pieces) and not stops(pieces[at]):
        last += 1
    return first, last


def _pieces_of(text: str, *, of_lines: bool, asked: Words) -> tuple[list[str], str]:
    """Returns the lines of a text, or its sentences where that is no list of lines, and what they are."""
    lines = partial(str.splitlines, keepends=True)
    pieces = with_rows(text, lines) if of_lines else list(split_sentences(text)) if asked else []
    parts = [
        part for piece in pieces for part in (split_sentences(piece) if len(piece) > LONGEST else (piece,))
    ]
    return parts, "line" if of_lines and len(pieces) == len(parts) else "part"


def _places_of(asking: str, pieces: Sequence[str]) -> list[int]:
    """Returns where the lines of `asking` are among the pieces, each once."""
    lines = {line.strip() for line in asking.splitlines()} - {""}
    found: dict[str, int] = {}
    for i, piece in enumerate(pieces if lines else ()):
        if (line := piece.strip()) in lines:
            found.setdefault(line, i)
    return list(found.values())


def _pick(
    pieces: list[str],
    order: list[int],
    named: Mapping[int, Words],
    best: list[int],
    owned: Mapping[int, set[int]],
    target: int,
    *,
    kind: str,
) -> str:
    """Returns whole pieces in about `target` characters; the `best` is alone without room for markers."""
    for i in best:
        marks = _MARKER * (2 - (i in (0, len(pieces) - 1)))
        if len(pieces[i]) + marks > target:
            return _alone(pieces, i, named[i], target, kind)
    longest = max(target // _LONGEST_SHARE, _SHORT)
    room = target
    kept: dict[int, str] = {}
    for i in order:
        if not owned.get(i, set()) <= kept.keys():
            continue
        piece = pieces[i]
        # A piece among dropped ones also costs a marker; neighbours share one.
        beside = i - 1 in kept or i + 1 in kept or i in (0, len(pieces) - 1)
        free = room - (0 if beside else _MARKER)
        most = free if i in named else longest
        if len(piece) > most and (kind == "line" or i in best):  # half a sentence may say what is false
            piece = _shortened(piece, named.get(i, frozenset()), most, kind)
        if 0 < len(piece) <= free:
            kept[i] = piece
            room -= len(piece) + room - free
    return _joined(pieces, kept, kind) if kept else ""


def _joined(pieces: Sequence[str], kept: Mapping[int, str], kind: str) -> str:
    """Returns the kept pieces with a counted marker in each gap."""
    out, last = [""], -1
    for i in [*sorted(kept), len(pieces)]:
        gap = pieces[last + 1 : i]
        if not "".join(gap).strip():
            out += gap  # blank lines cost less than a marker
        elif gap:
            out[-1] = out[-1].rstrip()
            out.append(f"\n[... {counted(len(gap), kind)} ...]\n")
        out.append(kept.get(i, ""))
        last = i
    return "".join(out).strip("\n")


def _alone(pieces: Sequence[str], at: int, asked: Words, target: int, kind: str) -> str:
    """Returns one piece, cut around the words asked for where it must be; short marks replace the others.

    The start of the text stays where it has room.
    """
    gap = "\n...\n" if pieces[0].endswith("\n") else _GAP  # a line is not joined to another one
    before, behind = "" if at == 0 else gap, "" if at == len(pieces) - 1 else gap
    piece, most = pieces[at].strip(), target - len(before) - len(behind)
    answer = next(filter(str.strip, pieces[at + 1 :]), "").strip() if is_asked(piece) else ""
    if answer and len(piece) + 1 + len(answer) <= most:
        piece = f"{piece}\n{answer}"
    elif len(piece) > most:
        piece = _shortened(piece, asked, most, kind)
        before = "" if piece.startswith(_GAP) else before
        behind = "" if piece.endswith(_GAP.rstrip()) else behind
    elif before and len(start := pieces[0].strip()) + len(piece) <= most:
        before = f"{start}{gap if at > 1 else gap[0]}"
    return f"{before}{piece}{behind}".strip() if piece else ""


def _shortened(line: str, asked: Words, most: int, kind: str) -> str:
    """Returns what is around the words asked for in a piece of a text, else its start, in `most` characters.

    One of several lines keeps its start, too, which says whose it is.
    """
    body = line.rstrip()
    if places := _places(body, asked):
        shown = _shown(places, most, len(body), head=_NARROW if kind == "line" else 0)
    else:
        first = max(0, most - len(_GAP))
        shown = [[0, last_end(body, first, first // 2) or first]]
    parts = [body[_beside(body, first, 1) : _end(body, last)].strip() for first, last in shown]
    if not any(parts):
        return ""
    before = line[: len(line) - len(line.lstrip())] if parts[0] and not shown[0][0] else _GAP
    behind = "" if shown[-1][1] >= len(body) else _GAP.rstrip()
    return f"{before}{_GAP.join(filter(None, parts))}{behind}{line[len(body) :]}"


def _shown(starts: Sequence[int], most: int, size: int, head: int) -> list[list[int]]:
    """Returns which parts of so many characters are shown: a `head` at most, and around the `starts`."""
    head = min(head, most // 3) if starts[0] else 0
    most -= head
    starts = starts if most >= len(starts) * _NARROW else starts[:1]
    share, shown = 0, list[list[int]]()
    for _ in range(_ROUNDS):  # windows that meet become one, which leaves room to widen all
        used = sum([last - first for first, last in shown])
        share += (most - (len(shown or starts) + 1) * len(_GAP) - used) // len(shown or starts)
        shown = _windows(starts, share, size) if share > 0 else []
    if not shown or not head:
        return shown
    return [[0, head], *shown] if shown[0][0] > head else [[0, shown[0][1]], *shown[1:]]


def _windows(starts: Sequence[int], share: int, size: int) -> list[list[int]]:
    """Returns where `share` characters around each start are; those that meet are one."""
    shown: list[list[int]] = []
    for start in starts:
        first = max(0, min(start - share // 4, size - share))  # what is said of a word is mostly behind it
        if not shown or first > shown[-1][1]:
            shown.append([first, 0])
        shown[-1][1] = min(first + share, size)
    return shown


def _places(body: str, asked: Words) -> list[int]:
    """Returns where each of the words asked for starts, of each the place nearest to the rarest of them."""
    found: dict[str, list[int]] = {}
    for start, word in _candidates(body, asked) if asked else ():
        said = raw_words(word)
        for name in asked.intersection([*said, *map(stem, said)]):
            found.setdefault(name, []).append(start)
    rarest = min(found.values(), key=lambda places: (len(places), places), default=[0])[0]
    return sorted({min(places, key=lambda place: abs(place - rarest)) for places in found.values()})


def _candidates(body: str, asked: Words) -> Iterator[tuple[int, str]]:
    """Yields the words of a text that may be among those asked for, and where each starts."""
    starts = sorted({word[:_PREFIX] for word in asked if word.isalnum()})
    is_plain = body.isascii() and starts
    any_of = rf"(?<![a-z0-9])(?:{'|'.join(map(re.escape, starts))})[a-z0-9]*"
    for match in re.finditer(any_of, body, re.IGNORECASE) if is_plain else _WORD.finditer(body):
        yield match.start(), match[0]


def _end(body: str, at: int) -> int:
    """Returns a position between words by `at`, not behind an abbreviation, whose dot looks like an end."""
    at = _beside(body, at, 0)
    while at < len(body):
        kept = body[:at].rstrip()
        is_before_dot = body[at] == "." and len(kept) == at
        if not is_before_dot and (not kept.endswith(".") or last_end(body, at, len(kept) - 1)):
            break
        at = max(kept.rfind(sign) for sign in " \t\n") + 1
    return at


def _beside(body: str, at: int, edge: int) -> int:
    """Returns a position, or the edge of the word that it is in."""
    begin = max(body.rfind(sign, 0, at) for sign in " \t\n") + 1
    for match in _WORD.finditer(body, begin):
        if match.start() >= at:
            break
        if at < match.end():
            return match.span()[edge]
    return at
