"""Relevance of the turns of a conversation: a turn's own, its neighbours' and that of the passage it stands in.

What was talked about spans many turns, and few of them hold the words of the question. So passages of four lengths are rated as if they
were documents, and each turn adds the rating of the best passage it stands in.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..segment import Segment
from .corpus import BoundedCache, TermIndex, scored_texts
from .fusion import normalised
from .protocol import Scorer
from .smoothing import smoothed

__all__ = ["TurnScorer", "passages"]

PASSAGES = ((115, 0.45), (300, 0.45), (750, 0.9), (1900, 0.4))
"""Length of the passages in words, and the weight of each; chosen on the development questions of the quality benchmark."""
NEAR, FURTHER = 0.2, 0.1
"""Share of the neighbours' own relevance beside the passages: less than without them."""


class TurnScorer:
    """Rates turns by themselves, their neighbours and their passage.

    Args:
        scorer: rates single texts; None takes the default mix of words and meaning.

    Example:
        >>> from rankbudget.relevance.bm25 import Bm25Scorer
        >>> turns = [Segment(id=str(i), text=text) for i, text in enumerate(("Hi.", "Where is the key?", "In the blue box.", "Bye.", "Bye."))]
        >>> scores = TurnScorer(Bm25Scorer()).score("the key", turns)
        >>> scores.index(max(scores)), scores[2] > scores[4]
        (1, True)
    """

    def __init__(self, scorer: Scorer | None = None) -> None:
        self._scorer = scorer

    def score(self, query: str, segments: Sequence[Segment]) -> list[float]:
        """Returns one score for each turn."""
        from .fusion import default_scorer

        scorer = self._scorer or default_scorer()
        found = smoothed(normalised(scorer.score(query, segments)), near=NEAR, further=FURTHER)
        texts = scored_texts(segments)
        for words, weight in PASSAGES:
            spans = passages(texts, words)
            if len(spans) < 2:  # noqa: PLR2004 - one passage says the same of every turn
                continue
            ratings = scorer.score(query, [segment for _, _, segment in spans])
            best = [float("-inf")] * len(segments)
            for (start, end, _), rating in zip(spans, ratings, strict=True):
                for i in range(start, end):
                    best[i] = max(best[i], rating)
            for i, rating in enumerate(normalised(best)):
                found[i] += weight * rating
        return found


def passages(texts: tuple[str, ...], words: int) -> list[tuple[int, int, Segment]]:
    """Returns overlapping passages of about `words` words: first turn, turn after the last, and the text.

    They start at fixed distances from the beginning, so that a turn added at the end leaves all but the last ones as they were.

    Example:
        >>> [(start, end) for start, end, _ in passages(("one two",) * 6, 4)]
        [(0, 2), (1, 3), (2, 4), (3, 5), (4, 6)]
    """
    return _PASSAGES.get((words, texts), lambda key: _cut(key[1], key[0]))


def _cut(texts: tuple[str, ...], words: int) -> list[tuple[int, int, Segment]]:
    middles: list[float] = []
    total = 0
    for length in TermIndex.of(texts).lengths:
        middles.append(total + length / 2)
        total += length
    step = max(1, words // 2)
    spans: list[tuple[int, int]] = []
    start = end = 0
    for left in range(0, max(1, total), step):
        while start < len(texts) and middles[start] < left:
            start += 1
        while end < len(texts) and middles[end] < left + words:
            end += 1
        if end > start and (start, end) not in spans[-1:]:
            spans.append((start, end))
        if left + words >= total:
            break
    if spans and spans[-1][1] < len(texts):
        spans[-1] = (spans[-1][0], len(texts))
    return [(a, b, Segment(id=f"{a}-{b}", text="\n".join(texts[a:b]))) for a, b in spans or [(0, len(texts))]]


_PASSAGES: BoundedCache[tuple[int, tuple[str, ...]], list[tuple[int, int, Segment]]] = BoundedCache(
    max_size=8_000_000, size=lambda key: 2 * sum(map(len, key[1])) + 64
)
