"""JSONL and Parquet: files cut into shards, and parts joined into one file."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BudgetConfigError, CounterUnavailableError, RowError, named_file, shown
from .columns import common_schema, in_schema
from .tables import arrow_type

_FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_LARGEST_SHARD = 16_000_000
"""Bytes of JSONL after which a shard ends, however few rows it has; a single row may be larger."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Some rows of a file, next to each other."""

    position: int  # 0 for the first shard
    first: int  # the line (JSONL, from 1) or the row (Parquet, from 0) that it starts with
    rows: int  # how many lines or rows it has
    data: bytes  # lines, or an Arrow stream
    amount: int  # its part of what `size_of` returns
    stem: Path = Path()  # its part, without format and numbers of rows

    def __str__(self) -> str:
        return f"the shard of rows {self.first:,} to {self.first + self.rows - 1:,}"


def format_of(path: Path) -> str:
    """Returns "jsonl" or "parquet", by the end of the name."""
    found = _FORMATS.get(path.suffix.lower())
    if found is None:
        msg = f"a file must end with {', '.join(_FORMATS)} (got {str(path)!r}). Rename or convert it."
        raise BudgetConfigError(msg)
    if found == "parquet":
        try:
            import pyarrow.parquet  # noqa: F401 - optional; it is missed before the work starts
        except ImportError as error:
            msg = "Parquet files need pyarrow. Install it with: pip install 'rankbudget[parquet]'"
            raise CounterUnavailableError(msg) from error
    return found


# ---- into shards ---------------------------------------------------------------------------------
def size_of(path: Path) -> int:
    """Returns the size of a file: bytes, or rows of Parquet."""
    if format_of(path) == "jsonl":
        return path.stat().st_size
    with _parquet(path) as file:
        return int(file.metadata.num_rows)


def shards_of(path: Path, rows: int) -> Iterator[Shard]:
    """Yields a file in shards of at most `rows` rows, read one at a time."""
    first, cut = (1, _lines) if format_of(path) == "jsonl" else (0, _record_batches)
    for position, (data, size, amount) in enumerate(cut(path, rows)):
        yield Shard(position, first, size, data, amount)
        first += size


def _lines(path: Path, rows: int) -> Iterator[tuple[bytes, int, int]]:
    lines: list[bytes] = []
    size = 0
    with path.open("rb") as file:
        for line in file:
            lines.append(line)
            size += len(line)
            if len(lines) == rows or size >= _LARGEST_SHARD:
                yield b"".join(lines), len(lines), size
                lines, size = [], 0
    if lines:
        yield b"".join(lines), len(lines), size


def _record_batches(path: Path, rows: int) -> Iterator[tuple[bytes, int, int]]:
    import pyarrow as pa

    with _parquet(path) as file:
        empty = pa.RecordBatch.from_pylist([], schema=file.schema_arrow)  # keeps the columns of an empty file
        for batch in file.iter_batches(rows) if file.metadata.num_rows else [empty]:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            yield sink.getvalue().to_pybytes(), batch.num_rows, batch.num_rows


@contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    """Yields a file of Parquet; an error while it is read, of a damaged page too, names it."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        msg = f"the input must be Parquet (got {str(path)!r}: {error})."
        raise BudgetConfigError(msg) from error


# ---- a shard's rows ------------------------------------------------------------------------------
def table_in(shard: Shard) -> Any:
    """Returns the Arrow table of a shard of Parquet."""
    import pyarrow as pa

    return pa.ipc.open_stream(shard.data).read_all()


def objects_in(shard: Shard) -> Iterator[tuple[int, bytes, Mapping[str, Any] | RowError]]:
    """Yields the lines that are not blank: number, bytes, and the object or what is wrong with it."""
    for number, line in enumerate(shard.data.split(b"\n"), start=shard.first):
        raw = line.removeprefix(b"\xef\xbb\xbf").strip()  # files that were joined have it inside, too
        if not raw:
            continue
        try:
            row = json.loads(raw.decode())
        except (ValueError, RecursionError) as error:
            yield number, raw, RowError(f"line {number} must be JSON (got {error}).")
            continue
        wrong = RowError(f"line {number} must be a JSON object (got {shown(row)}).")
        yield number, raw, row if isinstance(row, dict) else wrong


def names_in(shards: Iterable[Shard], source: str, wanted: Collection[str]) -> set[str] | None:
    """Returns the columns of a table, or the keys of the first shards with objects; None of no rows.

    Shards are read until all `wanted` keys are found: lines may leave out what is empty.

    Raises:
        BudgetConfigError: there are lines, and none is a JSON object.
    """
    empty, known, found = True, False, set[str]()
    for shard in shards:
        if source == "parquet":
            return set(table_in(shard).schema.names)
        rows = [row for _, _, row in objects_in(shard)]
        objects = [row for row in rows if not isinstance(row, RowError)]
        empty, known = empty and not rows, known or bool(objects)
        found.update(*objects)
        if known and found.issuperset(wanted):
            break
    if known or empty:
        return found if known else None
    msg = "the input must have JSON objects, one a line (got none)."
    raise BudgetConfigError(msg)


def values_in(part: Path, column: str) -> list[Any]:
    """Returns a column of a part."""
    if format_of(part) == "jsonl":
        return [json.loads(line)[column] for line in part.read_bytes().split(b"\n")[:-1]]
    from pyarrow.parquet import read_table

    return list(read_table(part, columns=[column]).column(column).to_pylist())


# ---- into one file -------------------------------------------------------------------------------
@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yields the path to write to; it gets its name when it is complete and on the disk."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    try:
        with named_file(path):
            yield unfinished
            with unfinished.open("rb+") as file:
                os.fsync(file.fileno())
            unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def join(parts: Sequence[Path], target: Path, outputs: Mapping[str, str]) -> None:
    """Writes all parts, in order, to one file; `outputs` are the columns of a table without any part."""
    with written_whole(target) as path:
        if format_of(target) == "parquet":
            _join_tables(parts, path, outputs)
            return
        with path.open("wb") as file:
            for part in parts:
                with part.open("rb") as lines:
                    shutil.copyfileobj(lines, file)


def _join_tables(parts: Sequence[Path], path: Path, outputs: Mapping[str, str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schemas = [pq.read_schema(part) for part in parts]
    none = pa.schema([(name, arrow_type(output)) for output, name in outputs.items()])
    schema = common_schema(schemas) if schemas else none
    with pq.ParquetWriter(path, schema) as writer:
        for part in parts:
            writer.write_table(in_schema(pq.read_table(part), schema))
