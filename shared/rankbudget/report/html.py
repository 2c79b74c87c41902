"""A report as one self-contained HTML page: no scripts, nothing loaded, all text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from .words import HEAD, cells, facts

_MOST_ROWS = 2_000  # a browser stays quick up to here; the JSON has all
_COLORS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f")
_GRAYS = {"overhead": "#bab0ac", "reserve": "#d4d4d4", "safety": "#c0c0c0"}
_COLUMNS = ("segment_id", "block", "action", "reason", "detail", "before", "after")
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}table{border-collapse:collapse;margin:1rem 0;width:100%}
th,td{padding:.25rem .6rem;border-bottom:1px solid #ddd;text-align:left;vertical-align:top}
.bar{display:flex;height:1.6rem;background:#eee}.bar i{min-width:1px}.trimmed td{color:#888}
.warning{background:#fff4d6;padding:.4rem .8rem}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#1b1b1b}.warning{background:#443a12}}
"""


def page(report: Mapping[str, Any]) -> str:
    """Returns the whole page; `report` is what `BudgetReport.to_dict` returns."""
    head = f"{report['total_tokens']:,} of {report['limit']:,} tokens"
    colors = {block["name"]: _COLORS[i % len(_COLORS)] for i, block in enumerate(report["blocks"])}
    blocks = [
        _row(cells(block), f'style="border-left:.8em solid {colors[block["name"]]}"')
        for block in report["blocks"]
    ]
    decisions = [
        _row(
            [f"{one[key]:,}" if key in ("before", "after") else one[key] for key in _COLUMNS],
            f'class="{escape(one["action"])}"',
        )
        for one in report["decisions"][:_MOST_ROWS]
    ]
    body = [
        f"<h1>{head}</h1>",
        f"<p>{escape('; '.join(facts(report)))}</p>",
        *(f'<p class="warning">{escape(warning)}</p>' for warning in report["warnings"]),
        _bar(report, colors),
        _table(HEAD, blocks),
        _table(_COLUMNS, decisions),
    ]
    if len(report["decisions"]) > _MOST_ROWS:
        more = f"and {len(report['decisions']) - _MOST_ROWS:,} more decisions, all in"
        body.append(f"<p>{more} <code>report.to_json()</code></p>")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>Budget report: {head}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _bar(report: Mapping[str, Any], colors: Mapping[str, str]) -> str:
    """Returns the window as one bar, each part as wide as its tokens."""
    spans = [(block["name"], block["used"], colors[block["name"]]) for block in report["blocks"]]
    spans += [(name, report[name], color) for name, color in _GRAYS.items()]
    window = report["window"] or report["limit"] or 1
    parts = [
        f'<i style="width:{100 * tokens / window:.3f}%;background:{color}" '
        f'title="{escape(name)}: {tokens:,} tokens"></i>'
        for name, tokens, color in spans
        if tokens > 0
    ]
    return f'<div class="bar" role="img" aria-label="where the window goes">{"".join(parts)}</div>'


def _table(head: Iterable[str], rows: Iterable[str]) -> str:
    return f"<table><tr>{''.join(f'<th>{name}</th>' for name in head)}</tr>{''.join(rows)}</table>"


def _row(texts: Iterable[str], attribute: str) -> str:
    return f"<tr {attribute}>{''.join(f'<td>{escape(text)}</td>' for text in texts)}</tr>"
