"""Who speaks in a conversation, and whom a question asks about.

A turn tells its speaker by a name in its metadata, or by the name before a colon that opens its text, as in
transcripts. Half of the turns must say so, each speaker twice: a single "Note:" is no name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from ..segment import Segment
from .stopwords import STOP_WORDS
from .words import raw_words, stem

__all__ = ["named_in", "speakers", "without"]

_OPENS = re.compile(r"\s*([^\W\d_][^:\n]{0,39}?) ?:\s")
_MOST_WORDS = 6
_NAMED = 0.5
"""Share of a name's words that must be in the question: titles and parties are left out of questions."""


def speakers(segments: Sequence[Segment]) -> list[str]:
    """Returns who speaks each turn, "" where nobody is named.

    Example:
        >>> texts = "Ann: Hi.", "Bo Li: Hi.", "Ann: Tea?", "Bo Li: Yes.", "Note: cut"
        >>> talk = [Segment(id=str(i), text=text) for i, text in enumerate(texts)]
        >>> speakers(talk)
        ['Ann', 'Bo Li', 'Ann', 'Bo Li', '']
    """
    found = [str(segment.metadata.get("name") or "") or _opening_name(segment.text) for segment in segments]
    counts = Counter(found)
    found = [name if counts[name] > 1 else "" for name in found]
    return found if 2 * sum(map(bool, found)) >= len(found) else [""] * len(found)


def named_in(query: str, names: Sequence[str]) -> list[bool]:
    """Returns for each name whether the query names it.

    Example:
        >>> named_in("What did the industrial design say?", ["Industrial Designer", "Marketing", ""])
        [True, False, False]
    """
    asked = {stem(word) for word in raw_words(query)}
    known: dict[str, bool] = {"": False}
    for name in names:
        if name not in known:
            words = [stem(word) in asked for word in raw_words(name)]
            known[name] = bool(words) and sum(words) >= _NAMED * len(words)
    return [known[name] for name in names]


def without(query: str, names: Iterable[str]) -> str:
    """Returns a question without the words of some names; as it is when nothing else is left.

    Example:
        >>> without("What did Ann Lee's brother cook?", ["Ann Lee"])
        'What did brother cook?'
    """
    words = {word for name in names for word in raw_words(name)}
    if not words:
        return query
    left = " ".join([word for word in query.split() if not {*words, "s"}.issuperset(raw_words(word) or [""])])
    return left if any(word not in STOP_WORDS for word in raw_words(left)) else query


def _opening_name(text: str) -> str:
    found = _OPENS.match(text)
    return found[1] if found and len(found[1].split()) <= _MOST_WORDS else ""
