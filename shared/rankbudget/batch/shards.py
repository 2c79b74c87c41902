"""Fits a shard of a file and writes it as a part, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BudgetConfigError, RowError
from .fit_prompt import FitPrompt
from .formats import Shard, objects_in, table_in, written_whole
from .tables import OUTPUTS, as_json, as_text, table_of

_UNREAD = "line"
"""The key under which a line is kept that is no JSON object."""
_FLAT = (str, int, float, bool)
_Row = Mapping[str, Any] | RowError
"""The object of a line, or what is wrong with it."""
_Line = tuple[bytes, _Row, dict[str, Any]]
"""A line as it was written, its object, and its outputs."""


def check_outputs(fit: FitPrompt, source: str) -> None:
    """Raises BudgetConfigError for an output with the name under which unread lines are kept."""
    if source == "jsonl" and fit.taken([_UNREAD]):
        msg = (
            f"an output must have another name than {_UNREAD!r}, which keeps lines that are no JSON objects."
        )
        raise BudgetConfigError(msg)


@dataclass(frozen=True, slots=True)
class Fitted:
    """What became of a shard."""

    part: Path
    rows: int
    failed: int


@dataclass(frozen=True, slots=True)
class ShardFitter:
    """Fits shards in a worker.

    Args:
        fit: fits their rows.
        source: format of the shards, "jsonl" or "parquet".
        target: format of the parts.
    """

    fit: FitPrompt
    source: str
    target: str

    def __call__(self, shard: Shard) -> Fitted:
        """Fits a shard; the name of its part ends with the number of rows and of failed rows."""
        error_column = self.fit.outputs["budget_error"]
        if self.source == "parquet":
            made: Any = self.fit.fit_batch(table_in(shard), first=shard.first)
            errors = made.column(error_column).to_pylist()
        else:
            made = self._fitted_lines(shard)
            errors = [outputs["budget_error"] for _, _, outputs in made]
        failed = len(errors) - errors.count(None)
        part = shard.stem.with_name(f"{shard.stem.name}-{len(errors)}-{failed}.{self.target}")
        with written_whole(part) as path:
            self._write(path, made)
        return Fitted(part, len(errors), failed)

    def _fitted_lines(self, shard: Shard) -> list[_Line]:
        lines = [(number, raw, self._without_outputs(number, row)) for number, raw, row in objects_in(shard)]
        made = self.fit.fit_rows(
            (f"line {number}", row if isinstance(row, RowError) else self.fit.inputs_of(row))
            for number, _, row in lines
        )
        return [(raw, row, outputs) for (_, raw, row), outputs in zip(lines, made, strict=True)]

    def _without_outputs(self, number: int, row: _Row) -> _Row:
        """Returns the row, or an error where an output would stand twice in its line."""
        taken = [] if isinstance(row, RowError) else self.fit.taken(row)
        if not taken:
            return row
        return RowError(f"line {number} must not have the key {taken[0]!r} already. Rename the output.")

    def _write(self, path: Path, made: Any) -> None:
        names = self.fit.outputs
        if self.source == "jsonl" and self.target == "jsonl":
            path.write_bytes(b"".join([_line(raw, row, outputs, names) for raw, row, outputs in made]))
        elif self.target == "jsonl":
            path.write_text("".join([_line_of(row, names) for row in made.to_pylist()]), encoding="utf-8")
        else:
            from pyarrow.parquet import write_table

            write_table(made if self.source == "parquet" else _table(made, names), path)


def _line(raw: bytes, row: _Row, outputs: Mapping[str, Any], names: Mapping[str, str]) -> bytes:
    """Returns a line with the outputs added; what it had stays as it was written."""
    if isinstance(row, RowError):
        raw = as_json({_UNREAD: raw.decode("utf-8", "backslashreplace")}).encode()
    added = as_json({names[output]: value for output, value in outputs.items()}).encode()
    return raw[:-1].rstrip() + (b", " if row else b"") + added[1:] + b"\n"


def _line_of(row: dict[str, Any], names: Mapping[str, str]) -> str:
    """Returns the line of a row of Parquet; dates and bytes are written as texts."""
    messages = names["messages"]
    row[messages] = None if row[messages] is None else json.loads(row[messages])
    return as_json(row) + "\n"


def _table(made: Sequence[_Line], names: Mapping[str, str]) -> Any:
    """Returns the Arrow table of lines; nested values are JSON."""
    import pyarrow as pa

    rows = [
        {_UNREAD: raw.decode("utf-8", "backslashreplace")} if isinstance(row, RowError) else row
        for raw, row, _ in made
    ]
    columns = {
        name: _array([row.get(name) for row in rows]) for name in dict.fromkeys(k for r in rows for k in r)
    }
    outputs = {output: (names[output], [one[output] for _, _, one in made]) for output in OUTPUTS}
    name, messages = outputs["messages"]
    outputs["messages"] = name, [None if one is None else as_json(one) for one in messages]
    return table_of(pa.table(columns)).with_columns(outputs)


def _array(values: list[Any]) -> Any:
    """Returns an Arrow array; values that no type of Arrow's has in common become texts."""
    import pyarrow as pa

    if all(value is None or isinstance(value, _FLAT) for value in values):
        try:
            return pa.array(values)
        except (pa.ArrowException, OverflowError, UnicodeError):
            pass
    return pa.array([as_text(value) for value in values])
