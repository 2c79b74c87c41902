"""What became of every piece, kept in a file: a change that drops another piece than before is shown."""

from __future__ import annotations

import sys
from difflib import unified_diff
from pathlib import Path

from ..errors import BudgetConfigError, counted, named_file
from ..report.order import in_order
from ..report.report import BudgetReport

_DIFFERS = 1


def plan_lines(report: BudgetReport) -> list[str]:
    """Returns one line for the limit and one for each piece: what became of it, its block, id and tokens."""
    counted = f"counted with {report.counter}" if report.counter else "counted with a function"
    lines = [f"limit {report.limit} tokens, {counted}"]
    for one in in_order(report.decisions, [block.name for block in report.blocks], {}):
        after = one.after if one.action == "kept" else f"{one.before} -> {one.after}"
        lines.append(f"{one.action:<10} {one.block}/{_on_one_line(one.segment_id)} {after} ({one.reason})")
    return lines


def write_golden(report: BudgetReport, path: str) -> int:
    """Writes the file and says so; returns 0."""
    lines = plan_lines(report)
    with named_file(path):
        Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    print(f"{path}: {counted(len(lines) - 1, 'piece')}")
    return 0


def compare_with(report: BudgetReport, path: str) -> int:
    """Prints what differs from the file; returns 0 where nothing does, else 1.

    Raises:
        BudgetConfigError: the file cannot be read.
    """
    try:
        before = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        msg = f"{path} must be a golden file (got {reason}). --update writes it."
        raise BudgetConfigError(msg) from error
    now = plan_lines(report)
    if before == now:
        print(f"{path}: {counted(len(now) - 1, 'piece')}, no difference")
        return 0
    for line in unified_diff(before, now, fromfile=path, tofile="now", lineterm="", n=1):
        print(line)
    changed = len(set(before) ^ set(now))
    print(
        f"rankbudget: {counted(changed, 'line')} differ{'s' if changed == 1 else ''}; --update accepts them",
        file=sys.stderr,
    )
    return _DIFFERS


def _on_one_line(name: str) -> str:
    return name.encode("unicode_escape").decode("ascii") if not name.isprintable() else name
