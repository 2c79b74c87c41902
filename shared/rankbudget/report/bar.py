"""The window as a bar and its rows as a table, in HTML without scripts: a notebook's cell, a page's head."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from ..errors import counted
from .rows import Row, rows_of, wanted_by
from .words import facts_of

if TYPE_CHECKING:
    from .report import BudgetReport

_WIDTH, _GAP, _ROOM_FOR_GAP = 1_000, 1.5, 4
HEAD = ("", "wanted", "granted", "used", "part", "kept", "shortened", "dropped")
_CELL = (
    "padding:2px 10px 2px 0;text-align:right;font-variant-numeric:tabular-nums;border:0;background:none;"
    "white-space:nowrap"
)


def safe(text: object) -> str:
    """Returns a text for HTML: escaped, and half of a surrogate pair, which no file can hold, replaced."""
    return escape(str(text).encode("utf-8", "surrogatepass").decode("utf-8", "replace"))


def cell_html(report: BudgetReport) -> str:
    """Returns what a notebook shows: one bar and one table, with styles of their own."""
    rows = rows_of(report)
    body = [_line(row, whole=whole_of(rows)) for row in rows] + [_total(rows)]
    table = "".join(
        f'<tr><th scope="row" style="{_CELL};text-align:left;font-weight:400">{first}</th>'
        + "".join(f'<td style="{_CELL}">{escape(text)}</td>' for text in texts)
        + "</tr>"
        for first, *texts in body
    )
    head = "".join(f'<th scope="col" style="{_CELL};font-weight:600">{name}</th>' for name in HEAD)
    notes = [*facts_of(report), *(f"warning: {text}" for text in report.warnings)]
    return (
        '<div style="max-width:46em;font-size:13px;line-height:1.45">'
        f"<div><b>{_headline(report)}</b></div>"
        f"{bar_svg(rows, height=22)}"
        f'<table style="border-collapse:collapse;border:0;margin:6px 0;color:inherit;font-size:inherit">'
        f"<tr>{head}</tr>{table}</table>" + "".join(f"<div>{safe(note)}</div>" for note in notes) + "</div>"
    )


def summary_html(report: BudgetReport) -> str:
    """Returns the head of a page: both bars, the table and the warnings; the page brings the styles."""
    rows = rows_of(report)
    whole, wanted = whole_of(rows), wanted_by(rows)
    offered = [row for row in rows if row.wanted]
    named = "window" if report.window is not None else "limit"
    smaller = f", drawn {wanted / whole:.1f} times smaller" if 0 < whole < wanted else ""
    notes = "".join(f"<li>{safe(text)}</li>" for text in report.warnings)
    body = [_line(row, whole=whole, in_page=True) for row in rows] + [_total(rows)]
    lines = "".join(
        f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{escape(text)}</td>" for text in texts) + "</tr>"
        for first, *texts in body
    )
    return (
        f"<h2>{_headline(report)}</h2>"
        f'<p class="facts">{safe("; ".join(facts_of(report)))}</p>'
        f'<p class="scale"><b>wanted</b> {counted(wanted, "token")}{smaller}</p>'
        f'<div class="ghost">{bar_svg(offered, height=10, whole=max(wanted, whole), wanted=True)}</div>'
        f"{bar_svg(rows, height=34)}"
        f'<p class="scale"><b>{named}</b> {counted(whole, "token")}</p>'
        f'<div class="wide" tabindex="0" role="region" aria-label="rows of the window">'
        f"<table><caption>The used column adds up to the {named}.</caption><thead><tr>"
        + "".join(f'<th scope="col">{name or "row"}</th>' for name in HEAD)
        + f"</tr></thead><tbody>{lines}</tbody></table></div>"
        + (f'<ul class="warnings" aria-label="warnings">{notes}</ul>' if notes else "")
    )


def whole_of(rows: Iterable[Row]) -> int:
    """Returns the tokens of the window: what the rows add up to."""
    return sum([row.used for row in rows])


def part_of(tokens: int, whole: int) -> str:
    """Returns a part in percent; what is there is never 0%."""
    if whole <= 0:
        return ""
    shown = f"{tokens / whole:.0%}"
    return "<1%" if tokens > 0 and shown == "0%" else shown


def bar_svg(rows: Sequence[Row], *, height: int, whole: int = 0, wanted: bool = False) -> str:
    """Returns rows side by side, each as wide as its tokens; `whole` is the width of the bar in tokens."""
    sizes = [max(0, (row.wanted if wanted else row.used) or 0) for row in rows]
    scale = _WIDTH / max(1, whole, sum(sizes))
    left, parts = 0.0, []
    for row, tokens in zip(rows, sizes, strict=True):
        width = tokens * scale
        gap = _GAP if width > _ROOM_FOR_GAP else 0
        parts.append(
            f'<rect class="p-{row.name if not row.is_block else "block"}" x="{left:.2f}" y="0" '
            f'width="{width - gap:.2f}" height="{height}" fill="{row.hue}">'
            f"<title>{safe(row.title)}: {counted(tokens, 'token')}</title></rect>"
        )
        left += width
    said = "what was wanted" if wanted else "where the window goes"
    told = ", ".join(f"{row.title} {tokens:,}" for row, tokens in zip(rows, sizes, strict=True))
    return (
        f'<svg role="img" aria-label="{said}: {safe(told)}" viewBox="0 0 {_WIDTH} {height}" width="100%" '
        f'height="{height}" preserveAspectRatio="none">{"".join(parts)}</svg>'
    )


def _headline(report: BudgetReport) -> str:
    usage = f" ({report.total_tokens / report.limit:.0%})" if report.limit > 0 else ""
    return f"{report.total_tokens:,} of {counted(report.limit, 'token')}{usage}"


def _line(row: Row, *, whole: int, in_page: bool = False) -> tuple[str, ...]:
    swatch = (
        '<svg width="11" height="11" viewBox="0 0 11 11" aria-hidden="true">'
        f'<rect class="p-{row.name if not row.is_block else "block"}" width="11" height="11" rx="2" '
        f'fill="{row.hue}"/></svg> '
    )
    title = safe(row.title)
    if in_page and row.is_block:
        title = f'<button type="button" class="only" data-block="{safe(row.name)}">{title}</button>'
    counts = [f"{n:,}" if row.is_block else "" for n in (row.kept, row.shortened, row.dropped)]
    tokens = ["" if n is None else f"{n:,}" for n in (row.wanted, row.granted, row.used)]
    return (swatch + title, *tokens, part_of(row.used, whole), *counts)


def _total(rows: Sequence[Row]) -> tuple[str, ...]:
    counts = [sum([getattr(row, name) for row in rows]) for name in HEAD[-3:]]
    whole = whole_of(rows)
    used = [f"{wanted_by(tuple(rows)):,}", "", f"{whole:,}", "100%" if whole > 0 else ""]
    return ("total", *used, *(f"{n:,}" for n in counts))
