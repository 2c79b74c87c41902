"""What vector indexes outside of the database may hold, of memories that are there and of deleted ones.

An entry is written before an index gets a text, and removed after the index deleted that. So it outlives the
memory, an outage, a crash, and stores that were opened without the index. It says nothing of the text, and of
the scope only hashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

from ..segment import Scope
from . import sqlalchemy_later as sa
from .tables import add_said, create_memories, memories, owned_by
from .vector_tables import create_vectors

OUTSIDE = "outside:"
"""Starts the name under which a row is marked that a vector index outside of the database holds."""


@sa.once
def outside() -> sa.Table:
    """Returns the table of entries; `gone` = 1: the memory was deleted, so the index must not have it."""
    table = sa.Table(
        "rankbudget_memory_outside",
        sa.MetaData(),
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("held_by", sa.Text, primary_key=True),
        *[sa.Column(name, sa.String(32), nullable=False) for name in ("owner", "project")],
        sa.Column("gone", sa.Integer, nullable=False),
    )
    gone = table.c.gone == 1
    sa.Index("rankbudget_memory_outside_gone", table.c.held_by, sqlite_where=gone, postgresql_where=gone)
    return table


def create_outside(connection: sa.Connection) -> None:
    """Creates the table, with the rows that are marked: the fourth step."""
    outside().create(connection)
    marks, rows = sa.table("rankbudget_memory_vectors", sa.column("seq"), sa.column("embedder")), memories().c
    marked = sa.select(marks.c.embedder, rows.id, rows.owner, rows.project).join(
        marks, marks.c.seq == rows.seq
    )
    for row in connection.execute(marked.where(marks.c.embedder.startswith(OUTSIDE))).all():
        note(connection, row.embedder.removeprefix(OUTSIDE), [row])


MIGRATIONS = (create_memories, create_vectors, add_said, create_outside)
"""The steps to today's tables of memories."""


def note(connection: sa.Connection, index: str, rows: Iterable[Any]) -> None:
    """Notes that an index may have rows, one or more with their `id`, `owner` and `project`."""
    insert = sa.text(
        "INSERT INTO rankbudget_memory_outside (id, held_by, owner, project, gone) "
        "VALUES (:id, :index, :owner, :project, 0) ON CONFLICT (id, held_by) DO NOTHING"
    )
    entries = [
        {"id": row.id, "index": index, "owner": _hashed(row.owner), "project": _hashed(row.project)}
        for row in sorted(rows, key=lambda row: row.id)  # writers at once must not wait for each other
    ]
    connection.execute(insert, entries)


def noted(connection: sa.Connection, index: str, ids: Sequence[str]) -> set[str]:
    """Returns which ids an index may have."""
    own = outside().c
    return set(connection.execute(sa.select(own.id).where(own.held_by == index, own.id.in_(ids))).scalars())


def note_gone(connection: sa.Connection, ids: Sequence[str]) -> None:
    """Notes that memories are deleted, whichever index has them."""
    connection.execute(outside().update().where(outside().c.id.in_(ids)).values(gone=1))


def note_deleted(connection: sa.Connection, index: str, ids: Sequence[str]) -> None:
    """Notes that an index no longer has ids."""
    own = outside().c
    connection.execute(outside().delete().where(own.held_by == index, own.id.in_(ids)))


def left_in(connection: sa.Connection, index: str, subject: Scope | None) -> list[str]:
    """Returns the ids of deleted memories that an index may still have; of a `subject` all."""
    own = outside().c
    left = own.gone == 1
    if subject is not None:  # an entry that was written beside the deletion may not say that it is gone
        left |= _of(subject) & ~own.id.in_(sa.select(memories().c.id))
    found = sa.select(own.id).where(own.held_by == index, left).order_by(own.id)
    return list(connection.execute(found).scalars())


def indexes_with(connection: sa.Connection, subject: Scope) -> list[str]:
    """Returns the names of the indexes that may have deleted memories of a user or project."""
    own = outside().c
    deleted = ~own.id.in_(sa.select(memories().c.id))
    found = sa.select(own.held_by).where(_of(subject), deleted).distinct().order_by(own.held_by)
    return list(connection.execute(found).scalars())


def _of(subject: Scope) -> sa.ColumnElement[bool]:
    columns = outside().c
    return sa.and_(*[columns[name] == _hashed(value) for name, value in owned_by(subject).items() if value])


def _hashed(value: str) -> str:
    return value and blake2b(value.encode(), digest_size=16).hexdigest()
