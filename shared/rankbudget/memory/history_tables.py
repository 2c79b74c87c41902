"""The tables of conversations and of reports."""

from __future__ import annotations

from typing import Any

from . import sqlalchemy_later as sa

PINNED_ROWS = "role IN ('system', 'developer')"
"""What always stays, in the words of its index: with parameters in it no database would use that."""
ARCHIVED = "\x1farchived"
"""Follows a conversation's name in that of the row which holds its archived messages."""
NO_SUM = "0" * 32
"""The sum over no messages."""


@sa.once
def threads() -> sa.Table:
    """Returns the table of conversations: how long each is, the sum over its messages, its summary.

    `edits` changes with the place of a message, `version` with the summary;
    `summary_upto`, `summary_kept` and `summary_seal` say what it covers.
    """
    return _table(
        "rankbudget_threads",
        *(sa.Column(name, sa.Text, nullable=False) for name in ("owner", "project", "name")),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("total", sa.String(32), nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        *(sa.Column(name, sa.Integer, nullable=False) for name in ("edits", "version")),
        sa.Column("summary", sa.Text, nullable=False),
        sa.Column("summary_upto", sa.Integer, nullable=False),
        sa.Column("summary_kept", sa.Text, nullable=False),
        sa.Column("summary_seal", sa.String(32), nullable=False),
        sa.UniqueConstraint("owner", "project", "name"),
    )


@sa.once
def messages() -> sa.Table:
    """Returns the table of messages; `place` counts from 0, and is null where a message was replaced.

    `form` and `host` are the host's own serialization, `counts` tokens by counter, `total` a sum over all
    messages up to this one.
    """
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    table = _table(
        "rankbudget_messages",
        sa.Column("thread", number, sa.ForeignKey(threads().c.seq, ondelete="CASCADE"), nullable=False),
        sa.Column("place", sa.Integer),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("name", sa.Text),
        sa.Column("neutral", sa.Text, nullable=False),
        sa.Column("form", sa.String(40), nullable=False),
        sa.Column("host", sa.Text),
        sa.Column("digest", sa.String(32), nullable=False),
        sa.Column("total", sa.String(32), nullable=False),
        sa.Column("counts", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        metadata=threads().metadata,
    )
    sa.Index("rankbudget_messages_place", table.c.thread, table.c.place, unique=True)
    for name, rows, columns in (
        ("name", table.c.name.is_not(None) & table.c.place.is_not(None), ("thread", "name")),
        ("pinned", sa.text(PINNED_ROWS), ("thread", "place")),
    ):
        sa.Index(
            f"rankbudget_messages_{name}",
            *(table.c[column] for column in columns),
            unique=name == "name",
            sqlite_where=rows,
            postgresql_where=rows,
        )
    return table


@sa.once
def reports() -> sa.Table:
    """Returns the table of the figures of each turn."""
    names = ("owner", "project", "thread")
    table = _table(
        "rankbudget_reports",
        *(sa.Column(name, sa.Text, nullable=False) for name in names),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("figures", sa.Text, nullable=False),
    )
    sa.Index("rankbudget_reports_of", *(table.c[name] for name in names), table.c.at)
    return table


@sa.once
def keys() -> sa.Table:
    """Returns the table of calls that were named: a hash of each key, and how many messages the call had.

    It is apart from the messages, which may be replaced, and goes with its conversation.
    """
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    return _table(
        "rankbudget_keys",
        sa.Column("thread", number, sa.ForeignKey(threads().c.seq, ondelete="CASCADE"), nullable=False),
        sa.Column("key", sa.String(32), nullable=False),
        sa.Column("sent", sa.Integer, nullable=False),
        sa.UniqueConstraint("thread", "key"),
        metadata=threads().metadata,
    )


def create_histories(connection: sa.Connection) -> None:
    """Creates the tables of conversations: the first step of their schema."""
    threads().create(connection)
    messages().create(connection)


def create_reports(connection: sa.Connection) -> None:
    """Creates the table of reports: the first step of its schema."""
    reports().create(connection)


def create_keys(connection: sa.Connection) -> None:
    """Creates the table of keys: the first step of its schema."""
    keys().create(connection)


def _table(name: str, *columns: Any, metadata: Any = None) -> sa.Table:
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite counts up only an INTEGER key
    key = sa.Column("seq", number, primary_key=True, autoincrement=True)
    return sa.Table(name, metadata or sa.MetaData(), key, *columns, sqlite_autoincrement=True)
