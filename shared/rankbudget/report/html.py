"""A report as one self-contained HTML page: no scripts, nothing loaded, all text escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .table import HEAD, cells, facts

__all__ = ["page"]

_MOST_ROWS = 2_000  # a browser stays quick up to here; the JSON has all
_COLORS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f")
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
    blocks = [_row(cells(block), color=colors[block["name"]]) for block in report["blocks"]]
    body = [
        f"<h1>{head}</h1>",
        f"<p>{escape('; '.join(facts(report)))}</p>",
        *(f'<p class="warning">{escape(warning)}</p>' for warning in report["warnings"]),
        _bar(report, colors),
        _table(HEAD, blocks),
        *_decisions(report["decisions"]),
    ]
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
    grays = (("overhead", "#bab0ac"), ("reserve", "#d4d4d4"), ("safety", "#c0c0c0"))
    spans += [(name, report[name], color) for name, color in grays]
    window = report["window"] or report["limit"] or 1
    parts = []
    for name, tokens, color in spans:
        if tokens > 0:
            style = f"width:{100 * tokens / window:.3f}%;background:{color}"
            parts.append(f'<i style="{style}" title="{escape(name)}: {tokens:,} tokens"></i>')
    return f'<div class="bar" role="img" aria-label="where the window goes">{"".join(parts)}</div>'


def _decisions(decisions: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = []
    for found in decisions[:_MOST_ROWS]:
        texts = [found[key] for key in ("segment_id", "block", "action", "reason", "detail")]
        numbers = [f"{found[key]:,}" for key in ("before", "after")]
        rows.append(_row([*texts, *numbers], kind=found["action"]))
    made = [_table(("segment", "block", "what", "why", "detail", "before", "after"), rows)]
    if len(decisions) > _MOST_ROWS:
        more = f"and {len(decisions) - _MOST_ROWS:,} more decisions, all in"
        made.append(f"<p>{more} <code>report.to_json()</code></p>")
    return made


def _table(head: Sequence[str], rows: Sequence[str]) -> str:
    return f"<table><tr>{''.join(f'<th>{name}</th>' for name in head)}</tr>{''.join(rows)}</table>"


def _row(texts: Sequence[str], *, kind: str = "", color: str = "") -> str:
    style = f' style="border-left:.8em solid {color}"' if color else ""
    inside = "".join(f"<td>{escape(text)}</td>" for text in texts)
    return f'<tr class="{escape(kind)}"{style}>{inside}</tr>'
