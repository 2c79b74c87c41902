"""The tables of conversations and of reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .once import once

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

PINNED_ROWS = "role IN ('system', 'developer')"
"""What always stays, in the words of its index: with parameters in it no database would use that."""
ARCHIVED = "\x1farchived"
"""Follows a conversation's name in that of the row which holds its archived messages."""
NO_SUM = "0" * 32
"""The sum over no messages."""


@once
def threads() -> Table:
    """Returns the table of conversations: how long each is, the sum over its messages, its summary.

    `edits` changes with the place of a message, `version` with the summary;
    `summary_upto`, `summary_kept` and `summary_seal` say what it covers.
    """
    from sqlalchemy import Column, Float, Integer, String, Text, UniqueConstraint

    return _table(
        "rankbudget_threads",
        *(Column(name, Text, nullable=False) for name in ("owner", "project", "name")),
        Column("size", Integer, nullable=False),
        Column("total", String(32), nullable=False),
        Column("created_at", Float, nullable=False),
        *(Column(name, Integer, nullable=False) for name in ("edits", "version")),
        Column("summary", Text, nullable=False),
        Column("summary_upto", Integer, nullable=False),
        Column("summary_kept", Text, nullable=False),
        Column("summary_seal", String(32), nullable=False),
        UniqueConstraint("owner", "project", "name"),
    )


@once
def messages() -> Table:
    """Returns the table of messages; `place` counts from 0, and is null where a message was replaced.

    `form` and `host` are the host's own serialization, `counts` tokens by counter, `total` a sum over all
    messages up to this one.
    """
    from sqlalchemy import BigInteger, Column, Float, ForeignKey, Index, Integer, String, Text, text

    number = BigInteger().with_variant(Integer, "sqlite")
    table = _table(
        "rankbudget_messages",
        Column("thread", number, ForeignKey(threads().c.seq, ondelete="CASCADE"), nullable=False),
        Column("place", Integer),
        Column("role", String(16), nullable=False),
        Column("name", Text),
        Column("neutral", Text, nullable=False),
        Column("form", String(40), nullable=False),
        Column("host", Text),
        Column("digest", String(32), nullable=False),
        Column("total", String(32), nullable=False),
        Column("counts", Text, nullable=False),
        Column("created_at", Float, nullable=False),
        metadata=threads().metadata,
    )
    Index("rankbudget_messages_place", table.c.thread, table.c.place, unique=True)
    for name, rows, columns in (
        ("name", table.c.name.is_not(None) & table.c.place.is_not(None), ("thread", "name")),
        ("pinned", text(PINNED_ROWS), ("thread", "place")),
    ):
        Index(
            f"rankbudget_messages_{name}",
            *(table.c[column] for column in columns),
            unique=name == "name",
            sqlite_where=rows,
            postgresql_where=rows,
        )
    return table


@once
def reports() -> Table:
    """Returns the table of the figures of each turn."""
    from sqlalchemy import Column, Float, Index, Text

    names = ("owner", "project", "thread")
    table = _table(
        "rankbudget_reports",
        *(Column(name, Text, nullable=False) for name in names),
        Column("at", Float, nullable=False),
        Column("figures", Text, nullable=False),
    )
    Index("rankbudget_reports_of", *(table.c[name] for name in names), table.c.at)
    return table


@once
def keys() -> Table:
    """Returns the table of calls that were named: a hash of each key, and how many messages the call had.

    It is apart from the messages, which may be replaced, and goes with its conversation.
    """
    from sqlalchemy import BigInteger, Column, ForeignKey, Integer, String, UniqueConstraint

    number = BigInteger().with_variant(Integer, "sqlite")
    return _table(
        "rankbudget_keys",
        Column("thread", number, ForeignKey(threads().c.seq, ondelete="CASCADE"), nullable=False),
        Column("key", String(32), nullable=False),
        Column("sent", Integer, nullable=False),
        UniqueConstraint("thread", "key"),
        metadata=threads().metadata,
    )


def create_histories(connection: Connection) -> None:
    """Creates the tables of conversations: the first step of their schema."""
    threads().create(connection)
    messages().create(connection)


def create_reports(connection: Connection) -> None:
    """Creates the table of reports: the first step of its schema."""
    reports().create(connection)


def create_keys(connection: Connection) -> None:
    """Creates the table of keys: the first step of its schema."""
    keys().create(connection)


def _table(name: str, *columns: Any, metadata: Any = None) -> Table:
    from sqlalchemy import BigInteger, Column, Integer, MetaData, Table

    number = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts up only an INTEGER key
    key = Column("seq", number, primary_key=True, autoincrement=True)
    return Table(name, metadata or MetaData(), key, *columns, sqlite_autoincrement=True)
