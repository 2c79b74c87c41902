"""Words of a question that say what kind of answer is wanted, or whom it is about, not what was said.

Nobody in a conversation says "summarize the discussion". Such words are rare in what was said, so they would
weigh most where one of them happens to stand. Only English ones are known.
"""

from __future__ import annotations

from collections.abc import Iterable

from .stopwords import STOP_WORDS
from .words import raw_words

__all__ = ["ASKING_WORDS", "subject", "without"]

ASKING_WORDS = frozenset(
    """according conclude concluded conclusion conversation conversations decide decided decision decisions
    describe described description discuss discussed discusses discussing discussion discussions explain
    explained group issue issues meeting meetings mention mentioned mentions opinion opinions participant
    participants please point points regarding said say saying says speaker speakers summaries summarise
    summarised summarises summarize summarized summarizes summary talk talked talking talks tell think thinks
    thought thoughts view views""".split()
)


def subject(query: str) -> str:
    """Returns a question without its asking words; as it is when nothing else is left.

    Example:
        >>> subject("Summarize the discussion about the blue button.")
        'the about the blue button.'
        >>> subject("What did they say?")
        'What did they say?'
    """
    return _without(query, ASKING_WORDS)


def without(query: str, names: Iterable[str]) -> str:
    """Returns a question without the words of some names; as it is when nothing else is left.

    Example:
        >>> without("What did Ann Lee's brother cook?", ["Ann Lee"])
        'What did brother cook?'
    """
    words = frozenset([word for name in names for word in raw_words(name)])
    return _without(query, words | {"s"}) if words else query


def _without(query: str, words: frozenset[str]) -> str:
    left = [word for word in query.split() if not words.issuperset(raw_words(word) or [""])]
    text = " ".join(left)
    return text if any(word not in STOP_WORDS for word in raw_words(text)) else query
