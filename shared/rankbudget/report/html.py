"""A report as one self-contained HTML page: no scripts, nothing loaded, all text escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .report import BudgetReport

__all__ = ["page"]

_MOST_ROWS = 2_000
"""A browser stays quick up to here; the rest is named in one line and is in the JSON."""
_COLORS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f")
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
h1{font-size:1.4rem;margin:0 0 .3rem}table{border-collapse:collapse;margin:1rem 0;width:100%}
th,td{padding:.25rem .6rem;border-bottom:1px solid #ddd;text-align:left;vertical-align:top}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
.bar{display:flex;height:1.6rem;border-radius:4px;overflow:hidden;background:#eee;margin:1rem 0}.bar i{display:block;min-width:1px}
.key{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.4em}
.trimmed td{color:#888}.warning{background:#fff4d6;padding:.4rem .8rem;border-left:4px solid #edc948;margin:.3rem 0}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#1b1b1b}th,td{border-color:#444}.bar{background:#333}.warning{background:#443a12}}
"""


def page(report: BudgetReport) -> str:
    """Returns the whole page."""
    window = report.window or report.limit
    colors = {block.name: _COLORS[i % len(_COLORS)] for i, block in enumerate(report.blocks)}
    spans = [(block.name, block.used, colors[block.name]) for block in report.blocks]
    spans += [
        ("overhead", report.overhead, "#bab0ac"),
        ("reserve", report.reserve, "#d4d4d4"),
        ("safety", report.safety, "#c0c0c0"),
    ]
    head = f"{report.total_tokens:,} of {report.limit:,} tokens"
    made = [
        f"<h1>{head}</h1>",
        f"<p>window {window:,}, reserve {report.reserve:,}, safety {report.safety:,}{_counted(report)}</p>",
        *(f'<p class="warning">{escape(warning)}</p>' for warning in report.warnings),
        _bar(spans, window),
        _blocks(report, colors),
        _decisions(report),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Budget report: {head}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(made)
        + "\n</body></html>\n"
    )


def _counted(report: BudgetReport) -> str:
    if not report.counter:
        return ""
    return f", counted with {escape(report.counter)}" + ("" if report.exact else " (estimated)")


def _bar(spans: Iterable[tuple[str, int, str]], window: int) -> str:
    parts = [
        f'<i style="width:{100 * tokens / max(1, window):.3f}%;background:{color}" title="{escape(name)}: {tokens:,} tokens"></i>'
        for name, tokens, color in spans
        if tokens > 0
    ]
    return f'<div class="bar" role="img" aria-label="where the window goes">{"".join(parts)}</div>'


def _row(cells: Iterable[str], *, tag: str = "td", numbers: int = 0, kind: str = "") -> str:
    """Returns one row; cells from the index `numbers` on are set as numbers, and all are escaped already."""
    made = "".join(
        f"<{tag}{' class=n' if numbers and i >= numbers else ''}>{cell}</{tag}>"
        for i, cell in enumerate(cells)
    )
    return f'<tr class="{kind}">{made}</tr>' if kind else f"<tr>{made}</tr>"


def _blocks(report: BudgetReport, colors: dict[str, str]) -> str:
    rows = [
        _row(
            ("block", "rank", "granted", "used", "share", "kept", "shortened", "dropped"), tag="th", numbers=1
        )
    ]
    for block in report.blocks:
        name = f'<span class="key" style="background:{colors[block.name]}"></span>{escape(block.name)}'
        granted = "" if block.granted is None else f"{block.granted:,}"
        share = "" if block.utilization is None else f"{block.utilization:.0%}"
        cells = (
            name,
            str(block.rank),
            granted,
            f"{block.used:,}",
            share,
            f"{block.kept:,}",
            f"{block.shortened:,}",
            f"{block.dropped:,}",
        )
        rows.append(_row(cells, numbers=1))
    return f"<table>{''.join(rows)}</table>"


def _decisions(report: BudgetReport) -> str:
    rows = [_row(("segment", "block", "what", "why", "before", "after"), tag="th", numbers=4)]
    for decision in report.decisions[:_MOST_ROWS]:
        why = escape(decision.reason) + (
            f"<br><small>{escape(decision.detail)}</small>" if decision.detail else ""
        )
        cells = (
            escape(decision.segment_id),
            escape(decision.block),
            decision.action,
            why,
            f"{decision.before:,}",
            f"{decision.after:,}",
        )
        rows.append(_row(cells, numbers=4, kind=decision.action))
    more = report.size - _MOST_ROWS
    rest = f"<p>and {more:,} more decisions, all in <code>report.to_json()</code></p>" if more > 0 else ""
    return f"<table>{''.join(rows)}</table>{rest}"
