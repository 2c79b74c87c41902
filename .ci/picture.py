"""Draws the picture of README: the example with shares, as it was offered and as it was sent.

.venv/bin/python .ci/picture.py > docs/window.svg

The example is run as it stands there; both bars have one scale.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from rankbudget import BudgetReport
from rankbudget.report.rows import Row, rows_of, wanted_by

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LEFT, WIDTH, BAR, LINE = 20, 920, 34, 20
STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#1f2937}.small{font-size:13px}.b{font-weight:600}"
    ".edge{stroke:#b3261e}.over{fill:#b3261e}.ground{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#e5e7eb}.edge{stroke:#ff8a80}.over{fill:#ff8a80}"
    ".ground{fill:#0d1117}}"
)


def example() -> BudgetReport:
    """Returns the report of the example in README that has a prompt template."""
    blocks = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(next(block for block in blocks if "BudgetChatPromptTemplate" in block), names)  # noqa: S102 - our own README
    report: BudgetReport = names["made"].report  # type: ignore[attr-defined] # the example makes it
    return report


def picture(report: BudgetReport) -> str:
    """Returns the picture: what was offered, what was sent, and the tokens of each part."""
    rows = rows_of(report)
    window, wanted = sum(row.used for row in rows), wanted_by(rows)
    scale, reserve = WIDTH / wanted, report.reserve or 0
    edge = LEFT + window * scale
    blocks = [row for row in rows if row.is_block]
    legend = [
        text(
            LEFT + 22,
            198 + n * LINE,
            f"{row.title}: {row.used:,} of {row.wanted or 0:,} tokens; {fate(row)}",
            "small",
        )
        + f'<rect x="{LEFT}" y="{187 + n * LINE}" width="13" height="13" rx="3" fill="{row.hue}"/>'
        for n, row in enumerate(blocks)
    ]
    height = 200 + LINE * len(blocks)
    parts = [
        f'<rect class="ground" width="960" height="{height}"/>',
        text(LEFT, 28, f"Offered: {wanted:,} tokens. The provider refuses them.", "b"),
        bar([(row, row.wanted or 0) for row in rows if row.wanted], LEFT, 40, scale),
        text(
            LEFT, 112, f"Sent: {report.total_tokens:,} tokens, with room for an answer of {reserve:,}.", "b"
        ),
        bar([(row, row.used) for row in rows], LEFT, 124, scale),
        *(
            f'<line class="edge" x1="{edge:.1f}" y1="{y}" x2="{edge:.1f}" y2="{y + 46}" stroke-width="2"/>'
            for y in (34, 118)
        ),
        text(round(edge) + 8, 146, f"the window: {window:,} tokens", "small over"),
        *legend,
    ]
    label = f"{wanted:,} tokens were offered, {report.total_tokens:,} were sent in a window of {window:,}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 {height}" width="960" role="img" '
        f'aria-label="{label}"><style>{STYLE}</style>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def fate(row: Row) -> str:
    """Returns how many pieces of a part were kept and dropped, in words."""
    if row.kept + row.shortened + row.dropped <= 1:
        return "whole"
    return f"{row.kept} pieces kept, {row.shortened} shortened, {row.dropped} dropped"


def bar(sizes: list[tuple[Row, int]], left: float, top: int, scale: float) -> str:
    """Returns parts side by side, each as wide as its tokens."""
    drawn = []
    for row, tokens in sizes:
        width = tokens * scale
        drawn.append(
            f'<rect x="{left:.1f}" y="{top}" width="{max(width - 1, 0.5):.1f}" height="{BAR}" fill="{row.hue}"/>'
        )
        left += width
    return "".join(drawn)


def text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{words}</text>'


if __name__ == "__main__":
    print(picture(example()), end="")
