"""`fit_files`: every row of a JSONL or Parquet file, in a pool of processes, with resume."""

from __future__ import annotations

import inspect
import json
import os
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from re import compile as pattern
from typing import Any

from .. import __version__
from ..budget.token_budget import TokenBudget
from ..counting.resolve import counter_for, files_of
from ..errors import BudgetConfigError, check_count, named_options, refuse, shown
from .fit_prompt import FitPrompt
from .formats import Shard, format_of, join, names_in, shards_of, size_of, values_in
from .progress import Meter, Progress
from .shards import Fitted, ShardFitter, check_outputs
from .workers import answers_of, check_picklable

_PART = pattern(r"(\d+-\d+-[0-9a-f]+)-\d+-\d+-[0-9a-f]+\.(\w+)")
"""Position, first row and digest of a shard, what became of it (`Fitted.known`), and the format."""
_OWN = pattern(r"lock|joined\..+|\d+-\d+-[0-9a-f]+.+")
"""The names that a run gives to its files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """What a run over files did.

    Args:
        rows: rows of the output, one for each of the input.
        failed: how many of them have an error.
        resumed: how many of them an earlier run had finished.
        error: the first one, in the order of the rows; None without one.
        seconds: how long it took.
    """

    rows: int
    failed: int
    resumed: int
    error: str | None
    seconds: float


@named_options
def fit_files(
    source: str | Path,
    target: str | Path,
    fit: FitPrompt,
    *,
    workers: int | None = None,
    shard_rows: int = 250,
    progress: Callable[[Progress], object] | None = None,
) -> BatchResult:
    r"""Fits every row of a file and writes it, with the output columns, to another file in the same order.

    Finished shards are kept beside the target, in `<target>.parts`, until all of them are joined. After an
    interruption, the same call goes on with the shards that are missing; a shard whose rows, options or
    version of rankbudget have changed is fitted again.

    Args:
        source: a .jsonl, .ndjson or .parquet file.
        target: a file of one of these formats, or a link to one; it is replaced when all rows are done.
        fit: fits the rows.
        workers: processes, 1 or more; None takes one for each processor core. With more than one, call this
            under `if __name__ == "__main__":`.
        shard_rows: rows of a shard, 1 or more. Each worker holds one shard in memory.
        progress: is called after each shard.

    Raises:
        BudgetConfigError: an option, a file's format, or a column is wrong, another run writes the target, or
            the source was changed meanwhile.
        RowError: a row cannot be fitted, and `on_error` of `fit` is "raise".
        BudgetError: a shard ended its worker three times.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     given, made = Path(folder, "in.jsonl"), Path(folder, "out.jsonl")
        ...     _ = given.write_text('{"question": "Is tea hot?"}\n' * 3)
        ...     result = fit_files(given, made, FitPrompt(50), workers=1)
        ...     result.rows, result.failed, len(made.read_text().splitlines())
        (3, 0, 3)
    """
    began, source, target = time.monotonic(), Path(source), Path(target)
    target = target.resolve() if target.is_symlink() else target  # the link stays, and the disk that it means
    workers = _cores() if workers is None else workers
    formats = _checked(source, target, fit, workers, shard_rows)
    meter = Meter(size_of(source), workers)
    names = names_in(shards_of(source, shard_rows), formats[0], fit.columns.values())
    if names is not None:
        fit.input_columns(names)  # a wrong column raises before anything is written
    check_outputs(fit, formats[0])
    if workers > 1:
        check_picklable(fit)
        counter_for(fit.counter or fit.budget.model or "o200k_base")  # logs here once what it estimates
    folder, written = target.with_name(f"{target.name}.parts"), _written(source)
    with _locked(folder):
        run = _Run(fit, folder, formats, meter)
        tasks = run.tasks(shards_of(source, shard_rows))
        with closing(answers_of(ShardFitter(fit, *formats), tasks, workers=workers)) as answers:
            for shard, made in answers:
                now = run.finish(shard, made)
                if progress is not None:
                    progress(now)
        if _written(source) != written:
            seen = f"(got a change of {str(source)!r})"
            msg = f"the input must stay as it is while it is read {seen}. Run it again."
            raise BudgetConfigError(msg)
        joined = folder / f"joined.{formats[1]}"
        parts = [run.parts[position] for position in sorted(run.parts)]
        join([made.part for made in parts], joined, fit.outputs)
        failing = (made.part for made in parts if made.failed)
        error = next((e for part in failing for e in values_in(part, fit.outputs["budget_error"]) if e), None)
        joined.replace(target)
        _remove_own(folder)
    rows, failed, resumed = run.meter.counts
    seconds = time.monotonic() - began
    return BatchResult(rows=rows, failed=failed, resumed=resumed, error=error, seconds=seconds)


class _Run:
    """The parts of one target, those of earlier runs included."""

    def __init__(self, fit: FitPrompt, folder: Path, formats: tuple[str, str], meter: Meter) -> None:
        self.parts: dict[int, Fitted] = {}
        self.meter = meter
        self._folder = folder
        self._settings = _settings_digest(fit, formats)
        self._earlier = {
            found[1]: part
            for part in folder.iterdir()
            if (found := _PART.fullmatch(part.name)) and found[2] == formats[1]
        }

    def tasks(self, shards: Iterator[Shard]) -> Iterator[Shard]:
        """Yields the shards that are not fitted yet."""
        for shard in shards:
            digest = blake2b(shard.data, digest_size=16, key=self._settings).hexdigest()
            stem = f"{shard.position:08}-{shard.first}-{digest}"
            made = Fitted.known(self._earlier[stem]) if stem in self._earlier else None
            if made is not None:
                self.parts[shard.position] = made
                self.meter.resume(rows=made.rows, failed=made.failed, amount=shard.amount)
            else:
                yield replace(shard, stem=self._folder / stem)

    def finish(self, shard: Shard, made: Fitted) -> Progress:
        """Counts a shard that was fitted."""
        self.parts[shard.position] = made
        return self.meter.finish(rows=made.rows, failed=made.failed, amount=shard.amount)


def _settings_digest(fit: FitPrompt, formats: tuple[str, str]) -> bytes:
    """Returns a digest of all that decides what becomes of a row."""
    tokenizer = files_of(fit.budget.model if fit.counter is None else fit.counter)
    settings = [__version__, formats, fit.__getstate__(), _written(*tokenizer)]
    return blake2b(json.dumps(settings, default=_described, sort_keys=True).encode(), digest_size=32).digest()


def _described(value: object) -> object:
    if isinstance(value, TokenBudget):
        return value.to_dict()
    try:
        return [pickle.dumps(value).hex(), _written(*_source_of(value))]
    except Exception:  # noqa: BLE001 - an object may refuse in any way; then each run starts anew
        return repr(value)


def _source_of(value: object) -> list[Path]:
    """Returns the file in which it is written what a function or an object does; none if it is built in."""
    value = getattr(value, "func", value)  # of a partial
    try:
        found = inspect.getsourcefile(value if inspect.isroutine(value) else type(value))
    except (TypeError, OSError):
        return []
    return [] if found is None else [Path(found)]


def _written(*paths: Path) -> list[tuple[str, int, int]]:
    """Returns the files at some paths with what changes when one is written again."""
    return [(str(one), one.stat().st_size, one.stat().st_mtime_ns) for one in paths if one.is_file()]


def _remove_own(folder: Path) -> None:
    """Removes the parts of all runs; what others keep in the folder stays, and then the folder, too."""
    with suppress(OSError):  # the result is written: nothing is lost with what cannot be removed
        for path in folder.iterdir():
            if _OWN.fullmatch(path.name):
                path.unlink()
        folder.rmdir()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Creates the folder of parts, and holds it until the run ends or dies."""
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("a+") as file:
        try:
            import fcntl  # not on Windows, where two runs must be kept apart by their user
        except ImportError:
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            msg = f"{folder} must be written by one run (got two: process {file.read()} has it). Wait for it"
            raise BudgetConfigError(msg) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _checked(source: Path, target: Path, fit: Any, workers: int, shard_rows: int) -> tuple[str, str]:
    """Returns the formats of source and target."""
    problems: list[str] = []
    if not isinstance(fit, FitPrompt):
        problems.append(f"fit must be a FitPrompt (got {shown(fit)}). Give FitPrompt(budget)")
    check_count("workers", workers, problems, low=1)
    check_count("shard_rows", shard_rows, problems, low=1)
    if not source.is_file():
        problems.append(f"the input must be a file (got {str(source)!r})")
    elif target.exists() and target.samefile(source):
        problems.append(f"the output must be another file than the input (got {str(target)!r})")
    if target.is_dir() or not target.parent.is_dir():
        problems.append(f"the output must be a file in a folder that exists (got {str(target)!r})")
    refuse(problems)
    return format_of(source), format_of(target)


def _cores() -> int:
    """Returns how many processor cores this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1
