"""Extract: keep the sentences that matter, as they are, in their order, to an exact number of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..counting.protocol import TokenCounter
from ..relevance.corpus import TermIndex
from ..relevance.stopwords import STOP_WORDS
from ..relevance.words import stem
from .key_moments import is_filler, weigh
from .structured import compress_structured
from .truncate import truncate_text
from .units import Unit, split_units

_SUMMARIZED_BEFORE, _LATER = 1.5, 0.5


def extract(
    text: str, max_tokens: int, counter: TokenCounter, *, first: Callable[[str], bool] | None = None
) -> str:
    """Returns the sentences of `text` most worth keeping, in order; `text` itself when it fits.

    When not even one fits, the best one is cut. Sentences that are `first`, and all blocks, come first.
    """
    if max_tokens <= 0 or not text:
        return ""
    if counter.count(text) <= max_tokens:
        return text
    units = split_units(text)
    ratings = _worth(units)
    late = [first is not None and not (unit.fixed or first(unit.text)) for unit in units]
    order = [i for i, unit in enumerate(units) if unit.text.strip()]
    order.sort(key=lambda i: (late[i], -ratings[i]))
    return _packed(units, order, max_tokens, counter)


def extractive_summary(text: str, max_tokens: int, counter: TokenCounter, *, previous: str = "") -> str:
    """Returns the sentences of `text` with decisions, commitments, preferences, names and numbers.

    It is the default summarizer. Sentences of `previous`, the summary so far, come first and outrank new ones
    of equal weight. `text` comes back without surrounding white space when it fits.
    """
    before = sum(bool(unit.text.strip()) for unit in split_units(previous.strip() + "\n"))
    text = f"{previous.strip()}\n{text.strip()}".strip()
    if not text or max_tokens <= 0:
        return ""
    if counter.count(text) <= max_tokens:
        return text
    units = [unit for unit in split_units(text) if unit.text.strip()]
    # Later statements correct earlier ones, so of equals the later one is kept.
    ratings = [
        rating + _LATER * (i + 1) / len(units) + _SUMMARIZED_BEFORE * (i < before) if rating >= 0 else 0.0
        for i, rating in enumerate(_worth(units))
    ]
    order = sorted(range(len(units)), key=lambda i: (-ratings[i], i))
    return _packed(units, [i for i in order if ratings[i] > 0] or order[:1], max_tokens, counter)


def _worth(units: Sequence[Unit]) -> list[float]:
    """Returns how much may depend on each unit, less than 0 for filler."""
    return [
        -1.0 if is_filler(unit.text.partition(": ")[2] or unit.text) else central + weigh(unit.text)
        for unit, central in zip(units, _central(units), strict=True)
    ]


def _central(units: Sequence[Unit]) -> list[float]:
    """Returns how much each unit shares with others, 0 to 1; units alike but for numbers count once."""
    index = TermIndex([unit.text for unit in units])
    first: dict[tuple[str, ...], int] = {}
    alike = [first.setdefault(tuple(filter(str.isalpha, words)), i) for i, words in enumerate(index.words)]
    scores = [0.0] * len(units)
    for stemmed, words in index.stems.items():
        kept = [word for word in words if word not in STOP_WORDS and (len(word) > 1 or not word.isascii())]
        holders = index.counts(kept) if kept and stem(stemmed) not in STOP_WORDS else ()
        others = len({alike[i] for i in holders})
        for i in holders if others > 1 else ():
            scores[i] += others
    rated = [score / (length + 4) for score, length in zip(scores, index.lengths, strict=True)]
    most = max(rated, default=0.0) or 1.0
    return [score / most for score in rated]


def _packed(units: Sequence[Unit], order: Sequence[int], max_tokens: int, counter: TokenCounter) -> str:
    """Returns the first units of `order` that fit, none twice, in text order; else the very first, cut."""
    counts = counter.count_many([unit.text for unit in units])
    chosen: dict[str, int] = {}
    room = max_tokens
    for i in order:
        text = units[i].text.strip()
        if counts[i] <= room and text not in chosen:
            chosen[text] = i
            room -= counts[i]
    taken = list(chosen.values())
    while taken:
        kept = _joined(units, sorted(taken))
        excess = counter.count(kept) - max_tokens
        if excess <= 0:
            return kept
        # Joined units can count a token more than apart: the least worth keeping that pays for it goes. Where
        # none does, many go at once, as each round counts all that is left.
        largest = max(counts[i] for i in taken)
        while excess > largest:
            excess -= counts[taken.pop()]
        if excess > 0 and taken:
            taken.remove(next((i for i in reversed(taken) if counts[i] >= excess), taken[-1]))
    if not order:
        return ""
    best = units[order[0]]
    cut = compress_structured if best.kind == "json" else truncate_text
    return cut(best.text.strip(), max_tokens, counter)


def _joined(units: Sequence[Unit], chosen: Sequence[int]) -> str:
    joined = ""
    last = -1
    for i in chosen:
        piece = units[i].text
        if joined and last != i - 1:
            if units[last].paragraph != units[i].paragraph:
                joined += "" if joined.endswith("\n") else "\n"
                piece = piece.lstrip(" ")
            elif not joined[-1].isspace() and not piece[:1].isspace() and piece[:1].isascii():
                joined += " "
        joined += piece
        last = i
    return joined.strip()
