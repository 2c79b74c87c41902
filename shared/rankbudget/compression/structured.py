"""Shorter tool output that is still what it was: JSON stays JSON, a log stays a log, a result list stays a result list.

What an agent needs from stale tool output is ids, errors and whatever differs from the rest, so those stay; equal neighbours go first and
each gap says how much is missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ..counting.protocol import TokenCounter
from .cut import cut_from
from .json_shrink import dump, parse, shrink, shrink_lines
from .lines import looks_structured, pick_lines

__all__ = ["compress_structured"]

_OUTSIDE_STRINGS = re.compile(r'("(?:[^"\\]|\\.)*")|\s+')
_ATTEMPTS = 6
_FULL = 0.9
_SHORT = 64


def compress_structured(text: str, max_tokens: int, counter: TokenCounter) -> str:
    """Returns `text` in at most `max_tokens`, by structure: JSON stays parseable, logs and result lists lose what repeats.

    JSON objects and arrays (also one per line) first lose white space, which loses nothing; then middle items of arrays, replaced by a
    marker that counts them, and the middles of long strings. Ids, numbers, errors and outliers stay longest. Logs, search results and
    tables keep their first and last lines, errors and rare lines. Everything else keeps its start and its end.

    Args:
        text: tool output.
        max_tokens: the bound on the result.
        counter: counts.

    Returns:
        `text` itself when it fits; "" when nothing fits.

    Example:
        >>> from rankbudget.testing.fakes import WordCounter
        >>> compress_structured('[1, 2, 3]', 1, WordCounter())
        '[1,2,3]'
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
    if not isinstance(value, (dict, list)):
        return None
    dense = _OUTSIDE_STRINGS.sub(lambda m: m.group(1) or "", text)
    # White space alone can be the surplus; the dense form is counted only where it could fit.
    if len(dense) <= 2 * size + _SHORT and counter.count(dense) <= max_tokens:
        return dense
    return _search(
        lambda target: dump(shrink(value, target)),
        size,
        max_tokens,
        counter,
        floor="[]" if isinstance(value, list) else "{}",
    )


def _as_json_lines(text: str, size: int, max_tokens: int, counter: TokenCounter) -> str | None:
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) <= 1 or lines[0].lstrip()[:1] not in ("{", "["):
        return None
    values = [parse(line) for line in lines]
    if not all(isinstance(value, (dict, list)) for value in values):
        return None
    return _search(lambda target: shrink_lines(values, target), size, max_tokens, counter, floor="{}")


def _as_lines(text: str, size: int, max_tokens: int, counter: TokenCounter) -> str | None:
    if not looks_structured(text):
        return None
    return _search(lambda target: pick_lines(text, target), size, max_tokens, counter, floor=None)


def _search(
    make: Callable[[int], str], size: int, max_tokens: int, counter: TokenCounter, *, floor: str | None
) -> str | None:
    """Returns the longest form found that fits; characters are guessed from the characters the limit held so far, then corrected."""
    target, best, most = size, "", 0
    for _ in range(_ATTEMPTS):
        try:
            made = make(target)
        except RecursionError:  # nested deeper than Python counts
            break
        used = max(counter.count(made), 1)
        if most < used <= max_tokens:
            best, most = made, used
        if _FULL * max_tokens <= used <= max_tokens or (used <= max_tokens and target > 2 * size):
            break
        # Aims a little under the limit; what does not shrink or grow with the target (markers, ids) takes another round.
        guess = int(target * max_tokens * 0.97 / used)
        if guess <= 0 or guess == target:
            break
        target = guess
    if best:
        return best
    if floor is None:
        return None
    return floor if counter.count(floor) <= max_tokens else ""
