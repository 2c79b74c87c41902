"""Fits a shard of a file and writes it as a part, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from re import compile as pattern
from typing import Any

from ..errors import BudgetConfigError, RowError
from .columns import table_of_rows
from .fit_prompt import FitPrompt
from .formats import Shard, objects_in, table_in, written_whole
from .reading import Line
from .tables import NESTED, as_json, cells_of, in_columns, table_of

_UNREAD = "line"
"""The key under which a line is kept that is no JSON object."""
_NUMBERS = pattern(r".+-(\d+)-(\d+)-([0-9a-f]+)\.\w+")
"""The end of a part's name: its rows, its failed rows, and a digest of its content."""
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

    @classmethod
    def known(cls, part: Path) -> Fitted | None:
        """Returns what the name of a part says; None where its content is not what was written."""
        named = _NUMBERS.fullmatch(part.name)
        try:
            content = part.read_bytes()
        except OSError:  # a disk that fails
            return None
        if named is None or named[3] != _digest(content):
            return None
        return cls(part, int(named[1]), int(named[2]))


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
        """Fits a shard; its part is named by its rows, its failed rows, and a digest of its content."""
        error_column = self.fit.outputs["budget_error"]
        if self.source == "parquet":
            made: Any = self.fit.fit_batch(table_in(shard), first=shard.first)
            errors = made.column(error_column).to_pylist()
        else:
            made = self._fitted_lines(shard)
            errors = [outputs["budget_error"] for _, _, outputs in made]
        failed = len(errors) - errors.count(None)
        content = self._content(made)
        name = f"{shard.stem.name}-{len(errors)}-{failed}-{_digest(content)}.{self.target}"
        part = shard.stem.with_name(name)
        with written_whole(part) as path:
            path.write_bytes(content)
        return Fitted(part, len(errors), failed)

    def _fitted_lines(self, shard: Shard) -> list[_Line]:
        lines = [(number, raw, self._without_outputs(number, row)) for number, raw, row in objects_in(shard)]
        made = self.fit.fit_rows(
            (f"line {number}", row if isinstance(row, RowError) else Line(self.fit.inputs_of(row)))
            for number, _, row in lines
        )
        return [(raw, row, outputs) for (_, raw, row), outputs in zip(lines, made, strict=True)]

    def _without_outputs(self, number: int, row: _Row) -> _Row:
        """Returns the row, or an error where an output would stand twice in its line."""
        taken = [] if isinstance(row, RowError) else self.fit.taken(row)
        if not taken:
            return row
        return RowError(f"line {number} must not have the key {taken[0]!r} already. Rename the output.")

    def _content(self, made: Any) -> bytes:
        names = self.fit.outputs
        if self.source == "jsonl" and self.target == "jsonl":
            return b"".join([_line(raw, row, outputs, names) for raw, row, outputs in made])
        if self.target == "jsonl":
            cells = zip(*map(cells_of, made.columns), strict=True)
            rows = [dict(zip(made.column_names, row, strict=True)) for row in cells]
            return "".join([_line_of(row, names) for row in rows]).encode()
        import pyarrow as pa
        from pyarrow.parquet import write_table

        sink = pa.BufferOutputStream()
        write_table(made if self.source == "parquet" else _table(made, names), sink)
        content: bytes = sink.getvalue().to_pybytes()
        return content


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


def _line(raw: bytes, row: _Row, outputs: Mapping[str, Any], names: Mapping[str, str]) -> bytes:
    """Returns a line with the outputs added; what it had stays as it was written."""
    if isinstance(row, RowError):
        raw = as_json({_UNREAD: raw.decode("utf-8", "backslashreplace")}).encode()
    added = as_json({names[output]: value for output, value in outputs.items()}).encode()
    return raw[:-1].rstrip() + (b", " if row else b"") + added[1:] + b"\n"


def _line_of(row: dict[str, Any], names: Mapping[str, str]) -> str:
    """Returns the line of a row of Parquet; dates and bytes are written as texts."""
    for name in [names[output] for output in NESTED & names.keys()]:
        row[name] = None if row[name] is None else json.loads(row[name])
    return as_json(row) + "\n"


def _table(made: Sequence[_Line], names: Mapping[str, str]) -> Any:
    """Returns the Arrow table of lines; nested values are JSON."""
    rows = [
        {_UNREAD: raw.decode("utf-8", "backslashreplace")} if isinstance(row, RowError) else row
        for raw, row, _ in made
    ]
    outputs = in_columns([one for _, _, one in made], names)
    return table_of(table_of_rows(rows)).with_columns(outputs)
