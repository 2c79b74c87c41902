"""The timeline of a key: which of its versions holds when, in whatever order they were put."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from .memory import Memory, digest_of, utc
from .tables import memory_of, seconds

Period = tuple[float, float]
"""From its first moment until before its second one."""


class Version(NamedTuple):
    """A stored memory, when it holds, and when it was said to begin: earlier, if it goes on after another."""

    memory: Memory
    period: Period
    said: float
    planned: bool = True
    """Whether it was put before it was to begin."""

    def seen_from(self, now: float) -> Version:
        """Returns it as a text without a date takes it: a later one that is no plan is of a fast clock."""
        return self if self.planned else self._replace(said=min(self.said, now))

    def says(self, memory: Memory) -> bool:
        """Returns whether it has the text of a memory."""
        return digest_of(self.memory.text) == digest_of(memory.text)

    def meets(self, period: Period, now: datetime) -> bool:
        """Returns whether it holds at some moment of a period, and has not expired."""
        (begins, ends), expires = self.period, self.memory.expires_at
        expired = expires is not None and utc(expires) <= now
        return begins < min(ends, period[1]) and period[0] < ends and not expired


class Part(NamedTuple):
    """A period of a version as a row: its own, which has its id, or a copy of that."""

    period: Period
    of: Version
    id: str


def placed(
    new: Version, period: Period, others: Sequence[Version]
) -> tuple[list[Period], list[list[Period]]]:
    """Returns when a version that takes a period holds, and when each of the others still does.

    At each moment that version holds which began last of those whose period covers the moment; of two that
    began together it is the newer one. One that never does gets an empty period where it would begin.
    """
    stay = [one.said > period[0] or (one.said == new.said and one.says(new.memory)) for one in others]
    left = [
        [one.period] if stays else _outside(one.period, [period])
        for one, stays in zip(others, stay, strict=True)
    ]
    return _outside(period, [one.period for one, stays in zip(others, stay, strict=True) if stays]), left


def _outside(period: Period, others: Iterable[Period]) -> list[Period]:
    """Returns the parts of a period that no other one covers."""
    parts = [period]
    for begins, ends in [other for other in others if other[0] < other[1]]:
        cut = [((first, min(last, begins)), (max(first, ends), last)) for first, last in parts]
        parts = [half for halves in cut for half in halves if half[0] < half[1]]
    return parts or [(period[0], period[0])]


def stated(memory: Memory, now: datetime) -> Period:
    """Returns the period that a memory is put for: without a date from now on, or its end if that is over."""
    ends = seconds(memory.valid_to) if memory.valid_to else math.inf
    return (seconds(memory.valid_from) if memory.valid_from else min(seconds(now), ends)), ends


def version_of(row: Any) -> Version:
    """Returns a row as a version."""
    memory = memory_of(row)
    ends = min(math.inf if end is None else end for end in (row.valid_to, row.expires_at))
    said = row.valid_from if row.said_from is None else row.said_from
    return Version(memory, (row.valid_from, max(row.valid_from, ends)), said, said > row.created_at)


def same_of(memory: Memory, new: Period, found: Sequence[Version], held: Sequence[Version]) -> Version | None:
    """Returns the first one found with a memory's text, unless another of its key begins before it."""
    same = next((one for one in found if one.says(memory)), None)
    if same is None or any(new[0] < one.period[0] < same.period[0] for one in held):
        return None
    return same


def said_again(
    same: Version, memory: Memory, new: Period, held: Sequence[Version], now: datetime
) -> tuple[Version, Period]:
    """Returns a memory whose text is put again, and the period it takes: it holds at once if it already does.

    An end that is not given again stays, but for one that another version of its key made.
    """
    begins, ends = min(new[0], max(same.period[0], seconds(now))), new[1]
    if same.memory.valid_to and not memory.valid_to and all(one.period[0] != same.period[1] for one in held):
        ends = seconds(same.memory.valid_to)
    current = replace(same.memory, replaced_by=None)
    return same._replace(said=min(same.said, begins), memory=current), (begins, ends)


def laid_out(new: Version, period: Period, others: Sequence[Version], now: datetime) -> list[Part]:
    """Returns the rows of a timeline in which a new version takes a period, and keeps what it had before."""
    mine, left = placed(new, period, others)
    begins, known = period[0], [part for periods in left for part in periods]
    if mine[0][0] == begins:
        free = max([new.period[0], *(min(ends, begins) for first, ends in known if first < begins)])
        mine[0] = (min(free, begins), mine[0][1])
    rows = [part for one, periods in zip(others, left, strict=True) for part in _rows(one, periods, now)]
    return [*rows, *_rows(new, mine, now)]


def _rows(one: Version, periods: Sequence[Period], now: datetime) -> list[Part]:
    """Returns the rows of a version: its own has the period that holds now, else the first one."""
    moment, name = seconds(now), one.memory.id
    own = next((at for at, (first, last) in enumerate(periods) if first <= moment < last), 0)
    return [Part(part, one, name if at == own else uuid.uuid4().hex) for at, part in enumerate(periods)]


def dated(parts: Sequence[Part]) -> list[tuple[Part, dict[str, Any]]]:
    """Returns what the rows of one timeline say: the last is the current one, each other names the next."""
    found, following = list[tuple[Part, dict[str, Any]]](), None
    for part in sorted(parts, key=lambda part: part.period[::-1], reverse=True):
        begins, ends = part.period
        change: dict[str, Any] = {"valid_from": begins, "valid_to": ends if ends < math.inf else None}
        change["said_from"] = part.of.said if part.of.said < begins else None
        change["replaced_by"] = following or part.of.memory.replaced_by
        found.append((part, {**change, "replaced": int(change["replaced_by"] is not None)}))
        if begins < ends or following is None:
            following = part.id
    return found


def is_as_stored(part: Part, row: dict[str, Any]) -> bool:
    """Returns whether a version keeps its period, and is still current or still not."""
    kept = (part.of.memory.replaced_by is None) == (row["replaced_by"] is None)
    return part.id == part.of.memory.id and part.period == part.of.period and kept
