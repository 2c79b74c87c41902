"""The timeline of a key: which of its versions holds when, in whatever order they were put."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from .memory import Memory
from .tables import memory_of, moment_of, seconds

Period = tuple[float, float]
"""From its first moment until before its second one."""


VERSION = (
    *("seq", "id", "digest", "said_from", "said_to", "valid_from", "valid_to"),
    *("gaps", "replaced", "dated", "replaced_by", "expires_at"),
)
"""The columns that say what a version is."""


class Version(NamedTuple):
    """What was put: its row, the period that was said for it, and from when until when it holds."""

    seq: float
    id: str
    digest: str
    said: Period
    holds: Period
    gaps: int
    replaced: int
    dated: int
    superseded: bool
    expires: float

    def set_back(self, now: float) -> Version:
        """Returns it as a text without a date takes it: a later one without a date is of a fast clock."""
        begins = self.said[0] if self.dated or self.superseded else min(self.said[0], now)
        return self._replace(said=(begins, self.said[1]))


def version_of(row: Any) -> Version:
    """Returns a row as a version."""
    said, holds = (row.said_from, _end(row.said_to)), (row.valid_from, _end(row.valid_to))
    marks = row.gaps, row.replaced, row.dated, row.replaced_by is not None, _end(row.expires_at)
    return Version(row.seq, row.id, row.digest, said, holds, *marks)


def _end(moment: float | None) -> float:
    return math.inf if moment is None else moment


def stated(memory: Memory, now: datetime) -> Period:
    """Returns the period that a memory is put for: without a date from now on, or its end if that is over."""
    ends = seconds(memory.valid_to) if memory.valid_to else math.inf
    return (seconds(memory.valid_from) if memory.valid_from else min(seconds(now), ends)), ends


def periods_of(versions: Iterable[Version]) -> dict[float, list[Period]]:
    """Returns when each version holds, by the number of its row.

    At each moment that one holds which began last of those whose period covers the moment; of two that began
    together it is the newer one. One that never does gets an empty period where it would begin.
    """
    found: dict[float, list[Period]] = {}
    covered: list[Period] = []  # by later versions, the earliest period last
    for one in sorted(versions, key=lambda version: (version.said[0], version.seq), reverse=True):
        begins, ends = one.said
        free, since = list[Period](), begins
        while covered and covered[-1][0] <= ends:
            first, last = covered.pop()
            free.append((since, first))
            since = max(since, last)
        free.append((since, ends))
        found[one.seq] = [part for part in free if part[0] < part[1]] or [(begins, begins)]
        if begins < max(since, ends):
            covered.append((begins, max(since, ends)))
    return found


def same_of(
    versions: Sequence[Version], digest: str, period: Period, now: datetime, *, is_dated: bool
) -> Version | None:
    """Returns the version that is put again: with its date, or without one that of this text which holds."""
    alike = _alike(versions, digest, now)
    if is_dated:
        return next((one for one in alike if one.said[0] == period[0]), None)
    parts = periods_of(versions)
    return next((one for one in alike if _meet(parts[one.seq], (period[0], period[0]))), None)


def one_of(versions: Sequence[Version], digest: str, period: Period, now: datetime) -> Version | None:
    """Returns a version of a text that holds at some moment of a period."""
    parts = periods_of(versions)
    return next((one for one in _alike(versions, digest, now) if _meet(parts[one.seq], period)), None)


def _alike(versions: Sequence[Version], digest: str, now: datetime) -> list[Version]:
    """Returns the versions of a text that may be put again, the newest first."""
    alike = [one for one in versions if one.digest == digest and one.expires > seconds(now)]
    return sorted(alike, reverse=True)


def _meet(parts: Sequence[Period], period: Period) -> bool:
    begins, ends = period
    return any(max(begins, first) < last and (first < ends or first == begins) for first, last in parts)


def dated(rows: Sequence[Any]) -> list[Memory]:
    """Returns the rows of one timeline as memories, one for each period of each, the oldest first.

    The last one is current, each other names the one that follows it.
    """
    parts = periods_of([version_of(row) for row in rows])
    found, following = list[Memory](), None
    ordered = sorted([(last, first, row.seq, row) for row in rows for first, last in parts[row.seq]])
    for ends, begins, _, row in reversed(ordered):
        memory, until = memory_of(row), None if ends == math.inf else moment_of(ends)
        follows = following or memory.replaced_by
        found.append(replace(memory, replaced_by=follows, valid_from=moment_of(begins), valid_to=until))
        if begins < ends or following is None:
            following = row.id
    return found[::-1]
