"""Decisions in the order of the prompt: a conversation decides on what is kept first, on the oldest last."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ..segment import Decision


def in_order(
    decisions: Iterable[Decision], blocks: Sequence[str], offered: Mapping[tuple[str, str], object]
) -> list[Decision]:
    """Returns the decisions block by block, and those of each block in the order of its pieces.

    Args:
        decisions: of one report.
        blocks: names of the blocks in the order of the prompt; others come last.
        offered: keys are block and id of pieces in their order, where it is known. Elsewhere the numbers
            of ids such as "history-12" are their places.
    """
    of_block: dict[str, list[Decision]] = {name: [] for name in blocks}
    for one in decisions:
        of_block.setdefault(one.block, []).append(one)
    known = {key: i for i, key in enumerate(offered)}
    found: list[Decision] = []
    for name, held in of_block.items():
        given = [known.get((name, one.segment_id)) for one in held]
        places = min(given, [_numbered(one) for one in held], key=lambda found: found.count(None))
        found += [held[i] for i in sorted(range(len(held)), key=_filled(places).__getitem__)]
    return found


def _numbered(one: Decision) -> int | None:
    start, _, number = one.segment_id.rpartition("-")
    return int(number) if start == one.block and re.fullmatch("[0-9]{1,9}", number) else None


def _filled(places: Sequence[int | None]) -> list[tuple[float, int]]:
    """Returns places that sort; a piece without one, as a summary, goes ahead of the piece decided next."""
    made: list[tuple[float, int]] = []
    after = float("inf")
    for i in reversed(range(len(places))):
        place = places[i]
        after = after if place is None else place
        made.append((after, i))
    return made[::-1]
