"""The totals of a report as aligned plain text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["HEAD", "cells", "facts", "table"]

HEAD = ("block", "rank", "granted", "used", "share", "kept", "shortened", "dropped")
_COUNTS = ("kept", "shortened", "dropped")


def table(report: Mapping[str, Any]) -> str:
    """Returns one line for each block, then overhead, total and what else is known of plain data."""
    rows = [HEAD, *(cells(block) for block in report["blocks"])]
    if report["overhead"]:
        rows.append(("overhead", "", "", f"{report['overhead']:,}", "", "", "", ""))
    rows.append(_total(report))
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    lines = []
    for first, *numbers in rows:
        right = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *right]).rstrip())
    return "\n".join([*lines, *facts(report), *(f"warning: {warning}" for warning in report["warnings"])])


def cells(block: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns one block as the columns of `HEAD`."""
    granted = "" if block["granted"] is None else f"{block['granted']:,}"
    share = "" if block["utilization"] is None else f"{block['utilization']:.0%}"
    counts = [f"{block[name]:,}" for name in _COUNTS]
    return (block["name"], str(block["rank"]), granted, f"{block['used']:,}", share, *counts)


def facts(report: Mapping[str, Any]) -> list[str]:
    """Returns what the window is made of, what counted, and what the report covers, where they are known."""
    found = []
    if report["window"] is not None:
        rest = f"{report['reserve']:,} reserve + {report['safety']:,} safety"
        found.append(f"window {report['window']:,} = {report['limit']:,} for the prompt + {rest}")
    if report["counter"]:
        found.append(f"counted with {report['counter']}" + ("" if report["exact"] else " (estimated)"))
    covers = report["covers"]
    found.append("covers the whole prompt" if covers == "prompt" else f"covers the {covers} only")
    return found


def _total(report: Mapping[str, Any]) -> tuple[str, ...]:
    limit, used = report["limit"], report["total_tokens"]
    counts = [f"{sum(block[name] for block in report['blocks']):,}" for name in _COUNTS]
    return ("total", "", f"{limit:,}", f"{used:,}", f"{used / limit:.0%}" if limit > 0 else "", *counts)
