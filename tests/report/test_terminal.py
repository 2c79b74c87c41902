"""A report in the terminal, and as a figure."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from rich.console import Console
from rich.text import Text

from rankbudget import BlockTotal, BudgetReport, fit_messages
from rankbudget.report.rows import rows_of, wanted_by
from rankbudget.report.terminal import Picture
from rankbudget.testing import WordCounter
from tests.drawing import draws
from tests.report.made import drawn_by_hand

CHAT = [{"role": "user" if i % 2 == 0 else "assistant", "content": f"text {i} " * 4} for i in range(40)]


def printed(report: BudgetReport, **options) -> str:
    console = Console(width=80, highlight=False, **options)
    with console.capture() as captured:
        console.print(Picture(report))
    return captured.get()


@draws()
@given(drawn_by_hand())
def test_any_report_fits_80_columns(report):
    """No line is wider than 80 cells, with colors and without, and markup in a name stays text."""
    for options in ({}, {"force_terminal": True, "color_system": "truecolor"}):
        lines = printed(report, **options).splitlines()
        assert max(Text.from_ansi(line).cell_len for line in lines) <= 80


def test_the_grid_has_200_cells_that_add_up():
    """A cell is half a percent of the window; a letter tells rows apart where there are no colors."""
    blocks = [
        BlockTotal(name="history", rank=5, granted=60, used=50),
        BlockTotal(name="[red]", rank=6, granted=9, used=1),
    ]
    report = BudgetReport(limit=60, total_tokens=51, window=100, reserve=40, blocks=blocks)
    lines = printed(report).splitlines()
    grid = "".join(line[:40] for line in lines[3:13]).replace(" ", "")
    assert {letter: grid.count(letter) for letter in "AB.="} == {"A": 100, "B": 2, ".": 18, "=": 80}
    assert lines[0].strip() == "51 of 60 tokens"
    assert lines[1].count("=") == 32
    assert any("[red]" in line for line in lines)


def test_a_report_prints_itself(capsys, monkeypatch):
    """`print` writes to standard output what the table says, and the warnings."""
    monkeypatch.setenv("COLUMNS", "120")
    report = fit_messages(CHAT, max_tokens=60, counter=WordCounter()).report
    report.print()
    said = capsys.readouterr().out
    assert f"{report.total_tokens:,} of 60 tokens" in said
    assert all(f"warning: {warning}" in " ".join(said.split()) for warning in report.warnings)
    assert max(map(len, said.splitlines())) <= 120


@pytest.mark.parametrize(
    ("library", "extra", "look"),
    [
        ("rich.console", r"rankbudget\[cli\]", lambda report: report.print()),
        ("matplotlib", r"rankbudget\[notebooks\]", lambda report: report.plot()),
    ],
)
def test_a_missing_library_is_named_with_its_extra(library, extra, look, monkeypatch):
    """Without rich or matplotlib the error says what to install; the other forms need neither."""
    monkeypatch.setitem(sys.modules, library, None)
    report = BudgetReport(limit=1, total_tokens=0)
    with pytest.raises(ImportError, match=extra):
        look(report)
    assert report.to_html()
    assert report.table()


@pytest.mark.slow
def test_a_figure_has_the_window_beside_what_was_wanted(monkeypatch):
    """The parts of one bar add up to the window, those of the other to what was wanted."""
    pytest.importorskip("matplotlib", reason="the extra `notebooks` is not installed")
    monkeypatch.setenv("MPLBACKEND", "agg")
    report = fit_messages(CHAT, max_tokens=60, counter=WordCounter()).report
    figure = report.plot()
    [axes] = figure.axes
    widths = {}
    for bar in axes.patches:
        widths[round(bar.get_y(), 2)] = widths.get(round(bar.get_y(), 2), 0) + bar.get_width()
    assert sorted(widths.values()) == sorted([60, wanted_by(rows_of(report))])
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert named == [row.title for row in rows_of(report)]
    figure.canvas.draw()


def test_a_figure_takes_any_name(monkeypatch):
    """A dollar sign is no formula, and an underscore in front does not hide a block."""
    pytest.importorskip("matplotlib", reason="the extra `notebooks` is not installed")
    monkeypatch.setenv("MPLBACKEND", "agg")
    blocks = [BlockTotal(name=name, rank=1, granted=1, used=1) for name in ("$x^", "_own", "$", "a$b$c")]
    figure = BudgetReport(limit=4, total_tokens=4, blocks=blocks).plot()
    figure.canvas.draw()
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert named == [r"\$x^", "own", r"\$", r"a\$b\$c"]
