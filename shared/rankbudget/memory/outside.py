"""What vector indexes outside of the database may hold, of memories that are there and of deleted ones.

An entry is written before an index gets a text, and removed after the index deleted that. So it outlives the
memory, an outage, a crash, and stores that were opened without the index. It says nothing of the text, and of
the scope only hashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from ..segment import Scope
from .once import once
from .tables import add_said, create_memories, memories, owned_by
from .vector_tables import create_vectors

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Table

OUTSIDE = "outside:"
"""Starts the name under which a row is marked that a vector index outside of the database holds."""


@once
def outside() -> Table:
    """Returns the table of entries; `gone` = 1: the memory was deleted, so the index must not have it."""
    from sqlalchemy import Column, Index, Integer, MetaData, String, Table, Text

    table = Table(
        "rankbudget_memory_outside",
        MetaData(),
        Column("id", String(32), primary_key=True),
        Column("held_by", Text, primary_key=True),
        *[Column(name, String(32), nullable=False) for name in ("owner", "project")],
        Column("gone", Integer, nullable=False),
    )
    gone = table.c.gone == 1
    Index("rankbudget_memory_outside_gone", table.c.held_by, sqlite_where=gone, postgresql_where=gone)
    return table


def create_outside(connection: Connection) -> None:
    """Creates the table, with the rows that are marked: the fourth step."""
    from sqlalchemy import column, select, table

    outside().create(connection)
    marks, rows = table("rankbudget_memory_vectors", column("seq"), column("embedder")), memories().c
    marked = select(marks.c.embedder, rows.id, rows.owner, rows.project).join(marks, marks.c.seq == rows.seq)
    for row in connection.execute(marked.where(marks.c.embedder.startswith(OUTSIDE))).all():
        note(connection, row.embedder.removeprefix(OUTSIDE), [row])


MIGRATIONS = (create_memories, create_vectors, add_said, create_outside)
"""The steps to today's tables of memories."""


def note(connection: Connection, index: str, rows: Iterable[Any]) -> None:
    """Notes that an index may have rows, one or more with their `id`, `owner` and `project`."""
    from sqlalchemy import text

    insert = text(
        "INSERT INTO rankbudget_memory_outside (id, held_by, owner, project, gone) "
        "VALUES (:id, :index, :owner, :project, 0) ON CONFLICT (id, held_by) DO NOTHING"
    )
    entries = [
        {"id": row.id, "index": index, "owner": _hashed(row.owner), "project": _hashed(row.project)}
        for row in sorted(rows, key=lambda row: row.id)  # writers at once must not wait for each other
    ]
    connection.execute(insert, entries)


def noted(connection: Connection, index: str, ids: Sequence[str]) -> set[str]:
    """Returns which ids an index may have."""
    from sqlalchemy import select

    own = outside().c
    return set(connection.execute(select(own.id).where(own.held_by == index, own.id.in_(ids))).scalars())


def note_gone(connection: Connection, ids: Sequence[str]) -> None:
    """Notes that memories are deleted, whichever index has them."""
    connection.execute(outside().update().where(outside().c.id.in_(ids)).values(gone=1))


def note_deleted(connection: Connection, index: str, ids: Sequence[str]) -> None:
    """Notes that an index no longer has ids."""
    own = outside().c
    connection.execute(outside().delete().where(own.held_by == index, own.id.in_(ids)))


def left_in(connection: Connection, index: str, subject: Scope | None) -> list[str]:
    """Returns the ids of deleted memories that an index may still have; of a `subject` all."""
    from sqlalchemy import select

    own = outside().c
    left = own.gone == 1
    if subject is not None:  # an entry that was written beside the deletion may not say that it is gone
        left |= _of(subject) & ~own.id.in_(select(memories().c.id))
    found = select(own.id).where(own.held_by == index, left).order_by(own.id)
    return list(connection.execute(found).scalars())


def indexes_with(connection: Connection, subject: Scope) -> list[str]:
    """Returns the names of the indexes that may have deleted memories of a user or project."""
    from sqlalchemy import select

    own = outside().c
    deleted = ~own.id.in_(select(memories().c.id))
    found = select(own.held_by).where(_of(subject), deleted).distinct().order_by(own.held_by)
    return list(connection.execute(found).scalars())


def _of(subject: Scope) -> ColumnElement[bool]:
    from sqlalchemy import and_

    columns = outside().c
    return and_(*[columns[name] == _hashed(value) for name, value in owned_by(subject).items() if value])


def _hashed(value: str) -> str:
    return value and blake2b(value.encode(), digest_size=16).hexdigest()
