"""What says all words of a question, where few do: each word alone may be common."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Protocol

from ..segment import Segment
from .corpus import ONE_IN
from .long_lines import LONGEST
from .owners import NONE

FEWEST, SEVERAL = 2, 5
"""Words of a question of which all can be said, and sentences or short texts at most that say them."""
SAID, TOGETHER = 1.0, 0.5
"""Ranks of what says all by itself, and with the rest of a short text: one row of it may be named."""
SHORT_ONE_IN = 4
"""No more than one in so many of the texts, where these are few."""


class Split(Protocol):
    """The sentences of some texts, the text of each, and the sentence that says whose each one is."""

    @property
    def texts(self) -> Sequence[str]: ...

    @property
    def owners(self) -> Sequence[int]: ...

    @property
    def heads(self) -> Sequence[int]: ...


def saying_all(
    held: Mapping[str, Iterable[int]],
    segments: Sequence[Segment],
    split: Split,
    titles: Sequence[Container[str]],
    *,
    scored: bool,
) -> dict[int, float]:
    """Returns the ranks of sentences that say all with the line above them, else of short texts.

    Args:
        held: the words of the question that any sentence has, with the positions of those that have it.
        segments: the texts.
        split: their sentences.
        titles: the words of each text's title.
        scored: whether a host has rated the texts. Then a word that stands alone in few sentences is left
            out, as the name of a column, "extension", does in the chunk with the head of a table.
    """
    own = _words_in_each(held, len(split.texts))
    every = {term for term, places in held.items() if not (scored and _stands_alone(term, places, own))}
    if len(every) < FEWEST:
        return {}
    beside = [{term for term in every if term in title} for title in titles]
    told = [terms - beside[i] for terms, i in zip(own, split.owners, strict=True)]
    found = _by_themselves(own, split.heads, told, every)
    if found:
        few = max(SEVERAL, len(own) // ONE_IN)
        return dict.fromkeys(found if len({split.texts[j] for j in found}) <= few else (), SAID)
    short = _as_a_whole(segments, split.owners, told, beside, every)
    few = min(SEVERAL, max(1, len(segments) // SHORT_ONE_IN))
    is_few = len({segments[i].text for i in short}) <= few
    return {j: TOGETHER for j, i in enumerate(split.owners) if is_few and i in short and own[j]}


def _words_in_each(held: Mapping[str, Iterable[int]], size: int) -> list[set[str]]:
    own = [set[str]() for _ in range(size)]
    for term, places in held.items():
        for j in places:
            own[j].add(term)
    return own


def _by_themselves(
    own: Sequence[set[str]], heads: Sequence[int], told: Sequence[set[str]], every: set[str]
) -> list[int]:
    """Returns the sentences that say all, and something that their title does not."""
    nothing = set[str]()
    above = [own[head] if head != NONE else nothing for head in heads] or [nothing] * len(own)
    return [j for j, terms in enumerate(own) if told[j] and every <= terms | above[j]]


def _as_a_whole(
    segments: Sequence[Segment],
    owners: Sequence[int],
    told: Sequence[set[str]],
    beside: Sequence[set[str]],
    every: set[str],
) -> set[int]:
    """Returns the short texts that say all with their titles."""
    said: dict[int, set[str]] = {}
    for i, terms in zip(owners, told, strict=True):
        if terms:
            said.setdefault(i, set(beside[i])).update(terms)
    return {i for i, terms in said.items() if every <= terms and len(segments[i].text) <= LONGEST}


def _stands_alone(term: str, places: Iterable[int], own: Sequence[set[str]]) -> bool:
    """Returns whether few sentences have a word, and no other one of the question."""
    few = list(places)
    return len(few) <= SEVERAL and all(own[j] == {term} for j in few)
