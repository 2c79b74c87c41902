"""Words that say what kind of answer is wanted, not what it is about: nobody in a conversation says "summarize the discussion".

As such words are rare in what was said, they would weigh most where one of them happens to stand. Only English ones are known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from .stopwords import STOP_WORDS
from .words import raw_words

__all__ = ["ASKING_WORDS", "subject", "without"]

ASKING_WORDS = frozenset(
    """according conclude concluded conclusion conversation conversations decide decided decision decisions describe described
    description discuss discussed discusses discussing discussion discussions explain explained issue issues meeting meetings
    mention mentioned mentions opinion opinions participant participants please point points regarding said say saying says speaker
    speakers summaries summarise summarised summarises summarize summarized summarizes summary talk talked talking talks tell think
    thinks thought thoughts view views""".split()
)
_WORD = re.compile(r"\S+")
_ALL_OF_THEM = re.compile(r"\bthe (group|team|members|people)\b('s|’s)?", re.IGNORECASE)


def subject(query: str) -> str:
    """Returns a question without its asking words; as it is when nothing else is left.

    Example:
        >>> subject("Summarize the discussion about the blue button.")
        'the about the blue button.'
        >>> subject("What did they say?")
        'What did they say?'
    """
    return _less(_ALL_OF_THEM.sub("", query), ASKING_WORDS) or query


def without(query: str, names: Iterable[str]) -> str:
    """Returns a question without the words of some names; as it is when nothing else is left.

    Example:
        >>> without("What did Ann Lee's brother cook?", ["Ann Lee"])
        'What did brother cook?'
    """
    words = frozenset([word for name in names for word in raw_words(name)])
    return (_less(query, words | {"s"}) or query) if words else query


def _less(query: str, words: frozenset[str]) -> str:
    """Returns the text without these words, "" when only function words are left."""
    text = " ".join([word for word in _WORD.findall(query) if not words.issuperset(raw_words(word) or [""])])
    return text if any(word not in STOP_WORDS for word in raw_words(text)) else ""
