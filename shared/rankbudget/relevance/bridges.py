"""Bridges between documents: a text that names another document's title leads there.

"Where was the director of the film born?" shares no word with the page that answers it; the film's page names
the director, and the director's page is titled with the name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from .corpus import BoundedCache, TermIndex
from .stopwords import STOP_WORDS
from .words import raw_words

__all__ = ["mentions", "share_named", "title_words"]

ENOUGH = 0.66
"""Share of a title's words that names it: "Peter Thiel" names "Peter Andreas Thiel"."""
RARE = 100
"""Texts that may hold a word for it to tell one title from others."""
_LETTERS = 4


def title_words(title: str | None) -> tuple[str, ...]:
    """Returns the words that make a title recognisable, each once; none for a title of under four letters.

    Example:
        >>> title_words("The Man in Black (1949 film)")
        ('man', 'black')
    """
    if not title:
        return ()
    words = raw_words(re.sub(r"\s*\([^)]*\)\s*$", "", title))
    kept = tuple(dict.fromkeys(word for word in words if word not in STOP_WORDS))
    return kept if sum(map(len, kept)) >= _LETTERS else ()


def share_named(title: tuple[str, ...], hits: int) -> float:
    """Returns the share of a title's words that were found, 0 when it is too small to mean the title.

    Example:
        >>> share_named(("peter", "andreas", "thiel"), 2) > 0.6, share_named(("peter", "thiel"), 1)
        (True, 0.0)
    """
    if not title or hits < min(2, len(title)):
        return 0.0
    share = hits / len(title)
    return share if share >= ENOUGH else 0.0


def mentions(
    titles: tuple[str | None, ...], texts: tuple[str, ...], owners: tuple[int, ...]
) -> list[list[tuple[int, float]]]:
    """Returns for each title the texts of others that name it, and the share of its words that they have.

    A title that several documents have names none of them, nor does one of words that most texts hold.

    Args:
        titles: each document's title.
        texts: documents, or sentences.
        owners: the document of each text.
    """
    return _MENTIONS.get((titles, texts, owners), _mentions)


def _mentions(
    key: tuple[tuple[str | None, ...], tuple[str, ...], tuple[int, ...]],
) -> list[list[tuple[int, float]]]:
    titles, texts, owners = key
    index = TermIndex.of(texts)
    words = [title_words(title) for title in titles]
    times = Counter(words)
    return [
        [(i, share) for i, share in _naming(index, title) if owners[i] != document]
        if times[title] == 1
        else []
        for document, title in enumerate(words)
    ]


def _naming(index: TermIndex, words: tuple[str, ...]) -> Iterator[tuple[int, float]]:
    """Yields the sentences that hold enough of a title's words, rare ones among them."""
    hits: dict[int, int] = {}
    rare = [word for word in words if len(index.holders(word)) <= RARE]
    for word in rare:
        for sentence, _ in index.holders(word):
            hits[sentence] = hits.get(sentence, 0) + 1
    common = [word for word in words if word not in rare]
    for sentence, found in hits.items():
        share = share_named(words, found + sum([index.holds(sentence, word) for word in common]))
        if share:
            yield sentence, share


_MENTIONS: BoundedCache[
    tuple[tuple[str | None, ...], tuple[str, ...], tuple[int, ...]], list[list[tuple[int, float]]]
] = BoundedCache(max_size=4_000_000, size=lambda key: sum(map(len, key[1])) + 64)
