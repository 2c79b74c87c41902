"""Extract: keep the sentences that matter, as they are, in their order, to an exact number of tokens.

With a query a sentence is rated together with its paragraph: the right sentence in the wrong paragraph is a
coincidence. Without one, sentences about the text's main subject come first, with those that hold names,
numbers and decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ..counting.protocol import TokenCounter
from ..relevance.fusion import FusionScorer, normalised
from ..relevance.lexical import Bm25Scorer, GramScorer
from ..relevance.protocol import Scorer
from ..segment import Segment
from .key_moments import is_filler, weigh
from .picking import pick_units
from .summary import central
from .units import Unit, split_units

__all__ = ["extract"]

_OF_ITS_PARAGRAPH = 0.6
_SALIENT, _LEADS, _FIXED = 0.5, 0.3, 0.5
_MOST_WEIGHT = 4.0


def extract(
    text: str, max_tokens: int, counter: TokenCounter, *, query: str = "", scorer: Scorer | None = None
) -> str:
    """Returns the sentences of `text` most worth keeping, in order; `text` itself when it fits.

    When not even one unit fits, the best one is cut. `scorer` rates sentences against the query; None
    compares words.
    """
    if max_tokens <= 0 or not text:
        return ""
    if len(counter.truncate(text, max_tokens)) == len(text):
        return text
    units = split_units(text)
    relevance = _relevance(units, query, scorer or _by_words()) if query.strip() else []
    ratings = relevance if any(relevance) else _salience(units)
    order = sorted((i for i, unit in enumerate(units) if unit.text.strip()), key=lambda i: (-ratings[i], i))
    return pick_units(units, order, max_tokens, counter)


@lru_cache(maxsize=1)
def _by_words() -> Scorer:
    """Words and word pieces, no vectors: a few milliseconds for a long document."""
    return FusionScorer([(Bm25Scorer(), 1.0), (GramScorer(), 0.5)])


def _salience(units: Sequence[Unit]) -> list[float]:
    ratings = central([unit.text for unit in units])
    for i, unit in enumerate(units):
        weight = -1.0 if is_filler(unit.text) else min(weigh(unit.text), _MOST_WEIGHT) / _MOST_WEIGHT
        leads = i == 0 or units[i - 1].paragraph != unit.paragraph
        ratings[i] += _SALIENT * weight + _LEADS * leads + _FIXED * unit.fixed
    return ratings


def _relevance(units: Sequence[Unit], query: str, scorer: Scorer) -> list[float]:
    own = _scores(scorer, query, [unit.text for unit in units])
    texts: dict[int, list[str]] = {}
    for unit in units:
        texts.setdefault(unit.paragraph, []).append(unit.text)
    if len(texts) == 1:
        return own
    scores = _scores(scorer, query, ["".join(pieces) for pieces in texts.values()])
    paragraphs = dict(zip(texts, scores, strict=True))
    return [
        score + _OF_ITS_PARAGRAPH * paragraphs[unit.paragraph] for score, unit in zip(own, units, strict=True)
    ]


def _scores(scorer: Scorer, query: str, texts: Sequence[str]) -> list[float]:
    return normalised(scorer.score(query, [Segment(id=str(i), text=text) for i, text in enumerate(texts)]))
