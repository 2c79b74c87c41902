"""Excerpts of a text: whole lines or sentences with counted gaps, and the records that a question names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

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
"""Of a line longer than a quarter of the room and 80 characters the middle goes, unless it was asked for."""
_MARKER, _GAP = 24, " ... "
_WORD = re.compile(r"[-+$€£]?\w+(?:[.:/@'’+-]+\w+|(?<=\d),\d+|%)*")
"""A word, number, date, address or path: half of one would be read as another."""


def excerpt_of(text: str, asked: Words) -> Excerpt | None:
    """Returns what makes excerpts of a list, or of a text that says what was asked or tells of errors."""
    return _EXCERPTS.get((text, asked), lambda _: (_excerpt_of(text, asked),))[0]


_EXCERPTS: BoundedCache[tuple[str, Words], tuple[Excerpt | None]] = BoundedCache(
    max_size=1_000_000, size=lambda key: 3 * len(key[0]) + 64
)


def _excerpt_of(text: str, asked: Words) -> Excerpt | None:
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
    near, others = ranked_by_words(pieces, asked)
    if not is_list and not near and not others and not (of_lines and any(troubles(pieces))):
        return None
    order = by_importance(pieces, asked, ends_first=2, record=records_of(pieces))
    kind = "lines" if of_lines and len(pieces) == count else "parts"
    return partial(_pick, pieces, order, dict.fromkeys(near, asked), kind=kind)


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
        if len(piece) > most and kind == "lines":  # half a sentence may say what is false
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
            out.append(f"\n[... {len(gap)} {kind} ...]\n")
        out.append(kept.get(i, ""))
        last = i
    return "".join(out).strip("\n")


def _asked_at(words: Sequence[re.Match[str]], asked: Words) -> list[int]:
    """Returns where the words asked for first stand in a line."""
    found: dict[str, int] = {}
    for word in words if asked else ():
        said = raw_words(word.group())
        for name in sorted(asked.intersection([*said, *map(stem, said)])):
            found.setdefault(name, word.start())
    return sorted(set(found.values()))


def _shortened(line: str, asked: Words, most: int) -> str:
    """Returns what is around the words asked for in a line, else its start and end, in `most` characters."""
    body, words = line.rstrip("\r\n"), [*_WORD.finditer(line)]
    starts = _asked_at(words, asked) or [0, len(body)]
    share = (most - (len(starts) + 1) * len(_GAP)) // len(starts)
    shown: list[tuple[int, int]] = []
    for start in starts if share > 0 else ():
        first = max(
            0, min(start - share // 4, len(body) - share)
        )  # what is said of a word is mostly behind it
        again = shown.pop() if shown and first <= shown[-1][1] else (first, first)
        shown.append((again[0], min(len(body), first + share)))
    out, end = "", 0
    for first, last in shown:
        inside = [edge for word in words if word.start() < first < word.end() for edge in [word.end()]]
        across = [word.start() for word in words if word.start() < last < word.end()]
        part = body[(inside or [first])[0] : (across or [last])[0]]
        out += (_GAP if first > end else "") + part.strip() if part.strip() else ""
        end = last
    return f"{out}{_GAP if end < len(body) else ''}{line[len(body) :]}" if out else ""
