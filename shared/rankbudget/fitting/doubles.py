"""Texts that say nothing new: the same as another text, or whole sentences of it in their order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from ..relevance.corpus import word_counts
from ..segment import Segment

__all__ = ["Doubles", "find_doubles"]

SHORT_TURN = 12
"""Words up to which a turn of a conversation is never a double: "Yeah." is new each time."""
MOST_PLACES = 32
"""Texts that are remembered for one sentence: more would take quadratic time where all texts share it."""
_END = re.compile(r"(?<![.!?…])[.!?…]+[\"'”’»)]*\s+|[。！？]+")
_PAUSE = re.compile(r"[，、；：「」『』—]|(?<=[^\W\d_])-(?=[^\W\d_])")
"""What parts words as a space does: East Asian punctuation, a dash, a hyphen between letters."""
_MARKS = re.compile(
    r"(?<!\d)[\"`“”„«»¿¡]|(?<!\w)'|(?<=[^\W\d])'(?!\w)|(?<![.,;:!?…])[.,;:!?…]+(?=[\s\"'”’»]|$)"
)
"""Punctuation around words; 5' and -5 keep what belongs to the number."""


def find_doubles(segments: Sequence[Segment], ranked: Sequence[int]) -> dict[int, str]:
    """Returns which segments repeat a better one, by position, and the id of that.

    Only texts whose words all stand in other texts as well are compared.

    Args:
        segments: what is looked through.
        ranked: their positions, the best first.
    """
    words = [word_counts(segment.text) for segment in segments]
    holders = Counter([word for counts in words for word in counts])
    rarest: set[str] = set()
    for counts in words:
        rare = min(counts, key=holders.__getitem__, default="")
        if holders[rare] > 1:
            rarest.add(rare)
    doubles = Doubles()
    twins: dict[int, str] = {}
    for i in ranked if rarest else ():
        if rarest.isdisjoint(words[i]):
            continue
        twin = doubles.of(segments[i])
        if twin is None:
            doubles.add(segments[i])
        else:
            twins[i] = twin
    return twins


class Doubles:
    """Finds texts that repeat an earlier one, apart from case, spaces and punctuation.

    Numbers, names, negations and dates stay what they are: texts that differ in one word are no doubles. A
    short turn of a conversation, such as "Yes.", is new every time.

    Example:
        >>> doubles = Doubles()
        >>> doubles.add(Segment(id="a", text="The tea is hot. It costs -2."))
        >>> said = "the TEA is hot!", "It costs 2.", "The tea is hot, it costs -2"
        >>> [doubles.of(Segment(id="b", text=text)) for text in said]
        ['a', None, 'a']
    """

    def __init__(self) -> None:
        self._texts: list[tuple[str, list[str]]] = []
        self._same: dict[str, str] = {}
        self._places: dict[str, list[tuple[int, int]]] = {}

    def add(self, segment: Segment) -> None:
        """Remembers a segment that is no double itself."""
        said = _said(segment.text)
        self._same.setdefault(" ".join(said), segment.id)
        for position, sentence in enumerate(said):
            places = self._places.setdefault(sentence, [])
            if len(places) < MOST_PLACES:
                places.append((len(self._texts), position))
        self._texts.append((segment.id, said))

    def of(self, segment: Segment) -> str | None:
        """Returns the id of a segment that says all of this one, None where it is new."""
        said = _said(segment.text)
        words = " ".join(said)
        if not said or (segment.role and sum(word_counts(segment.text).values()) <= SHORT_TURN):
            return None
        if words in self._same:
            return self._same[words]
        rarest = min(range(len(said)), key=lambda k: len(self._places.get(said[k], ())))
        for text, position in self._places.get(said[rarest], ()):
            name, other = self._texts[text]
            start = position - rarest
            if start >= 0 and other[start : start + len(said)] == said:
                return name
        return None


def _said(text: str) -> list[str]:
    """Returns the sentences of a text without case, spaces and punctuation around words.

    They end at every full stop, whatever follows: how a text is broken into lines or capitalised must not
    matter here.
    """
    flat = " ".join(text.casefold().replace("’", "'").split())
    plain = _MARKS.sub("", _PAUSE.sub(" ", _END.sub("\n", flat)))
    sentences = [" ".join(sentence.split()) for sentence in plain.split("\n")]
    return [sentence for sentence in sentences if sentence]
