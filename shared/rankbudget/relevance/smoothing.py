"""Neighbours in a conversation lend each other relevance: the answer often stands beside them.

Keeping whole neighbours regardless of their own score finds less evidence, and so does rewarding variety.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

__all__ = ["smoothed", "surrounding"]


def smoothed(scores: Sequence[float], *, near: float, further: float) -> list[float]:
    """Returns each score plus a share of its neighbours'.

    Args:
        scores: one per turn, in the order of the conversation.
        near: share of each direct neighbour.
        further: share of each neighbour two steps away.

    Example:
        >>> smoothed([0.0, 1.0, 0.0, 0.0], near=0.5, further=0.25)
        [0.5, 1.0, 0.5, 0.25]
    """
    found = list(scores)
    for distance, share in ((1, near), (2, further)):
        for i in range(len(scores) - distance):
            found[i] += share * scores[i + distance]
            found[i + distance] += share * scores[i]
    return found


def surrounding(scores: Sequence[float], lengths: Sequence[int], within: float) -> list[float]:
    """Returns for each turn the sum of the scores of the turns around it, itself included.

    Args:
        scores: one per turn, in the order of the conversation.
        lengths: words of each turn.
        within: largest distance in words, middle to middle.

    Example:
        >>> surrounding([1.0, 0.0, 0.0, 2.0], [10, 10, 10, 10], 20)
        [1.0, 3.0, 3.0, 2.0]
    """
    ends = list(accumulate(lengths, initial=0))
    middles = [end - length / 2 for end, length in zip(ends[1:], lengths, strict=True)]
    sums = list(accumulate(scores, initial=0.0))
    return [
        sums[bisect_right(middles, middle + within)] - sums[bisect_left(middles, middle - within)]
        for middle in middles
    ]
