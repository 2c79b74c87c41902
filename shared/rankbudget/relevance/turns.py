"""Relevance of turns: a turn's own, its neighbours', its passage's and its speaker's.

What was talked about spans many turns, and few of them hold the words of the question. So passages of four
lengths are rated as if they were documents, and each turn adds the rating of the best passage it stands in.
Whom the question names most likely said it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..segment import Segment
from .corpus import BoundedCache, TermIndex, scored_texts
from .fusion import default_scorer, normalised
from .protocol import Scorer
from .question import plain_question
from .speakers import named_in, speakers, without

__all__ = ["TurnScorer", "passages", "smoothed"]

NEAR, FURTHER = 0.15, 0.2
"""Share of the relevance of the neighbours, and of those two steps away."""
PASSAGES = ((115, 0.6), (300, 0.4), (750, 0.6), (1900, 0.5))
"""Length of the passages in words, and the weight of each."""
SPEAKER = 2.5
"""For turns of whom the question names."""


class TurnScorer:
    """Rates turns by themselves, their neighbours, their passage and their speaker.

    Args:
        scorer: rates single texts; None takes the default mix of words and meaning.

    Example:
        >>> from rankbudget.relevance.lexical import Bm25Scorer
        >>> texts = "Hi.", "Where is the key?", "In the blue box.", "Bye.", "Bye."
        >>> turns = [Segment(id=str(i), text=text) for i, text in enumerate(texts)]
        >>> scores = TurnScorer(Bm25Scorer()).score("the key", turns)
        >>> scores.index(max(scores)), scores[2] > scores[4]
        (1, True)
    """

    def __init__(self, scorer: Scorer | None = None) -> None:
        self._scorer = scorer

    def score(self, query: str, segments: Sequence[Segment]) -> list[float]:
        """Returns one score for each turn."""
        if not query.strip():
            return [0.0] * len(segments)
        scorer = self._scorer or default_scorer()
        texts = scored_texts(segments)
        query = plain_question(query, texts)
        names = speakers(segments)
        named = named_in(query, names)
        # A name is heard most where others address its owner, and would bring their turns.
        about = without(query, {name for name, asked in zip(names, named, strict=True) if asked})
        total = smoothed(normalised(scorer.score(about, segments)))
        for weight, ratings in _passage_ratings(query, texts, scorer):
            total = [score + weight * rating for score, rating in zip(total, ratings, strict=True)]
        return [score + SPEAKER * asked for score, asked in zip(total, named, strict=True)]


def smoothed(scores: Sequence[float]) -> list[float]:
    """Returns each score plus a share of its neighbours': the answer often stands beside the question.

    Example:
        >>> smoothed([0.0, 1.0, 0.0, 0.0])
        [0.15, 1.0, 0.15, 0.2]
    """
    found = list(scores)
    for distance, share in ((1, NEAR), (2, FURTHER)):
        for i in range(len(scores) - distance):
            found[i] += share * scores[i + distance]
            found[i + distance] += share * scores[i]
    return found


def _passage_ratings(
    query: str, texts: tuple[str, ...], scorer: Scorer
) -> Iterator[tuple[float, list[float]]]:
    """Yields, for each length of passages, a weight and the rating of the best passage of each turn."""
    for words, weight in PASSAGES:
        spans = passages(texts, words)
        if len(spans) < 2:  # noqa: PLR2004 - one passage says the same of every turn
            continue
        ratings = scorer.score(query, [segment for _, _, segment in spans])
        best = [float("-inf")] * len(texts)
        for (start, end, _), rating in zip(spans, ratings, strict=True):
            best[start:end] = [max(rating, other) for other in best[start:end]]
        yield weight, normalised(best)


def passages(texts: tuple[str, ...], words: int) -> list[tuple[int, int, Segment]]:
    """Returns overlapping passages of about `words` words: first turn, turn after the last, and the text.

    They start at fixed distances from the beginning, so that a turn added at the end leaves all but the last
    ones as they were.

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
