"""Excerpts of a text: whole lines or sentences with counted gaps, and the records that a question names."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from ..relevance.corpus import BoundedCache
from ..relevance.long_lines import LONGEST
from ..relevance.records import records_of
from ..relevance.sentences import split_sentences
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
_LONGEST_SHARE = 4
_MARKER = 24


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
    if not is_list and not any(ranked_by_words(pieces, asked)) and not (of_lines and any(troubles(pieces))):
        return None
    order = by_importance(pieces, asked, ends_first=2, record=records_of(pieces))
    return partial(_pick, pieces, order, kind="lines" if of_lines and len(pieces) == count else "parts")


def _pick(pieces: list[str], order: list[int], target: int, *, kind: str) -> str:
    """Returns whole pieces in about `target` characters, with a counted marker in each gap."""
    longest = max(target // _LONGEST_SHARE, 80)
    room = target
    kept: dict[int, str] = {}
    for i in order:
        piece = pieces[i]
        if len(piece) > longest and kind == "lines":  # half a sentence may say what is false
            piece = f"{piece[: longest * 2 // 3]} ... {piece[-(longest // 4) :]}"
        # A piece among dropped ones also costs a marker; neighbours share one.
        beside = i - 1 in kept or i + 1 in kept or i in (0, len(pieces) - 1)
        cost = len(piece) + (0 if beside else _MARKER)
        if cost <= room:
            kept[i] = piece
            room -= cost
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
