"""Texts to sentences, cut where the token counts of the pieces add up to the count of the whole."""

from __future__ import annotations

import re

from .corpus import BoundedCache

_STOPS, _EAST_ASIAN = ".!?…؟۔।", "。！？｡"
_END = re.compile(  # one set of characters first: ten times faster; no lower case follows a full stop
    rf"[{_STOPS}{_EAST_ASIAN}\n](?!(?<=\.) {{1,79}}[a-z])(?:"
    rf"(?<=[{_STOPS}])[{_STOPS}]*[\"'”’»)\]]*|(?<=[{_EAST_ASIAN}])[{_EAST_ASIAN}]*[」』”’）]*|(?<=\n)\n*)"
)
_ABBREVIATIONS = frozenset(
    """adj approx art ave capt cf ch co col corp dept dr ed eds eg et al etc ex fig figs gen gov hon ie
    inc jr lt ltd maj messrs mr mrs ms mt no nos op ph pl pp prof ref refs rep rev sen sgt sr st vol vols
    vs viz u.s u.k e.g i.e a.m p.m z.b d.h bzw usw ca bspw nr abb ej sra srta dra pág núm jan feb mar apr
    jun jul aug sep sept oct nov dec""".split()
)
_BEFORE_NUMBERS = frozenset("no nos art fig figs op ch p pp vol vols nr núm".split())
_LAST_WORD = re.compile(r"([^\W\d_](?:[\w.]*\w)?)$")
_FUNCTION = re.compile(r"^([ \t]*)(?:async )?def \w+\(.*(?:\n(?:\1[ \t]+\S.*|\1\).*|[ \t]*$))*", re.MULTILINE)
"""A function of Python: without its body it says nothing, so that all of it is one piece."""
_NOT_SPACE = re.compile(r"[^ ]")
_SHORTEST = re.compile(r"\S\s*\S")
"""A sentence has two characters at least."""
MOST = 20_000
"""Sentences that are told apart in one text; the rest of a longer one is a single piece."""


def split_sentences(text: str) -> tuple[str, ...]:
    """Returns the sentences of a text with the white space between them: joined, they are the text."""
    return _SENTENCES.get(text, _split)


_SENTENCES: BoundedCache[str, tuple[str, ...]] = BoundedCache(
    max_size=4_000_000, size=lambda text: 2 * len(text) + 64
)


def _split(text: str) -> tuple[str, ...]:
    pieces: list[str] = []
    start = 0
    shortest = _SHORTEST.search(text)
    functions = [found.span() for found in _FUNCTION.finditer(text)][::-1] if "def " in text else []
    for match in _END.finditer(text):
        end = match.end()
        if end <= start or not _ends_sentence(text, match):
            continue
        if text[end : end + 1] == "\n" or _is_inside(functions, end):
            continue  # the line break that follows ends the piece
        if shortest and shortest.end() <= end:
            pieces.append(text[start:end])
            start = end
            shortest = _SHORTEST.search(text, start)
            if len(pieces) >= MOST:
                break
    if text[start:].strip() or not pieces:
        pieces.append(text[start:])
    elif start < len(text):
        pieces[-1] += text[start:]
    return tuple(pieces)


def _is_inside(functions: list[tuple[int, int]], position: int) -> bool:
    """Returns whether a position is inside a function; those before it are taken from the end of the list."""
    while functions and functions[-1][1] <= position:
        functions.pop()
    return bool(functions) and functions[-1][0] < position


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    mark = match.group()
    if mark[0] in _STOPS and not text[match.end() : match.end() + 1].isspace():
        return False  # a full stop counts where a space follows, the East Asian one always
    if mark[0] != ".":
        return True
    following = _NOT_SPACE.search(text, match.end(), match.end() + 80)
    if following is not None and following.group().islower():
        return False
    if len(mark) > 1:
        return True
    word = _LAST_WORD.search(text, max(0, match.start() - 20), match.start())
    if word is None:
        return True
    name = word.group(1)
    if name.lower() in _BEFORE_NUMBERS:
        return following is None or not following.group().isdigit()
    return not (name.lower() in _ABBREVIATIONS or (len(name) == 1 and name.isupper()))
