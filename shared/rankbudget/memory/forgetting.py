"""What is forgotten is gone: rows, their words and vectors, and what the files still held of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import StoreError
from ..segment import Scope
from . import sqlalchemy_later as sa
from .database import Database
from .forms import NUMBERED
from .history_tables import ARCHIVED, messages, reports, threads
from .outside import MIGRATIONS, indexes_with, note_gone
from .protocol import Receipt
from .tables import memories, memory_of, named_by
from .terms import remove_terms

if TYPE_CHECKING:
    from .protocol import Vectors

_AT_ONCE = 500
"""Rows named in one statement."""
_SERVER = (
    "PostgreSQL keeps deleted rows until VACUUM FULL, and its write-ahead log, replicas and backups until "
    "they are recycled"
)
_PROCESSES = "what running processes hold: call forget() of their BudgetSession objects and caches"


def remove_memories(connection: sa.Connection, wanted: sa.ColumnElement[bool]) -> list[int]:
    """Removes rows with their words and vectors, notes that they are gone, and returns their numbers."""
    table = memories()
    found = sa.select(table.c.seq, table.c.id).where(wanted).order_by(table.c.seq).with_for_update()
    rows = connection.execute(found).all()
    for start in range(0, len(rows), _AT_ONCE):
        part = rows[start : start + _AT_ONCE]
        seqs = [row.seq for row in part]
        remove_terms(connection, seqs)
        connection.execute(table.delete().where(table.c.seq.in_(seqs)))
        note_gone(connection, [row.id for row in part])
    return [row.seq for row in rows]


def forget(database: Database, subject: Scope, vectors: Vectors | None = None) -> tuple[Receipt, list[int]]:
    """Removes all of a user or project: memories, conversations with their summaries, figures of turns.

    Also returns the numbers of the memories, which an index of `vectors` in this process still has.
    """
    removed: dict[str, int] = {}
    citing: list[str] = []
    rows: list[int] = []
    parts = _parts(database)
    with database.write() as connection:
        if "memories" in parts:
            if not database.is_sqlite:
                # It waits for all that lock rows, as they would for it, and it for them.
                connection.exec_driver_sql(f"LOCK TABLE {memories().name} IN EXCLUSIVE MODE")
            rows = remove_memories(connection, named_by(subject, memories()))
            removed["memories"] = len(rows)
        if "histories" in parts:
            citing = citing_memories(connection, subject) if "memories" in parts else []
            removed |= remove_histories(connection, subject)
        if "reports" in parts:
            removed["reports"] = connection.execute(
                reports().delete().where(named_by(subject, reports()))
            ).rowcount
    elsewhere = _indexes_left(database, subject, vectors) if "memories" in parts else []
    unreached = (*elsewhere, *citing, *wipe(database))
    return Receipt(subject=subject, removed=removed, unreached=unreached), rows


def _parts(database: Database) -> set[str]:
    """Returns the parts of the schema that there are, with today's tables of memories."""
    with database.read() as connection:
        parts = set(connection.execute(sa.text("SELECT part FROM rankbudget_schema")).scalars())
    if "memories" in parts:
        database.migrate("memories", MIGRATIONS)
    return parts


def _indexes_left(database: Database, subject: Scope, vectors: Vectors | None) -> list[str]:
    """Empties the index that there is, and returns a sentence for each that may still hold something."""
    failed = vectors.sweep(subject) if vectors else ()
    with database.read() as connection:
        names = indexes_with(connection, subject)
    own = getattr(vectors, "held_by", None)
    others = [
        f"the vector index {name!r}, without which this store was opened" for name in names if name != own
    ]
    return [*failed, *others]


def remove_histories(connection: sa.Connection, subject: Scope) -> dict[str, int]:
    """Removes conversations of a user or project, and returns how much there was of each kind."""
    table = threads()
    mine = named_by(subject, table)
    named = sa.select(table.c.owner, table.c.project, table.c.name).where(mine).order_by(table.c.seq)
    rows = connection.execute(named.with_for_update()).all()
    with_text = sa.select(sa.func.count()).select_from(table).where(mine & (table.c.summary != ""))
    summaries = connection.execute(with_text).scalar_one()
    inside = messages().c.thread.in_(sa.select(table.c.seq).where(mine))
    gone = connection.execute(messages().delete().where(inside)).rowcount
    connection.execute(table.delete().where(mine))
    whole = {(row.owner, row.project, row.name.removesuffix(ARCHIVED)) for row in rows}
    return {"messages": gone, "threads": len(whole), "summaries": summaries}


def citing_memories(connection: sa.Connection, subject: Scope) -> list[str]:
    """Returns a sentence for each memory that stays, and cites messages of conversations that go."""
    table, owners = messages(), threads()
    rows = connection.execute(memories().select().where(memories().c.sources != "[]"))
    citing = [memory_of(row) for row in rows]
    cited = sorted({source for memory in citing for source in memory.sources})
    inside = table.c.thread.in_(sa.select(owners.c.seq).where(named_by(subject, owners)))
    forgotten: set[str] = set()
    for start in range(0, len(cited), _AT_ONCE):
        part = cited[start : start + _AT_ONCE]
        numbers = [int(one.removeprefix(NUMBERED)) for one in part if _is_number(one)]
        ids = table.c.name.in_(part) | table.c.seq.in_(numbers)
        found = connection.execute(sa.select(table.c.name, table.c.seq).where(inside & ids))
        forgotten |= {one for row in found for one in (row.name, f"{NUMBERED}{row.seq}")}
    return [
        f"the memory {memory.key or memory.id!r} of {memory.scope} cites messages that were forgotten: "
        "delete "
        "it where it repeats them"
        for memory in citing
        if forgotten.intersection(memory.sources)
    ]


def _is_number(name: str) -> bool:
    number = name.removeprefix(NUMBERED)
    return name.startswith(NUMBERED) and number.isdecimal() and len(number) < 19  # noqa: PLR2004 - a BIGINT


def wipe(database: Database) -> tuple[str, ...]:
    """Overwrites what deleted rows left in the files; returns what it could not reach."""
    if not database.is_sqlite:
        return (_SERVER, _PROCESSES)
    unreached = [_PROCESSES]
    try:
        with database.write() as connection:
            if sa.inspect(connection).has_table("rankbudget_memory_terms"):
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
