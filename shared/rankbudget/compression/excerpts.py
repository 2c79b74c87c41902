"""Excerpts of a text: whole lines or sentences with counted gaps, and the records that a question names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ..errors import counted
from ..relevance.corpus import BoundedCache
from ..relevance.long_lines import LONGEST
from ..relevance.records import records_of
from ..relevance.sentences import split_sentences
from ..relevance.words import raw_words, stem
from .importance import Words, by_importance, ranked_by_words, troubles

Excerpt = Callable[[int], str]
"""Makes an excerpt in about so many characters."""

_ONE_OF_MANY = re.compile(
    r"\W{0,3}(?:\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|[A-Z][a-z]{2} +\d"  # a log
    r"|\[?(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL|TRACE)\b|\d+\.\d+\.\d+\.\d+)"
    r"|\s*(?:[\w./\\-]+:\d+[:-]|https?://|\d+[.)] |[-*•] |#{1,6} |[-dl][rwx-]{9}|[+-]{1,3} ?)"  # results
    r"|[^|\t]*[|\t].*[|\t]|[^,]+(?:,[^,]*){2,}$"  # a table
)
_FEWEST_LINES, _FEWEST = 6, 3
_LONGEST_SHARE, _SHORT = 4, 80
_MARKER, _GAP = 24, " ... "
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
    pieces = text.splitlines(keepends=True) if of_lines else list(split_sentences(text)) if asked else []
    count = len(pieces)
    pieces = [
        part for piece in pieces for part in (split_sentences(piece) if len(piece) > LONGEST else (piece,))
    ]
    is_list = of_lines and sum(map(bool, map(_ONE_OF_MANY.match, lines))) >= len(lines) / 2
    if len(pieces) < _FEWEST:
        return None
    asks = _places_of(asking, pieces)
    told = ["" if i in asks else piece for i, piece in enumerate(pieces)]  # what asks does not answer
    near, others, _ = ranked_by_words(told, asked)
    if not is_list and not near and not others and not (of_lines and any(troubles(pieces))):
        return None
    order = [*asks, *by_importance(told, asked, ends_first=2, record=records_of(pieces))]
    kind = "line" if of_lines and len(pieces) == count else "part"
    return partial(_pick, pieces, list(dict.fromkeys(order)), dict.fromkeys([*asks, *near], asked), kind=kind)


def _places_of(asking: str, pieces: Sequence[str]) -> list[int]:
    """Returns where the lines of `asking` are among the pieces, each once."""
    lines = {line.strip() for line in asking.splitlines()} - {""}
    found: dict[str, int] = {}
    for i, piece in enumerate(pieces if lines else ()):
        if (line := piece.strip()) in lines:
            found.setdefault(line, i)
    return list(found.values())


def _pick(pieces: list[str], order: list[int], named: Mapping[int, Words], target: int, *, kind: str) -> str:
    """Returns whole pieces in about `target` characters, with a counted marker in each gap."""
    longest = max(target // _LONGEST_SHARE, _SHORT)
    room = target
    kept: dict[int, str] = {}
    for i in order:
        piece = pieces[i]
        # A piece among dropped ones also costs a marker; neighbours share one.
        beside = i - 1 in kept or i + 1 in kept or i in (0, len(pieces) - 1)
        free = room - (0 if beside else _MARKER)
        most = free if i in named else longest
        if len(piece) > most and kind == "line":  # half a sentence may say what is false
            piece = _shortened(piece, named.get(i, frozenset()), most)
        if len(piece) <= free and piece:
            kept[i] = piece
            room -= len(piece) + room - free
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


def _shortened(line: str, asked: Words, most: int) -> str:
    """Returns what is around the words asked for in a line, else its start and end, in `most` characters."""
    body = line.rstrip("\r\n")
    words = [match.span() for match in _WORD.finditer(body)]
    starts = _first_places(body, words, asked) or [0, len(body)]
    share = (most - (len(starts) + 1) * len(_GAP)) // len(starts)
    shown: list[list[int]] = []
    for start in starts if share > 0 else ():
        first = max(
            0, min(start - share // 4, len(body) - share)
        )  # what is said of a word is mostly behind it
        if not shown or first > shown[-1][1]:
            shown.append([first, 0])
        shown[-1][1] = first + share
    parts = [body[_beside(words, first, 1) : _beside(words, last, 0)].strip() for first, last in shown]
    if not any(parts):
        return ""
    before, behind = "" if shown[0][0] == 0 else _GAP, "" if shown[-1][1] >= len(body) else _GAP
    return f"{before}{_GAP.join(filter(None, parts))}{behind}{line[len(body) :]}"


def _first_places(body: str, words: Sequence[tuple[int, int]], asked: Words) -> list[int]:
    """Returns where each of the words asked for starts first."""
    found: dict[str, int] = {}
    for start, stop in words if asked else ():
        said = raw_words(body[start:stop])
        for name in asked.intersection([*said, *map(stem, said)]):
            found.setdefault(name, start)
    return sorted(set(found.values()))


def _beside(words: Sequence[tuple[int, int]], at: int, edge: int) -> int:
    """Returns a position, or the edge of the word that it is in."""
    return next((word[edge] for word in words if word[0] < at < word[1]), at)
