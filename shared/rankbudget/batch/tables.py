"""The kinds of batches: columns of lists or arrays, Arrow tables and record batches, pandas data frames."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any, Protocol

from ..errors import BudgetConfigError, shown

OUTPUTS = (
    *("messages", "prompt_tokens", "kept", "shortened", "dropped"),
    *("max_completion_tokens", "budget_error"),
)
"""What is added to a batch, in this order."""
REASONS = "reasons"
"""What is added after these where it is asked for."""
NESTED = frozenset({"messages", REASONS})
"""Outputs whose values differ in form from row to row: JSON in columns, nested in lines."""
NUMBERS = frozenset({"prompt_tokens", "max_completion_tokens"})
LISTS = frozenset({"kept", "shortened", "dropped"})


class Table(Protocol):
    """A batch of rows in columns."""

    @property
    def names(self) -> Collection[str]: ...

    def values(self, name: str) -> Sequence[Any]:
        """Returns a column as plain values; None where a cell is empty."""

    def with_columns(self, made: Mapping[str, tuple[str, list[Any]]]) -> Any:
        """Returns the batch with more columns: by output, the name of the column and its values."""


def table_of(batch: Any) -> Table:
    """Returns a batch as a table.

    Raises:
        BudgetConfigError: it is no batch, or its columns are not of one length and of different names.
    """
    table = _of_kind(batch)
    if len(set(table.names)) < len(list(table.names)):
        msg = f"the columns of a batch must have different names (got {shown(list(table.names))})."
        raise BudgetConfigError(msg)
    return table


def _of_kind(batch: Any) -> Table:
    home = type(batch).__module__.partition(".")[0]
    if home == "pyarrow" and hasattr(batch, "schema"):
        return _ArrowTable(batch)
    if home == "pandas" and hasattr(batch, "columns"):
        return _PandasTable(batch)
    if isinstance(batch, Mapping):
        single = [name for name, held in batch.items() if not _has_rows(held)]
        if single:
            seen = shown(batch[single[0]])
            msg = f"the column {single[0]!r} of a batch must be a list (got {seen}). row() takes one row."
            raise BudgetConfigError(msg)
        lengths = {name: len(column) for name, column in batch.items()}
        if len(set(lengths.values())) > 1:
            msg = f"the columns of a batch must have one length (got {shown(lengths)})."
            raise BudgetConfigError(msg)
        return _DictTable(batch)
    msg = (
        "a batch must be a dict of columns, a pyarrow Table or RecordBatch, or a pandas DataFrame "
        f"(got a {type(batch).__name__})."
    )
    raise BudgetConfigError(msg)


def _has_rows(held: Any) -> bool:
    single = isinstance(held, (str, bytes, Mapping)) or getattr(held, "ndim", 1) == 0  # numpy's, of no rows
    return not single and hasattr(held, "__len__")


def in_python(cell: Any) -> Any:
    """Returns a cell as Python's own lists, dicts and values; frames have arrays and scalars of their own."""
    if isinstance(cell, (str, bytes, int, float, memoryview)) and type(cell).__module__ == "builtins":
        return cell
    if isinstance(cell, Mapping):
        return {key: in_python(inner) for key, inner in cell.items()}
    if isinstance(cell, (list, tuple)):
        return [in_python(inner) for inner in cell]
    if getattr(getattr(cell, "dtype", None), "kind", "") == "M":
        cell = cell.astype("datetime64[us]")  # of nanoseconds numpy makes integers
    own = getattr(cell, "tolist", None) or getattr(cell, "as_py", None)  # numpy, pandas and Arrow
    return cell if own is None else in_python(own())


