"""Putting a memory: it gets a row, or changes the one that it is said again of; its timeline is settled."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from . import sqlalchemy_later as sa
from .lines import end, keys_of, make_way, open_end, set_back, settle, versions_of
from .memory import Memory, digest_of
from .tables import line_of, memories, memory_of, row_of, seconds
from .timeline import Period, Version, one_of, same_of, stated

Index = Callable[["sa.Connection", int, str], None]
"""Writes the words and vector of a row's text."""
_ELSEWHERE = frozenset({"sources", "created_at", "valid_from", "valid_to"})
"""Fields that are set by rules of their own."""


class Put(NamedTuple):
    """What is put: a memory, the names of the fields that were given, and when."""

    memory: Memory
    given: Collection[str]
    now: datetime
    add_words: Index

    @property
    def digest(self) -> str:
        """What texts share that differ only in case and spaces."""
        return digest_of(self.memory.text)

    @property
    def period(self) -> Period:
        """When it is said to hold."""
        return stated(self.memory, self.now)

    @property
    def is_dated(self) -> bool:
        """Whether it says when it begins."""
        return self.memory.valid_from is not None

    def stored(self, connection: sa.Connection, old: Any) -> Memory:
        """Returns it as it is stored; it ends the row of an `old` memory, if there is one."""
        table, (key, held, same) = memories(), self._known(connection)
        memory = replace(self.memory, key=key)
        lines = {line_of(key, self.digest)}
        if not self.is_dated:
            set_back(connection, memory, seconds(self.now))
        make_way(connection, memory)
        if same is None:
            row = self._insert(connection, memory)
        else:
            period = self._said_again(same, held, supersedes=old is not None)
            row = self._again(connection, memory, same, period)
            lines.add(self.digest)  # it may be the one without a key that gets this one
        if old is not None:
            lines.add(end(connection, old, row, self.period[0]))
        for line in sorted(lines):
            settle(connection, memory.scope, line, row.seq)
        return memory_of(connection.execute(table.select().where(table.c.seq == row.seq)).one())

    def _known(self, connection: sa.Connection) -> tuple[str | None, list[Version], Version | None]:
        """Returns the key that it gets, the versions under it, and the one that it is said again of.

        Without a key it gets that of a memory with its text that holds then; a memory without a key that it
        is said again of gets its key.
        """
        scope, digest, period, now = self.memory.scope, self.digest, self.period, self.now
        keys = [self.memory.key] if self.memory.key is not None else keys_of(connection, scope, digest)
        since = max(period[0], seconds(now)) if self.is_dated else period[0]
        from_now = since, max(since, period[1])
        for key in keys:
            held = versions_of(connection, scope, line_of(key, digest))
            if not self.is_dated:
                held = [one.set_back(seconds(now)) for one in held]
            if one_of(held, digest, from_now, now):
                break
        same = same_of(held, digest, period, now, is_dated=self.is_dated)
        if same is None and key is not None:
            keyless = versions_of(connection, scope, digest)
            same = (
                same_of(keyless, digest, period, now, is_dated=True)
                if self.is_dated
                else one_of(keyless, digest, period, now)
            )
        return key, held, same

    def _said_again(self, same: Version, held: Sequence[Version], *, supersedes: bool) -> Period:
        """Returns the period of a memory that is put again; an end that is not given again stays.

        One that another memory made by superseding it is for good, unless it supersedes that in turn.
        """
        (begins, last), ends = same.said, self.period[1]
        if same not in held:
            begins = min(self.period[0], max(begins, seconds(self.now)) if held else begins)
        if same.superseded:
            return begins, ends if supersedes else min(ends, last)
        return begins, ends if self.memory.valid_to else last

    def _insert(self, connection: sa.Connection, memory: Memory) -> Any:
        table, values = memories(), row_of(replace(memory, id=uuid.uuid4().hex))
        created = {"created_at": seconds(memory.created_at or self.now), "version": 1}
        values |= {**created, **_columns(self.period), "dated": int(self.is_dated)}
        row = connection.execute(table.insert().values(values).returning(*table.c)).one()
        self.add_words(connection, row.seq, memory.text)
        return row

    def _again(self, connection: sa.Connection, memory: Memory, same: Version, period: Period) -> Any:
        """Sets the given fields, adds the sources, and returns the row; under its key it has the new text."""
        table, said = memories(), row_of(memory)
        row = connection.execute(table.select().where(table.c.seq == same.seq)).one()
        sources = tuple(dict.fromkeys((*memory_of(row).sources, *memory.sources)))
        change = {name: said[name] for name in set(self.given) - _ELSEWHERE}
        change |= {"name": said["name"], "line": said["line"], **_columns(period)}
        change["dated"] = row.dated | self.is_dated
        change["replaced_by"] = row.replaced_by if period[1] <= same.said[1] else None
        change["sources"] = row_of(replace(memory, sources=sources))["sources"]
        change["text"] = row.text if self.memory.key is None else memory.text
        written = table.update().where(table.c.seq == same.seq)
        new = connection.execute(
            written.values({**change, "version": row.version + 1}).returning(*table.c)
        ).one()
        if new.text != row.text:
            self.add_words(connection, new.seq, new.text)
        return new


def _columns(period: Period) -> dict[str, Any]:
    """Returns the columns of a period that was said, and that holds until its timeline is settled."""
    begins, ends = period[0], open_end(period[1])
    return {"said_from": begins, "valid_from": begins, "said_to": ends, "valid_to": ends}
