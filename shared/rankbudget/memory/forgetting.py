"""What is forgotten is gone: rows, their words and vectors, and what the files still held of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import StoreError
from .database import Database
from .tables import memories
from .terms import remove_terms

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

_AT_ONCE = 500
"""Rows named in one statement."""
_SERVER = (
    "PostgreSQL keeps deleted rows until VACUUM FULL, and its write-ahead log, replicas and backups until "
    "they are recycled"
)
_PROCESSES = "what running processes hold: call forget() of their BudgetSession objects and caches"


def remove_memories(connection: Connection, wanted: ColumnElement[bool]) -> int:
    """Removes rows with their words and vectors, and returns how many there were."""
    from sqlalchemy import select

    table = memories()
    found = select(table.c.seq).where(wanted).order_by(table.c.seq).with_for_update()
    rows = list(connection.execute(found).scalars())
    for start in range(0, len(rows), _AT_ONCE):
        part = rows[start : start + _AT_ONCE]
        remove_terms(connection, part)
        connection.execute(table.delete().where(table.c.seq.in_(part)))
    return len(rows)


def wipe(database: Database) -> tuple[str, ...]:
    """Overwrites what deleted rows left in the files; returns what it could not reach."""
    if not database.is_sqlite:
        return (_SERVER, _PROCESSES)
    unreached = [_PROCESSES]
    try:
        with database.write() as connection:
            connection.exec_driver_sql(
                "INSERT INTO rankbudget_memory_terms (rankbudget_memory_terms) VALUES ('optimize')"
            )
        with database.alone() as connection:
            connection.exec_driver_sql("VACUUM")
            busy = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]
    except StoreError as error:
        return (f"deleted rows in the files, as they could not be rewritten: {error}", *unreached)
    if busy:
        unreached.insert(
            0, "the write-ahead log beside the file, which another connection was reading: try again"
        )
    return tuple(unreached)
