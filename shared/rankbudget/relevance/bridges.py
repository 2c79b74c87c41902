"""Bridges between documents: a sentence that names the title of another document leads there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container

from .corpus import BoundedCache, TermIndex
from .stopwords import STOP_WORDS
from .words import raw_words

__all__ = ["mentions", "share_named", "title_words"]

ENOUGH = 0.66
"""Share of a title's words that names it: "Peter Thiel" names "Peter Andreas Thiel"."""
RARE = 100
"""Texts that may hold a word for it to tell one title from others."""
_LETTERS = 4
Titles = tuple[str | None, ...]
Mentions = list[list[tuple[int, float]]]
"""For each title, positions of sentences and the share of its words that they have."""


def title_words(title: str | None) -> tuple[str, ...]:
    """Returns the words that make a title recognisable, each once; none for a title of under four letters."""
    if not title:
        return ()
    words = raw_words(re.sub(r"\s*\([^)]*\)\s*$", "", title))
    kept = tuple(dict.fromkeys(word for word in words if word not in STOP_WORDS))
    return kept if sum(map(len, kept)) >= _LETTERS else ()


def share_named(title: tuple[str, ...], said: Container[str]) -> float:
    """Returns the share of a title's words that are said, 0 when it is too small to mean the title."""
    hits = sum([word in said for word in title])
    if not title or hits < max(min(2, len(title)), ENOUGH * len(title)):
        return 0.0
    return hits / len(title)


def mentions(titles: Titles, sentences: tuple[str, ...], owners: tuple[int, ...]) -> Mentions:
    """Returns for each title the sentences of other documents that name it.

    A title that several documents have names none of them, nor does one of words that most texts hold.
    """
    return _MENTIONS.get((titles, sentences, owners), _mentions)


def _mentions(key: tuple[Titles, tuple[str, ...], tuple[int, ...]]) -> Mentions:
    titles, sentences, owners = key
    index = TermIndex.of(sentences)
    words = [title_words(title) for title in titles]
    times = Counter(words)
    found: Mentions = []
    for document, title in enumerate(words):
        rare = [index.holders(word) for word in title if len(index.holders(word)) <= RARE]
        near = {i for holders in rare for i, _ in holders if owners[i] != document and times[title] == 1}
        shares = [(i, share_named(title, index.words[i])) for i in near]
        found.append([(i, share) for i, share in shares if share])
    return found


_MENTIONS: BoundedCache[tuple[Titles, tuple[str, ...], tuple[int, ...]], Mentions] = BoundedCache(
    max_size=4_000_000, size=lambda key: sum(map(len, key[1])) + 64
)
