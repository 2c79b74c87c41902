"""`rankbudget batch`: a file of prompts, with progress on standard error."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable

from ..batch import FitPrompt, Progress, fit_files
from ..budget.token_budget import TokenBudget
from ..errors import BudgetConfigError, counted

_FAILED_ROWS = 3
_EVERY = 10.0
"""Seconds between two lines of progress in a log; a terminal shows one line, which changes."""


def run_batch(options: argparse.Namespace, budget: TokenBudget) -> int:
    """Fits the file; returns 0, or 3 if rows could not be fitted."""
    fit = FitPrompt(
        budget,
        columns=_pairs("--column", options.column),
        outputs=_pairs("--output", options.output),
        by_question=options.by_question,
        reasons=options.reasons,
        strict=options.strict,
    )
    shown = _Shown()
    try:
        result = fit_files(
            options.source,
            options.target,
            fit,
            workers=options.workers,
            shard_rows=options.shard_rows,
            progress=shown.show,
        )
    except KeyboardInterrupt:
        shown.end()
        print("rankbudget: finished shards are kept; the same command goes on from there", file=sys.stderr)
        raise
    shown.end()
    print(
        f"rankbudget: {counted(result.rows, 'row')}, {result.failed:,} failed, "
        f"{result.resumed:,} by an earlier run, {result.seconds:,.1f} s",
        file=sys.stderr,
    )
    if result.error is not None:
        print(f"rankbudget: first error: {result.error}", file=sys.stderr)
    return _FAILED_ROWS if result.failed else 0


class _Shown:
    """Writes progress to standard error."""

    def __init__(self) -> None:
        self._next = 0.0
        self._width = 0

    def show(self, progress: Progress) -> None:
        if sys.stderr.isatty():
            text = f"rankbudget: {progress}"
            print(f"\r{text:<{self._width}}", end="", file=sys.stderr, flush=True)
            self._width = len(text)
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY
            print(f"rankbudget: {progress}", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._width:
            print(file=sys.stderr)


def _pairs(option: str, given: Iterable[str] | None) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for pair in given or ():
        name, equals, column = pair.partition("=")
        if not (name and equals and column):
            msg = f"{option} must be a pair, as history=chat (got {pair!r})."
            raise BudgetConfigError(msg)
        if name in pairs:
            msg = f"{option} must be given once for {name} (got {pairs[name]!r} and {column!r})."
            raise BudgetConfigError(msg)
        pairs[name] = column
    return pairs
