"""Lines that tell of errors, and in stack traces the lines that name the exception."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_TROUBLE = re.compile(
    r"\b(?:errors?|fail(?:ed|ure)?|exception|traceback|fatal|critical|panic(?:ked)?|denied|timed? ?out"
    r"|invalid|caused by)\b|\w(?-i:Error|Exception)\b|\berr!|segmentation fault|core dumped|out of memory"
    r"|^e {3,}\S",
    re.IGNORECASE,
)
_SIGNS = (
    *("err", "fail", "exception", "traceback", "fatal", "critical", "panic", "denied", "time", "invalid"),
    *("caused by", "segmentation fault", "core dumped", "out of memory", "e   "),
)
"""One of these is in each ASCII text that tells of an error; the pattern alone takes fifty times as long."""
_FRAME = re.compile(
    r"\s+(?:at|from|in|File) \S|\s*#\d+\s|\s+\d+: \S|\s+\S+\.\w+:\d+|\s*\.\.\. \d+ (?:more|frames)"
    r"|[\w$./*-]{1,200}\([^()\n]*\)\s*$|created by "
)
"""A line of a stack trace in Python, Java, C#, JavaScript, Go, Rust, Ruby, PHP or of a debugger."""
_TRACEBACK = re.compile(r"\s*Traceback \(most recent call last\)")
_FEWEST, _BEFORE = 2, 4
"""Frames of a trace at least, and lines before them among which the exception is."""


def tells_trouble(text: str) -> bool:
    """Returns whether a text tells of an error."""
    if text.isascii() and not any(map(text.lower().__contains__, _SIGNS)):
        return False
    return bool(_TROUBLE.search(text))


def traces_in(lines: Sequence[str]) -> Iterator[tuple[list[int], range]]:
    """Yields of each stack trace the lines that name the exception, and its frames with their code."""
    start: int | None = None
    count = 0
    for i in range(len(lines) + 1):
        is_frame = i < len(lines) and bool(_FRAME.match(lines[i]))
        if is_frame or (start is not None and i < len(lines) and lines[i][:1].isspace() and lines[i].strip()):
            start = i if start is None else start
            count += is_frame
            continue
        if start is not None and count >= _FEWEST:
            yield _exception_of(lines, start, i), range(start, i)
        start, count = None, 0


def _exception_of(lines: Sequence[str], start: int, stop: int) -> list[int]:
    """Returns the lines of the exception: behind the frames in Python, before them elsewhere."""
    if start and _TRACEBACK.search(lines[start - 1]):
        return [stop] if stop < len(lines) else []
    before = range(max(0, start - _BEFORE), start)
    told = [i for i in before if tells_trouble(lines[i]) and not _FRAME.match(lines[i])]
    opened = [i + 1 for i in told if lines[i].rstrip().endswith(":") and i + 1 < start]
    return sorted({*told, *opened}) or [i for i in before if lines[i].strip()][-1:]
