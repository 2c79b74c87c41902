"""A summary without a model: the sentences of a conversation that later turns depend on."""

from __future__ import annotations

from ..counting.protocol import TokenCounter
from ..relevance.corpus import TermIndex
from ..relevance.stopwords import STOP_WORDS
from ..relevance.words import stem
from .key_moments import is_filler, weigh
from .picking import pick_units
from .units import Unit, split_units

__all__ = ["central", "extractive_summary"]

_SUMMARIZED_BEFORE = 1.5
_LATER = 0.5


def extractive_summary(text: str, max_tokens: int, counter: TokenCounter, *, previous: str = "") -> str:
    """Returns the sentences of `text` with decisions, commitments, preferences, names and numbers.

    It is the default summarizer. Sentences of `previous`, the summary so far, come first and outrank new ones
    of equal weight. `text` comes back without surrounding white space when it fits.
    """
    before = sum(bool(unit.text.strip()) for unit in split_units(previous.strip() + "\n"))
    text = f"{previous.strip()}\n{text.strip()}".strip()
    if not text or max_tokens <= 0:
        return ""
    if len(counter.truncate(text, max_tokens)) == len(text):
        return text
    units = [unit for unit in split_units(text) if unit.text.strip()]
    ratings = _rate(units, before)
    order = sorted(range(len(units)), key=lambda i: (-ratings[i], i))
    return pick_units(units, [i for i in order if ratings[i] > 0] or order[:1], max_tokens, counter)


def _rate(units: list[Unit], before: int) -> list[float]:
    spread = central([unit.text for unit in units])
    ratings = [0.0] * len(units)
    for i, unit in enumerate(units):
        if is_filler(unit.text.partition(": ")[2] or unit.text):
            continue
        # Later statements correct earlier ones, so of equals the later one is kept.
        ratings[i] = weigh(unit.text) + spread[i] + _LATER * (i + 1) / len(units)
        if i < before:
            ratings[i] += _SUMMARIZED_BEFORE
    return ratings


def central(texts: list[str]) -> list[float]:
    """Returns for each text how much it shares with the others, 0 to 1."""
    index = TermIndex(texts)
    scores = [0.0] * len(texts)
    for stemmed, words in index.stems.items():
        kept = [word for word in words if word not in STOP_WORDS and (len(word) > 1 or not word.isascii())]
        if not kept or stem(stemmed) in STOP_WORDS:
            continue
        holders = index.counts(kept)
        if len(holders) > 1:
            for i in holders:
                scores[i] += len(holders)
    rated = [score / (length + 4) for score, length in zip(scores, index.lengths, strict=True)]
    most = max(rated, default=0.0)
    return [score / most for score in rated] if most else rated
