"""Tables that JSON holds in columns: `{"name": [...], "phone": [...]}` loses whole rows, not single items."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

_FEWEST_ROWS = 6
_ROWS_PER_COLUMN = 4
"""Objects with few fields each look like columns, too: a table has far more rows than columns."""


@dataclass(frozen=True)
class Rows:
    """An object whose columns are one value, the rows, under the key of the first column."""

    value: dict[str, Any]
    columns: tuple[str, ...]
    by_key: bool  # the columns are objects with the same keys, each row starts with its key


def as_rows(value: dict[str, Any]) -> Rows | None:
    """Returns an object with columns of equal length or equal keys as rows; None where it has none."""
    shapes = {key: _shape(column) for key, column in value.items()}
    times = Counter(shape for shape in shapes.values() if shape is not None)
    shape, count = max(times.items(), key=lambda item: item[1], default=(None, 0))
    size = shape if isinstance(shape, int) else len(shape or ())
    if count < 2 or size < _ROWS_PER_COLUMN * count:  # noqa: PLR2004 - one column is no table
        return None
    columns = tuple([key for key in value if shapes[key] == shape])
    cells = [list(value[key].values()) if isinstance(shape, tuple) else value[key] for key in columns]
    cells = [list(shape), *cells] if isinstance(shape, tuple) else cells
    rows = list(map(list, zip(*cells, strict=True)))
    others = {key: item for key, item in value.items() if key not in columns[1:]}
    return Rows({**others, columns[0]: rows}, columns, isinstance(shape, tuple))


def as_columns(rows: Rows, shrunk: dict[str, Any]) -> dict[str, Any] | None:
    """Returns a shorter object of rows with its columns again; None where a row itself became shorter."""
    kept, by_key = shrunk.get(rows.columns[0]), rows.by_key
    width = len(rows.columns) + by_key
    if not isinstance(kept, list) or any(isinstance(row, list) and len(row) != width for row in kept):
        return None
    made: dict[str, Any] = {}
    for key, item in shrunk.items():
        if key != rows.columns[0]:
            made[key] = item
            continue
        for number, column in enumerate(rows.columns, by_key):
            cells = [row[number] if isinstance(row, list) else row for row in kept]
            names = [row[0] if isinstance(row, list) else "..." for row in kept]
            made[column] = dict(zip(names, cells, strict=True)) if by_key else cells
    return made


def _shape(column: Any) -> int | tuple[str, ...] | None:
    """Returns what columns of one table have in common: their length or their keys."""
    cells = list(column.values()) if isinstance(column, dict) else column
    if (
        not isinstance(cells, list)
        or len(cells) < _FEWEST_ROWS
        or any(isinstance(c, (list, dict)) for c in cells)
    ):
        return None
    return tuple(column) if isinstance(column, dict) else len(cells)
