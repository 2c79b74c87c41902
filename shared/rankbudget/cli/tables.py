"""Tables as plain text, for terminals, files and pipes alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def aligned(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns rows under a head: numbers to the right, texts to the left, in columns as wide as they need."""
    given = list(rows)
    cells = [tuple(head), *[tuple(map(_said, row)) for row in given]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [any(isinstance(row[place], int) for row in given) for place in range(len(head))]
    lines = [
        "  ".join(
            c.rjust(w) if number else c.ljust(w) for c, w, number in zip(row, widths, right, strict=True)
        )
        for row in cells
    ]
    return "\n".join(line.rstrip() for line in lines)


def _said(cell: object) -> str:
    if cell is None:
        return ""
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
