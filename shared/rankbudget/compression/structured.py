"""Shorter tool output of the same form: JSON stays JSON, logs and result lists keep whole lines.

What an agent needs from old tool output is ids and errors, so those stay; each gap is counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ..counting.protocol import TokenCounter
from .json_shrink import dump, parse, shrink, shrink_lines
from .lines import looks_structured, pick_lines
from .truncate import cut_from

__all__ = ["compress_structured"]

_OUTSIDE_STRINGS = re.compile(r'("(?:[^"\\]|\\.)*")|\s+')
_ATTEMPTS = 6
_FULL = 0.9
_SHORT = 64


def compress_structured(text: str, max_tokens: int, counter: TokenCounter) -> str:
    """Returns `text` in at most `max_tokens`, by structure; `text` itself when it fits, "" when nothing does.

    JSON (also one value a line) first loses white space; then middle items of arrays, replaced by a marker
    that counts them, and the middles of long strings. Ids, numbers and errors stay longest. Logs,
    search results and tables keep their first and last lines and errors. Everything else keeps its start and
    its end.
    """
    if max_tokens <= 0 or not text:
        return ""
    start = counter.truncate(text, max_tokens)
    if len(start) == len(text):
        return text
    for compress in (_as_json, _as_json_lines, _as_lines):
        shorter = compress(text, len(start), max_tokens, counter)
        if shorter is not None:
            return shorter
    return cut_from(text, start, max_tokens, counter, keep="both")


def _as_json(text: str, size: int, max_tokens: int, counter: TokenCounter) -> str | None:
    value = parse(text)
    if value is None:
        return None
    dense = _OUTSIDE_STRINGS.sub(lambda m: m.group(1) or "", text)
    # The dense form is counted only where it could fit.
    if len(dense) <= 2 * size + _SHORT and counter.count(dense) <= max_tokens:
        return dense
    found = _longest(lambda target: dump(shrink(value, target)), size, max_tokens, counter)
    return found or _if_it_fits("[]" if isinstance(value, list) else "{}", max_tokens, counter)


def _as_json_lines(text: str, size: int, max_tokens: int, counter: TokenCounter) -> str | None:
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) <= 1 or parse(lines[0]) is None:
        return None
    values = [parse(line) for line in lines]
    if None in values:
        return None
    found = _longest(lambda target: shrink_lines(values, target), size, max_tokens, counter)
    return found or _if_it_fits("{}", max_tokens, counter)


def _as_lines(text: str, size: int, max_tokens: int, counter: TokenCounter) -> str | None:
    if not looks_structured(text):
        return None
    return _longest(lambda target: pick_lines(text, target), size, max_tokens, counter) or None


def _if_it_fits(text: str, max_tokens: int, counter: TokenCounter) -> str:
    return text if counter.count(text) <= max_tokens else ""


def _longest(make: Callable[[int], str], size: int, max_tokens: int, counter: TokenCounter) -> str:
    """Returns the longest form found that fits; characters are estimated from earlier attempts."""
    target, best, most = size, "", 0
    for _ in range(_ATTEMPTS):
        try:
            made = make(target)
        except RecursionError:  # nested deeper than Python's stack
            break
        used = max(counter.count(made), 1)
        if most < used <= max_tokens:
            best, most = made, used
        if used <= max_tokens and (used >= _FULL * max_tokens or target > 2 * size):
            break
        # Markers and ids do not shrink with the target, so the estimate aims a little under the limit.
        guess = int(target * max_tokens * 0.97 / used)
        if guess <= 0 or guess == target:
            break
        target = guess
    return best
