"""Memories in SQLite or PostgreSQL."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..errors import StoreConflictError, StoreError
from ..relevance.words import content_terms
from ..segment import Scope
from .database import Database
from .forgetting import forget, remove_memories
from .lines import end, keys_of, make_way, open_end, set_back, settle, versions_of
from .memory import Memory, digest_of, levels_of
from .nearest import belongs_to, holds_at, near_by_meaning, near_by_words
from .protocol import Receipt
from .tables import add_said, create_memories, line_of, memories, memory_of, owned_by, row_of, seconds
from .terms import add_terms
from .timeline import Period, Version, dated, periods_of, same_of, stated
from .vector_tables import create_vectors

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

    from .vectors import Vectors

MIGRATIONS = (create_memories, create_vectors, add_said)
_TRIES = 20
"""How often a write is tried again that another process came before."""
_KEPT = frozenset({"id", "created_at", "replaced_by", "version", "sources", "text", "valid_from", "valid_to"})
"""What a row keeps when its text is put again."""
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

    def put(self, memory: Memory, *, supersedes: str | None, now: datetime) -> Memory:
        """Stores a memory; of several processes that put the same text at once, one makes the row."""
        from sqlalchemy.exc import IntegrityError

        vector = self.vectors.embed(memory.text) if self.vectors else None
        for _ in range(_TRIES):
            try:
                with self._writing(memory.scope) as connection:
                    stored = self._put(connection, memory, supersedes, now, vector)
            except (IntegrityError, StoreConflictError):  # noqa: PERF203 - somebody wrote the same meanwhile
                time.sleep(random.uniform(0, 0.01))  # noqa: S311 - spreads the writers
            else:
                self._was_written()
                return stored
        msg = f"the memory could not be put: others wrote the same text or key {_TRIES} times meanwhile"
        raise StoreConflictError(msg)

    def _put(
        self, connection: Connection, memory: Memory, supersedes: str | None, now: datetime, vector: Any
    ) -> Memory:
        period = stated(memory, now)
        key, held, same = self._known(connection, memory, period, now)
        old = self._superseded(connection, supersedes, memory.scope, now) if supersedes is not None else None
        memory, digest = replace(memory, key=key), digest_of(memory.text)
        lines = {line_of(key, digest)}
        if memory.valid_from is None:
            set_back(connection, memory, seconds(now))
        if same is None:
            row = self._insert(connection, memory, period, now, vector)
        else:
            row = self._put_again(connection, same, memory, self._begins(same, period, held, now))
            lines.add(digest)  # it may be the one without a key that gets this one
        if old is not None:
            lines.add(end(connection, old, row, period[0]))
        for one in sorted(lines):
            settle(connection, memory.scope, one, row.seq)
        return memory_of(connection.execute(memories().select().where(memories().c.seq == row.seq)).one())

    def _known(
        self, connection: Connection, memory: Memory, period: Period, now: datetime
    ) -> tuple[str | None, list[Version], Version | None]:
        """Returns the key that a memory gets, the versions under it, and which memory has its text."""
        scope, digest = memory.scope, digest_of(memory.text)
        keys = [memory.key] if memory.key is not None else keys_of(connection, scope, digest)
        for key in keys:
            held = versions_of(connection, scope, line_of(key, digest))
            if memory.valid_from is None:
                held = [one.set_back(seconds(now)) for one in held]
            same = same_of(held, digest, period, now)
            if same is not None:
                return key, held, same
        if key is not None:
            same = same_of(versions_of(connection, scope, digest), digest, period, now)
        return key, held, same

    @staticmethod
    def _begins(same: Version, period: Period, held: Sequence[Version], now: datetime) -> float:
        """Returns since when a memory holds whose text is put again; under a new key, not before others."""
        known = same in held or not held
        return min(period[0], same.said[0] if known else max(same.said[0], seconds(now)))

    def _insert(
        self, connection: Connection, memory: Memory, period: Period, now: datetime, vector: Any
    ) -> Any:
        table, values = memories(), row_of(replace(memory, id=uuid.uuid4().hex))
        make_way(connection, memory)
        values |= {"created_at": seconds(memory.created_at or now), "version": 1, **_said(*period)}
        row = connection.execute(table.insert().values(values).returning(*table.c)).one()
        self._add_words(connection, row.seq, memory.text, vector)
        return row

    def _put_again(self, connection: Connection, same: Version, memory: Memory, begins: float) -> Any:
        """Sets the given fields, adds the sources, and returns the row."""
        table = memories()
        row = connection.execute(table.select().where(table.c.seq == same.seq)).one()
        make_way(connection, memory)
        unsaid, said = row_of(Memory(text=memory.text, scope=memory.scope)), row_of(memory)
        given = {name: said[name] for name in said.keys() - _KEPT if said[name] != unsaid[name]}
        sources = tuple(dict.fromkeys((*memory_of(row).sources, *memory.sources)))
        change = {**given, "sources": row_of(replace(memory, sources=sources))["sources"]}
        change |= _said(begins, seconds(memory.valid_to) if memory.valid_to else same.said[1])
        written = table.update().where(table.c.seq == same.seq)
        written = written.values({**change, "version": row.version + 1}).returning(*table.c)
        return connection.execute(written).one()

    def _superseded(self, connection: Connection, name: str, scope: Scope, now: datetime) -> Any:
        found = self._named(connection, name, scope, now, locked=True)
        if found is None:
            msg = f"supersedes must be the key or id of a memory of this scope (got {name!r:.80})"
            raise StoreError(msg)
        return found

    def get(self, name: str, scope: Scope, now: datetime) -> Memory | None:
        """Returns the memory with a key or id."""
        with self.database.read() as connection:
            row = self._named(connection, name, scope, now)
        return None if row is None else memory_of(row)

    def _named(
        self, connection: Connection, name: str, scope: Scope, now: datetime, *, locked: bool = False
    ) -> Any:
        table = memories()
        wanted = belongs_to(scope) & self._called(name) & holds_at(now)
        found = table.select().where(wanted).order_by((table.c.id == name).desc()).limit(1)
        return connection.execute(found.with_for_update() if locked else found).first()

    def replace(self, memory: Memory) -> Memory:
        """Writes a changed memory, where its version is still the stored one."""
        from sqlalchemy.exc import IntegrityError

        vector = self.vectors.embed(memory.text) if self.vectors else None
        try:
            with self._writing(memory.scope) as connection:
                row = self._write_back(connection, memory)
                self._add_words(connection, row.seq, memory.text, vector)
        except IntegrityError as error:
            raise _taken(memory) from error
        self._was_written()
        return memory_of(row)

    def _write_back(self, connection: Connection, memory: Memory) -> Any:
        """Returns the row of a memory, changed, under its next version; it must have the stored one."""
        table = memories()
        stored = (table.c.id == memory.id) & (table.c.version == memory.version)
        stored &= table.c.replaced_by.is_(None) & belongs_to(memory.scope)
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
        from sqlalchemy import select

        table, own = memories(), belongs_to(scope)
        lines = select(table.c.line).where(own, self._called(name))
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
        from sqlalchemy import select

        wanted = belongs_to(scope) & self._called(name)
        unreached = self.vectors.remove(wanted) if self.vectors else ()
        if unreached:
            msg = f"the memory {name!r:.80} could not be deleted: {unreached[0]}. Try again."
            raise StoreError(msg)
        with self._writing(scope) as connection:
            lines = list(connection.execute(select(memories().c.line).where(wanted).distinct()).scalars())
            removed = remove_memories(connection, wanted)
            for line in lines:
                settle(connection, scope, line)
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
    def _writing(self, scope: Scope) -> Iterator[Connection]:
        """Gives a connection to the one writer of a scope: what it reads there stays so until it ends."""
        with self.database.write() as connection:
            self.database.one_writer(connection, f"memories of {sorted(owned_by(scope).items())}")
            yield connection

    def _add_words(self, connection: Connection, seq: int, text: str, vector: Any) -> None:
        add_terms(connection, seq, content_terms(text))
        if self.vectors:
            self.vectors.write(connection, seq, text, vector)

    @staticmethod
    def _called(name: str) -> ColumnElement[bool]:
        return (memories().c.id == name) | (memories().c.name == "=" + name)


def _said(begins: float, ends: float) -> dict[str, Any]:
    """Returns the columns of a period that was said, and that holds until its timeline is settled."""
    first, last = ("said_from", "valid_from"), ("said_to", "valid_to")
    return {**dict.fromkeys(first, begins), **dict.fromkeys(last, open_end(ends))}


def _changes(memory: Memory, old: Any, parts: Sequence[Period]) -> dict[str, Any]:
    """Returns what `replace` writes: all but what only the store sets, and dates that are as it has them."""
    change = {name: value for name, value in row_of(memory).items() if name not in _FROM_HERE}
    begins, ends = change.pop("valid_from"), change.pop("valid_to")
    if begins is not None and begins not in {old.valid_from, *[part[0] for part in parts]}:
        change["said_from"] = begins
    if ends not in {old.valid_to, *[open_end(part[1]) for part in parts]}:
        change["said_to"] = ends
    if memory.created_at is None:
        del change["created_at"]
    return change


def _taken(memory: Memory) -> StoreConflictError:
    name = memory.key or memory.id
    msg = f"another memory of this scope has the text or key of {name!r}. Delete one of them."
    return StoreConflictError(msg)
