"""`rankbudget stats`: what each block used, and how often it was cut, over many reports."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import BudgetConfigError, counted, shown
from ..report.report import BudgetReport
from ..report.usage import BlockUsage, usage_of
from .fitting import print_json
from .reading import read_text
from .tables import aligned


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
    """Yields the reports of a file: one, a list of them, or one a line."""
    text = read_text(file)
    try:
        values = json.loads(text)
        values = values if isinstance(values, list) else [values]
    except ValueError:
        try:
            values = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError as error:
            msg = f"{Path(file).name} must be JSON, or JSON lines, with reports (got {error})"
            raise BudgetConfigError(msg) from error
    if not values:
        msg = f"{Path(file).name} must have a report (got none)"
        raise BudgetConfigError(msg)
    for value in values:
        if not isinstance(value, dict):
            msg = f"{Path(file).name} must have reports only (got {shown(value)})"
            raise BudgetConfigError(msg)
        yield BudgetReport.from_dict(value.get("report", value))
