"""Truncation by counting: the longest start or end of a text that fits, never half a grapheme."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile
from operator import add
from typing import Any, NamedTuple

import regex

from ..errors import check_choice, refuse, shown
from .protocol import Side

_GRAPHEME = regex.compile(r"\X")
# Two neighbours of these kinds never share a grapheme: segmentation may start between them.
_PLAIN = (
    r"[\x20-\x7e\u00a1-\u00ac\u00c0-\u02ff\u0391-\u03c9\u0410-\u044f\u05d0-\u05ea\u0620-\u064a"
    r"\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff]"
)
_SYNC = regex.compile(rf"(?r){_PLAIN}(?={_PLAIN})")
_SYNC_WITHIN = 2_000
# A line starts, a word follows a space, or a comma or full stop follows a letter of Chinese or Japanese.
_JOINTS = (
    r"(?<=\n)(?=[^\s/])|(?<=\S)(?= [A-Za-z])"
    r"|(?<=[\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff])(?=[\u3001\u3002\uff0c])"
)
_JOINT, _LAST_JOINT = regex.compile(_JOINTS), regex.compile(f"(?r){_JOINTS}")
_JOINT_WITHIN = 400
_WIDEST = 512
"""Most characters of one token: a text with more for each of its tokens is not counted whole."""
_REACH = 48
"""How many characters past the first answer are searched for a longer one."""


class Sums(NamedTuple):
    """Numbers `of` a text that add up at joints, as where a line starts, and the `tokens` that they make."""

    of: Callable[[str], tuple[int, ...]]
    tokens: Callable[[tuple[int, ...]], int]


def cut_text(
    text: str,
    max_tokens: int,
    count: Callable[[str], int],
    *,
    side: Side = "right",
    guess: int | None = None,
    sums: Sums | None = None,
) -> str:
    r"""Returns the longest start ("right") or end ("left") of `text` that counts at most `max_tokens`.

    `guess` characters are likely to fit. With `sums` only the text near the cut is measured again and again,
    and what is returned is counted whole.

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
    keep = _Keep(text, count, side, sums)
    if guess is None and size <= _WIDEST * max_tokens and count(text) <= max_tokens:
        return text
    fits, over = _bracket(keep, size, max_tokens, guess)
    if over > size and (sums is None or count(text) <= max_tokens):
        return text
    while over - fits > _REACH:
        middle = (fits + over) // 2
        if keep.tokens(middle) <= max_tokens:
            fits = middle
        else:
            over = middle
    # A longer start can have fewer tokens, so the neighbourhood of the answer is searched from the far end.
    longest = min(size, over + _REACH)
    lengths = keep.edges_down(fits, longest)
    found = next((length for length in lengths if keep.tokens(length) <= max_tokens), 0)
    kept = keep.cut(found)
    if sums is not None and count(kept) != keep.tokens(found):  # they do not add up here
        return cut_text(text, max_tokens, count, side=side, guess=guess)
    return kept


def check_cut(text: Any, max_tokens: Any, side: Any) -> None:
    """Raises BudgetConfigError for what cannot be cut, or cannot be cut to."""
    problems: list[str] = [] if isinstance(text, str) else [f"text must be a str (got {shown(text)})"]
    if not hasattr(max_tokens, "__index__"):
        problems.append(f"max_tokens must be a whole number (got {shown(max_tokens)})")
    check_choice("side", side, problems, ("right", "left"))
    refuse(problems)


class _Keep:
    """A text of which `length` characters are kept at one end."""

    def __init__(self, text: str, count: Callable[[str], int], side: Side, sums: Sums | None) -> None:
        self._text = text
        self._count = count
        self._right = side == "right"
        self._sums = sums
        self._known: dict[int, tuple[int, ...]] = {0 if self._right else len(text): ()}

    def cut(self, length: int) -> str:
        return self._text[:length] if self._right else self._text[len(self._text) - length :]

    def tokens(self, length: int) -> int:
        if self._sums is None or not length:
            return self._count(self.cut(length))
        return self._sums.tokens(self._sum_of(length))

    def _sum_of(self, length: int) -> tuple[int, ...]:
        """Returns what adds up of the kept text: up to the last joint once, and of the rest."""
        assert self._sums is not None
        end = length if self._right else len(self._text) - length
        if self._right:
            joint = _LAST_JOINT.search(self._text, max(0, end - _JOINT_WITHIN), end)
        else:
            joint = _JOINT.search(self._text, end, end + _JOINT_WITHIN)
        if joint is None:
            return self._sums.of(self.cut(length))
        return self._added(self._sum_at(joint.start()), joint.start(), end)

    def _sum_at(self, joint: int) -> tuple[int, ...]:
        """Returns what adds up between the kept end and a joint, from the nearest joint where it is known."""
        if joint not in self._known:
            near = [at for at in self._known if (at < joint) == self._right]
            known = max(near) if self._right else min(near)
            self._known[joint] = self._added(self._known[known], known, joint)
        return self._known[joint]

    def _added(self, sums: tuple[int, ...], start: int, stop: int) -> tuple[int, ...]:
        assert self._sums is not None
        more = self._sums.of(self._text[min(start, stop) : max(start, stop)])
        return tuple(map(add, sums, more)) if sums else more

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
