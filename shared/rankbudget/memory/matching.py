"""Which items of a sequence are those of an older one, in the same order."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import pairwise


def matched(old: Sequence[Hashable], new: Sequence[Hashable]) -> dict[int, int]:
    """Returns the old position of each new item that stayed, by its new position.

    Items that both have once stay where their order allows it; others stay beside these. The idea is that
    of a patience diff, whose time grows with the length alone however often an item is repeated.
    """
    stayed: dict[int, int] = {}
    for (n, o), (end, old_end) in pairwise([(-1, -1), *_anchors(old, new), (len(new), len(old))]):
        if n >= 0:
            stayed[n] = o
        most, before, behind = min(end - n, old_end - o) - 1, 0, 0
        while before < most and new[n + before + 1] == old[o + before + 1]:
            before += 1
            stayed[n + before] = o + before
        while behind < most - before and new[end - behind - 1] == old[old_end - behind - 1]:
            behind += 1
            stayed[end - behind] = old_end - behind
    return stayed


def _anchors(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Returns the new and old positions of most of the items that both have once, in one order."""
    times, times_before = Counter(new), Counter(old)
    places = {item: o for o, item in enumerate(old) if times_before[item] == 1 == times[item]}
    both = [(n, places[item]) for n, item in enumerate(new) if item in places]
    lowest: list[int] = []  # the lowest old position at which so many are in order
    last: list[int] = []  # which one is there
    before: list[int] = []
    for a, (_, o) in enumerate(both):
        length = bisect_left(lowest, o)
        before.append(last[length - 1] if length else -1)
        lowest[length : length + 1], last[length : length + 1] = [o], [a]
    ordered, a = list[tuple[int, int]](), last[-1] if last else -1
    while a >= 0:
        ordered.append(both[a])
        a = before[a]
    return ordered[::-1]
