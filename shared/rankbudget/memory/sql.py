"""Memories in SQLite or PostgreSQL."""

from __future__ import annotations

import math
import random
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from ..errors import StoreConflictError, StoreError
from ..relevance.words import content_terms
from ..segment import Scope
from .database import Database
from .forgetting import forget, remove_memories
from .memory import Memory, levels_of
from .nearest import belongs_to, holds_at, near_by_meaning, near_by_words
from .protocol import Receipt
from .tables import add_said_from, create_memories, memories, memory_of, owned_by, row_of, seconds
from .terms import add_terms
from .timeline import (
    Part,
    Period,
    Version,
    dated,
    is_as_stored,
    laid_out,
    said_again,
    same_of,
    stated,
    version_of,
)
from .vector_tables import copy_vectors, create_vectors

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

    from .vectors import Vectors

MIGRATIONS = (create_memories, create_vectors, add_said_from)
_TRIES = 20
"""How often a write is tried again that another process came before."""
_KEPT = frozenset({"id", "created_at", "replaced_by", "version", "sources", "text"})
"""What a row keeps when its text is put again."""
_LONG_AGO = datetime(1, 1, 1, tzinfo=timezone.utc)
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
        if same is None:
            new = Version(replace(memory, id=uuid.uuid4().hex, key=key), period, period[0])
        else:
            new, period = said_again(same, memory, period, held, now)
        if old and old.id != new.memory.id:
            self._end(connection, old, new.memory.id, period[0])
        gone = {new.memory.id, old.id if old else None}
        rows = dated(laid_out(new, period, [one for one in held if one.memory.id not in gone], now))
        self._write_others(connection, new.memory.id, rows)
        validity = next(change for part, change in rows if part.id == new.memory.id)
        if same is None:
            stored = self._insert(connection, new.memory, now, validity, vector)
        else:
            stored = self._put_again(connection, same.memory, memory, validity)
        self._copy_parts(connection, rows)
        return stored

    def _known(
        self, connection: Connection, memory: Memory, period: Period, now: datetime
    ) -> tuple[str | None, list[Version], Version | None]:
        """Returns the key that a memory gets, the versions it meets there, and which of them has its text."""
        texts = self._current_of_text(connection, memory)
        alive = [one for one in texts if one.meets(period, now)]
        key = alive[0].memory.key if alive and memory.key is None else memory.key
        since = min([period[0], *(one.period[0] for one in alive)])
        held = texts if key is None else self._under_key(connection, memory.scope, key, since)
        held = [one for one in held if one.memory.key == key]
        if memory.valid_from is None:
            held = [one.seen_from(period[0]) for one in held]
        found = [one for one in (*held, *alive) if one.meets(period, now)]
        return key, held, same_of(memory, period, found, held)

    def _write_others(
        self, connection: Connection, new: str, rows: Sequence[tuple[Part, dict[str, Any]]]
    ) -> None:
        """Writes the own rows of a timeline that a new version changes."""
        table = memories()
        for part, change in rows:
            if part.id == part.of.memory.id != new and not is_as_stored(part, change):
                values = {**change, "version": part.of.memory.version + 1}
                connection.execute(table.update().where(table.c.id == part.id).values(values))

    def _copy_parts(self, connection: Connection, rows: Sequence[tuple[Part, dict[str, Any]]]) -> None:
        """Adds a row for each later period of a version; a copy of its own row, also of its vectors."""
        table = memories()
        for part, change in rows:
            if part.id != part.of.memory.id:
                row = (
                    connection.execute(table.select().where(table.c.id == part.of.memory.id)).mappings().one()
                )
                copied = {**row, **change, "id": part.id, "version": 1}
                old = copied.pop("seq")
                seq = connection.execute(table.insert().values(copied).returning(table.c.seq)).scalar_one()
                add_terms(connection, seq, content_terms(row["text"]))
                copy_vectors(connection, old, seq)

    def _insert(
        self, connection: Connection, memory: Memory, now: datetime, validity: dict[str, Any], vector: Any
    ) -> Memory:
        table = memories()
        first = {"created_at": seconds(memory.created_at or now), "version": 1, **validity}
        row = connection.execute(table.insert().values({**row_of(memory), **first}).returning(*table.c)).one()
        self._add_words(connection, row.seq, memory.text, vector)
        return memory_of(row)

    def _superseded(self, connection: Connection, name: str, scope: Scope, now: datetime) -> Memory:
        found = self._named(connection, name, scope, now, locked=True)
        if found is None:
            msg = f"supersedes must be the key or id of a memory of this scope (got {name!r:.80})"
            raise StoreError(msg)
        return found

    def _current_of_text(self, connection: Connection, memory: Memory) -> list[Version]:
        """Returns the current rows of a text, that of the memory's key first."""
        table, row = memories(), row_of(memory)
        wanted = belongs_to(memory.scope) & (table.c.replaced == 0) & (table.c.digest == row["digest"])
        if memory.key is not None:
            wanted &= table.c.name.in_((row["name"], ""))
        found = table.select().where(wanted).order_by(table.c.name.desc()).with_for_update()
        return [version_of(one) for one in connection.execute(found)]

    def _under_key(self, connection: Connection, scope: Scope, key: str, since: float) -> list[Version]:
        """Returns the versions under a key that hold at or after a moment, and the current one."""
        table = memories()
        later = (table.c.valid_to > since) & (table.c.valid_to > table.c.valid_from)
        holds = (table.c.replaced == 0) | later
        found = table.select().where(belongs_to(scope) & (table.c.name == "=" + key) & holds)
        ordered = found.order_by(table.c.valid_from, table.c.seq).with_for_update()
        return [version_of(one) for one in connection.execute(ordered)]

    def _end(self, connection: Connection, old: Memory, replaced_by: str, begins: float) -> None:
        """Ends a memory for good where the one that supersedes it begins."""
        table = memories()
        ends = min([begins, *(seconds(moment) for moment in (old.valid_to, old.expires_at) if moment)])
        ends = max(ends, seconds(old.valid_from)) if old.valid_from else ends
        change = {"replaced": 1, "replaced_by": replaced_by, "valid_to": ends, "version": old.version + 1}
        connection.execute(table.update().where(table.c.id == old.id).values(change))

    def _put_again(
        self, connection: Connection, same: Memory, memory: Memory, validity: dict[str, Any]
    ) -> Memory:
        """Sets the given fields and the validity, and adds the sources."""
        unsaid, said = row_of(Memory(text=memory.text, scope=memory.scope)), row_of(memory)
        given = {name: said[name] for name in said.keys() - _KEPT if said[name] != unsaid[name]}
        sources = row_of(replace(memory, sources=tuple(dict.fromkeys((*same.sources, *memory.sources)))))
        change = {**given, "sources": sources["sources"], **validity, "version": same.version + 1}
        table = memories()
        written = table.update().where(table.c.id == same.id).values(change).returning(*table.c)
        return memory_of(connection.execute(written).one())

    def get(self, name: str, scope: Scope, now: datetime) -> Memory | None:
        """Returns the memory with a key or id."""
        with self.database.read() as connection:
            return self._named(connection, name, scope, now)

    def _named(
        self, connection: Connection, name: str, scope: Scope, now: datetime, *, locked: bool = False
    ) -> Memory | None:
        table = memories()
        wanted = belongs_to(scope) & self._called(name) & holds_at(now)
        newest_first = (table.c.id == name).desc(), table.c.valid_from.desc(), table.c.seq.desc()
        found = table.select().where(wanted).order_by(*newest_first).limit(1)
        row = connection.execute(found.with_for_update() if locked else found).first()
        return None if row is None else memory_of(row)

    def replace(self, memory: Memory) -> Memory:
        """Writes a changed memory, where its version is still the stored one."""
        from sqlalchemy.exc import IntegrityError

        vector = self.vectors.embed(memory.text) if self.vectors else None
        try:
            with self._writing(memory.scope) as connection:
                row = self._write_back(connection, memory, _changes(memory))
                row = self._make_room(connection, row)
                self._add_words(connection, row.seq, memory.text, vector)
        except IntegrityError as error:
            name = memory.key or memory.id
            msg = f"another memory of this scope has the text or key of {name!r}. Delete one of them."
            raise StoreConflictError(msg) from error
        self._was_written()
        return memory_of(row)

    def _write_back(self, connection: Connection, memory: Memory, change: dict[str, Any]) -> Any:
        """Returns the row of a memory, changed, under its next version; it must have the stored one."""
        table = memories()
        change = {**change, "version": memory.version + 1}
        stored = (table.c.id == memory.id) & (table.c.version == memory.version) & (table.c.replaced == 0)
        stored &= belongs_to(memory.scope)
        row = connection.execute(table.update().where(stored).values(change).returning(*table.c)).first()
        if row is None:
            msg = (
                f"the memory {memory.key or memory.id!r} must be at version {memory.version}; it was "
                "changed, replaced or deleted meanwhile. Read it again."
            )
            raise StoreConflictError(msg)
        return row

    def _make_room(self, connection: Connection, row: Any) -> Any:
        """Returns the row of a changed memory with the period that other versions of its key leave it."""
        table, mine = memories(), version_of(row)
        if mine.memory.key is None:
            return row
        period = row.valid_from, math.inf if row.valid_to is None else row.valid_to
        held = self._under_key(connection, mine.memory.scope, mine.memory.key, period[0])
        parts = laid_out(mine, period, [one for one in held if one.memory.id != row.id], _LONG_AGO)
        last = max(part.period for part in parts if part.of is mine)
        rows = dated([*[part for part in parts if part.of is not mine], Part(last, mine, row.id)])
        self._write_others(connection, row.id, rows)
        self._copy_parts(connection, rows)
        if last == period:
            return row
        change = {"valid_from": last[0], "valid_to": last[1] if last[1] < math.inf else None}
        written = table.update().where(table.c.id == row.id).values(change).returning(*table.c)
        return connection.execute(written).one()

    def versions(self, name: str, scope: Scope) -> list[Memory]:
        """Returns all that ever held under a key or id, oldest first."""
        table = memories()
        wanted = table.select().where(belongs_to(scope) & self._all_of(name, scope))
        with self.database.read() as connection:
            rows = connection.execute(wanted.order_by(table.c.valid_from, table.c.seq))
            return [memory_of(row) for row in rows]

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
        wanted = belongs_to(scope) & self._all_of(name, scope)
        unreached = self.vectors.remove(wanted) if self.vectors else ()
        if unreached:
            msg = f"the memory {name!r:.80} could not be deleted: {unreached[0]}. Try again."
            raise StoreError(msg)
        with self._writing(scope) as connection:
            removed = remove_memories(connection, wanted)
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

    def _all_of(self, name: str, scope: Scope) -> ColumnElement[bool]:
        """Returns which rows have a key or id, or the key and text of that id: a memory may have parts."""
        from sqlalchemy import select

        table, own = memories(), memories().alias()
        mine = [own.c[column] == value for column, value in owned_by(scope).items()]
        wanted = (own.c.id == name, own.c.name != "", *mine)
        key, digest = (select(own.c[one]).where(*wanted).scalar_subquery() for one in ("name", "digest"))
        return self._called(name) | ((table.c.name == key) & (table.c.digest == digest))

    @staticmethod
    def _called(name: str) -> ColumnElement[bool]:
        return (memories().c.id == name) | (memories().c.name == "=" + name)


def _changes(memory: Memory) -> dict[str, Any]:
    """Returns what `replace` writes: all but what only the store sets, and dates that are unknown."""
    from sqlalchemy import case

    unknown = {name for name in ("created_at", "valid_from") if getattr(memory, name) is None}
    change = {name: value for name, value in row_of(memory).items() if name not in _FROM_HERE | unknown}
    if memory.valid_from is not None:
        table, moved = memories(), seconds(memory.valid_from)
        change["said_from"] = case((table.c.valid_from == moved, table.c.said_from), else_=None)
    return change
