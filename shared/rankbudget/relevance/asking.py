"""Which sentences of a long message ask something about the rest of it, which is pasted."""

from __future__ import annotations

import re
from collections.abc import Callable

from .question import ASKS, COURTESY, asks
from .sentences import split_sentences
from .words import content_terms, raw_words

_FIRST, _LAST = 3, 6
"""Sentences at the start and at the end of a text among which its question may be."""
_MARKS = (*ASKS, *".!:…。！")
_LONGEST = 300
"""Characters of a sentence that may ask for something; a longer one is pasted."""
_PASTE, _PASTED = 120, 3
"""A text with something pasted has more characters, and is so many times as long as its question."""
_NEAR = 10_000
"""Characters at the start and at the end of a text in which these sentences are looked for."""
_WORD, _ALIKE = re.compile(r"\w+"), 8
_RECALLS = re.compile(
    r"(?i)\A\W*(?:wh(?:at|ich|ose?|ere|y)|how)\b"
    r"|\b(?:remind|again|once more|repeat|forgot|remember|recall|tell me|know)\b"
)
_FEWEST = 2
"""Words that a question has at least to say something by itself."""


def own_questions(text: str) -> list[str]:
    """Returns the sentences that may ask: the first and the last, and the last one with a question mark.

    A line without a full stop is no question, however it starts and ends.
    """
    sentences = _near_ends(text)
    closed = [one.endswith("\n") or one.rstrip().endswith(_MARKS) for one in sentences]
    last = len(sentences) - 1
    asking = [i for i in range(max(0, last - _LAST), last) if asks(sentences[i])]
    places = [0] if closed[0] else []
    places += [*asking[-1:], last] if last and closed[last - 1] else asking[-1:]
    return [sentences[i] for i in places if len(sentences[i]) <= _LONGEST]


def is_asked(query: str) -> bool:
    """Returns whether most of a text asks, as "Remind me of it." does and "Yes, book it. How long?" not."""
    return 2 * len(_asking(query)) > len(query)


def names_in(query: str) -> str:
    """Returns what a question names: the sentences that ask, without words of courtesy; else all of it."""
    asked = _asking(query) or query
    return " ".join([one for one in asked.split() if not COURTESY.issuperset(raw_words(one))]) or asked


def _asking(query: str) -> str:
    return "".join([one for one in split_sentences(query) if asks(one) or _RECALLS.search(one)])


def queries_of(query: str) -> tuple[str, ...]:
    """Returns what is asked: a question; where something is pasted, first the question by itself, then all.

    Both count as much: a pasted text says what the question is about, and has many more words. A question
    of one word, as "What does this mean?", says nothing without the text.

    Example:
        >>> queries_of("Which bank refused it? " + "INFO order 17 done, " * 20)[0]
        'Which bank refused it?'
    """
    if len(query) <= _PASTE:
        return (query,)
    own = _asked_with_a_mark(query) or _asked_apart(query)
    return (own, query) if _says(own) and _PASTED * len(own) <= len(query) else (query,)


def _asked_with_a_mark(query: str) -> str:
    """Returns the sentences with a question mark near the ends of a text."""
    sentences = _near_ends(query)
    near_ends = {*sentences[:_FIRST], *sentences[-_LAST:]}
    asked = [one.strip() for one in dict.fromkeys(sentences) if one in near_ends and asks(one)]
    return " ".join(one for one in asked if len(one) <= _LONGEST)


def _near_ends(text: str) -> tuple[str, ...]:
    """Returns the sentences of a text; of a long one those near its ends, without the two that are cut."""
    if len(text) <= 2 * _NEAR:
        return split_sentences(text)
    first, last = split_sentences(text[:_NEAR]), split_sentences(text[-_NEAR:])
    return (*(first[:-1] or first), *(last[1:] or last))


def _asked_apart(query: str) -> str:
    """Returns the first and last line where they stand apart: by a blank line or by their looks."""
    lines = query.strip().split("\n")
    found = []
    for line, beside, near in ((lines[0], lines[1:2], lines[1:3]), (lines[-1], lines[-2:-1], lines[-3:-1])):
        alone = beside == [""] or _shape(line) not in map(_shape, near)
        if beside and alone and len(line) <= _LONGEST and _says(line):
            found.append(line.strip())
    return " ".join(dict.fromkeys(found))


def _shape(line: str) -> str:
    """Returns how a line begins, whatever its words are: lines of a log or a list are alike."""
    return _WORD.sub("w", line.strip())[:_ALIKE]


def _says(text: str) -> bool:
    """Returns whether a question says something without the text beside it."""
    return len(set(content_terms(text)).difference(COURTESY)) >= _FEWEST


def rated_for(query: str, rate: Callable[[str], list[float]]) -> list[float]:
    """Returns the mean of the ratings for each of `queries_of`."""
    rows = [rate(asked) for asked in queries_of(query)]
    return rows[0] if len(rows) == 1 else [sum(ratings) / len(rows) for ratings in zip(*rows, strict=True)]
