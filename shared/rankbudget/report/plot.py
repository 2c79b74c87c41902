"""A report as a matplotlib figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .bar import whole_of
from .rows import Row, rows_of, wanted_by

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .report import BudgetReport

_LABELLED = 0.06  # shares of the axis from which a label fits into its part


def figure_of(report: BudgetReport) -> Figure:
    """Returns two stacked bars of one scale: what was wanted, and the window."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        msg = 'report.plot() needs matplotlib: pip install "rankbudget[notebooks]"'
        raise ImportError(msg) from error
    rows = rows_of(report)
    named = "window" if report.window is not None else "limit"
    figure, axes = plt.subplots(figsize=(9, 2.8), layout="constrained")
    plt.close(figure)  # a notebook shows the figure that is returned, and no second one
    longest = max(whole_of(rows), wanted_by(rows), 1)
    for y, (label, sizes) in enumerate(
        [
            (f"{named}\n{whole_of(rows):,}", [max(0, row.used) for row in rows]),
            (f"wanted\n{wanted_by(rows):,}", [row.wanted or 0 for row in rows]),
        ]
    ):
        _stack(axes, label, rows, sizes, longest=longest, named=y == 0)
    axes.set_xlim(0, longest)
    axes.xaxis.set_major_formatter(lambda tokens, _: f"{tokens:,.0f}")
    axes.set_title(f"{report.total_tokens:,} of {report.limit:,} tokens", loc="left")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.legend(loc="outside lower left", ncols=min(6, len(rows)), frameon=False, fontsize="small")
    return figure


def _stack(
    axes: Any, label: str, rows: tuple[Row, ...], sizes: list[int], *, longest: int, named: bool
) -> None:
    """Draws one bar; parts are named in the legend once."""
    left = 0
    for row, size in zip(rows, sizes, strict=True):
        title = row.title.replace("$", r"\$").lstrip("_")  # matplotlib reads both as its own
        bars = axes.barh(
            label, size, left=left, height=0.62, color=row.hue, edgecolor="white", linewidth=0.8,
            label=title if named else "_",
        )  # fmt: skip
        if size >= _LABELLED * longest:
            dark = row.is_block or row.name == "framing"
            axes.bar_label(
                bars, [f"{size:,}"], label_type="center", fontsize=8, color="white" if dark else "#333333"
            )
        left += size
