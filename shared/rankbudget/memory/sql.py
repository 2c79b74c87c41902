"""Memories in SQLite or PostgreSQL."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..errors import StoreConflictError, StoreError
from ..relevance.words import content_terms
from ..segment import Scope
from .database import Database
from .forgetting import remove_memories, wipe
from .memory import Memory, levels_of, utc
from .protocol import Receipt
from .tables import create_memories, memories, memory_of, named_by, owned_by, row_of, seconds
from .terms import add_terms, rows_with_terms

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

    from .vectors import SqlVectors

_TRIES = 20
"""How often a write is tried again that another process came before."""
_KEPT = ("id", "seq", "created_at", "valid_from", "valid_to", "replaced_by", "version", "sources", "text")
"""What a row keeps when its text is put again."""


class SqlBackend:
    """A `MemoryBackend` in a SQL database.

    Args:
        database: where it is.
        vectors: their index by meaning; None finds memories by their words alone.
    """

    lacks: frozenset[str] = frozenset()

    def __init__(self, database: Database, vectors: SqlVectors | None = None) -> None:
        self.database = database
        self.vectors = vectors
        database.migrate("memories", (create_memories,))

    def put(self, memory: Memory, *, supersedes: str | None, now: datetime) -> Memory:
        """Stores a memory; of several processes that put the same text at once, one makes the row."""
        from sqlalchemy.exc import IntegrityError

        vector = self.vectors.embed(memory.text) if self.vectors else None
        for _ in range(_TRIES):
            try:
                with self.database.write() as connection:
                    return self._put(connection, memory, supersedes, now, vector)
            except IntegrityError:  # noqa: PERF203 - another process put the same text or key meanwhile
                time.sleep(random.uniform(0, 0.01))  # noqa: S311 - spreads the writers
        msg = f"the memory could not be put: others wrote the same text or key {_TRIES} times meanwhile"
        raise StoreConflictError(msg)

    def _put(
        self, connection: Connection, memory: Memory, supersedes: str | None, now: datetime, vector: Any
    ) -> Memory:
        begins = utc(memory.valid_from or now)
        same, ended = self._same_and_ended(connection, memory, supersedes, now)
        stored = replace(memory, id=same.id if same else uuid.uuid4().hex)
        for old in ended:
            ends = min(
                seconds(begins), *(seconds(d) for d in (old.valid_to, old.expires_at) if d), float("inf")
            )
            change = {"replaced": 1, "replaced_by": stored.id, "valid_to": ends}
            connection.execute(memories().update().where(memories().c.id == old.id).values(change))
        if same is not None:
            again = {name: value for name, value in row_of(memory).items() if name not in _KEPT}
            given = {name: value for name, value in again.items() if value not in (None, "", "{}")}
            sources = tuple(dict.fromkeys((*same.sources, *memory.sources)))
            change = {**given, "sources": row_of(replace(memory, sources=sources))["sources"]}
            return self._write_back(connection, same, change)
        stored = replace(
            stored,
            created_at=memory.created_at or now,
            valid_from=begins,
            valid_to=memory.valid_to,
            version=1,
        )
        insert = memories().insert().values(row_of(stored)).returning(memories().c.seq)
        self._add_words(connection, connection.execute(insert).scalar_one(), stored.text, vector)
        return stored

    def _same_and_ended(
        self, connection: Connection, memory: Memory, supersedes: str | None, now: datetime
    ) -> tuple[Memory | None, list[Memory]]:
        """Returns the memory of the same text, and those that the new one replaces."""
        table, row = memories(), row_of(memory)
        mine = self._of(memory.scope) & (table.c.replaced == 0)
        texts = mine & (table.c.digest == row["digest"])
        if memory.key is not None:
            texts &= table.c.name.in_((row["name"], ""))
        found = [
            memory_of(one)
            for one in connection.execute(table.select().where(texts).order_by(table.c.name.desc()))
        ]
        expired = [one for one in found if one.expires_at and utc(one.expires_at) <= now]
        same = next((one for one in found if one not in expired), None)
        ended = {one.id: one for one in expired}
        if memory.key is not None:
            named = connection.execute(table.select().where(mine & (table.c.name == row["name"])))
            ended |= {one.id: memory_of(one) for one in named}
        if supersedes is not None:
            old = self._named(connection, supersedes, memory.scope, now)
            if old is None:
                msg = f"supersedes must be the key or id of a memory of this scope (got {supersedes!r:.80})"
                raise StoreError(msg)
            ended[old.id] = old
        if same is not None:
            ended.pop(same.id, None)
        return same, list(ended.values())

    def get(self, name: str, scope: Scope, now: datetime) -> Memory | None:
        """Returns the memory with a key or id."""
        with self.database.read() as connection:
            return self._named(connection, name, scope, now)

    def _named(self, connection: Connection, name: str, scope: Scope, now: datetime) -> Memory | None:
        table = memories()
        wanted = self._of(scope) & self._called(name) & self._holds(now)
        newest_first = (table.c.id == name).desc(), table.c.valid_from.desc(), table.c.seq.desc()
        row = connection.execute(table.select().where(wanted).order_by(*newest_first).limit(1)).first()
        return None if row is None else memory_of(row)

    def replace(self, memory: Memory) -> Memory:
        """Writes a changed memory, where its version is still the stored one."""
        from sqlalchemy.exc import IntegrityError

        vector = self.vectors.embed(memory.text) if self.vectors else None
        try:
            with self.database.write() as connection:
                written = self._write_back(connection, memory, row_of(memory))
                seq = connection.execute(memories().select().where(memories().c.id == memory.id)).one().seq
                self._add_words(connection, seq, memory.text, vector)
                return written
        except IntegrityError as error:
            msg = f"another memory of this scope has the text or key of {memory.key or memory.id!r}. Delete one of them."
            raise StoreConflictError(msg) from error

    def _write_back(self, connection: Connection, memory: Memory, change: dict[str, Any]) -> Memory:
        """Returns a memory with changes, written under its next version; it must have the stored one."""
        table = memories()
        change = {**change, "version": memory.version + 1}
        stored = (table.c.id == memory.id) & (table.c.version == memory.version) & self._of(memory.scope)
        if connection.execute(table.update().where(stored).values(change)).rowcount != 1:
            msg = (
                f"the memory {memory.key or memory.id!r} must be at version {memory.version}; it was changed or "
                "deleted meanwhile. Read it again."
            )
            raise StoreConflictError(msg)
        return memory_of(connection.execute(table.select().where(table.c.id == memory.id)).one())

    def versions(self, name: str, scope: Scope) -> list[Memory]:
        """Returns all that ever held under a key or id, oldest first."""
        table = memories()
        wanted = table.select().where(self._of(scope) & self._called(name))
        with self.database.read() as connection:
            rows = connection.execute(wanted.order_by(table.c.valid_from, table.c.seq))
            return [memory_of(row) for row in rows]

    def near(self, query: str, reader: Scope, limit: int, now: datetime) -> list[Memory]:
        """Returns for each level the nearest memories, then the newest, and all that always matter."""
        found: dict[str, Memory] = {}
        terms = content_terms(query)
        always = memories().c.kind.in_(("core", "preference")) | (memories().c.static == 1)
        with self.database.read() as connection:
            for level in levels_of(reader):
                seen = self._of(level) & self._holds(now)
                nearest = rows_with_terms(connection, terms, seen, limit)
                if len(nearest) < limit:
                    nearest = [*nearest, *self._rows(connection, seen, limit)]
                rows = [*nearest[:limit], *self._rows(connection, seen & always)]
                found |= {row.id: memory_of(row) for row in rows}
        return list(found.values())

    def _rows(
        self, connection: Connection, wanted: ColumnElement[bool], limit: int | None = None
    ) -> Sequence[Any]:
        chosen = memories().select().where(wanted).order_by(memories().c.seq.desc())
        return connection.execute(chosen.limit(limit) if limit else chosen).all()

    def delete(self, name: str, scope: Scope) -> int:
        """Removes all versions of a memory, and returns how many there were."""
        with self.database.write() as connection:
            return remove_memories(connection, self._of(scope) & self._called(name))

    def forget(self, subject: Scope) -> Receipt:
        """Removes all of a user or project."""
        with self.database.write() as connection:
            removed = remove_memories(connection, named_by(subject, memories()))
        return Receipt(subject=subject, removed={"memories": removed}, unreached=wipe(self.database))

    def close(self) -> None:
        """Closes its connections."""
        self.database.close()

    def _add_words(self, connection: Connection, seq: int, text: str, vector: Any) -> None:
        add_terms(connection, seq, content_terms(text))
        if self.vectors:
            self.vectors.write(connection, seq, vector)

    @staticmethod
    def _of(scope: Scope) -> ColumnElement[bool]:
        owned = owned_by(scope)
        return (memories().c.owner == owned["owner"]) & (memories().c.project == owned["project"])

    @staticmethod
    def _called(name: str) -> ColumnElement[bool]:
        return (memories().c.id == name) | (memories().c.name == "=" + name)

    @staticmethod
    def _holds(now: datetime) -> ColumnElement[bool]:
        table, moment = memories(), seconds(now)
        begun = table.c.valid_from <= moment
        open_ended = table.c.valid_to.is_(None) | (table.c.valid_to > moment)
        return begun & open_ended & (table.c.expires_at.is_(None) | (table.c.expires_at > moment))
