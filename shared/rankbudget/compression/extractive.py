"""Extract: keep the sentences that matter, as they are, in their order, to an exact number of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ..counting.protocol import TokenCounter
from ..relevance.corpus import TermIndex
from ..relevance.fusion import FusionScorer, normalised
from ..relevance.lexical import Bm25Scorer, GramScorer
from ..relevance.protocol import Scorer
from ..relevance.sentences import split_sentences
from ..relevance.stopwords import STOP_WORDS
from ..relevance.words import stem
from ..segment import Segment
from .key_moments import is_filler, weigh
from .structured import compress_structured
from .truncate import truncate_text
from .units import Unit, split_units

_OF_ITS_PARAGRAPH = 0.6
_SUMMARIZED_BEFORE, _LATER = 1.5, 0.5


def extract(
    text: str,
    max_tokens: int,
    counter: TokenCounter,
    *,
    query: str = "",
    scorer: Scorer | None = None,
    first: Callable[[str], bool] | None = None,
) -> str:
    """Returns the sentences of `text` most worth keeping, in order; `text` itself when it fits.

    When not even one unit fits, the best one is cut. With a query, so is a block larger than half of
    `max_tokens` that does not fit: what the query names stays of it. `scorer` rates sentences against the
    query; None compares words. Sentences that are `first`, and all blocks, then come before the others.
    """
    if max_tokens <= 0 or not text:
        return ""
    if counter.count(text) <= max_tokens:
        return text
    units = split_units(text)
    # Words and their pieces, without vectors, take a few milliseconds for a long document.
    scorer = scorer or FusionScorer([(Bm25Scorer(), 1.0), (GramScorer(), 0.5)])
    ratings = _relevance(units, query, scorer) if query.strip() else []
    if not any(ratings):
        ratings = _worth(units)
    late = [first is not None and not (unit.fixed or first(unit.text)) for unit in units]
    order = [i for i, unit in enumerate(units) if unit.text.strip()]
    order.sort(key=lambda i: (late[i], -ratings[i]))
    return _packed(units, order, max_tokens, counter, query)


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


def _relevance(units: Sequence[Unit], query: str, scorer: Scorer) -> list[float]:
    def rate(texts: Sequence[str]) -> list[float]:
        segments = [Segment(id=str(i), text=text) for i, text in enumerate(texts)]
        return normalised(scorer.score(query, segments))

    # A block answers where its best line or record does; all of it would be rated as one long sentence.
    pieces = [list(split_sentences(unit.text)) if unit.fixed else [unit.text] for unit in units]
    rated = iter(rate([piece for found in pieces for piece in found]))
    own = [max([next(rated) for _ in found], default=0.0) for found in pieces]
    texts: dict[int, str] = {}
    for unit in units:
        texts[unit.paragraph] = texts.get(unit.paragraph, "") + unit.text
    if len(texts) == 1:
        return own
    paragraphs = dict(zip(texts, rate(list(texts.values())), strict=True))
    return [
        score + _OF_ITS_PARAGRAPH * paragraphs[unit.paragraph] for score, unit in zip(own, units, strict=True)
    ]


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


def _packed(
    units: Sequence[Unit], order: Sequence[int], max_tokens: int, counter: TokenCounter, query: str = ""
) -> str:
    """Returns the first units of `order` that fit, none twice, in text order.

    With a query, the best block that would take more than half of the room is cut where it does not fit: what
    the query names stays of it. Where not even one unit fits, the very first is cut.
    """
    counts = counter.count_many([unit.text for unit in units])
    large = [i for i in order if units[i].fixed and 2 * counts[i] > max_tokens] if query.strip() else []
    block = large[0] if large else None
    chosen: dict[str, int] = {}
    room, reserved = max_tokens, 0
    for i in order:
        text = units[i].text.strip()
        if counts[i] <= room and text not in chosen:
            chosen[text] = i
            room -= counts[i]
        elif i == block:
            share = max_tokens * counts[i] // sum(counts)
            reserved = min(room, max(share, max_tokens // 2))
            room -= reserved
    taken = _fitting(units, list(chosen.values()), counts, max_tokens - reserved, counter)
    if taken and not reserved:
        return _joined(units, taken)
    if not order:
        return ""
    cut = block if reserved and block is not None else order[0]
    return _with_cut(units, taken, cut, max_tokens, counter, query)


def _fitting(
    units: Sequence[Unit], taken: list[int], counts: Sequence[int], max_tokens: int, counter: TokenCounter
) -> list[int]:
    """Returns in text order the units that fit when they are joined; the best ones are given first."""
    while taken:
        kept = sorted(taken)
        excess = counter.count(_joined(units, kept)) - max_tokens
        if excess <= 0:
            return kept
        # Joined units can count a token more than apart: the least worth keeping that pays for it goes. Where
        # none does, many go at once, as each round counts all that is left.
        largest = max(counts[i] for i in taken)
        while excess > largest:
            excess -= counts[taken.pop()]
        if excess > 0 and taken:
            taken.remove(next((i for i in reversed(taken) if counts[i] >= excess), taken[-1]))
    return []


def _with_cut(
    units: Sequence[Unit], taken: Sequence[int], cut: int, max_tokens: int, counter: TokenCounter, query: str
) -> str:
    """Returns the units that were taken, with what is left of one more."""
    unit = units[cut]
    structured = unit.kind == "json" or (unit.fixed and query.strip())
    shorten = partial(compress_structured, question=query) if structured else truncate_text
    others = _joined(units, taken)
    room = max_tokens - counter.count(others)
    while room > 0:
        left = replace(unit, text=shorten(unit.text.strip(), room, counter) + "\n")
        joined = _joined([*units[:cut], left, *units[cut + 1 :]], sorted([*taken, cut]))
        excess = counter.count(joined) - max_tokens
        if excess <= 0:
            return joined
        room -= excess
    return others


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
