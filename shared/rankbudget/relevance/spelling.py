"""Misspelt words of a question: one that no text holds is read as a word one slip away that some text holds."""

from __future__ import annotations

import re

from .corpus import TermIndex
from .stopwords import STOP_WORDS
from .words import fold, stem

__all__ = ["respelled"]

_WORD = re.compile(r"[^\W\d_]{4,}")


def respelled(query: str, texts: tuple[str, ...]) -> str:
    """Returns a question with its misspelt words as the texts spell them.

    A slip is one letter lost, added, wrong or swapped with the next; the first letter must be right. Of several
    words the one that most texts hold is taken.

    Example:
        >>> respelled("When is the meetign about bugdet?", ("The budget meeting is on Monday.",))
        'When is the meeting about budget?'
    """
    index = TermIndex.of(texts)
    return _WORD.sub(lambda match: _known(match.group(), index), query)


def _known(word: str, index: TermIndex) -> str:
    folded = fold(word)
    if folded in STOP_WORDS or stem(folded) in index.stems:
        return word
    near = [
        known
        for size in (len(folded) - 1, len(folded), len(folded) + 1)
        for known in index.words_like(folded[0], size)
        if _one_slip(folded, known)
    ]
    return max(near, key=lambda known: len(index.holders(known)), default=word)


def _one_slip(word: str, other: str) -> bool:
    short, long = sorted((word, other), key=len)
    start = 0
    while start < len(short) and short[start] == long[start]:
        start += 1
    a, b = short[start:], long[start:]
    if len(a) < len(b):
        return a == b[1:]
    return a[1:] == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])
