"""Relevance of turns: a turn's own, its neighbours', its passage's, its speaker and its day.

What was talked about spans many turns, and few of them hold the words of the question. So passages of four
lengths are rated as if they were documents, and each turn adds the rating of the best passage it stands in.
Where several people speak in turns of very uneven length, as in a meeting, long passages count most: a word
of assent belongs to the answer as much as the speech it follows. In other chats a turn says what it says by
itself, and whom the question names most likely said it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ..segment import Segment
from .asking import subject, without
from .corpus import BoundedCache, TermIndex, scored_texts
from .dates import closeness
from .fusion import default_scorer, normalised
from .protocol import Scorer
from .smoothing import smoothed, surrounding
from .speakers import named_in, speakers

__all__ = ["TurnScorer", "passages"]

Weight = tuple[float, float]
"""In a chat, in a meeting."""
NEAR: Weight = (0.15, 0.2)
FURTHER: Weight = (0.2, 0.1)
"""Share of the neighbours' own relevance."""
PASSAGES: tuple[tuple[int, Weight], ...] = (
    (115, (0.6, 0.6)),
    (300, (0.4, 0.5)),
    (750, (0.5, 1.8)),
    (1900, (0.35, 2.2)),
)
"""Length of the passages in words, and the weight of each."""
AROUND: tuple[tuple[int, Weight], ...] = ((300, (0.0, 0.4)), (1250, (0.0, 0.6)))
"""Words before and after a turn, and the weight of all relevant turns there together."""
SPEAKER: Weight = (2.5, 1.0)
"""For turns of whom the question names."""
DATE = 6.0
"""For turns of a day the question names, less for its month."""
SCALE: Weight = (1.0, 0.45)
"""Brings the sum to one scale, so that a score means the same in both."""
EVEN, UNEVEN = 0.6, 0.75
"""Spread of the turns' lengths over their mean: up to the first a chat, from the second on a meeting."""
HALF = 0.5
"""Meetings from here on; there a speaker's name is often a party's, and a topic ("the marketing")."""
SEVERAL = 3
"""Speakers from which a conversation may be a meeting."""


class TurnScorer:
    """Rates turns by themselves, their neighbours, their passage, their speaker and their day.

    Args:
        scorer: rates single texts; None takes the default mix of words and meaning.

    Example:
        >>> from rankbudget.relevance.bm25 import Bm25Scorer
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
        lengths = TermIndex.of(texts).lengths
        names = speakers(segments)
        meeting = _like_a_meeting(lengths, names)
        asked = subject(query)
        named = named_in(query, names)
        about = asked
        if (
            meeting <= HALF
        ):  # a name is heard most where others address its owner, and would bring their turns
            about = without(asked, {name for name, is_named in zip(names, named, strict=True) if is_named})
        own = normalised(scorer.score(about, segments))
        parts: list[tuple[Weight, list[float]]] = [
            *_passage_ratings(asked, texts, scorer),
            (SPEAKER, [float(is_named) for is_named in named]),
            ((DATE, DATE), closeness(query, [segment.created_at for segment in segments])),
        ]
        if meeting:
            found = [max(0.0, score) for score in own]
            parts += [(weight, normalised(surrounding(found, lengths, words))) for words, weight in AROUND]
        total = smoothed(own, near=_mixed(NEAR, meeting), further=_mixed(FURTHER, meeting))
        for weights, scores in parts:
            weight = _mixed(weights, meeting)
            total = [sum_ + weight * score for sum_, score in zip(total, scores, strict=True)]
        scale = _mixed(SCALE, meeting)
        return [scale * score for score in total]


def _passage_ratings(
    query: str, texts: tuple[str, ...], scorer: Scorer
) -> Iterator[tuple[Weight, list[float]]]:
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


def _like_a_meeting(lengths: Sequence[int], names: Sequence[str]) -> float:
    """Returns 1 for several people in turns of very uneven length, 0 for a chat, or something between."""
    if len(set(names) - {""}) < SEVERAL:
        return 0.0
    mean = sum(lengths) / len(lengths)
    spread = math.sqrt(sum([(length - mean) ** 2 for length in lengths]) / len(lengths)) / (mean or 1.0)
    return min(1.0, max(0.0, (spread - EVEN) / (UNEVEN - EVEN)))


def _mixed(weight: Weight, meeting: float) -> float:
    return weight[0] + meeting * (weight[1] - weight[0])


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
