"""How far a run over files is, and when it will be done."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..errors import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A run after one more finished shard.

    Args:
        rows: rows finished, those of an earlier run included.
        failed: how many of them have an error.
        resumed: how many of them an earlier run finished.
        share: finished part of the input, 0 to 1.
        rows_per_second: of this run; None until there are two finished shards for each worker.
        seconds_left: at that rate, joining the shards apart; None as long as the rate is.

    Example:
        >>> print(Progress(rows=500, failed=2, share=0.25, rows_per_second=100.0, seconds_left=75.0))
        500 rows (25%), 2 failed, 100 rows/s, about 1 min 15 s left
    """

    rows: int
    failed: int
    share: float
    resumed: int = 0
    rows_per_second: float | None = None
    seconds_left: float | None = None

    def __str__(self) -> str:
        parts = [f"{counted(self.rows, 'row')} ({self.share:.0%})", f"{self.failed:,} failed"]
        if self.resumed:
            parts.append(f"{self.resumed:,} by an earlier run")
        if self.rows_per_second is not None and self.seconds_left is not None:
            left = [f"about {_duration(self.seconds_left)} left"] if self.share < 1 else []
            parts += [f"{self.rows_per_second:,.0f} rows/s", *left]
        return ", ".join(parts)


class Meter:
    """Counts finished shards.

    The rate is measured from when each worker has finished one shard: the first ones wait for the workers to
    start, and come at nearly the same time.

    Args:
        total: size of the whole input, in the unit of `amount`.
        workers: how many shards are fitted at a time.
    """

    def __init__(self, total: int, workers: int) -> None:
        self._total, self._workers = total, workers
        self._rows = self._failed = self._resumed = self._done = 0
        self._shards = 0  # of this run
        self._start = 0.0  # when each worker had finished one
        self._since_start = (0, 0)  # rows and amount since then

    @property
    def counts(self) -> tuple[int, int, int]:
        """Rows finished, how many of them failed, and how many an earlier run finished."""
        return self._rows, self._failed, self._resumed

    def resume(self, *, rows: int, failed: int, amount: int) -> None:
        """Counts a shard that an earlier run finished."""
        self._resumed += rows
        self._count(rows, failed, amount)

    def finish(self, *, rows: int, failed: int, amount: int) -> Progress:
        """Counts a shard of this run and returns how far the run is."""
        self._count(rows, failed, amount)
        self._shards += 1
        now = time.monotonic()
        if self._shards <= self._workers:
            self._start = now
        else:
            done_rows, done_amount = self._since_start
            self._since_start = (done_rows + rows, done_amount + amount)
        return self._progress(now - self._start)

    def _count(self, rows: int, failed: int, amount: int) -> None:
        self._rows += rows
        self._failed += failed
        self._done += amount

    def _progress(self, seconds: float) -> Progress:
        rows, amount = self._since_start
        is_known = self._shards >= 2 * self._workers and seconds > 0 and amount > 0
        return Progress(
            rows=self._rows,
            failed=self._failed,
            resumed=self._resumed,
            share=self._done / self._total if self._total else 1.0,
            rows_per_second=rows / seconds if is_known else None,
            seconds_left=(self._total - self._done) * seconds / amount if is_known else None,
        )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
