"""A summary without a model: the sentences of a conversation that later turns depend on, in their own words and order."""

from __future__ import annotations

from ..counting.protocol import TokenCounter
from ..relevance.corpus import TermIndex
from ..relevance.stopwords import STOP_WORDS
from ..relevance.words import stem
from .cut import truncate_text
from .key_moments import is_filler, weigh
from .units import Unit, split_units

__all__ = ["central", "extractive_summary"]

_REMEMBERED = 1.5


def extractive_summary(text: str, max_tokens: int, counter: TokenCounter, *, previous: str = "") -> str:
    """Returns the sentences of `text` that hold decisions, commitments, corrections, preferences, names and numbers, as far as they fit.

    Sentences are copies of the source, in its order; pleasantries and repeats go first. It invents nothing and needs no model, so it is
    the default summarizer.

    Args:
        text: what to summarize.
        max_tokens: the bound on the result.
        counter: counts.
        previous: the summary so far; its sentences come first and stay before new ones of equal weight.

    Returns:
        `text` without surrounding white space when it fits.

    Example:
        >>> from rankbudget.testing.fakes import WordCounter
        >>> extractive_summary("Hello there! We decided to use JWT. What lovely weather today.", 5, WordCounter())
        'We decided to use JWT.'
    """
    before = [unit for unit in split_units(previous.strip() + "\n") if unit.text.strip()]
    text = f"{previous.strip()}\n{text.strip()}".strip()
    if not text or max_tokens <= 0:
        return ""
    if len(counter.truncate(text, max_tokens)) == len(text):
        return text
    units = [unit for unit in split_units(text) if unit.text.strip()]
    ratings = _rate(units, len(before))
    counts = counter.count_many([unit.text for unit in units])
    order = sorted(range(len(units)), key=lambda i: (-ratings[i], i))
    chosen: list[int] = []
    seen: set[str] = set()
    room = max_tokens
    for i in order:
        plain = " ".join(units[i].text.split()).lower()
        if ratings[i] > 0 and counts[i] <= room and plain not in seen:
            chosen.append(i)
            seen.add(plain)
            room -= counts[i]
    while chosen:
        summary = _joined(units, sorted(chosen))
        if counter.count(summary) <= max_tokens:
            return summary
        chosen.pop()
    best = units[order[0]].text.strip() if order else text
    return truncate_text(best, max_tokens, counter)


def _rate(units: list[Unit], before: int) -> list[float]:
    spread = central([unit.text for unit in units])
    ratings: list[float] = []
    for i, unit in enumerate(units):
        if is_filler(unit.text.partition(": ")[2] or unit.text):
            ratings.append(0.0)
            continue
        # What was said later replaces what was said before, so of equals the later one is kept; what was worth a summary once still is.
        ratings.append(
            weigh(unit.text) + spread[i] + 0.5 * (i + 1) / len(units) + (_REMEMBERED if i < before else 0.0)
        )
    return ratings


def central(texts: list[str]) -> list[float]:
    """Returns how much each text speaks of what all of them speak of, 0 to 1.

    Example:
        >>> scores = central(["The budget rules.", "A budget has rules.", "Cats sleep."])
        >>> scores[2] < scores[0]
        True
    """
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


def _joined(units: list[Unit], chosen: list[int]) -> str:
    out = ""
    last = -1
    for i in chosen:
        piece = units[i].text
        if out and last != i - 1 and not out[-1:].isspace() and not piece[:1].isspace():
            out += " "
        out += piece
        last = i
    return out.strip()
