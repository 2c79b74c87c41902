"""The tables of vectors and of what was changed, and how a database keeps both true by itself.

Triggers note each written row and remove the vectors of a changed text, so that no writer can forget it,
whatever embedding it uses.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import sqlalchemy_later as sa
from .tables import ALWAYS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]

AT_ONCE = 500
"""Rows named in one statement."""
_NOTED = (
    "DELETE FROM rankbudget_memory_changes WHERE seq = NEW.seq; "
    "INSERT INTO rankbudget_memory_changes (seq) VALUES (NEW.seq);"
)
_SQLITE = (
    (
        "CREATE TABLE rankbudget_memory_vectors (seq INTEGER NOT NULL REFERENCES rankbudget_memories "
        "ON DELETE CASCADE, embedder TEXT NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (seq, embedder))"
    ),
    (
        "CREATE TABLE rankbudget_memory_changes (number INTEGER PRIMARY KEY AUTOINCREMENT, "
        "seq INTEGER NOT NULL UNIQUE REFERENCES rankbudget_memories ON DELETE CASCADE)"
    ),
    *[
        f"CREATE TRIGGER {table}_{event.lower()} AFTER {event} ON {table} BEGIN {_NOTED} END"
        for table in ("rankbudget_memories", "rankbudget_memory_vectors")
        for event in ("INSERT", "UPDATE")
    ],
    (
        "CREATE TRIGGER rankbudget_memories_text AFTER UPDATE OF text ON rankbudget_memories "
        "WHEN OLD.text <> NEW.text BEGIN "
        "DELETE FROM rankbudget_memory_vectors WHERE seq = NEW.seq; END"
    ),
    "INSERT INTO rankbudget_memory_changes (seq) SELECT seq FROM rankbudget_memories",
)
_POSTGRES = (
    (
        "CREATE TABLE rankbudget_memory_vectors (seq BIGINT NOT NULL REFERENCES rankbudget_memories "
        "ON DELETE CASCADE, embedder TEXT NOT NULL, vector {kind} NOT NULL, PRIMARY KEY (seq, embedder))"
    ),
    (
        "CREATE TABLE rankbudget_memory_changes (number BIGINT NOT NULL, "
        "seq BIGINT PRIMARY KEY REFERENCES rankbudget_memories ON DELETE CASCADE)"
    ),
    "CREATE INDEX rankbudget_memory_changes_number ON rankbudget_memory_changes (number)",
    (
        "CREATE FUNCTION rankbudget_memory_changed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO rankbudget_memory_changes (number, seq) "
        "VALUES (CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT), NEW.seq) "
        "ON CONFLICT (seq) DO UPDATE SET number = EXCLUDED.number; RETURN NULL; END $$"
    ),
    (
        "CREATE FUNCTION rankbudget_memory_reworded() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "DELETE FROM rankbudget_memory_vectors WHERE seq = NEW.seq; RETURN NULL; END $$"
    ),
    *[
        f"CREATE TRIGGER {table}_changed AFTER INSERT OR UPDATE ON {table} "
        "FOR EACH ROW EXECUTE FUNCTION rankbudget_memory_changed()"
        for table in ("rankbudget_memories", "rankbudget_memory_vectors")
    ],
    (
        "CREATE TRIGGER rankbudget_memories_text AFTER UPDATE OF text ON rankbudget_memories FOR EACH ROW "
        "WHEN (OLD.text <> NEW.text) EXECUTE FUNCTION rankbudget_memory_reworded()"
    ),
    "INSERT INTO rankbudget_memory_changes (number, seq) SELECT 0, seq FROM rankbudget_memories",
)


def create_vectors(connection: sa.Connection) -> None:
    """Creates the tables, triggers, and the indexes that a search by scope needs: the second step."""
    always = ALWAYS.replace("rankbudget_memories.", "")
    connection.exec_driver_sql(
        f"CREATE INDEX rankbudget_memories_always ON rankbudget_memories (owner, project) WHERE {always}"
    )
    steps = _SQLITE
    if connection.dialect.name != "sqlite":
        kind = "vector" if _with_extension(connection) else "bytea"
        steps = tuple([step.replace("{kind}", kind) for step in _POSTGRES])
    for step in steps:
        connection.exec_driver_sql(step)


def _with_extension(connection: sa.Connection) -> bool:
    """Returns whether the server has pgvector and lets us use it."""
    known = connection.exec_driver_sql("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").scalar()
    if not known:
        return False
    try:
        with connection.begin_nested():
            connection.exec_driver_sql("CREATE EXTENSION IF NOT EXISTS vector")
    except sa.exc.DBAPIError:  # only an owner of the database may create it
        return False
    return True


def has_vector_type(connection: sa.Connection) -> bool:
    """Returns whether this database keeps vectors as pgvector's type, and can compare them itself."""
    if connection.dialect.name == "sqlite":
        return False
    found = connection.exec_driver_sql(
        "SELECT format_type(atttypid, NULL) FROM pg_attribute "
        "WHERE attrelid = CAST('rankbudget_memory_vectors' AS regclass) AND attname = 'vector'"
    ).scalar()
    return str(found).endswith("vector")


