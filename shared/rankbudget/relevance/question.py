"""A question without its courtesy and its slips of spelling."""

from __future__ import annotations

import re

from .corpus import TermIndex
from .embedding import common_words
from .stopwords import STOP_WORDS
from .words import fold, raw_words, stem

ASKS = ("?", "？", "؟")
COURTESY = STOP_WORDS | frozenset(
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


def asks(sentence: str) -> bool:
    """Returns whether a sentence ends with a question mark."""
    return sentence.rstrip().endswith(ASKS)


def plain_question(query: str, texts: tuple[str, ...]) -> str:
    """Returns a question without greetings and thanks, its misspelt words as the texts spell them.

    Example:
        >>> plain_question("Hi! Where is the yelow key? Thanks!", ("The yellow key is here.",))
        'Where is the yellow key?'
    """
    if len(query) > LONG:
        return query
    clauses = _CLAUSE.findall(_THANKS.sub("", query))
    said = "".join([clause for clause in clauses if not COURTESY.issuperset(raw_words(clause))])
    index = TermIndex.of(texts)
    return _WORD.sub(lambda match: _known(match.group(), index), said.strip() or query)


def _known(word: str, index: TermIndex) -> str:
    """Returns a word as most texts spell it that differ in one letter behind the first; common words stay."""
    folded = fold(word)
    if folded in STOP_WORDS or index.with_stem(stem(folded)) or folded in common_words():
        return word
    shapes = [(folded[0], size) for size in range(len(folded) - 1, len(folded) + 2)]
    near = [known for shape in shapes for known in index.alike.get(shape, ()) if _one_slip(folded, known)]
    return max(near, key=lambda known: sum([known in held for held in index.words]), default=word)


def _one_slip(word: str, other: str) -> bool:
    short, long = sorted((word, other), key=len)
    start = 0
    while start < len(short) and short[start] == long[start]:
        start += 1
    a, b = short[start:], long[start:]
    if len(a) < len(b):
        return a == b[1:]
    return a[1:] == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])
