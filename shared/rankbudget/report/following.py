"""The report of a prompt that was planned twice: the second plan was made of what the first had left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..segment import Decision
from .parts import KnownPiece
from .report import BudgetReport, MoreTokens

Name = tuple[str, str]
"""Block and id of a segment."""


def following(later: BudgetReport, earlier: BudgetReport) -> BudgetReport:
    """Returns the report of the `later` plan with what the `earlier` one had dropped or shortened.

    How many more tokens bring back what the earlier plan dropped is not known.
    """

    def made() -> Mapping[str, Any]:
        parts = (*_left_out(earlier, later), *_since(earlier, later.decisions))
        return {"overhead": later.overhead, "totals": later.totals, "parts": parts, "joined": ()}

    def needs(_: BudgetReport) -> MoreTokens:
        own = _names(later.decisions)
        return lambda block, name: later.more_tokens(name, block) if (block, name) in own else None

    def pieces() -> list[KnownPiece]:
        return [one for report in (earlier, later) for one in (report._pieces or list)()]  # noqa: SLF001

    figures = {name: getattr(later, name) for name in later.__dataclass_fields__ if name != "overhead"}
    warnings = later._noted  # noqa: SLF001 - what its decisions show is worked out anew
    return BudgetReport(**figures, warnings=warnings, later=made, needs=needs, pieces=pieces)


def _names(decisions: Sequence[Decision]) -> dict[Name, Decision]:
    return {(one.block, one.segment_id): one for one in decisions}


def _left_out(earlier: BudgetReport, later: BudgetReport) -> list[Decision]:
    """Returns the earlier plan's decisions on what is in no prompt since."""
    again = _names(later.decisions)
    return [one for name, one in _names(earlier.decisions).items() if not one.after and name not in again]


def _since(earlier: BudgetReport, decisions: Sequence[Decision]) -> list[Decision]:
    """Returns later decisions with what each piece was before the earlier plan."""
    known, made = _names(earlier.decisions), list[Decision]()
    for one in decisions:
        first = known.get((one.block, one.segment_id), one)
        cut = first.after < first.before
        again = replace(first, after=one.after) if one.action == "kept" else replace(one, before=first.before)
        made.append(again if cut else one)
    return made
