"""Truncation by counting: the longest start or end of a text that fits, never half a grapheme."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any

import regex

from ..errors import BudgetConfigError, check_choice, shown
from .protocol import Side

_GRAPHEME = regex.compile(r"\X")
# Two neighbours of these kinds never share a grapheme: segmentation may start between them.
_PLAIN = (
    r"[\x20-\x7e\u00a1-\u00ac\u00c0-\u02ff\u0391-\u03c9\u0410-\u044f\u05d0-\u05ea\u0620-\u064a"
    r"\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff]"
)
_SYNC = regex.compile(rf"(?r){_PLAIN}(?={_PLAIN})")
_SYNC_WITHIN = 2_000
_JOINT = regex.compile(r"(?<=\n)(?=[^\s/])|(?<=\S)(?= [A-Za-z])")
_JOINT_WITHIN = 400
_WIDEST = 512
"""Most characters of one token: a text with more for each of its tokens is not counted whole."""
_REACH = 48
"""How many characters past the first answer are searched for a longer one."""


def cut_text(
    text: str,
    max_tokens: int,
    count: Callable[[str], int],
    *,
    side: Side = "right",
    guess: int | None = None,
    joints: bool = False,
) -> str:
    r"""Returns the longest start ("right") or end ("left") of `text` that counts at most `max_tokens`.

    `guess` characters are likely to fit. With `joints`, counts add up where a word follows a space or a line
    starts: only the text near the cut is counted again and again, and what is returned is counted whole.

    Example:
        >>> cut_text("one two three", 2, lambda text: len(text.split()))
        'one two '
        >>> cut_text("cafe\u0301 au lait", 4, len)  # an accent stays with its letter
        'caf'
    """
    check_cut(text, max_tokens, side)
    if max_tokens <= 0 or not text:
        return ""
    size = len(text)
    keep = _Keep(text, count, side)
    if guess is None and size <= _WIDEST * max_tokens and keep.tokens(size) <= max_tokens:
        return text
    fits, over = _bracket(keep, size, max_tokens, guess)
    if over > size:
        return text
    while over - fits > _REACH:
        middle = (fits + over) // 2
        if keep.tokens(middle) <= max_tokens:
            fits = middle
        else:
            over = middle
    # A longer start can have fewer tokens, so the neighbourhood of the answer is searched from the far end.
    longest = min(size, over + _REACH)
    found = keep.longest_near(fits, longest, max_tokens) if joints else None
    if found is None:
        lengths = keep.edges_down(fits, longest)
        found = next((length for length in lengths if keep.tokens(length) <= max_tokens), 0)
    return keep.cut(found)


def check_cut(text: Any, max_tokens: Any, side: Any) -> None:
    """Raises BudgetConfigError for what cannot be cut, or cannot be cut to."""
    problems: list[str] = [] if isinstance(text, str) else [f"text must be a str (got {shown(text)})"]
    if not hasattr(max_tokens, "__index__"):
        problems.append(f"max_tokens must be a whole number (got {shown(max_tokens)})")
    check_choice("side", side, problems, ("right", "left"))
    if problems:
        raise BudgetConfigError.of(problems)


class _Keep:
    """A text of which `length` characters are kept at one end."""

    def __init__(self, text: str, count: Callable[[str], int], side: Side) -> None:
        self._text = text
        self._count = count
        self._right = side == "right"

    def cut(self, length: int) -> str:
        return self._text[:length] if self._right else self._text[len(self._text) - length :]

    def tokens(self, length: int) -> int:
        return self._count(self.cut(length))

    def longest_near(self, shortest: int, longest: int, max_tokens: int) -> int | None:
        """Returns the longest length that fits, counting only from the last joint on, or None."""
        size = len(self._text)
        if self._right:
            low = max(0, shortest - _JOINT_WITHIN)
            joint = max((m.start() for m in _JOINT.finditer(self._text, low, shortest)), default=0)
        else:
            first = _JOINT.search(self._text, size - shortest + 1, min(size, size - shortest + _JOINT_WITHIN))
            joint = first.start() if first else 0
        if joint <= 0:
            return None
        kept = self._count(self._text[:joint] if self._right else self._text[joint:])
        for length in self.edges(shortest, longest):
            near = self._text[joint:length] if self._right else self._text[size - length : joint]
            if kept + self._count(near) <= max_tokens:
                return length if self.tokens(length) <= max_tokens else None
        return None

    def edges(self, shortest: int, longest: int) -> list[int]:
        """Returns the lengths from `longest` down to `shortest` that end between graphemes."""
        size = len(self._text)
        if self._right:
            return grapheme_edges(self._text, shortest, longest)[::-1]
        return [size - edge for edge in grapheme_edges(self._text, size - longest, size - shortest)]

    def edges_down(self, low: int, high: int) -> Iterator[int]:
        """Yields ever shorter lengths that end between graphemes, those from `high` to `low` first."""
        step = _REACH
        yield from self.edges(low, high)
        while low > 0:
            low, high, step = max(0, low - step), low - 1, step * 2
            yield from self.edges(low, high)


def _bracket(keep: _Keep, size: int, max_tokens: int, guess: int | None) -> tuple[int, int]:
    """Returns a length that fits and one that does not; the latter is `size + 1` when all fits."""
    probe = min(size, guess or max_tokens * 4)
    step = _REACH if guess else probe
    if keep.tokens(probe) > max_tokens:
        over = probe
        while (fits := max(0, over - step)) and keep.tokens(fits) > max_tokens:
            over, step = fits, step * 2
        return fits, over
    fits = probe
    while fits < size:
        over = min(size, fits + step)
        if keep.tokens(over) > max_tokens:
            return fits, over
        fits, step = over, step * 2
    return size, size + 1


def grapheme_edges(text: str, low: int, high: int) -> list[int]:
    """Returns the places from `low` to `high`, both included, where a grapheme ends; 0 is such a place."""
    found = _SYNC.search(text, max(0, low - _SYNC_WITHIN), low)  # a place that is surely between two
    start = 0 if found is None else found.end()
    ends = takewhile(lambda end: end <= high, (match.end() for match in _GRAPHEME.finditer(text, start)))
    return [end for end in (start, *ends) if end >= low]
