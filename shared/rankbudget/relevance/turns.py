"""Relevance of turns: their own, their neighbours', that of the passages they are in, their speaker's."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from ..segment import Segment
from .corpus import TermIndex, scored_texts
from .fusion import default_scorer, normalised, ratings_of
from .outline import ends_line, is_gap
from .protocol import Scorer
from .question import asks, plain_question
from .tree import NONE, Tree
from .words import raw_words, stem

NEAR, FURTHER = 0.15, 0.2
"""Share of the relevance of the neighbours, and of those two steps away."""
PASSAGES = ((115, 0.6), (300, 0.4), (750, 0.6), (1900, 0.5))
"""Length of the passages in words, and the weight of each."""
SPEAKER = 2.5
"""For turns of whom the question names."""
_OPENS = re.compile(r"\s*([^\W\d_][^:\n]{0,39}?) ?:\s")
_MOST_WORDS = 6
_LEAST, _EACH, _MARKS = 3, 4, " \t#=<|"
"""Questions of a conversation in one text, the most lines for each, and how a line with a layout begins."""


class TurnScorer:
    """Rates turns; `scorer` rates single texts, by default the mix of words and meaning.

    What was talked about spans many turns, and few of them hold the words of the question: each turn adds the
    rating of the best passage it is in. Whom the question names most likely said it.
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
        own = ratings_of(scorer, query, segments)
        total = list(own)
        for distance, share in ((1, NEAR), (2, FURTHER)):  # the answer is often beside the question
            for i in range(len(own) - distance):
                total[i] += share * own[i + distance]
                total[i + distance] += share * own[i]
        for words, weight in PASSAGES:
            spans = passages(texts, words)
            if len(spans) > 1:  # one passage says the same of every turn
                ratings = scorer.score(query, [segment for _, _, segment in spans])
                best = [float("-inf")] * len(texts)
                for (start, end, _), rating in zip(spans, ratings, strict=True):
                    best[start:end] = [max(rating, other) for other in best[start:end]]
                total = [
                    score + weight * rating for score, rating in zip(total, normalised(best), strict=True)
                ]
        return [score + SPEAKER * asked for score, asked in zip(total, _named(query, segments), strict=True)]


def _named(query: str, segments: Sequence[Segment]) -> list[bool]:
    """Returns whether the question has half of the name of who speaks each turn; one turn makes no name."""
    names = [str(segment.metadata.get("name") or "") or _opening(segment.text) for segment in segments]
    asked = {stem(word) for word in raw_words(query)}
    known = {}
    counts = Counter(names)
    # Where most turns have no name, "Error:" is none.
    if 2 * sum([count for name, count in counts.items() if name and count > 1]) < len(names):
        return [False] * len(names)
    for name, count in counts.items():
        words = [stem(word) in asked for word in raw_words(name)]
        known[name] = count > 1 and any(words) and 2 * sum(words) >= len(words)
    return [known[name] for name in names]


def _opening(text: str) -> str:
    found = _OPENS.match(text)
    return found[1] if found and len(found[1].split()) <= _MOST_WORDS else ""


def passages(texts: tuple[str, ...], words: int) -> list[tuple[int, int, Segment]]:
    """Returns overlapping passages of about `words` words: first turn, turn after the last, and the text.

    They start at fixed distances, so that a turn added at the end leaves all but the last ones as they were.
    """
    lengths = TermIndex.of(texts).lengths
    total = sum(lengths)
    middles = [end - length / 2 for end, length in zip(accumulate(lengths), lengths, strict=True)]
    spans: list[tuple[int, int]] = []
    for left in range(0, max(1, total), max(1, words // 2)):
        start, end = bisect_left(middles, left), bisect_left(middles, left + words)
        if end > start and (start, end) not in spans[-1:]:
            spans.append((start, end))
        if left + words >= total:
            break
    if spans and spans[-1][1] < len(texts):
        spans[-1] = (spans[-1][0], len(texts))
    return [(a, b, Segment(id=f"{a}-{b}", text="\n".join(texts[a:b]))) for a, b in spans or [(0, len(texts))]]


def exchanges_of(pieces: Sequence[str]) -> Tree | None:
    """Returns each question with the turn behind it inside; None for a text that is no plain conversation."""
    lines = list(accumulate([i if ends_line(pieces[i - 1]) else 0 for i in range(len(pieces))], max))
    parents, owners, asked, is_answered = [NONE] * len(pieces), [NONE] * len(pieces), NONE, False
    for i, line in enumerate(lines):
        says = i == line and bool(pieces[i].strip())
        asked, is_answered = (i, False) if asks(pieces[i]) else (asked, is_answered or says)
        parents[i] = NONE if asked == i else asked
        owners[i] = parents[i] if line == i or parents[i] == NONE else max(asked, line)
        if is_answered and is_gap(pieces, i):
            asked = NONE
    stops = {parent: i + 1 for i, parent in enumerate(parents)}
    said = {i for i in lines if pieces[i].strip()}
    above = {parents[i] for i in said}  # an answer in the line of its question is no turn
    chat = len(above) > max(_LEAST, len(said) / _EACH) and not any(pieces[i][0] in _MARKS for i in said)
    return Tree(parents, owners, [stops.get(i, i + 1) for i in range(len(pieces))]) if chat else None
