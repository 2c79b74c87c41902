"""Tables of every earlier version are brought to today's, by one process, whole or not at all."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import event

from rankbudget import Scope
from rankbudget.errors import StoreError
from rankbudget.memory import MemoryStore
from rankbudget.memory.database import Database

ANN = Scope(user="ann")


def _makes(connection: Any) -> None:
    connection.exec_driver_sql("CREATE TABLE notes (text VARCHAR(20) NOT NULL)")
    connection.exec_driver_sql("INSERT INTO notes VALUES ('kept')")


def _widens(connection: Any) -> None:
    connection.exec_driver_sql("ALTER TABLE notes ADD COLUMN mood VARCHAR(20) DEFAULT 'calm'")


def _fails(connection: Any) -> None:
    connection.exec_driver_sql("UPDATE notes SET text = 'spoiled'")
    connection.exec_driver_sql("ALTER TABLE notes ADD COLUMN mood VARCHAR(20)")
    connection.exec_driver_sql("SELECT x FROM nowhere")


@pytest.fixture
def database(place: Any) -> Any:
    opened = Database(place)
    yield opened
    opened.close()


def rows(database: Database) -> list[tuple[Any, ...]]:
    with database.read() as connection:
        return [tuple(row) for row in connection.exec_driver_sql("SELECT * FROM notes")]


def test_each_step_runs_once(database: Database) -> None:
    """From any earlier version the missing steps are run, and none twice."""
    for steps, found in ((1, ("kept",)), (1, ("kept",)), (2, ("kept", "calm")), (2, ("kept", "calm"))):
        database.migrate("notes", (_makes, _widens)[:steps])
        assert rows(database) == [found]
    database.migrate("others", ())
    assert rows(database) == [("kept", "calm")]


def test_a_newer_version_is_refused(database: Database) -> None:
    """Tables that a newer library wrote are refused and left alone."""
    database.migrate("notes", (_makes, _widens))
    with pytest.raises(StoreError, match=r"version 1 or lower \(got 2\).*Upgrade rankbudget"):
        database.migrate("notes", (_makes,))
    assert rows(database) == [("kept", "calm")]


def test_a_step_that_fails_leaves_nothing(database: Database) -> None:
    """A step that fails half way changes neither tables nor version; the next try runs it whole."""
    database.migrate("notes", (_makes,))
    with pytest.raises(StoreError, match="nowhere"):
        database.migrate("notes", (_makes, _fails))
    assert rows(database) == [("kept",)]
    database.migrate("notes", (_makes, _widens))
    assert rows(database) == [("kept", "calm")]


def test_many_openers_migrate_once(shared_place: Any) -> None:
    """Of openers at once one runs the steps; all see today's tables."""

    def opened(_: int) -> list[tuple[Any, ...]]:
        database = Database(shared_place)
        try:
            database.migrate("notes", (_makes, _widens))
            return rows(database)
        finally:
            database.close()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(opened, range(8))) == [[("kept", "calm")]] * 8


def test_todays_memories_are_of_todays_version(place: Any, open_store: Callable[..., MemoryStore]) -> None:
    """A store that a newer library wrote is refused by name when it opens."""
    database = open_store(place).backend.database
    with database.write() as connection:
        connection.exec_driver_sql("UPDATE rankbudget_schema SET version = 99 WHERE part = 'memories'")
    with pytest.raises(StoreError, match=re.escape("newer version of rankbudget")):
        open_store(database.engine)


def test_a_lookup_reads_no_other_scope(place: Any, open_store: Callable[..., MemoryStore]) -> None:
    """Reading by key, and the newest of a scope, use an index: they cost the same beside a million others."""
    store = open_store(place)
    if not store.backend.database.is_sqlite:
        return  # its planner reads a table of a few rows whole
    asked: list[tuple[str, Any]] = []

    @event.listens_for(store.backend.database.engine, "before_cursor_execute")
    def note(_: Any, __: Any, statement: str, given: Any, *rest: Any) -> None:
        if statement.startswith("SELECT rankbudget_memories"):
            asked.append((statement, given))

    store.get("k", scope=ANN)
    store.search("", scope=ANN)
    store.versions("k", scope=ANN)
    assert len(asked) >= 4
    with store.backend.database.read() as connection:
        for statement, given in asked:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given)
            told = [row[-1] for row in plan]
            assert not any(re.match(r"SCAN rankbudget_memories", line) for line in told), told


FIRST = """
import sys, threading
from rankbudget import Scope
from rankbudget.memory import HistoryStore, MemoryStore
sys.setswitchinterval(1e-6)
ready, failed = threading.Barrier(4), []

def use(number):
    ready.wait()
    try:
        scope = Scope(user=str(number))
        HistoryStore(":memory:").thread("t", scope=scope).append([{"role": "user", "content": "hi"}])
        MemoryStore(":memory:", embed=False).put("Hi.", scope=scope)
    except Exception as error:
        failed.append(repr(error))

users = [threading.Thread(target=use, args=(n,)) for n in range(4)]
[user.start() for user in users]
[user.join() for user in users]
print(failed)
"""


@pytest.mark.slow
def test_threads_may_open_the_first_store_of_a_process_at_once() -> None:
    """Tables are described once, whoever comes first."""
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", FIRST], capture_output=True, text=True, check=False
        )
        assert done.stdout == "[]\n", done.stderr
