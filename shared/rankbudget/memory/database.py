"""One database: how it is opened, written to by many at once, and how its faults are named; owns SQLAlchemy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ..errors import CounterUnavailableError, StoreError, check_number

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

WAIT = 30.0
"""Seconds that a write waits for other writers before it fails."""

Migration = Callable[["Connection"], None]
"""One step from a schema version to the next, run once, inside a transaction."""

_PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON", "foreign_keys = ON")
"""Readers beside one writer; a commit survives a power cut; what is deleted is overwritten."""
_BEGINS_HERE: WeakSet[Engine] = WeakSet()
"""Engines whose transactions a `Database` begins; an engine may have several of these."""
_MIGRATING = 7_265_342
"""Key of PostgreSQL's lock that lets one process at a time change the schema."""


class Database:
    """A SQLite file or a PostgreSQL database, shared by threads and processes.

    A read sees one state of it. Writes happen one after another, whole or not at all.

    Args:
        place: path of a SQLite file, which is made when it is missing, a database URL, or a SQLAlchemy engine.
        wait: seconds that a write waits for other writers, above 0.

    Raises:
        BudgetConfigError: `place` or `wait` cannot be one.
        StoreError: the database cannot be opened, or is damaged.
        CounterUnavailableError: SQLAlchemy or the database's driver is not installed.
    """

    def __init__(self, place: Any, *, wait: float = WAIT) -> None:
        problems: list[str] = []
        check_number("wait", wait, problems, allowed="a number of seconds above 0", above=True)
        if problems:
            raise StoreError("; ".join(problems))
        self.wait = wait
        self.engine = _engine(place)
        self.shown = self.engine.url.render_as_string(hide_password=True)
        self._process = os.getpid()
        if self.is_sqlite and self.engine not in _BEGINS_HERE:
            from sqlalchemy import event

            event.listen(self.engine, "begin", self._begin_sqlite)
            _BEGINS_HERE.add(self.engine)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.engine.url.render_as_string(hide_password=False), self.wait)

    @property
    def is_sqlite(self) -> bool:
        """Whether it is SQLite; otherwise it is PostgreSQL."""
        return bool(self.engine.dialect.name == "sqlite")

    @property
    def file(self) -> Path | None:
        """The SQLite file; None for a database in memory or on a server."""
        found = self.engine.url.database if self.is_sqlite else None
        return Path(found) if found and found != ":memory:" else None

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Gives a connection that sees one state of the database."""
        with self._named_errors(), self._connected() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Gives a connection whose changes are kept together when the block ends, or not at all.

        A broken rule of a table, as of a unique index, raises SQLAlchemy's IntegrityError.
        """
        with self._named_errors(), self._connected() as connection:
            writing = connection.execution_options(rankbudget_begins="BEGIN IMMEDIATE")
            with writing.begin():
                if not self.is_sqlite:
                    writing.exec_driver_sql(f"SET LOCAL lock_timeout = {int(self.wait * 1000)}")
                yield writing

    @contextmanager
    def alone(self) -> Iterator[Connection]:
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
        from sqlalchemy import text

        with self.write() as connection:
            if not self.is_sqlite:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATING})")
            columns = "part VARCHAR(40) PRIMARY KEY, version INTEGER NOT NULL"
            connection.exec_driver_sql(f"CREATE TABLE IF NOT EXISTS rankbudget_schema ({columns})")
            find = text("SELECT version FROM rankbudget_schema WHERE part = :part")
            known = connection.execute(find, {"part": part}).scalar()
            done = known or 0
            if done > len(migrations):
                msg = (
                    f"the tables of {part} in {self.shown} must have version {len(migrations)} or lower (got "
                    f"{done}): a newer version of rankbudget wrote them. Upgrade rankbudget."
                )
                raise StoreError(msg)
            for step in migrations[done:]:
                step(connection)
            if done < len(migrations):
                insert = "INSERT INTO rankbudget_schema (part, version) VALUES (:part, :version)"
                update = "UPDATE rankbudget_schema SET version = :version WHERE part = :part"
                row = {"part": part, "version": len(migrations)}
                connection.execute(text(insert if known is None else update), row)

    def close(self) -> None:
        """Closes its connections; the next use opens new ones."""
        self.engine.dispose()

    def _connected(self) -> Connection:
        if os.getpid() != self._process:  # a forked process must not use its parent's connections
            self.engine.dispose(close=False)
            self._process = os.getpid()
        return self.engine.connect()

    def _begin_sqlite(self, connection: Connection) -> None:
        """Begins a transaction; a writer's takes the lock at once, as one taken later cannot wait for it."""
        driver: Any = connection.connection.dbapi_connection
        if driver.isolation_level is not None:  # a new connection
            driver.isolation_level = None  # transactions begin here, not where the driver guesses
            for pragma in (f"busy_timeout = {int(self.wait * 1000)}", *_PRAGMAS):
                driver.execute(f"PRAGMA {pragma}")
        begins = connection.get_execution_options().get("rankbudget_begins", "BEGIN")
        if begins:
            connection.exec_driver_sql(begins)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Raises what the database or its driver refuses as errors of ours that say what to do."""
        from sqlalchemy.exc import DBAPIError, IntegrityError

        try:
            yield
        except IntegrityError:
            raise
        except DBAPIError as error:
            raise StoreError(_explained(str(error.orig), self.shown, self.wait)) from error
        except (OSError, _driver_error()) as error:  # a pragma is run by the driver itself
            raise StoreError(_explained(str(error), self.shown, self.wait)) from error


_REMEDIES = (
    (("locked", "busy", "lock timeout"), "Another writer held it for more than {wait:g} seconds: try again."),
    (("is full", "no space"), "Nothing of this write was kept. Make room on the disk and try again."),
    (
        ("readonly", "read-only", "unable to open"),
        "Check the path, and who may write the file and its folder.",
    ),
    (
        ("malformed", "not a database", "corrupt"),
        "The file is damaged: restore a backup, or use sqlite3's .recover.",
    ),
    (("connection", "connect"), "Check that the server runs and that the URL is right."),
)


def _explained(said: str, shown: str, wait: float) -> str:
    low = said.lower()
    remedy = next((text for words, text in _REMEDIES if any(word in low for word in words)), "")
    return f"the database {shown} failed: {said.strip()[:400]}. {remedy.format(wait=wait)}".rstrip()


def _driver_error() -> type[Exception]:
    import sqlite3

    return sqlite3.Error


def _reopened(url: str, wait: float) -> Database:
    return Database(url, wait=wait)


def _engine(place: Any) -> Engine:
    try:
        from sqlalchemy import Engine, create_engine, make_url
        from sqlalchemy.exc import ArgumentError, NoSuchModuleError
        from sqlalchemy.pool import StaticPool
    except ImportError as error:
        msg = 'a store needs SQLAlchemy, which is not installed: pip install "rankbudget[sql]"'
        raise CounterUnavailableError(msg) from error
    if isinstance(place, Engine):
        return _known(place)
    try:
        url = make_url(_url_of(place))
        if url.drivername == "postgresql":
            url = url.set(drivername="postgresql+psycopg")
        if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
            # A database in memory lives as long as its one connection.
            return create_engine(url, poolclass=StaticPool, connect_args={"check_same_thread": False})
        return _known(create_engine(url))
    except (ArgumentError, NoSuchModuleError) as error:
        msg = f"place must be a path or a database URL (got {place!r:.200}): {error}"
        raise StoreError(msg) from error
    except ImportError as error:
        msg = f'the driver of {place!r:.200} is not installed ({error}): pip install "rankbudget[postgres]"'
        raise CounterUnavailableError(msg) from error


def _known(engine: Engine) -> Engine:
    if engine.dialect.name not in {"sqlite", "postgresql"}:
        msg = f"place must be a SQLite or PostgreSQL database (got {engine.dialect.name})"
        raise StoreError(msg)
    return engine


def _url_of(place: Any) -> str:
    if isinstance(place, str) and "://" in place:
        return place
    if not isinstance(place, (str, os.PathLike)) or not os.fspath(place):
        msg = f"place must be a path, a database URL or a SQLAlchemy engine (got {place!r:.200})"
        raise StoreError(msg)
    return f"sqlite:///{os.fsdecode(os.fspath(place))}"
