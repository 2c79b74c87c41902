"""What blocks wanted, were granted and used, in one prompt as a text, over many prompts as sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..errors import BudgetConfigError, check_list, shown
from .report import BudgetReport
from .rows import Row, rows_of

Reports = Iterable[Any]
"""Reports, what has one as `.report`, or what their `to_dict` returned, with or without decisions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockUsage:
    """What one block wanted, was granted and used in several reports, in tokens.

    Args:
        name: the block.
        reports: how many reports have it.
        cut: in how many of them a piece was shortened or dropped.
        exhausted: in how many of them a piece was dropped that more room would have kept.
        wanted: tokens of all its pieces, whole, in all reports; None where one does not know, as of a history
            in a report that was written without decisions.
        granted: tokens it was allowed in all reports.
        used: tokens that were in the prompts.
        dropped: pieces that were dropped.

    Example:
        >>> counted = {"wanted": 900, "granted": 400, "used": 320}
        >>> usage = BlockUsage(name="history", reports=4, cut=3, exhausted=2, **counted)
        >>> usage.exhaustion, usage.mean("used")
        (0.5, 80)
    """

    name: str
    reports: int = 0
    cut: int = 0
    exhausted: int = 0
    wanted: int | None = 0
    granted: int = 0
    used: int = 0
    dropped: int = 0

    @property
    def exhaustion(self) -> float:
        """Share of the reports, 0 to 1, in which it dropped a piece for want of room."""
        return self.exhausted / self.reports if self.reports else 0.0

    def mean(self, figure: str) -> int | None:
        """Returns the mean of a `figure` ("wanted", "granted", "used" or "dropped") over all reports."""
        total: int | None = getattr(self, figure)
        return None if total is None else round(total / max(1, self.reports))


def usage_of(reports: Reports) -> dict[str, BlockUsage]:
    """Returns for each block of some reports what it wanted, was granted and used, by the block's name.

    Args:
        reports: reports, what has one as `.report`, as what `HistoryStore.reports` yields, or what their
            `to_dict` returned; `decisions=False` is enough.

    Raises:
        BudgetConfigError: `reports` is no list, or holds something else than reports.

    Example:
        >>> from rankbudget import fit_messages
        >>> chat = [{"role": "user", "content": f"question {n}"} for n in range(9)]
        >>> history = usage_of(fit_messages(chat, max_tokens=most).report for most in (24, 100))["history"]
        >>> history.reports, history.exhaustion, history.wanted, history.used
        (2, 0.5, 126, 84)
    """
    found: dict[str, BlockUsage] = {}
    for report in reports_in(reports):
        for row in rows_of(report):
            if row.is_block:
                found[row.name] = _with(found.get(row.name) or BlockUsage(name=row.name), row)
    return found


def debug_context(made: Any) -> str:
    """Returns each block's tokens, grant and usage, and what looks wrong, as `table()` does.

    Args:
        made: a report, or what has one as `.report`: a FitResult, an Assembly.

    Raises:
        BudgetConfigError: `made` is neither.

    Example:
        >>> from rankbudget import fit_documents
        >>> print(debug_context(fit_documents(["one tea", "two teas"], max_tokens=4, query="tea?")))
        block      rank  granted  used  usage  kept  shortened  dropped
        knowledge     7        4     2    50%     1          0        1
        total                  4     2    50%     1          0        1
        counted with o200k_base
        covers the documents only
        warning: dropped 1 of 2 segments: knowledge 1 of 2
    """
    return as_report(made).table()


def reports_in(given: Any) -> list[BudgetReport]:
    """Returns reports that were given as a list of them or of plain data."""
    check_list("reports", given, "reports, or of what their to_dict() returned")
    return list(map(as_report, given))


def as_report(given: Any) -> BudgetReport:
    """Returns a report that was given as itself, by what has it, or as plain data."""
    given = getattr(given, "report", given)
    if isinstance(given, BudgetReport):
        return given
    if isinstance(given, Mapping):
        return BudgetReport.from_dict(given)
    msg = f"a report must be a BudgetReport, or what its to_dict() returned (got {shown(given)})."
    raise BudgetConfigError(msg)


def wanted_of(row: Row) -> int | None:
    """Returns the tokens of all pieces of a block, whole; None where those of dropped ones are unknown."""
    wanted = row.wanted or 0
    return None if row.dropped_for_room and wanted <= row.used else wanted


def _with(usage: BlockUsage, row: Row) -> BlockUsage:
    wanted = wanted_of(row)
    return replace(
        usage,
        reports=usage.reports + 1,
        cut=usage.cut + bool(row.shortened or row.dropped),
        exhausted=usage.exhausted + bool(row.dropped_for_room),
        wanted=None if usage.wanted is None or wanted is None else usage.wanted + wanted,
        granted=usage.granted + (row.granted or 0),
        used=usage.used + row.used,
        dropped=usage.dropped + row.dropped,
    )
