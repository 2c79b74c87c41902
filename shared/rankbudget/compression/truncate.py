"""Truncate: cut inside a text, at the end of a sentence where there is one, to an exact number of tokens."""

from __future__ import annotations

import re
from typing import Literal

from ..counting.protocol import TokenCounter
from ..errors import BudgetConfigError

Keep = Literal["start", "both"]

_WORD_END = re.compile(r"(?<=[^\s.…])(?=\s)")
"""Behind "31." a cut would look like the end of a sentence."""
_WORD_START = re.compile(r"(?<=\s)(?=\S)")
_LEAST_SHARE = 8
"""A sentence end counts only where it keeps an eighth of what fits: "Yes." alone would waste the room."""


def truncate_text(
    text: str, max_tokens: int, counter: TokenCounter, *, ellipsis: str = "...", keep: Keep = "start"
) -> str:
    """Returns `text` cut to at most `max_tokens`, the marker counted, and `text` itself when it fits.

    Cuts at the end of a sentence, else of a word, else between two graphemes.

    Args:
        text: what to cut.
        max_tokens: the bound on the result.
        counter: counts the finished text.
        ellipsis: the marker that replaces what is cut.
        keep: "start" keeps the start; "both" keeps start and end around the marker, for long questions and
            tool output.

    Returns:
        At most `max_tokens` tokens; "" when not even the marker fits.

    Raises:
        BudgetConfigError: `keep` is neither "start" nor "both".

    Example:
        >>> from rankbudget.testing.fakes import WordCounter  # one token per word
        >>> truncate_text("One two. Three four. Five six.", 5, WordCounter())
        'One two. Three four....'
        >>> truncate_text("One two. Three four. Five six.", 5, WordCounter(), keep="both")
        'One two. ... Five six.'
    """
    if keep not in ("start", "both"):
        raise BudgetConfigError.of([f"keep must be 'start' or 'both' (got {keep!r})"])
    if max_tokens <= 0 or not text:
        return ""
    start = counter.truncate(text, max_tokens)
    if len(start) == len(text):
        return text
    return cut_from(text, start, max_tokens, counter, ellipsis, keep)


def cut_from(text: str, start: str, max_tokens: int, counter: TokenCounter, ellipsis: str, keep: Keep) -> str:
    """Returns what `truncate_text` returns, for a caller that knows the longest `start` that fits."""
    room = max_tokens - counter.count(ellipsis)
    if room < 0:
        return ""
    step = 0
    while room > 0:
        if keep == "start":
            cut = _start(text, counter.truncate(start, room), _LEAST_SHARE) + ellipsis
        else:
            cut = _ends(text, start, room, counter, ellipsis)
        # Tokens merge across a cut, so counts of the parts are estimates.
        excess = counter.count(cut) - max_tokens
        if excess <= 0:
            return cut
        room -= max(excess, step)
        step = 2 * step + 1
    return ellipsis


def _start(text: str, start: str, share: int) -> str:
    """Returns `start` up to its last sentence, else word, that leaves at least a `share` of it."""
    from ..relevance.sentences import last_end  # what finds sentences is loaded where a text is cut

    least = len(start) // share
    cut = last_end(text, len(start), least)
    if not cut:
        # One character more than the start is read, to see whether a word ends exactly there.
        ends = [match.end() for match in _WORD_END.finditer(text, 0, min(len(text), len(start) + 1))]
        cut = ends[-1] if ends else 0
    return start[:cut] if cut > least else start


def _ends(text: str, start: str, room: int, counter: TokenCounter, ellipsis: str) -> str:
    from ..relevance.sentences import first_start

    # `start` fills the whole limit, so three quarters of its characters are enough to find each half in.
    reach = max(len(start) * 3 // 4, 1)
    end = counter.truncate(text[-reach:], room // 2, side="left") if room > 1 else ""
    start = _start(text, counter.truncate(start[:reach], room - room // 2), 2)
    offset = max(len(text) - len(end), len(start))
    most = offset + (len(text) - offset) // 2
    begin = first_start(text, offset, most)
    if begin is None:
        found = _WORD_START.search(text, offset, most + 1)
        begin = found.end() if found else offset
    offset = begin
    end = text[offset:]
    if not end:
        return start + ellipsis
    gap = text[len(start) : offset]
    joint = "\n" if "\n" in gap else " "  # the end of another line would be read as of this one
    if not ellipsis and not gap.strip():
        joint = ""
    return f"{start.rstrip()}{joint}{ellipsis}{joint}{end}"
