"""`fit_daft`: `FitPrompt` as a class of user-defined functions over a Daft data frame."""

from __future__ import annotations

from typing import Any

from ..errors import check_count, refuse, shown
from .fit_prompt import FitPrompt
from .tables import LISTS, NUMBERS, arrow_type, cells_of


def fit_daft(frame: Any, fit: FitPrompt, *, workers: int | None = None, batch_rows: int = 256) -> Any:
    """Returns a Daft data frame with the output columns; nothing is computed before Daft runs the query.

    Args:
        frame: a `daft.DataFrame`.
        fit: fits its rows.
        workers: processes on each machine, 1 or more; None leaves their number to Daft.
        batch_rows: most rows that a worker fits at once, 1 or more.

    Raises:
        BudgetConfigError: an option or a column is wrong.
    """
    import daft  # the frame is Daft's, so it is there
    import pyarrow as pa

    problems: list[str] = []
    check_count("workers", 1 if workers is None else workers, problems, low=1)
    check_count("batch_rows", batch_rows, problems, low=1)
    if not isinstance(frame, daft.DataFrame):
        problems.append(f"frame must be a Daft data frame (got {shown(frame)})")
    if not hasattr(fit, "fit_batch"):
        problems.append(f"fit must be a FitPrompt (got {shown(fit)})")
    refuse(problems)
    used = list(fit.input_columns(frame.column_names).values())
    text, number = daft.DataType.string(), daft.DataType.int64()
    outputs = {
        name: number if output in NUMBERS else daft.DataType.list(text) if output in LISTS else text
        for output, name in fit.outputs.items()
    }

    def call(_self: object, *columns: Any) -> Any:
        made = fit({name: _values(column) for name, column in zip(used, columns, strict=True)})
        arrays = [pa.array(made[name], arrow_type(output)) for output, name in fit.outputs.items()]
        return daft.Series.from_arrow(pa.StructArray.from_arrays(arrays, names=list(outputs)))

    result = daft.DataType.struct(outputs)
    marked = daft.method.batch(return_dtype=result, unnest=True)(call)
    # Processes: threads would wait for each other, as fitting is Python.
    fitter = daft.cls(type("FitPrompt", (), {"__call__": marked}), max_concurrency=workers, use_process=True)
    # Daft 0.7.26 calls a method with a batch size with single rows where it reads JSONL in smaller parts.
    frame = frame.into_batches(batch_rows)
    return frame.select(*frame.column_names, fitter()(*[frame[name] for name in used]))


def _values(column: Any) -> list[Any]:
    """Returns what a series holds; Python objects, as values of several types are, have no Arrow form."""
    objects = "Python" in str(column.datatype())
    return list(column.to_pylist()) if objects else cells_of(column.to_arrow())
