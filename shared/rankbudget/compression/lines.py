"""Logs, search results and tables made shorter by whole lines: what repeats goes, errors and rare lines stay, gaps are counted."""

from __future__ import annotations

import re
from collections import Counter

__all__ = ["looks_structured", "pick_lines"]

_LOG = re.compile(
    r"^\W{0,3}(?:\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|[A-Z][a-z]{2} +\d"
    r"|\[?(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL|TRACE)\b|\d+\.\d+\.\d+\.\d+)"
)
_HIT = re.compile(r"^\s*(?:[\w./\\-]+:\d+[:-]|https?://|\d+[.)] |[-*•] |#{1,6} |[-dl][rwx-]{9}|[+-]{1,3} ?)")
_CELLS = re.compile(r"^[^|\t]*[|\t].*[|\t]|^[^,]+(?:,[^,]*){2,}$")
_TROUBLE = re.compile(
    r"\b(?:error|fail(?:ed|ure)?|exception|traceback|fatal|critical|panic|denied|timed? ?out)\b|^\s+File \"",
    re.IGNORECASE,
)
_VARIABLE = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8,}|\d+", re.IGNORECASE)
_FEWEST_LINES = 6
_STRUCTURED_SHARE = 0.5
_LONGEST_SHARE = 4


def looks_structured(text: str) -> bool:
    r"""Returns whether most lines of `text` look like a log, a result list or a table.

    Example:
        >>> looks_structured("\n".join(f"2026-01-0{i} INFO ready" for i in range(1, 9)))
        True
        >>> looks_structured("A story. It has one line.")
        False
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < _FEWEST_LINES:
        return False
    alike = sum(bool(_LOG.match(line) or _HIT.match(line) or _CELLS.match(line)) for line in lines)
    return alike >= _STRUCTURED_SHARE * len(lines)


def pick_lines(text: str, target: int) -> str:
    """Returns whole lines of `text` in about `target` characters, in order, with a counted marker in each gap."""
    lines = text.splitlines()
    longest = max(target // _LONGEST_SHARE, 80)
    shapes = [_VARIABLE.sub("#", line.strip()) for line in lines]
    room = target
    kept: dict[int, str] = {}
    for i in _importance(lines, shapes):
        line = (
            lines[i]
            if len(lines[i]) <= longest
            else f"{lines[i][: longest * 2 // 3]} ... {lines[i][-(longest // 4) :]}"
        )
        # A line of its own among dropped ones also costs a marker; neighbours share one.
        cost = len(line) + 1 + (0 if i - 1 in kept or i + 1 in kept or i in (0, len(lines) - 1) else 24)
        if cost <= room:
            kept[i] = line
            room -= cost
    return _joined(kept, len(lines))


def _importance(lines: list[str], shapes: list[str]) -> list[int]:
    count = len(lines)
    frequency = Counter(shapes)
    filled = [i for i, line in enumerate(lines) if line.strip()]
    trouble = [i for i in filled if _TROUBLE.search(lines[i])]
    if len(trouble) * 2 > len(filled):
        trouble = []
    # Of lines that differ only in numbers, the first stands for all until everything else is in.
    first_of_shape = sorted({shapes[i]: i for i in reversed(filled)}.values())
    rare = (
        [i for i in first_of_shape if frequency[shapes[i]] == 1] if len(frequency) * 3 <= len(filled) else []
    )
    ends = [i for pair in zip(range(count), reversed(range(count)), strict=True) for i in pair]
    shapely = set(first_of_shape)
    first = [i for i in ends if i in shapely]
    return list(dict.fromkeys([*ends[:2], *trouble, *rare, *first, *ends]))


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
