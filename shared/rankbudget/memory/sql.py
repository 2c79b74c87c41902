"""Memories in SQLite or PostgreSQL."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..errors import StoreConflictError, StoreError
from ..relevance.words import content_terms
from ..segment import Scope
from .database import Database
from .forgetting import forget, remove_memories
from .memory import Memory, levels_of, utc
from .nearest import belongs_to, holds_at, near_by_meaning, near_by_words
from .protocol import Receipt
from .tables import create_memories, memories, memory_of, owned_by, row_of, seconds
from .terms import add_terms
from .vector_tables import create_vectors

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

    from .vectors import Vectors

MIGRATIONS = (create_memories, create_vectors)
_TRIES = 20
"""How often a write is tried again that another process came before."""
_KEPT = frozenset({"id", "created_at", "valid_from", "replaced_by", "version", "sources", "text"})
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
        begins = self._after_the_past(
            connection, memory.scope, memory.key, seconds(memory.valid_from or now), now
        )
        found = self._current_of_text(connection, memory)
        same = next((one for one in found if not _is_over(one, begins, now)), None)
        over = [one for one in found if _is_over(one, begins, now)]  # their text begins anew
        if same is not None and same.valid_from is not None:
            begins = min(begins, seconds(same.valid_from))  # it holds already, now under this key
        stored = replace(memory, id=same.id if same else uuid.uuid4().hex)
        key = same.key if same and memory.key is None else memory.key
        begins = self._after_the_past(connection, memory.scope, key, begins, now)
        ended = [*self._under_key(connection, memory.scope, key, begins), *over]
        if supersedes is not None:
            ended.append(self._superseded(connection, supersedes, memory.scope, now))
        for old in {one.id: one for one in ended if same is None or one.id != same.id}.values():
            self._end(connection, old, stored.id, begins)
        if same is not None:
            return self._put_again(connection, same, memory, begins)
        first = {"created_at": seconds(memory.created_at or now), "valid_from": begins, "version": 1}
        insert = memories().insert().values({**row_of(stored), **first}).returning(*memories().c)
        row = connection.execute(insert).one()
        self._add_words(connection, row.seq, stored.text, vector)
        return memory_of(row)

    def _superseded(self, connection: Connection, name: str, scope: Scope, now: datetime) -> Memory:
        found = self._named(connection, name, scope, now, locked=True)
        if found is None:
            msg = f"supersedes must be the key or id of a memory of this scope (got {name!r:.80})"
            raise StoreError(msg)
        return found

    def _current_of_text(self, connection: Connection, memory: Memory) -> list[Memory]:
        """Returns the current rows of a text, that of the memory's key first."""
        table, row = memories(), row_of(memory)
        wanted = belongs_to(memory.scope) & (table.c.replaced == 0) & (table.c.digest == row["digest"])
        if memory.key is not None:
            wanted &= table.c.name.in_((row["name"], ""))
        found = table.select().where(wanted).order_by(table.c.name.desc()).with_for_update()
        return [memory_of(one) for one in connection.execute(found)]

    def _after_the_past(
        self, connection: Connection, scope: Scope, key: str | None, begins: float, now: datetime
    ) -> float:
        """Returns the moment, or where later, the end of what was replaced under a key and is over."""
        if key is None:
            return begins
        from sqlalchemy import func, select

        table = memories()
        over = (table.c.replaced == 1) & (table.c.valid_to <= seconds(now))
        past = select(func.max(table.c.valid_to)).where(
            belongs_to(scope) & (table.c.name == "=" + key) & over
        )
        return max(begins, connection.execute(past).scalar() or begins)

    def _under_key(
        self, connection: Connection, scope: Scope, key: str | None, begins: float
    ) -> list[Memory]:
        """Returns what would hold under a key beside the memory that begins now, later ones included."""
        if key is None:
            return []
        table = memories()
        later = (table.c.valid_to > begins) & (table.c.valid_to > table.c.valid_from)
        holds = (table.c.replaced == 0) | later
        found = table.select().where(belongs_to(scope) & (table.c.name == "=" + key) & holds)
        return [memory_of(one) for one in connection.execute(found.with_for_update())]

    def _end(self, connection: Connection, old: Memory, replaced_by: str, begins: float) -> None:
        """Ends the validity of a memory where that of the new one begins."""
        table = memories()
        ends = min([begins, *(seconds(moment) for moment in (old.valid_to, old.expires_at) if moment)])
        ends = max(ends, seconds(old.valid_from)) if old.valid_from else ends
        change = {"replaced": 1, "replaced_by": replaced_by, "valid_to": ends, "version": old.version + 1}
        connection.execute(table.update().where(table.c.id == old.id).values(change))

    def _put_again(self, connection: Connection, same: Memory, memory: Memory, begins: float) -> Memory:
        """Sets the given fields, adds the sources, and has the memory hold from the earlier moment."""
        unsaid, said = row_of(Memory(text=memory.text, scope=memory.scope)), row_of(memory)
        given = {name: said[name] for name in said.keys() - _KEPT if said[name] != unsaid[name]}
        sources = row_of(replace(memory, sources=tuple(dict.fromkeys((*same.sources, *memory.sources)))))
        change = {**given, "sources": sources["sources"], "valid_from": begins}
        return memory_of(self._write_back(connection, same, change))

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
            with self.database.write() as connection:
                row = self._write_back(connection, memory, _changes(memory))
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

    def versions(self, name: str, scope: Scope) -> list[Memory]:
        """Returns all that ever held under a key or id, oldest first."""
        table = memories()
        wanted = table.select().where(belongs_to(scope) & self._called(name))
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
        wanted = belongs_to(scope) & self._called(name)
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

    @staticmethod
    def _called(name: str) -> ColumnElement[bool]:
        return (memories().c.id == name) | (memories().c.name == "=" + name)


def _is_over(memory: Memory, begins: float, now: datetime) -> bool:
    """Returns whether a memory no longer holds where another one begins, or has expired."""
    over = memory.valid_to is not None and seconds(memory.valid_to) <= begins
    return over or (memory.expires_at is not None and utc(memory.expires_at) <= now)


def _changes(memory: Memory) -> dict[str, Any]:
    """Returns what `replace` writes: all but what only the store sets, and dates that are unknown."""
    unknown = {name for name in ("created_at", "valid_from") if getattr(memory, name) is None}
    return {name: value for name, value in row_of(memory).items() if name not in _FROM_HERE | unknown}