def as_json(value: Any) -> str:
    """Returns JSON with letters as they are; dates and bytes are texts, numbers that JSON lacks null.

    Half a surrogate pair, which has no UTF-8, is escaped.
    """
    write = partial(json.dumps, allow_nan=False, default=_as_words)
    try:
        text = write(value, ensure_ascii=False)
    except ValueError:
        value = _finite(value)
        text = write(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return write(value)
    return text


def _as_words(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def as_text(value: Any) -> str | None:
    """Returns a cell of a column of several types as text: JSON, but for texts and what is empty in JSON."""
    value = _finite(value)
    return None if value is None else in_utf8(value if isinstance(value, str) else as_json(value))


def in_utf8(text: str) -> str:
    """Returns a text that every format can hold: half a surrogate pair becomes its escape."""
    return text.encode("utf-8", "backslashreplace").decode()


def arrow_type(output: str) -> Any:
    """Returns the Arrow type of an output column; it does not depend on the rows of a batch."""
    import pyarrow as pa  # optional: only callers that have it get here

    if output in NUMBERS:
        return pa.int64()
    return pa.list_(pa.string()) if output in LISTS else pa.string()


def in_columns(
    rows: Sequence[Mapping[str, Any]], names: Mapping[str, str]
) -> dict[str, tuple[str, list[Any]]]:
    """Returns the outputs of rows as columns: by output, its name and its values."""
    made: dict[str, tuple[str, list[Any]]] = {}
    for output, name in names.items():
        values = [row[output] for row in rows]
        if output in NESTED:
            values = [None if value is None else as_json(value) for value in values]
        made[output] = name, values
    return made


class _DictTable:
    def __init__(self, batch: Mapping[str, Any]) -> None:
        self._batch = batch

    @property
    def names(self) -> Collection[str]:
        return self._batch.keys()

    def values(self, name: str) -> Sequence[Any]:
        column = self._batch[name]
        values: list[Any] = column.tolist() if hasattr(column, "tolist") else list(column)
        return values

    def with_columns(self, made: Mapping[str, tuple[str, list[Any]]]) -> Any:
        return {**self._batch, **dict(made.values())}


def cells_of(column: Any) -> list[Any]:
    """Returns what an Arrow column holds, maps as dicts; one bad cell leaves the others as they are."""
    try:
        return list(column.to_pylist(maps_as_pydicts="lossy"))
    except (ValueError, OverflowError):
        return list(map(_cell, column))


def _cell(cell: Any) -> Any:
    """Returns a cell; of a text that is no UTF-8 its bytes, of others that Python lacks a text, or why."""
    try:
        return cell.as_py(maps_as_pydicts="lossy")
    except (ValueError, OverflowError) as error:
        if hasattr(cell, "as_buffer"):
            return cell.as_buffer().to_pybytes()
        try:
            return cell.cast("string").as_py()
        except (ValueError, TypeError):
            return error


class _ArrowTable:
    def __init__(self, batch: Any) -> None:
        self._batch = batch

    @property
    def names(self) -> Collection[str]:
        names: list[str] = self._batch.schema.names
        return names

    def values(self, name: str) -> Sequence[Any]:
        return cells_of(self._batch.column(name))

    def with_columns(self, made: Mapping[str, tuple[str, list[Any]]]) -> Any:
        import pyarrow as pa  # the batch is Arrow's, so it is there

        schema, arrays = self._batch.schema, list(self._batch.columns)
        for output, (name, values) in made.items():
            kind = arrow_type(output)
            schema = schema.append(pa.field(name, kind))
            arrays.append(pa.array(values, kind))
        return type(self._batch).from_arrays(arrays, schema=schema)


class _PandasTable:
    def __init__(self, batch: Any) -> None:
        self._batch = batch

    @property
    def names(self) -> Collection[str]:
        return list(self._batch.columns)

    def values(self, name: str) -> Sequence[Any]:
        values: list[Any] = self._batch[name].tolist()
        return values

    def with_columns(self, made: Mapping[str, tuple[str, list[Any]]]) -> Any:
        import pandas as pd  # the batch is of pandas, so it is there

        index = self._batch.index
        columns = {
            name: pd.Series(values, index=index, dtype="Int64" if output in NUMBERS else object)
            for output, (name, values) in made.items()
        }
        return self._batch.assign(**columns)
