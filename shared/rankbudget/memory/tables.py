"""The tables of memories, and a row as a `Memory`."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any

from ..errors import StoreError
from ..relevance.memories import KINDS
from ..segment import Scope
from . import sqlalchemy_later as sa
from .memory import DATES, Memory, digest_of, utc

ALWAYS = "(rankbudget_memories.kind IN ('core', 'preference') OR rankbudget_memories.static = 1)"
"""Which memories always matter; an index has the same words, which is how SQLite finds it."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_OWNED = ("owner", "project", "name")
_TEXTS = (*_OWNED, "digest", "text", "kind", "sources", "source_type", "metadata")
_KNOWN: set[tuple[type, ...]] = set()
_MOST_KNOWN = 256
"""Types of the fields of rows that made memories, and so many of them."""
_AS_THEY_ARE = ("id", "text", "kind", "priority", "confidence", "source_type", "replaced_by", "version")


@sa.once
def memories() -> sa.Table:
    """Returns the table of memories; `seq` grows with each row, `owner` and `project` are "" for everybody.

    Rows with the same `line`, a key or without one a text, are one timeline. `said_from` and `said_to` are
    the period that a memory was put for. From these follows when it holds: from `valid_from` until
    `valid_to`, where `gaps` = 1 only as long as no later one does. `dated` = 1: a user said when it begins.
    `replaced` = 1: a newer row has its text.
    """
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite counts up only an INTEGER key
    table = sa.Table(
        "rankbudget_memories",
        sa.MetaData(),
        sa.Column("seq", number, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(32), nullable=False, unique=True),
        *[sa.Column(name, sa.Text, nullable=False) for name in _TEXTS],
        *[sa.Column(name, sa.Float) for name in ("priority", "confidence", *DATES)],
        *[sa.Column(name, sa.Integer, nullable=False) for name in ("static", "version")],
        sa.Column("replaced", sa.Integer, nullable=False, default=0),
        sa.Column("replaced_by", sa.String(32)),
        sa.Column("line", sa.Text, nullable=False, default=""),
        *[sa.Column(name, sa.Float) for name in ("said_from", "said_to")],
        *[sa.Column(name, sa.Integer, nullable=False, default=0) for name in ("gaps", "dated")],
        sqlite_autoincrement=True,  # the number of a deleted row is not given again
    )
    _index(table)
    return table


def _index(table: sa.Table) -> None:
    """Adds the indexes: one row for a text under a key, and quick ways to a scope's own rows."""
    scope, newest = (table.c.owner, table.c.project), table.c.replaced == 0
    where: dict[str, Any] = {"sqlite_where": newest, "postgresql_where": newest}
    sa.Index("rankbudget_memories_one", *scope, table.c.digest, table.c.name, unique=True, **where)
    # The newest of a scope, those of a key, and a timeline, however many others have.
    for part, last in (("newest", ("seq",)), ("named", ("name",)), ("line", ("line", "said_from"))):
        sa.Index(f"rankbudget_memories_{part}", *scope, *[table.c[name] for name in last])


def create_memories(connection: sa.Connection) -> None:
    """Creates the tables: the first step of their schema."""
    table = memories()
    table.create(connection)
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(
            "CREATE VIRTUAL TABLE rankbudget_memory_terms "
            "USING fts5(terms, tokenize='unicode61 remove_diacritics 0')"
        )
    else:
        connection.exec_driver_sql(
            "CREATE TABLE rankbudget_memory_terms (seq BIGINT PRIMARY KEY "
            "REFERENCES rankbudget_memories ON DELETE CASCADE, terms TSVECTOR NOT NULL)"
        )
        connection.exec_driver_sql(
            "CREATE INDEX rankbudget_memory_terms_gin ON rankbudget_memory_terms USING GIN (terms)"
        )


