"""`rankbudget compare`: one chat with several budgets, side by side."""

from __future__ import annotations

import argparse

from ..errors import BudgetExceededError
from ..report.order import in_order
from ..report.report import BudgetReport
from .fitting import Task
from .options import budget_of, tokens
from .tables import aligned

_HEAD = ("budget", "window", "limit", "used", "kept", "shortened", "dropped")
_MOST = 8
"""Pieces that are listed of those that only some budgets keep."""


def show_comparison(task: Task, options: argparse.Namespace) -> None:
    """Prints a line for each budget, and which pieces only some of them keep."""
    rows: list[tuple[object, ...]] = []
    refused: list[str] = []
    reports: dict[str, BudgetReport] = {}
    for name in options.budgets:
        try:
            report = task.fit(budget_of(_limits_of(name, options))).report
        except BudgetExceededError as error:
            refused.append(f"{name}: {' '.join(str(error).split())}")
            continue
        reports[name] = report
        rows.append((name, report.window, report.limit, report.total_tokens, *_outcomes(report)))
    if rows:
        print(aligned(_HEAD, rows))
    for line in (*refused, *_differences(reports)):
        print(line)


def _limits_of(name: str, options: argparse.Namespace) -> argparse.Namespace:
    """Returns options with the limits that a window, a file or a file with a profile means."""
    limits: dict[str, object] = {"window": None, "budget": None, "profile": None}
    try:
        limits["window"] = tokens(name)
    except ValueError:
        path, _, profile = name.rpartition(":") if ":" in name[2:] else (name, "", "")  # C:\\ is no profile
        limits |= {"budget": path, "profile": profile or None}
    return argparse.Namespace(**{**vars(options), **limits})


def _outcomes(report: BudgetReport) -> tuple[int, int, int]:
    blocks = report.blocks
    return sum(b.kept for b in blocks), sum(b.shortened for b in blocks), sum(b.dropped for b in blocks)


def _differences(reports: dict[str, BudgetReport]) -> list[str]:
    """Returns a line for each piece that some budgets keep and others drop, the first of them."""
    kept = {name: report.in_prompt() for name, report in reports.items()}
    if not kept:
        return []
    some = frozenset[tuple[str, str]]().union(*kept.values()) - frozenset.intersection(*kept.values())
    first = next(iter(reports.values()))
    pieces = in_order(first.decisions, [block.name for block in first.blocks], {})
    differing = [(one.block, one.segment_id) for one in pieces if (one.block, one.segment_id) in some]
    lines = []
    for piece in differing[:_MOST]:
        names = ", ".join(name for name in kept if piece in kept[name])
        lines.append(f"{'/'.join(piece)}: in the prompt with {names}")
    return [*lines, f"and {len(some) - _MOST:,} more"] if len(some) > _MOST else lines
