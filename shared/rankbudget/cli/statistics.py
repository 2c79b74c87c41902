"""`rankbudget stats`: what each block used, and how often it was cut, over many reports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import BudgetConfigError, counted, shown
from ..report.report import BudgetReport
from ..report.usage import BlockUsage, usage_of
from .fitting import print_json
from .reading import read_text
from .tables import aligned

_BLANKS = re.compile(r"\s*")


def show_statistics(files: Sequence[str], *, as_json: bool) -> None:
    """Prints for each block how many reports have it, in how many it was cut, and its mean tokens.

    Raises:
        BudgetConfigError: a file has something else than reports.
    """
    reports = [report for file in files for report in _reports(file)]
    blocks = usage_of(reports)
    full = sum(report.total_tokens for report in reports) / sum(max(1, report.limit) for report in reports)
    if as_json:
        rows = {name: _row(block) for name, block in blocks.items()}
        print_json({"reports": len(reports), "used_share": round(full, 4), "blocks": rows})
        return
    print(f"{counted(len(reports), 'report')}, {full:.0%} of the limits used")
    head = ("block", "reports", "cut in", "no room in", "mean wanted", "mean used", "mean granted")
    print(aligned((*head, "pieces dropped"), [(name, *_row(one).values()) for name, one in blocks.items()]))


def _row(block: BlockUsage) -> dict[str, Any]:
    means = {f"mean_{figure}": block.mean(figure) for figure in ("wanted", "used", "granted")}
    return {
        "reports": block.reports,
        "cut_in": block.cut,
        "no_room_in": block.exhausted,
        **means,
        "dropped": block.dropped,
    }


def _reports(file: str) -> Iterator[BudgetReport]:
    """Yields the reports of a file: lists of them, or one after the other, on a line each or indented."""
    text, at = read_text(file).strip(), 0
    values: list[Any] = []
    while at < len(text):
        try:
            value, end = json.JSONDecoder().raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            msg = f"{Path(file).name} must be JSON, or JSON lines, with reports (got {error})"
            raise BudgetConfigError(msg) from error
        values += value if isinstance(value, list) else [value]
        at = _BLANKS.match(text, end).end()  # type: ignore[union-attr]  # it matches everywhere
    if not values:
        msg = f"{Path(file).name} must have a report (got none)"
        raise BudgetConfigError(msg)
    for value in values:
        if not isinstance(value, dict):
            msg = f"{Path(file).name} must have reports only (got {shown(value)})"
            raise BudgetConfigError(msg)
        yield BudgetReport.from_dict(value.get("report", value))
