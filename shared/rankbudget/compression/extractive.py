"""Extract: keep the sentences that matter, as they are, in their order, to an exact number of tokens.

With a query a sentence is rated together with the paragraph it stands in: the right sentence in the wrong paragraph is a coincidence.
Without one, sentences that speak of what the text speaks of come first, with those that hold names, numbers and decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..counting.protocol import TokenCounter
from ..relevance.bm25 import Bm25Scorer, GramScorer
from ..relevance.fusion import FusionScorer, normalised
from ..relevance.protocol import Scorer
from ..relevance.words import raw_words
from ..segment import Segment
from .cut import truncate_text
from .key_moments import is_filler, weigh
from .structured import compress_structured
from .summary import central
from .units import Unit, split_units

__all__ = ["ExtractOptions", "extract", "lexical_scorer", "rate_units"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractOptions:
    """Weights of what makes a sentence worth keeping.

    Args:
        paragraph_weight: share of its paragraph's relevance a sentence gets.
        neighbour_weight: share of the relevance of the sentences beside it.
        salience_weight: weight of decisions, names and numbers where there is no query.
        lead_weight: what the first sentence of a paragraph gets where there is no query.
        block_weight: what code, JSON and tables get where there is no query.
        drop_repeats: whether a sentence in the same words as one that is kept goes first.
    """

    paragraph_weight: float = 0.6
    neighbour_weight: float = 0.0
    salience_weight: float = 0.5
    lead_weight: float = 0.3
    block_weight: float = 0.5
    drop_repeats: bool = True


@lru_cache(maxsize=1)
def lexical_scorer() -> Scorer:
    """Returns the scorer of sentences: words and word pieces, no vectors, a few milliseconds for a long document."""
    return FusionScorer([(Bm25Scorer(), 1.0), (GramScorer(), 0.5)])


def extract(
    text: str,
    max_tokens: int,
    counter: TokenCounter,
    *,
    query: str = "",
    scorer: Scorer | None = None,
    options: ExtractOptions | None = None,
) -> str:
    """Returns the sentences of `text` most worth keeping, in order, in at most `max_tokens`.

    Code, JSON, tables, URLs, numbers and quoted names are inside units that are kept or dropped whole.

    Args:
        text: what to shorten.
        max_tokens: the bound on the result.
        counter: counts.
        query: what the kept sentences should answer.
        scorer: rates sentences against the query; None compares words.
        options: weights.

    Returns:
        `text` itself when it fits. When not even one unit fits, the best one, cut.

    Example:
        >>> from rankbudget.testing.fakes import WordCounter
        >>> extract("Cats sleep a lot. The budget is 5 euros. Dogs bark.", 5, WordCounter(), query="How much is the budget?")
        'The budget is 5 euros.'
    """
    if max_tokens <= 0 or not text:
        return ""
    if len(counter.truncate(text, max_tokens)) == len(text):
        return text
    options = options or ExtractOptions()
    units = split_units(text)
    ratings = rate_units(units, query, scorer or lexical_scorer(), options)
    counts = counter.count_many([unit.text for unit in units])
    order = sorted((i for i, unit in enumerate(units) if unit.text.strip()), key=lambda i: (-ratings[i], i))
    chosen = _pack(units, counts, order, max_tokens, drop_repeats=options.drop_repeats)
    while chosen:
        kept = _joined(units, sorted(chosen))
        excess = counter.count(kept) - max_tokens
        if excess <= 0:
            return kept
        # Joints cost a token here and there: the least worth keeping that pays for them goes.
        chosen.remove(next((i for i in reversed(chosen) if counts[i] >= excess), chosen[-1]))
    best = units[order[0]] if order else Unit(text, "sentence", 0)
    return (
        compress_structured(best.text.strip(), max_tokens, counter)
        if best.kind == "json"
        else truncate_text(best.text.strip(), max_tokens, counter)
    )


def rate_units(units: Sequence[Unit], query: str, scorer: Scorer, options: ExtractOptions) -> list[float]:
    """Returns how much each unit is worth keeping."""
    relevance = _relevance(units, query, scorer, options) if query.strip() else None
    if relevance is not None and any(relevance):
        return relevance
    spread = central([unit.text for unit in units])
    ratings: list[float] = []
    for i, unit in enumerate(units):
        salience = -1.0 if is_filler(unit.text) else min(weigh(unit.text), 4.0) / 4.0
        leads = i == 0 or units[i - 1].paragraph != unit.paragraph
        block = unit.kind in {"code", "json", "table"}
        ratings.append(
            spread[i]
            + options.salience_weight * salience
            + options.lead_weight * leads
            + options.block_weight * block
        )
    return ratings


def _relevance(units: Sequence[Unit], query: str, scorer: Scorer, options: ExtractOptions) -> list[float]:
    own = normalised(
        scorer.score(query, [Segment(id=str(i), text=unit.text) for i, unit in enumerate(units)])
    )
    numbers = list(dict.fromkeys(unit.paragraph for unit in units))
    texts: dict[int, list[str]] = {number: [] for number in numbers}
    for unit in units:
        texts[unit.paragraph].append(unit.text)
    whole = dict.fromkeys(numbers, 0.0)
    if len(numbers) > 1:
        segments = [Segment(id=str(number), text="".join(texts[number])) for number in numbers]
        whole = dict(zip(numbers, normalised(scorer.score(query, segments)), strict=True))
    scores: list[float] = []
    for i, unit in enumerate(units):
        beside = [
            own[j] for j in (i - 1, i + 1) if 0 <= j < len(units) and units[j].paragraph == unit.paragraph
        ]
        scores.append(
            own[i] + options.paragraph_weight * whole[unit.paragraph] + options.neighbour_weight * sum(beside)
        )
    return scores


def _pack(
    units: Sequence[Unit], counts: Sequence[int], order: Sequence[int], room: int, *, drop_repeats: bool
) -> list[int]:
    # Skips what does not fit and goes on: stopping at the first misfit wastes the rest of the room.
    chosen: list[int] = []
    seen: set[tuple[str, ...]] = set()
    for i in order:
        if counts[i] > room:
            continue
        if drop_repeats:
            # All words count, "not" too: an order and its opposite are no repeats.
            words = tuple(sorted(raw_words(units[i].text)))
            if words and words in seen:
                continue
            seen.add(words)
        chosen.append(i)
        room -= counts[i]
    return chosen


def _joined(units: Sequence[Unit], chosen: Sequence[int]) -> str:
    parts: list[str] = []
    last = -1
    for i in chosen:
        piece = units[i].text
        if parts and last != i - 1:
            if units[last].paragraph != units[i].paragraph:
                if not parts[-1].endswith("\n"):
                    parts.append("\n")
                piece = piece.lstrip(" ")
            elif not parts[-1][-1:].isspace() and not piece[:1].isspace() and piece[:1].isascii():
                parts.append(" ")
        parts.append(piece)
        last = i
    return "".join(parts).strip()