def key_of(name: str, vector: Vector) -> str:
    """Returns what vectors of an embedding are kept under: those of another length are others."""
    return f"{name}/{vector.shape[-1]}"


def written(vector: Vector, *, typed: bool) -> str | bytes:
    """Returns a vector as the database keeps it: as numbers in brackets, or 4 bytes each."""
    if typed:
        return "[" + ",".join([repr(number) for number in vector.tolist()]) + "]"
    return bytes(vector.astype("<f4").tobytes())


def first_vector(connection: sa.Connection, key: str) -> tuple[str, Vector] | None:
    """Returns the text and the vector of the oldest row that has one under this key; None where none has."""
    import numpy as np

    find = "SELECT text, vector FROM rankbudget_memories JOIN rankbudget_memory_vectors USING (seq)"
    found = sa.text(f"{find} WHERE embedder = :key ORDER BY seq LIMIT 1")
    row = connection.execute(found, {"key": key}).first()
    if row is None:
        return None
    if isinstance(row.vector, str):  # pgvector's type
        return row.text, np.array(json.loads(row.vector), dtype=np.float32)
    return row.text, np.frombuffer(row.vector, dtype="<f4")


def write_vectors(connection: sa.Connection, rows: Sequence[dict[str, Any]], *, typed: bool) -> None:
    """Writes vectors of rows whose text is still the one that was embedded.

    Args:
        connection: one that writes.
        rows: `seq`, `text`, `embedder` and the `vector` as `written`.
        typed: whether the database has a type for vectors.
    """
    head = "INSERT INTO rankbudget_memory_vectors (seq, embedder, vector)"
    found = "FROM rankbudget_memories WHERE seq = :seq AND text = :text"
    value = "SELECT seq, :embedder, CAST(:vector AS vector)" if typed else "SELECT seq, :embedder, :vector"
    again = "ON CONFLICT (seq, embedder) DO UPDATE SET vector = EXCLUDED.vector"
    insert = sa.text(f"{head} {value} {found} {again}")
    connection.execute(insert, list(rows))


class Changes:
    """Says which rows were written since it was asked last, by whatever process.

    SQLite's writers follow one another, so a row's number tells its place among all commits. PostgreSQL's
    commit in any order: a row has the id of its transaction, and all from the oldest one that was still
    running at the last look are read again, those known already left out.
    """

    def __init__(self) -> None:
        self._since = 0
        self._known: dict[int, int] = {}

    def read(self, connection: sa.Connection) -> list[int]:
        """Returns the numbers of the rows; the caller must see all that earlier callers saw."""
        sqlite = connection.dialect.name == "sqlite"
        find = sa.text("SELECT seq, number FROM rankbudget_memory_changes WHERE number >= :since")
        found = {row.seq: row.number for row in connection.execute(find, {"since": self._since})}
        fresh = [seq for seq, number in found.items() if self._known.get(seq) != number]
        if sqlite:
            self._since = max([self._since - 1, *found.values()]) + 1
        else:
            oldest = "SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS TEXT) AS BIGINT)"
            self._since = int(connection.exec_driver_sql(oldest).scalar_one())
            self._known = {seq: number for seq, number in found.items() if number >= self._since}
        return fresh
