"""Memories in SQLite or PostgreSQL."""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import StoreConflictError, StoreError
from ..relevance.words import content_terms
from ..segment import Scope
from . import sqlalchemy_later as sa
from .database import Database
from .forgetting import forget, remove_memories
from .lines import make_way, open_end, settle, versions_of
from .memory import Memory, levels_of
from .nearest import belongs_to, holds_at, near_by_meaning, near_by_words
from .outside import MIGRATIONS
from .protocol import Receipt
from .putting import Put
from .tables import memories, memory_of, owned_by, row_of
from .terms import add_terms
from .timeline import Period, dated, periods_of

if TYPE_CHECKING:
    from .protocol import Vectors

_TRIES = 20
"""How often a write is tried again that another process came before."""
_FROM_HERE = frozenset({"id", "replaced_by"})
"""What only the store writes."""


class SqlBackend:
    """A `MemoryBackend` in a SQL database.

    Args:
        database: where it is.
        vectors: their index by meaning; None finds memories by their words alone.
    """

    lacks: frozenset[str] = frozenset()

    def __init__(self, database: Database, vectors: Vectors | None = None) -> None:
        self.database = database
        self.vectors = vectors
        database.migrate("memories", MIGRATIONS)

    def put(self, memory: Memory, *, given: Collection[str], supersedes: str | None, now: datetime) -> Memory:
        """Stores a memory; of several processes that put the same text at once, one makes the row."""
        vector = self.vectors.embed(memory.text) if self.vectors else None
        put = Put(memory, given, now, partial(self._index, vector=vector))
        for _ in range(_TRIES):
            try:
                with self._writing(memory.scope) as connection:
                    old = self._superseded(connection, supersedes, memory.scope, now)
                    stored = put.stored(connection, old)
            except (sa.exc.IntegrityError, StoreConflictError):  # noqa: PERF203 - somebody was faster
                time.sleep(random.uniform(0, 0.01))  # noqa: S311 - spreads the writers
            else:
                self._was_written()
                return stored
        msg = f"the memory could not be put: others wrote the same text or key {_TRIES} times meanwhile"
        raise StoreConflictError(msg)

    def _superseded(self, connection: sa.Connection, name: str | None, scope: Scope, now: datetime) -> Any:
        found = None if name is None else self._named(connection, name, scope, now, locked=True)
        if found is None and name is not None:
            msg = f"supersedes must be the key or id of a memory of this scope that holds (got {name!r:.80})"
            raise StoreError(msg)
        return found

    def get(self, name: str, scope: Scope, now: datetime) -> Memory | None:
        """Returns the memory with a key or id."""
        with self.database.read() as connection:
            row = self._named(connection, name, scope, now)
        return None if row is None else memory_of(row)

    def _named(
        self, connection: sa.Connection, name: str, scope: Scope, now: datetime, *, locked: bool = False
    ) -> Any:
        table = memories()
        wanted = belongs_to(scope) & self._called(name) & holds_at(now)
        found = table.select().where(wanted).order_by((table.c.id == name).desc()).limit(1)
        return connection.execute(found.with_for_update() if locked else found).first()

    def replace(self, memory: Memory) -> Memory:
        """Writes a changed memory, where its version is still the stored one."""
        vector = self.vectors.embed(memory.text) if self.vectors else None
        try:
            with self._writing(memory.scope) as connection:
                row = self._write_back(connection, memory)
                self._index(connection, row.seq, memory.text, vector)
        except sa.exc.IntegrityError as error:
            raise _taken(memory) from error
        self._was_written()
        return memory_of(row)

    def _write_back(self, connection: sa.Connection, memory: Memory) -> Any:
        """Returns the row of a memory, changed, under its next version; it must have the stored one."""
        table = memories()
        stored = (table.c.id == memory.id) & (table.c.version == memory.version) & belongs_to(memory.scope)
        old = connection.execute(table.select().where(stored).with_for_update()).first()
        if old is None:
            msg = (
                f"the memory {memory.key or memory.id!r} must be at version {memory.version}; it was "
                "changed, replaced or deleted meanwhile. Read it again."
            )
            raise StoreConflictError(msg)
        parts = periods_of(versions_of(connection, memory.scope, old.line))[old.seq]
        change = {**_changes(memory, old, parts), "version": memory.version + 1}
        if change["name"] not in {"", old.name} and versions_of(connection, memory.scope, change["line"]):
            raise _taken(memory)
        if change["name"] and change["digest"] != old.digest:
            make_way(connection, memory)
        connection.execute(table.update().where(table.c.seq == old.seq).values(change))
        for line in {old.line, change["line"]}:
            settle(connection, memory.scope, line, old.seq)
        return connection.execute(table.select().where(table.c.seq == old.seq)).one()

    def versions(self, name: str, scope: Scope) -> list[Memory]:
        """Returns all that ever held under a key or id, oldest first."""
        table, own = memories(), belongs_to(scope)
        lines = sa.select(table.c.line).where(own, self._called(name))
        with self.database.read() as connection:
            rows = connection.execute(table.select().where(own, table.c.line.in_(lines))).all()
        found = [
            memory
            for line in sorted({row.line for row in rows})
            for memory in dated([row for row in rows if row.line == line])
        ]
        return [memory for memory in found if name in {memory.id, memory.key}]

    def near(self, query: str, reader: Scope, limit: int, now: datetime) -> list[Memory]:
        """Returns for each level the nearest memories, and all that always matter."""
        levels = levels_of(reader)
        if self.vectors is None or not query.strip():
            with self.database.read() as connection:
                return near_by_words(connection, query, levels, limit, now)
        asked = self.vectors.ask(query, levels, limit)
        for attempt in range(_TRIES):
            with self.database.read() as connection:
                found, lost = near_by_meaning(connection, query, asked, levels, limit, now)
            if not lost or attempt + 1 == _TRIES:
                break
            asked.lost(lost)
        return found

    def delete(self, name: str, scope: Scope) -> int:
        """Removes all versions of a memory, and returns how many there were."""
        wanted = belongs_to(scope) & self._called(name)
        unreached = self.vectors.remove(wanted) if self.vectors else ()
        if unreached:
            msg = f"the memory {name!r:.80} could not be deleted: {unreached[0]}. Try again."
            raise StoreError(msg)
        with self._writing(scope) as connection:
            lines = list(connection.execute(sa.select(memories().c.line).where(wanted).distinct()).scalars())
            removed = remove_memories(connection, wanted)
            for line in lines:
                settle(connection, scope, line)
        if self.vectors:
            self.vectors.sweep()  # what was added meanwhile, or deleted without it; what fails is tried again
        return self._was_removed(removed)

    def forget(self, subject: Scope) -> Receipt:
        """Removes all of a user or project."""
        receipt, rows = forget(self.database, subject, self.vectors)
        self._was_removed(rows)
        return receipt

    def _was_removed(self, rows: list[int]) -> int:
        if self.vectors and rows:
            self.vectors.removed(rows)
        return len(rows)

    def _was_written(self) -> None:
        if self.vectors:
            self.vectors.written()

    def close(self) -> None:
        """Closes the database's connections."""
        self.database.close()

    @contextmanager
    def _writing(self, scope: Scope) -> Iterator[sa.Connection]:
        """Gives a connection to the one writer of a scope: what it reads there stays so until it ends."""
        with self.database.write() as connection:
            self.database.one_writer(connection, f"memories of {sorted(owned_by(scope).items())}")
            yield connection

    def _index(self, connection: sa.Connection, seq: int, text: str, vector: Any) -> None:
        add_terms(connection, seq, content_terms(text))
        if self.vectors:
            self.vectors.write(connection, seq, text, vector)

    @staticmethod
    def _called(name: str) -> sa.ColumnElement[bool]:
        return (memories().c.id == name) | (memories().c.name == "=" + name)


def _changes(memory: Memory, old: Any, parts: Sequence[Period]) -> dict[str, Any]:
    """Returns what `replace` writes: all but what only the store sets, and dates that are as it has them."""
    change = {name: value for name, value in row_of(memory).items() if name not in _FROM_HERE}
    begins, ends = change.pop("valid_from"), change.pop("valid_to")
    if begins is not None and begins not in {old.valid_from, *[part[0] for part in parts]}:
        change |= {"said_from": begins, "dated": 1}
    if ends not in {old.valid_to, *[open_end(part[1]) for part in parts]}:
        change |= {"said_to": ends, "replaced_by": None}
    if memory.created_at is None:
        del change["created_at"]
    return change


def _taken(memory: Memory) -> StoreConflictError:
    name = memory.key or memory.id
    msg = f"another memory of this scope has the text or key of {name!r}. Delete one of them."
    return StoreConflictError(msg)
