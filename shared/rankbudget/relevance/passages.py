"""Which passages a question needs: those rated high enough, what goes on about them, and what they name.

The words of a question seldom stand in all that answers it. "The structural proteins are provided in cell
culture" goes on about the vectors that the passage before it names; "Denys Roy comes from Montreal" opens
with a name that a relevant passage gives as its director.
"""

from __future__ import annotations

from collections.abc import Sequence

from .stopwords import STOP_WORDS
from .words import stem

__all__ = ["needed_passages"]


def needed_passages(
    passages: Sequence[Sequence[str]], ratings: Sequence[float], *, threshold: float, continued_share: float
) -> list[bool]:
    """Returns for each passage whether the question needs it.

    Args:
        passages: the folded words of each, in order, as `raw_words` gives them.
        ratings: one each; from the threshold on, a passage is needed by itself.
        threshold: the lowest rating that is enough.
        continued_share: share of a passage's words that stand in the needed one right before it, from which
            it goes on about that one, 0 to 1.

    Example:
        >>> texts = ["the zone was directed by denys roy", "roy shot the zone"]
        >>> texts += ["denys roy is from montreal", "soup is hot"]
        >>> words = [text.split() for text in texts]
        >>> needed_passages(words, [1.0, 0.0, 0.0, 0.0], threshold=0.5, continued_share=0.15)
        [True, True, True, False]
    """
    found = [rating >= threshold for rating in ratings]
    said = [f" {' '.join(words)} " for words, needed in zip(passages, found, strict=True) if needed]
    return [
        needed
        or (i > 0 and found[i - 1] and _continues(words, passages[i - 1], continued_share))
        or _named(words, said)
        for i, (words, needed) in enumerate(zip(passages, found, strict=True))
    ]


def _continues(words: Sequence[str], before: Sequence[str], share: float) -> bool:
    own, other = ({stem(word) for word in text if word not in STOP_WORDS} for text in (words, before))
    return bool(own) and len(own & other) >= share * len(own)


def _named(words: Sequence[str], said: Sequence[str]) -> bool:
    """Returns whether a needed passage has the two words this one opens with; one word is often no name."""
    if len(words) < 2 or not STOP_WORDS.isdisjoint(words[:2]):  # noqa: PLR2004 - see above
        return False
    name = f" {words[0]} {words[1]} "
    return any(name in text for text in said)
