"""Texts that say nothing new: the same as another text, or whole sentences of it in their order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from ..relevance.corpus import BoundedCache, word_counts
from ..segment import Segment

SHORT_TURN = 12
"""Words up to which a turn of a conversation neither is a double nor has one: "Yeah." is new each time."""
MOST_PLACES = 32
"""Texts that are remembered for one sentence: more would take quadratic time where all texts share it."""
_END = re.compile(r"(?<![.!?…])[.!?…]+[\"'”’»)]*\s+|[。！？]+")
"""Every full stop: of two texts that are the same but for case it must end the same sentences."""
_PAUSE = re.compile(r"[，、；：「」『』—]|(?<=[^\W\d_])-(?=[^\W\d_])")
"""What parts words as a space does: East Asian punctuation, a dash, a hyphen between letters."""
_MARKS = re.compile(
    r"(?<!\d)[\"`“”„«»¿¡]|(?<!\w)'|(?<=[^\W\d])'(?!\w)|(?<![.,;:!?…])[.,;:!?…]+(?=[\s\"'”’»]|$)"
)
"""Punctuation around words; 5' and -5 keep what belongs to the number."""


def find_doubles(
    segments: Sequence[Segment], ranked: Iterable[int], parts: Sequence[Sequence[str]] | None = None
) -> dict[int, str]:
    """Returns the positions of segments that repeat a better one, and its id; `ranked` is best first.

    `parts` are the sentences of each text, if their words are known.

    Case, spaces and punctuation do not matter; numbers, names, negations and dates stay what they are, so
    texts that differ in one word are no doubles, nor those with other words beside them.
    """
    # Only texts whose words all occur in other texts as well can be doubles: few are, so few are compared.
    texts = tuple([segment.text for segment in segments])
    alike = _ALIKE.get(texts, lambda texts: _alike(parts or [(text,) for text in texts]))
    twins: dict[int, str] = {}
    better: list[tuple[Segment, list[str]]] = []
    same: dict[tuple[str, str], str] = {}
    places: dict[str, list[tuple[int, int]]] = {}
    for i in dict.fromkeys(ranked) if alike else ():
        segment = segments[i]
        if i not in alike or (segment.role and sum(word_counts(segment.text).values()) <= SHORT_TURN):
            continue
        said = _said(segment.text)
        whole = segment.beside, " ".join(said)
        twin = same.get(whole) or _container(segment, said, better, places)
        if twin is not None:
            twins[i] = twin
            continue
        same[whole] = segment.id
        for position, sentence in enumerate(said):
            known = places.setdefault(sentence, [])
            if len(known) < MOST_PLACES:
                known.append((len(better), position))
        better.append((segment, said))
    return twins


def _alike(texts: Sequence[Sequence[str]]) -> frozenset[int]:
    """Returns the texts without a word of their own, and those with the rarest word of one of them."""
    listed = [list(map(word_counts, parts)) for parts in texts]
    times = Counter(chain.from_iterable(chain.from_iterable(listed)))
    if not any(all(times[word] > 1 for word in chain.from_iterable(held)) for held in listed):
        return frozenset()  # nearly always: each text has a word that no other part of any text has
    words = [dict.fromkeys(chain.from_iterable(held)) for held in listed]
    holders = Counter(chain.from_iterable(words))
    shared = [counts for counts in words if counts and all(holders[word] > 1 for word in counts)]
    rarest = {min(counts, key=holders.__getitem__) for counts in shared}
    return frozenset([i for i, counts in enumerate(words) if not rarest.isdisjoint(counts)])


_ALIKE: BoundedCache[tuple[str, ...], frozenset[int]] = BoundedCache(
    max_size=4_000_000, size=lambda texts: sum(map(len, texts)) + 64
)


def _container(
    segment: Segment,
    said: list[str],
    better: list[tuple[Segment, list[str]]],
    places: Mapping[str, list[tuple[int, int]]],
) -> str | None:
    """Returns the id of a text that has these sentences one after the other."""
    rarest = min(range(len(said)), key=lambda k: len(places.get(said[k], ())))
    for text, position in places.get(said[rarest], ()):
        one, other = better[text]
        start = position - rarest
        if start >= 0 and other[start : start + len(said)] == said and one.beside == segment.beside:
            return one.id
    return None


def _said(text: str) -> list[str]:
    """Returns the sentences of a text, up to every full stop, without case, spaces and punctuation."""
    flat = " ".join(text.casefold().replace("’", "'").split())
    plain = _MARKS.sub("", _PAUSE.sub(" ", _END.sub("\n", flat)))
    sentences = [" ".join(sentence.split()) for sentence in plain.split("\n")]
    return [sentence for sentence in sentences if sentence]
