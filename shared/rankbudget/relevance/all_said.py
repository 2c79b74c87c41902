"""What says all words of a question, where few do: each word alone may be common."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Protocol

from ..segment import Segment
from .corpus import ONE_IN
from .long_lines import LONGEST

FEWEST, SEVERAL = 2, 5
"""Words of a question of which all can be said; sentences and short texts that are few."""
SAID, TOGETHER = 1.0, 0.5
"""Ranks of what says all by itself, and with the rest of a short text: one row of it may be named."""
_HEAD = re.compile(r"(?:(?:[^|\t\d]*[|\t]){2}|(?:[^,;\d]*[,;](?! )){2})[^\d]*\Z")
"""The names of columns: a row without numbers."""
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
) -> dict[int, float]:
    """Returns the ranks of sentences that say all with the line above them, else of short texts.

    Args:
        held: the words of the question that any sentence has, with the positions of those that have it.
        segments: the texts.
        split: their sentences.
        titles: the words of each text's title.
    """
    own: dict[int, set[str]] = {}
    for term, places in held.items():
        for j in places:
            own.setdefault(j, set()).add(term)
    every = {term for term, places in held.items() if not _names_column(term, places, own, split.texts)}
    if len(every) < FEWEST:
        return {}
    beside = [{term for term in every if term in title} for title in titles]
    told = {j: terms for j, terms in own.items() if terms - beside[split.owners[j]]}
    found = [j for j, terms in told.items() if every <= terms | _above(j, own, split.heads)]
    if found:
        few = max(SEVERAL, len(split.texts) // ONE_IN)
        return dict.fromkeys(found if len({split.texts[j] for j in found}) <= few else (), SAID)
    said: dict[int, set[str]] = {}
    for j, terms in told.items():
        said.setdefault(split.owners[j], set(beside[split.owners[j]])).update(terms)
    short = {i for i, terms in said.items() if every <= terms and len(segments[i].text) <= LONGEST}
    few = min(SEVERAL, max(1, len(segments) // SHORT_ONE_IN))
    is_few = len({segments[i].text for i in short}) <= few
    return {j: TOGETHER for j in own if is_few and split.owners[j] in short}


def _above(j: int, own: Mapping[int, set[str]], heads: Sequence[int]) -> set[str]:
    """Returns the words of the question in the sentence that says whose this one is."""
    return own.get(heads[j], set()) if heads else set()


def _names_column(
    term: str, places: Iterable[int], own: Mapping[int, set[str]], texts: Sequence[str]
) -> bool:
    """Returns whether a word is in the heads of tables alone: a row in another chunk says the rest."""
    return all(own[j] == {term} and _HEAD.match(texts[j]) for j in places)
