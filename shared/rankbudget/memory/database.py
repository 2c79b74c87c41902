"""One database: read and written by many at once, with migrations, and with its faults named."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any
from weakref import WeakSet

from ..errors import StoreConflictError, StoreError, check_number, refuse
from . import forks
from . import sqlalchemy_later as sa
from .engine import file_of, in_memory, milliseconds, open_engine, prepare_sqlite

WAIT = 30.0
"""Seconds that a write waits for other writers before it fails."""

Migration = Callable[["sa.Connection"], None]
"""One step from a schema version to the next, run once, inside a transaction."""

_BEGINS_HERE: WeakSet[sa.Engine] = WeakSet()
"""Engines whose transactions a `Database` begins; an engine may have several of these."""
_MIGRATING = 7_265_342
"""Key of PostgreSQL's lock that lets one process at a time change the schema."""


class Database:
    """A SQLite file or a PostgreSQL database, shared by threads and processes.

    A read sees one state of it. A write is kept whole or not at all, also when the process is killed.

    Args:
        place: path of a SQLite file, which is made when it is missing, a URL, or a SQLAlchemy engine.
        wait: seconds that a write waits for other writers, above 0.

    Raises:
        BudgetConfigError: `place` or `wait` cannot be one.
        CounterUnavailableError: SQLAlchemy or the database's driver is not installed.
    """

    def __init__(self, place: Any, *, wait: float = WAIT) -> None:
        problems: list[str] = []
        self.wait = check_number("wait", wait, problems, allowed="a number of seconds above 0", above=True)
        refuse(problems)
        self.engine = open_engine(place, self.wait)
        self.shown = self.engine.url.render_as_string(hide_password=True)
        self.process = os.getpid()
        self.connections: set[sa.Connection] = set()
        forks.watch(self)
        if self.is_sqlite and self.engine not in _BEGINS_HERE:
            sa.event.listen(self.engine, "begin", self._begin_sqlite)
            _BEGINS_HERE.add(self.engine)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.in_memory:
            msg = "a database in memory must stay in its process (it was to be pickled). Use a file."
            raise StoreError(msg)
        return partial(Database, wait=self.wait), (self.engine.url.render_as_string(hide_password=False),)

    @property
    def is_sqlite(self) -> bool:
        """Whether it is SQLite; otherwise it is PostgreSQL."""
        return bool(self.engine.dialect.name == "sqlite")

    @property
    def in_memory(self) -> bool:
        """Whether it is a SQLite database without a file, which has one connection."""
        return in_memory(self.engine.url)

    @property
    def file(self) -> Path | None:
        """The SQLite file; None for a database in memory or on a server."""
        return file_of(self.engine.url)

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Gives a connection that sees one state of the database."""
        with self._named_errors(), self._connected() as connection:
            if not self.is_sqlite:  # by default each statement would see a state of its own
                connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with connection.begin():
                yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Gives a connection whose changes are kept together when the block ends, or not at all.

        A broken rule of a table, as of a unique index, raises SQLAlchemy's IntegrityError.
        """
        with self._named_errors(), self._connected() as connection:
            level = {} if self.is_sqlite else {"isolation_level": "READ COMMITTED"}
            writing = connection.execution_options(rankbudget_begins="BEGIN IMMEDIATE", **level)
            with writing.begin():
                if not self.is_sqlite:
                    writing.exec_driver_sql(f"SET LOCAL lock_timeout = {milliseconds(self.wait)}")
                yield writing

    def one_writer(self, connection: sa.Connection, name: str) -> None:
        """Waits until no other transaction writes what has this name; SQLite has one writer anyway."""
        if not self.is_sqlite:
            key = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({key})")

    @contextmanager
    def alone(self) -> Iterator[sa.Connection]:
        """Gives a connection outside of transactions, for statements that cannot run inside one."""
        with self._named_errors(), self._connected() as connection:
            yield connection.execution_options(isolation_level="AUTOCOMMIT", rankbudget_begins=None)

    def migrate(self, part: str, migrations: tuple[Migration, ...]) -> None:
        """Brings the tables of one part of the schema to today's version.

        Args:
            part: name of the part, as "memories".
            migrations: the steps from nothing to today's tables, oldest first. The missing ones are run.

        Raises:
            StoreError: a newer version of this library wrote the database.
        """
        with self.read() as connection:
            if self._version(connection, part, len(migrations)) == len(migrations):
                return  # so a file that may only be read can be
        with self.write() as connection:
            if not self.is_sqlite:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATING})")
            columns = "part VARCHAR(40) PRIMARY KEY, version INTEGER NOT NULL"
            connection.exec_driver_sql(f"CREATE TABLE IF NOT EXISTS rankbudget_schema ({columns})")
            known = self._version(connection, part, len(migrations))
            for step in migrations[known or 0 :]:
                step(connection)
            if known != len(migrations):
                insert = "INSERT INTO rankbudget_schema (part, version) VALUES (:part, :version)"
                update = "UPDATE rankbudget_schema SET version = :version WHERE part = :part"
                row = {"part": part, "version": len(migrations)}
                connection.execute(sa.text(insert if known is None else update), row)

    def _version(self, connection: sa.Connection, part: str, newest: int) -> int | None:
        """Returns the version of a part's tables; None where there are none."""
        if not sa.inspect(connection).has_table("rankbudget_schema"):
            return None
        find = sa.text("SELECT version FROM rankbudget_schema WHERE part = :part")
        version: int | None = connection.execute(find, {"part": part}).scalar()
        if version is not None and version > newest:
            msg = (
                f"the tables of {part} in {self.shown} must have version {newest} or lower (got {version}): "
                "a newer version of rankbudget wrote them. Upgrade rankbudget."
            )
            raise StoreError(msg)
        return version

    def close(self) -> None:
        """Closes its connections; the next use opens new ones."""
        self.engine.dispose()

    @contextmanager
    def _connected(self) -> Iterator[sa.Connection]:
        if refused := forks.refusal(self):
            msg = f"the database {self.shown} {refused}"
            raise StoreError(msg)
        with self.engine.connect() as connection:
            self.connections.add(connection)
            try:
                yield connection
            finally:
                self.connections.discard(connection)

    def _begin_sqlite(self, connection: sa.Connection) -> None:
        """Begins a transaction; a writer's takes the lock at once, as one taken later cannot wait for it."""
        driver: Any = connection.connection.dbapi_connection
        if driver.isolation_level is not None:
            driver.isolation_level = None  # transactions begin here, not where the driver guesses
        if not connection.info.get("rankbudget_prepared"):
            prepare_sqlite(driver, self.wait)
            connection.info["rankbudget_prepared"] = True
        begins = connection.get_execution_options().get("rankbudget_begins", "BEGIN")
        if begins:
            connection.exec_driver_sql(begins)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Raises what the database or its driver refuses as errors of ours that say what to do."""
        try:
            yield
        except sa.exc.IntegrityError:
            raise
        except sa.exc.DBAPIError as error:
            kind = StoreConflictError if getattr(error.orig, "sqlstate", "") in _CROSSED else StoreError
            raise kind(_explained(str(error.orig), self.shown, self.wait)) from error
        except (OSError, UnicodeError, sa.exc.TimeoutError, sqlite3.Error) as error:
            raise StoreError(_explained(str(error), self.shown, self.wait)) from error


_CROSSED = {"40001", "40P01"}
"""PostgreSQL's codes of a transaction that it ended for the sake of another one."""
_REMEDIES = (
    (("deadlock", "serialize"), "Nothing of this write was kept: another one crossed it. Try again."),
    (("locked", "busy", "lock timeout"), "Another writer held it for more than {wait:g} seconds: try again."),
    (
        ("is full", "no space", "disk i/o"),
        "Nothing of this write was kept. Make room on the disk, try again.",
    ),
    (
        ("readonly", "read-only", "unable to open"),
        "Check the path, and who may write the file and its folder.",
    ),
    (
        ("malformed", "not a database", "corrupt"),
        "It is damaged: restore a backup, or use sqlite3's .recover.",
    ),
    (("fts5",), "The SQLite of this Python was built without FTS5: use another build, or PostgreSQL."),
    (("no such table", "does not exist"), "A table is missing: open the store anew, or restore a backup."),
    (
        ("queuepool",),
        "All its connections were in use for {wait:g} seconds: use fewer threads, or try again.",
    ),
    (("surrogates", "nul ", "0x00"), "Remove NUL characters and lone surrogates from the text."),
    (("too many clients", "connection slots"), "Close other connections, or raise max_connections."),
    (
        ("terminating", "closed", "is lost", "consuming input"),
        "The connection broke. Whether the last write was kept is unknown: read it, or put it again.",
    ),
    (("connection", "connect"), "Check that the server runs and that the URL is right."),
)


def _explained(said: str, shown: str, wait: float) -> str:
    low = said.lower()
    remedy = next((text for words, text in _REMEDIES if any(word in low for word in words)), "")
    return f"the database {shown} failed: {said.strip()[:400]}. {remedy.format(wait=wait)}".rstrip()
