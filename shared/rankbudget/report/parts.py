"""Decisions and ranges of them, as a report reads them, and the pieces that they are on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from ..segment import Decision, DecisionRange
from .totals import BlockTotal

Part = Decision | DecisionRange


class KnownPiece(NamedTuple):
    """One piece as the fitting had it: a host's objects or texts, each of which says all of it."""

    block: str
    id: str
    whole: tuple[Any, ...]
    reads: tuple[Any, ...]  # as it is in the prompt, where it is


def make_sum(found: list[Decision], block: BlockTotal) -> None:
    """Changes the last decisions on kept pieces so that all of them add up to what the block uses."""
    rest = block.used - sum([d.after for d in found if d.block == block.name])
    for i, decision in reversed(list(enumerate(found))):
        if rest and decision.after and decision.block == block.name:
            change = max(rest, 1 - decision.after)
            before = decision.before + change if decision.action == "kept" else decision.before
            found[i] = replace(decision, before=before, after=decision.after + change)
            rest -= change


def expanded(part: Part) -> Iterable[Decision]:
    """Returns the single decisions of a part."""
    return part.expand() if isinstance(part, DecisionRange) else (part,)


def size_of(part: Part) -> int:
    """Returns how many decisions a part is; expands nothing."""
    return part.size if isinstance(part, DecisionRange) else 1
