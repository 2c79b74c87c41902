"""Columns of Parquet made from lines: one type for all rows of a file, whatever shards they fell into."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from .tables import as_text, in_utf8

_KINDS = b"rankbudget.kinds"
"""Key of a field's metadata in a part: what its values are in JSON, which Arrow's type does not say."""
_NUMBERS = frozenset({"integer", "fraction"})
_LARGEST_EXACT, _LARGEST_INTEGER = 2**53, 2**63
"""A float holds every integer up to the first, Arrow every one below the second."""


def table_of_rows(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Returns the Arrow table of a shard's objects, each column with the kinds of its values."""
    import pyarrow as pa

    rows = [{in_utf8(name): value for name, value in row.items()} for row in rows]
    arrays, fields = [], []
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        kinds = {_kind(value) for value in values if value is not None}
        if kinds == _NUMBERS:  # later shards decide whether they become floats or texts
            array = pa.array([None if value is None else json.dumps(value) for value in values])
        else:
            array = _converted(values, _type(kinds))
        arrays.append(array)
        fields.append(pa.field(name, array.type, metadata={_KINDS: " ".join(sorted(kinds))}))
    return pa.table(arrays, schema=pa.schema(fields))


def common_schema(schemas: Sequence[Any]) -> Any:
    """Returns the schema of parts that are joined; a column of several kinds holds texts."""
    import pyarrow as pa

    if not any(_kinds(field) is not None for schema in schemas for field in schema):
        return schemas[0]  # made from Parquet, where all parts have one
    types: dict[str, Any] = {}
    kinds: dict[str, set[str]] = {}
    for field in (field for schema in schemas for field in schema):
        types[field.name] = field.type
        kinds.setdefault(field.name, set()).update(_kinds(field) or ())
        if _kinds(field) is not None:
            types[field.name] = _type(kinds[field.name])
    return pa.schema(list(types.items()))


def in_schema(table: Any, schema: Any) -> Any:
    """Returns the table of a part in the common schema."""
    import pyarrow as pa

    arrays = []
    for field in schema:
        if field.name not in table.schema.names:
            arrays.append(pa.nulls(table.num_rows, field.type))
            continue
        column, kinds = table[field.name], _kinds(table.schema.field(field.name))
        as_numbers = kinds is not None and set(kinds) == _NUMBERS
        # Arrow does not cast a null inside a list to itself.
        if as_numbers or not column.type.equals(field.type):
            values = column.to_pylist()
            if as_numbers:
                values = [None if value is None else json.loads(value) for value in values]
            column = _converted(values, field.type)
        arrays.append(column)
    return pa.table(arrays, schema=schema)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, int):
        if abs(value) <= _LARGEST_EXACT:
            return "integer"
        return "large" if -_LARGEST_INTEGER <= value < _LARGEST_INTEGER else "huge"
    if isinstance(value, float):
        return "fraction"
    return "text" if isinstance(value, str) else "nested"


def _kinds(field: Any) -> list[str] | None:
    """Returns the kinds of a field; None where its type says all."""
    said = (field.metadata or {}).get(_KINDS)
    return None if said is None else said.decode().split()


def _type(kinds: Collection[str]) -> Any:
    """Returns the Arrow type that holds values of these kinds as they are."""
    import pyarrow as pa

    if not kinds:
        return pa.null()
    if set(kinds) <= {"integer", "large"}:
        return pa.int64()
    if set(kinds) <= _NUMBERS:
        return pa.float64()
    return pa.bool_() if set(kinds) == {"flag"} else pa.string()


def _converted(values: Sequence[Any], kind: Any) -> Any:
    """Returns an Arrow array; what becomes text is JSON, but for texts."""
    import pyarrow as pa

    if kind.equals(pa.string()):
        values = [as_text(value) for value in values]
    elif kind.equals(pa.float64()):
        values = [None if value is None else float(value) for value in values]
    return pa.array(values, kind)
