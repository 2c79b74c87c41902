r"""Counts texts with giant runs of whitespace, on which tiktoken panics (a BaseException that stops a server).

Splitting a text into pieces before merging is what fails: the pattern backtracks over the whole run. Merging does not. Which pieces a run of
whitespace becomes is known from the pattern, whatever its length:

    o200k, cl100k   up to the last line break of the run; then the rest without its last character, which belongs to what follows
    cl100k          a run at the end of the text is one piece
    r50k, p50k      the run without its last character; all of it at the end of the text

So a run is counted as a short one of the same shape, plus what merging the long piece costs more than merging the short one. Line breaks right
after punctuation belong to the punctuation. Only o200k after a combining mark leaves that open: both readings are counted and the larger is
taken; they differ by a token or two.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal
from unicodedata import category

__all__ = ["LONG_RUN", "Shape", "shape_of", "shorten_runs"]

Shape = Literal["o200k", "cl100k", "r50k"]

LONG_RUN = 50_000
"""Characters of whitespace from which a run is counted by its shape; tiktoken 0.14 was seen to panic from 700,000 on."""
_KEPT = 16
_SPACE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"  # White_Space, as the patterns' \s reads it


def shape_of(encoding_name: str) -> Shape | None:
    """Returns how an encoding of tiktoken splits whitespace, None for an encoding of someone's own."""
    if encoding_name.startswith("o200k"):
        return "o200k"
    if encoding_name == "cl100k_base":
        return "cl100k"
    return "r50k" if encoding_name in {"p50k_base", "p50k_edit", "r50k_base", "gpt2"} else None


def shorten_runs(
    text: str, shape: Shape, merge: Callable[[str], int], *, longest: int = LONG_RUN, kept: int = _KEPT
) -> tuple[str, int]:
    """Returns the text with its long runs of whitespace shortened, and the tokens that this took away.

    Args:
        text: any text.
        shape: how the encoding splits whitespace.
        merge: tokens of one piece, without splitting it.
        longest: the shortest run that is shortened.
        kept: characters that stay of each piece; how many changes nothing.

    Example:
        >>> shorten_runs("a" + " " * 9 + "b", "o200k", lambda piece: len(piece), longest=5, kept=2)  # 8 spaces are a piece, the ninth is b's
        ('a   b', 6)
    """
    if not _has_blank_block(text, longest):
        return text, 0
    parts: list[str] = []
    removed = 0
    done = 0
    for run in _runs(longest).finditer(text):
        taken = _taken_by(text, run.start(), shape)
        for start, end, keep_last in _pieces(text, run.start(), run.end(), shape):
            lead = _leading_breaks(text, start, end) if taken != "no" and start == run.start() else start
            if end - lead <= 2 * kept:
                continue
            short = text[lead : lead + kept] + (text[end - 1] if keep_last else "")
            difference = merge(text[lead:end]) - merge(short)
            if lead > start and taken == "maybe":
                difference = max(difference, merge(text[start:end]) - merge(text[start:lead] + short))
            parts += (text[done:lead], short)
            removed += difference
            done = end
    parts.append(text[done:])
    return "".join(parts), removed


def _has_blank_block(text: str, longest: int) -> bool:
    """Returns whether a long run is possible: one covers a whole block of half its length. A megabyte of prose costs microseconds this way."""
    block = max(1, longest // 2)
    return any(text[start : start + block].isspace() for start in range(0, len(text) - block + 1, block))


_compiled: dict[int, re.Pattern[str]] = {}


def _runs(longest: int) -> re.Pattern[str]:
    """Returns the pattern of a long run; it is tried at the start of each run only, so that many runs cost no more than one."""
    if longest not in _compiled:
        _compiled[longest] = re.compile(f"(?<![{_SPACE}])[{_SPACE}]{{{longest},}}")
    return _compiled[longest]


def _pieces(text: str, start: int, end: int, shape: Shape) -> list[tuple[int, int, bool]]:
    """Returns the pieces a run surely becomes: start, end, and whether its last character decides its shape."""
    at_end = end == len(text)
    last = end if at_end else end - 1
    if shape == "r50k" or (shape == "cl100k" and at_end):
        return [(start, last, False)]
    broken = max(text.rfind("\n", start, end), text.rfind("\r", start, end)) + 1
    pieces = [(start, broken, True)] if broken > start else []
    if last > max(start, broken):
        pieces.append((max(start, broken), last, False))
    return pieces


def _taken_by(text: str, start: int, shape: Shape) -> Literal["no", "yes", "maybe"]:
    """Returns whether line breaks at the start of a run belong to what stands before it: to punctuation they do, to letters they do not."""
    if start == 0 or shape == "r50k":
        return "no"
    kind = category(text[start - 1])
    if kind[0] in "LN":
        return "no"
    return "maybe" if kind == "Cn" or (kind[0] == "M" and shape == "o200k") else "yes"


def _leading_breaks(text: str, start: int, end: int) -> int:
    """Returns where the line breaks at the start of a run end; they may belong to the punctuation before it."""
    while start < end and text[start] in "\r\n":
        start += 1
    return start
