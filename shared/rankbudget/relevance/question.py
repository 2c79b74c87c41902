"""A question without its courtesy and its slips of spelling."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache

from .corpus import TermIndex
from .embedding import common_words
from .stopwords import STOP_WORDS
from .words import fold, raw_words, stem

__all__ = ["plain_question"]

_COURTESY = STOP_WORDS | frozenset(
    """advance also anyone anybody appreciate ask asking bother curious dear excuse explain give glad good
    grateful hello help hey hi hoping kind kindly know let like lot love many maybe much need no please
    question quick really show some somebody sorry tell thank thanks there trouble try trying understand very
    want wanted welcome whether wonder wondering""".split()
)
_CLAUSE = re.compile(r"[^.!?:;,]*[.!?:;,]*\s*")
_THANKS = re.compile(r"\b(thanks|thank you)\b[^.!?]{0,40}[.!]*\s*$", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{4,}")
LONG = 1_000
"""Characters of a question above which it is read as it is: a slip of many words costs little."""


def plain_question(query: str, texts: tuple[str, ...]) -> str:
    """Returns a question without greetings and thanks, its misspelt words as the texts spell them.

    Example:
        >>> plain_question("Hi! Where is the yelow key? Thanks!", ("The yellow key is here.",))
        'Where is the yellow key?'
    """
    return query if len(query) > LONG else respelled(without_courtesy(query), texts)


def without_courtesy(query: str) -> str:
    """Returns a question without the clauses that only greet, ask and thank; as it is when all do."""
    clauses = _CLAUSE.findall(_THANKS.sub("", query))
    said = "".join([clause for clause in clauses if not _COURTESY.issuperset(raw_words(clause))])
    return said.strip() or query


def respelled(query: str, texts: tuple[str, ...]) -> str:
    """Returns a question with its misspelt words as the texts, or common words, are spelt.

    A slip is one letter lost, added, wrong or swapped with the next; the first letter must be right, and the
    word have four letters. Of several words the one that most texts hold is taken, else the commonest.
    """
    index = TermIndex.of(texts)
    return _WORD.sub(lambda match: _known(match.group(), index), query)


def _known(word: str, index: TermIndex) -> str:
    folded = fold(word)
    if folded in STOP_WORDS or stem(folded) in index.stems or folded in _common().get(_shape(folded), ()):
        return word
    shapes = [(folded[0], size) for size in range(len(folded) - 1, len(folded) + 2)]
    said = [near for shape in shapes for near in index.alike.get(shape, ()) if _one_slip(folded, near)]
    if said:
        return max(said, key=lambda near: len(index.holders(near)))
    common = [
        near for shape in shapes for near in _common().get(shape, {}).items() if _one_slip(folded, near[0])
    ]
    return min(common, key=lambda near: near[1], default=(word, 0))[0]


@lru_cache(maxsize=1)
def _common() -> Mapping[tuple[str, int], Mapping[str, int]]:
    """Returns common words and their ranks, by first letter and length."""
    found: defaultdict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    for rank, word in enumerate(common_words()):
        found[_shape(word)][word] = rank
    return dict(found)


def _shape(word: str) -> tuple[str, int]:
    return word[0], len(word)


def _one_slip(word: str, other: str) -> bool:
    short, long = sorted((word, other), key=len)
    start = 0
    while start < len(short) and short[start] == long[start]:
        start += 1
    a, b = short[start:], long[start:]
    if len(a) < len(b):
        return a == b[1:]
    return a[1:] == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])
