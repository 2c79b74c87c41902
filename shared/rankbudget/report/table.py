"""A report as aligned plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .report import BudgetReport

__all__ = ["table"]

_HEAD = ("block", "rank", "granted", "used", "share", "kept", "shortened", "dropped")


def table(report: BudgetReport) -> str:
    """Returns one line for each block, then overhead, total, and what the window is made of."""
    rows: list[tuple[str, ...]] = [_HEAD]
    for block in report.blocks:
        granted = "" if block.granted is None else f"{block.granted:,}"
        share = "" if block.utilization is None else f"{block.utilization:.0%}"
        rows.append(
            (
                block.name,
                str(block.rank),
                granted,
                f"{block.used:,}",
                share,
                *map(str, (block.kept, block.shortened, block.dropped)),
            )
        )
    if report.overhead:
        rows.append(("overhead", "", "", f"{report.overhead:,}", "", "", "", ""))
    sums = [
        str(sum(getattr(block, name) for block in report.blocks)) for name in ("kept", "shortened", "dropped")
    ]
    share = f"{report.total_tokens / report.limit:.0%}" if report.limit > 0 else ""
    rows.append(("total", "", f"{report.limit:,}", f"{report.total_tokens:,}", share, *sums))
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    lines = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    if report.window is not None:
        sentence = f"window {report.window:,} = {report.limit:,} for the prompt + {report.reserve:,} reserve + {report.safety:,} safety"
        lines.append(sentence)
    if report.counter:
        lines.append(f"counted with {report.counter}" + ("" if report.exact else " (estimated)"))
    lines += [f"warning: {warning}" for warning in report.warnings]
    return "\n".join(lines)