def add_said(connection: sa.Connection) -> None:
    """Adds the periods that memories were put for: the third step; until then these were when they held."""
    table = memories()
    known = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
    connection.exec_driver_sql("DROP TABLE IF EXISTS rankbudget_memory_vocabulary")
    if "line" in known:
        return  # the tables are new
    for column in (
        "line TEXT NOT NULL DEFAULT ''",
        "said_from FLOAT",
        "said_to FLOAT",
        "gaps INTEGER NOT NULL DEFAULT 0",
        "dated INTEGER NOT NULL DEFAULT 0",
    ):
        connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {column}")
    line = "CASE name WHEN '' THEN digest ELSE name END"
    connection.exec_driver_sql(
        f"UPDATE {table.name} SET line = {line}, "  # noqa: S608 - fixed words
        "said_from = valid_from, said_to = valid_to, "
        "dated = CASE WHEN valid_from = created_at THEN 0 ELSE 1 END"
    )
    for part in ("text", "key"):
        connection.exec_driver_sql(f"DROP INDEX {table.name}_{part}")
    for index in table.indexes:
        index.create(connection, checkfirst=True)


def owned_by(scope: Scope) -> dict[str, str]:
    """Returns the columns that say whose a row is; a name is marked, so that "" is no user's."""
    return {"owner": _column(scope.user), "project": _column(scope.project)}


def named_by(subject: Scope, table: sa.Table) -> sa.ColumnElement[bool]:
    """Returns which rows of a table name a user or project, whatever else their scope names."""
    return sa.and_(*[table.c[name] == value for name, value in owned_by(subject).items() if value])


def line_of(key: str | None, digest: str) -> str:
    """Returns what the rows of one timeline share: their key, or without one their text."""
    return _column(key) or digest


def row_of(memory: Memory) -> dict[str, Any]:
    """Returns a memory as a row, without its place in the table and without its timeline."""
    digest = digest_of(memory.text)
    return {
        **owned_by(memory.scope),
        "id": memory.id,
        "name": _column(memory.key),
        "line": line_of(memory.key, digest),
        "digest": digest,
        "text": memory.text,
        "kind": memory.kind,
        "priority": _number(memory.priority),
        "confidence": _number(memory.confidence),
        "sources": json.dumps(memory.sources),
        "source_type": memory.source_type,
        "static": int(memory.static),
        **{name: _seconds(getattr(memory, name)) for name in DATES},
        "replaced_by": memory.replaced_by,
        "version": memory.version,
        "metadata": json.dumps(dict(memory.metadata), sort_keys=True),
    }


def memory_of(row: Any, score: float | None = None) -> Memory:
    """Returns a whole row as a memory."""
    try:
        # A row's attributes take ten times as long.
        return _memory_of(dict(zip(_columns(), row, strict=True)), score)
    except (TypeError, ValueError) as error:  # as of a damaged page
        msg = f"the row of memory {row.id!r} must be readable (got {error}). Delete it, or restore a backup."
        raise StoreError(msg) from error


@sa.once
def _columns() -> list[str]:
    return [column.name for column in memories().c]


def _memory_of(row: dict[str, Any], score: float | None) -> Memory:
    sources, metadata = row["sources"], row["metadata"]
    fields = {
        **{name: row[name] for name in _AS_THEY_ARE},
        **{name: moment_of(row[name]) for name in DATES},
        "scope": _scope(row["owner"], row["project"]),
        "key": _name(row["name"]),
        "sources": () if sources == "[]" else tuple(json.loads(sources)),
        "static": bool(row["static"]),
        "metadata": {} if metadata == "{}" else json.loads(metadata),
        "score": score,
    }
    types = tuple(map(type, fields.values()))
    if types not in _KNOWN or row["kind"] not in KINDS or not row["text"]:
        memory = Memory(**fields)
        if len(_KNOWN) < _MOST_KNOWN:
            _KNOWN.add(types)
        return memory
    memory = object.__new__(Memory)  # what such a row has was checked, and a search reads hundreds of them
    for name, value in fields.items():
        object.__setattr__(memory, name, value)
    return memory


def seconds(moment: datetime) -> float:
    """Returns a moment as seconds since 1970, as rows keep it."""
    return utc(moment).timestamp()


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else seconds(moment)


def moment_of(value: float | None) -> datetime | None:
    """Returns seconds since 1970 as a moment."""
    if value is None:
        return None
    try:
        return _EPOCH + timedelta(seconds=value)
    except OverflowError:  # rounded up beyond the last moment that there is
        return datetime.max.replace(tzinfo=timezone.utc)


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def _column(name: str | None) -> str:
    return "" if name is None else "=" + name


@lru_cache(maxsize=1024)
def _scope(owner: str, project: str) -> Scope:
    return Scope(user=_name(owner), project=_name(project))


def _name(column: str) -> str | None:
    return column[1:] if column else None
