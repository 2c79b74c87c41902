"""Where the tokens of the window go, as rows that add up to it: every view of a report draws these."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..segment import block_named
from .words import HOLDS_AT_ANY_SIZE

if TYPE_CHECKING:
    from .report import BudgetReport

_HUES = {
    "system": "#5b67c9",
    "project": "#0e8a8a",
    "task": "#b0602a",
    "memory": "#8f57c4",
    "history": "#2b7bd6",
    "examples": "#c8467f",
    "knowledge": "#2a9657",
    "query": "#d08413",
}
_OTHER_HUES = ("#a8423f", "#6c8a1f", "#0b83a5", "#7a5a48", "#a157a1", "#4d7d6b")
_REST_HUES = {
    "framing": "#7b8798",
    "free": "#e9ecf1",
    "limit": "#d3d9e2",
    "safety": "#c3cad6",
    "reserve": "#aeb7c6",
}
_REST_TITLES = {
    "framing": "tools and framing",
    "free": "free",
    "limit": "above max_tokens",
    "safety": "safety",
    "reserve": "reserve",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One part of the window.

    Args:
        name: the block, or one of "framing", "free", "limit", "safety" and "reserve".
        title: what readers see.
        hue: its color in every view, as "#rrggbb".
        is_block: whether it holds pieces.
        used: tokens of the window; the rows add up to it. Only "free" can be below 0, in a report that
            was not made by this library.
        wanted: tokens of all its pieces, whole, without those that no budget would bring back; None where
            nothing asks.
        granted: tokens it was allowed; None where only the window limits it.
        kept: pieces kept whole; `shortened` and `dropped` count the others.
        dropped_for_room: of the dropped, those that more room would have kept.
    """

    name: str
    title: str
    hue: str
    is_block: bool
    used: int
    wanted: int | None = None
    granted: int | None = None
    kept: int = 0
    shortened: int = 0
    dropped: int = 0
    dropped_for_room: int = 0


def rows_of(report: BudgetReport) -> tuple[Row, ...]:
    """Returns the parts of the window in the order of the prompt, then what is not the prompt.

    The `used` of all rows is the window, or the limit where no window is known.
    """
    offered: Counter[str] = Counter()
    for one in report.decisions:
        if one.reason not in HOLDS_AT_ANY_SIZE:
            offered[one.block] += one.before
    others = iter(_OTHER_HUES * len(report.blocks))
    blocks = [
        Row(
            name=block.name,
            title={"query": "question"}.get(block.name, block.name),
            hue=_HUES.get(block_named(block.name)) or next(others),
            is_block=True,
            used=block.used,
            wanted=offered[block.name] or max(block.used, (block.wanted or 0) - block.frame),
            granted=block.granted,
            kept=block.kept,
            shortened=block.shortened,
            dropped=block.dropped,
            dropped_for_room=block.dropped_for_room,
        )
        for block in report.blocks
    ]
    return (*blocks, *_rest(report, sum([row.used for row in blocks])))


def _rest(report: BudgetReport, in_blocks: int) -> list[Row]:
    """Returns the rows that hold no pieces; those of 0 tokens are left out."""
    apart = {"framing": report.overhead, "limit": 0, "safety": 0, "reserve": 0}
    whole = report.limit
    if report.window is not None:
        whole = report.window
        apart |= {"limit": report.capped, "safety": report.safety, "reserve": report.reserve}
    tokens = {"free": whole - in_blocks - sum(apart.values()), **apart}
    return [
        Row(
            name=name,
            title=_REST_TITLES[name],
            hue=hue,
            is_block=False,
            used=tokens[name],
            wanted=tokens[name] if name == "framing" else None,
        )
        for name, hue in _REST_HUES.items()
        if tokens[name]
    ]


def wanted_by(rows: tuple[Row, ...]) -> int:
    """Returns how many tokens the prompt would have if nothing was shortened or dropped."""
    return sum([row.wanted or 0 for row in rows])
