"""Logs, search results and tables made shorter by whole lines: ends and errors stay."""

from __future__ import annotations

import re

__all__ = ["looks_structured", "pick_lines"]

_LOG = re.compile(
    r"\W{0,3}(?:\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|[A-Z][a-z]{2} +\d"
    r"|\[?(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL|TRACE)\b|\d+\.\d+\.\d+\.\d+)"
)
_HIT = re.compile(r"\s*(?:[\w./\\-]+:\d+[:-]|https?://|\d+[.)] |[-*•] |#{1,6} |[-dl][rwx-]{9}|[+-]{1,3} ?)")
_CELLS = re.compile(r"[^|\t]*[|\t].*[|\t]|[^,]+(?:,[^,]*){2,}$")
_TROUBLE = re.compile(
    r"\b(?:error|fail(?:ed|ure)?|exception|traceback|fatal|critical|panic|denied|timed? ?out)\b|^\s+File \"",
    re.IGNORECASE,
)
_FEWEST_LINES = 6
_STRUCTURED_SHARE = 0.5
_LONGEST_SHARE = 4
_MARKER = 24


def looks_structured(text: str) -> bool:
    """Returns whether most lines of `text` look like a log, a result list or a table."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < _FEWEST_LINES:
        return False
    alike = sum(bool(_LOG.match(line) or _HIT.match(line) or _CELLS.match(line)) for line in lines)
    return alike >= _STRUCTURED_SHARE * len(lines)


def pick_lines(text: str, target: int) -> str:
    """Returns whole lines of `text` in about `target` characters, with a counted marker in each gap."""
    lines = text.splitlines()
    longest = max(target // _LONGEST_SHARE, 80)
    room = target
    kept: dict[int, str] = {}
    for i in _importance(lines):
        line = lines[i]
        if len(line) > longest:
            line = f"{line[: longest * 2 // 3]} ... {line[-(longest // 4) :]}"
        # A line among dropped ones also costs a marker; neighbours share one.
        beside = i - 1 in kept or i + 1 in kept or i in (0, len(lines) - 1)
        cost = len(line) + 1 + (0 if beside else _MARKER)
        if cost <= room:
            kept[i] = line
            room -= cost
    return _joined(kept, len(lines))


def _importance(lines: list[str]) -> list[int]:
    """Returns positions, most worth keeping first: the ends, errors, then towards the middle."""
    trouble = [i for i, line in enumerate(lines) if _TROUBLE.search(line)]
    if len(trouble) * 2 > len(lines):
        trouble = []  # where most lines mention an error, none of them is special
    ends = [i for pair in zip(range(len(lines)), reversed(range(len(lines))), strict=True) for i in pair]
    return list(dict.fromkeys([*ends[:2], *trouble, *ends]))


def _joined(kept: dict[int, str], count: int) -> str:
    out: list[str] = []
    last = -1
    for i in [*sorted(kept), count]:
        if i - last > 1:
            out.append(f"[... {i - last - 1} lines ...]")
        if i < count:
            out.append(kept[i])
        last = i
    return "\n".join(out)
