"""A report in the terminal: the window as a bar and a grid of cells, and its rows; at most 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..errors import counted
from .bar import HEAD, part_of, whole_of
from .rows import Row, rows_of, wanted_by
from .words import facts_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table
    from rich.text import Text

    from .report import BudgetReport

_COLUMNS, _LINES, _WIDEST = 20, 10, 80
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_REST_LETTERS = {"free": ".", "limit": "^", "safety": "!", "reserve": "="}


def show(report: BudgetReport) -> None:
    """Prints a report."""
    try:
        from rich.console import Console
    except ImportError as error:
        msg = 'report.print() needs rich: pip install "rankbudget[cli]". report.table() needs nothing.'
        raise ImportError(msg) from error
    console = Console(highlight=False)
    console.print(Picture(report))


class Picture:
    """What rich draws of a report."""

    def __init__(self, report: BudgetReport) -> None:
        self.report = report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        report, rows = self.report, rows_of(self.report)
        width = min(options.max_width, _WIDEST)
        marks = marks_of(rows, plain=console.color_system is None or options.ascii_only)
        yield Text(f"{report.total_tokens:,} of {counted(report.limit, 'token')}", style="bold")
        yield _strip(marks, shared_out(rows, width))
        beside = Table.grid(padding=(0, 3))
        beside.add_row(_grid(marks, shared_out(rows, _COLUMNS * _LINES)), _legend(rows, marks))
        yield Padding(beside, (1, 0))
        yield Padding(_table(rows), (0, 0, 1, 0))
        yield from [Text(note, style="dim") for note in facts_of(report)]
        yield from [Text(f"warning: {warning}", style="yellow") for warning in report.warnings]


class Mark(NamedTuple):
    """How a row looks: its character and its color."""

    character: str
    style: str


def marks_of(rows: tuple[Row, ...], *, plain: bool) -> list[Mark]:
    """Returns the mark of each row; where there are no colors to tell rows apart, letters do."""
    letters = iter(_LETTERS * (len(rows) // len(_LETTERS) + 1))
    if plain:
        return [Mark(_REST_LETTERS.get(row.name) or next(letters), "") for row in rows]
    return [
        Mark("·" if row.name == "free" else "█", "dim" if row.name == "free" else row.hue) for row in rows
    ]


def shared_out(rows: tuple[Row, ...], cells: int) -> list[int]:
    """Returns how many of `cells` each row has: by its tokens, at least one while there are enough.

    Example:
        >>> row = {"title": "", "hue": "", "is_block": True}
        >>> shared_out((Row(name="a", used=1, **row), Row(name="b", used=999, **row)), 20)
        [1, 19]
    """
    sizes = [max(0, row.used) for row in rows]
    whole = sum(sizes)
    if not whole:
        return [0 for _ in rows]
    least = 1 if len(rows) <= cells else 0
    exact = [size * cells / whole for size in sizes]
    shares = [max(int(share), least if size else 0) for share, size in zip(exact, sizes, strict=True)]
    while (missing := cells - sum(shares)) != 0:
        step = 1 if missing > 0 else -1
        able = [i for i, share in enumerate(shares) if sizes[i] and share + step >= least]
        shares[max(able, key=lambda i: step * (exact[i] - shares[i]))] += step
    return shares


def _strip(marks: list[Mark], shares: list[int]) -> Text:
    from rich.text import Text

    pieces = [(mark.character * share, mark.style) for mark, share in zip(marks, shares, strict=True)]
    return Text.assemble(*pieces, no_wrap=True)


def _grid(marks: list[Mark], shares: list[int]) -> Text:
    """Returns cells line by line, each of them the same share of the window."""
    from rich.text import Text

    cells = [mark for mark, share in zip(marks, shares, strict=True) for _ in range(share)]
    text = Text(no_wrap=True)
    for i, mark in enumerate(cells):
        character = "■" if mark.character == "█" else mark.character
        text.append(character + ("\n" if i % _COLUMNS == _COLUMNS - 1 else " "), style=mark.style)
    text.rstrip()
    return text


def _legend(rows: tuple[Row, ...], marks: list[Mark]) -> Table:
    from rich.table import Table
    from rich.text import Text

    whole = whole_of(rows)
    legend = Table.grid(padding=(0, 1))
    for _ in range(2):
        legend.add_column(no_wrap=True, overflow="ellipsis", max_width=18)
    for _ in range(2):
        legend.add_column(justify="right", no_wrap=True)
    for row, mark in zip(rows, marks, strict=True):
        part = part_of(row.used, whole)
        legend.add_row(Text(mark.character, mark.style), Text(row.title), Text(f"{row.used:,}"), Text(part))
    legend.add_row("", Text("total", "bold"), Text(f"{whole:,}", "bold"), "")
    return legend


def _table(rows: tuple[Row, ...]) -> Table:
    """Returns what was wanted and granted beside what is used."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("", no_wrap=True, overflow="ellipsis", max_width=20)
    names = [name for name in HEAD if name not in ("", "part")]
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        known = [getattr(row, name) for name in names[:3]]
        counts = [getattr(row, name) if row.is_block else None for name in names[3:]]
        figures = ["" if n is None else f"{n:,}" for n in (*known, *counts)]
        table.add_row(Text(row.title), *figures)
    sums = [sum([getattr(row, name) for row in rows]) for name in names[3:]]
    total = [f"{wanted_by(rows):,}", "", f"{whole_of(rows):,}", *(f"{n:,}" for n in sums)]
    table.add_row("total", *total, style="bold")
    return table
