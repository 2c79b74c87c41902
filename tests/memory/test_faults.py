"""What goes wrong with files, disks, servers and processes is an error that says what to do, or is repaired."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sqlite3
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankbudget import Scope
from rankbudget.errors import BudgetConfigError, CounterUnavailableError, StoreError
from rankbudget.memory import Memory, MemoryStore
from rankbudget.testing.conformance._agreement import disagreements

ANN = Scope(user="ann")
Opener = Callable[..., MemoryStore]


def forks(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test that forks, of which newer Pythons warn."""
    test = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")(test)
    return pytest.mark.skipif(not hasattr(os, "fork"), reason="needs forks")(test)


@pytest.fixture
def filled(sqlite_file: Path) -> Path:
    """A closed file with some memories."""
    store = MemoryStore(sqlite_file)
    for i in range(30):
        store.put(f"Text {i}. " * 20, scope=ANN, key=f"k{i}")
    store.close()
    return sqlite_file


# ---- files ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "damage", [lambda raw: b"no database " * 900, lambda raw: raw[:5000], lambda raw: raw[:100]]
)
def test_a_damaged_file(filled: Path, open_store: Opener, damage: Callable[[bytes], bytes]) -> None:
    """A file that is no database, or cut, is named as damaged, with what restores it."""
    filled.write_bytes(damage(filled.read_bytes()))
    with pytest.raises(StoreError, match=r"memories\.db failed.*damaged: restore a backup"):
        open_store(filled).put("More.", scope=ANN)


def test_a_damaged_page(filled: Path, open_store: Opener) -> None:
    """Overwritten pages are an error of the store, whatever is asked; nothing else escapes."""
    raw = bytearray(filled.read_bytes())
    for start in range(4096 * 2, len(raw), 4096):
        raw[start : start + 600] = bytes([start % 251]) * 600
    filled.write_bytes(raw)
    for ask in (
        lambda store: store.get("k1", scope=ANN),
        lambda store: store.search("text", scope=ANN),
        lambda store: store.put("More.", scope=ANN),
        lambda store: store.versions("k2", scope=ANN),
    ):
        with pytest.raises(StoreError, match=r"damaged|readable"):
            ask(open_store(filled))


def test_a_damaged_row(filled: Path, open_store: Opener) -> None:
    """A row that cannot be read is named, and can be deleted."""
    with sqlite3.connect(filled) as raw:
        raw.execute("UPDATE rankbudget_memories SET sources = '[\"m' WHERE name = '=k3'")
    raw.close()
    store = open_store(filled)
    with pytest.raises(StoreError, match=r"row of memory '\w+' must be readable.*Delete it"):
        store.get("k3", scope=ANN)
    assert store.delete("k3", scope=ANN) == 1
    assert len(store.search("text", scope=ANN)) == 29


def test_a_full_disk(sqlite_file: Path, open_store: Opener) -> None:
    """A write for which there is no room is refused whole; what was there stays, and room heals it."""
    store = open_store(sqlite_file)
    store.put("Small.", scope=ANN, key="k")
    with store.backend.database.read() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StoreError, match=r"full.*Nothing of this write was kept. Make room"):
        store.put("Large. " * 10_000, scope=ANN, key="k")
    assert store.get("k", scope=ANN).text == "Small."
    assert disagreements(store.backend.database) == []
    with store.backend.database.read() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1073741823")
    assert store.put("Large. " * 10_000, scope=ANN, key="k").version == 1


def _limited(store: MemoryStore, told: Any) -> None:
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    kept = 0
    try:
        for i in range(10_000):
            store.put(f"Text {i}. " * 100, scope=ANN, key=f"k{i}")
            kept += 1
    except StoreError as error:
        told.send((kept, str(error)))


@forks
def test_a_file_that_may_not_grow(sqlite_file: Path, open_store: Opener) -> None:
    """Where the system refuses to let a file grow, all that was acknowledged is there at the next start."""
    store = open_store(sqlite_file)
    reader, writer = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_limited, args=(store, writer))
    process.start()
    kept, said = reader.recv()
    process.join()
    assert "database" in said
    assert "Make room" in said
    assert [i for i in range(kept) if store.get(f"k{i}", scope=ANN) is None] == []
    assert store.get(f"k{kept}", scope=ANN) is None
    assert disagreements(store.backend.database) == []


def test_a_file_that_may_only_be_read(filled: Path, open_store: Opener) -> None:
    """A store opens read-only, answers, and refuses to write by name."""
    store = open_store(f"sqlite:///file:{filled}?mode=ro&uri=true")
    assert store.get("k1", scope=ANN).text.startswith("Text 1.")
    assert len(store.search("text", scope=ANN)) == 30
    for write in (
        lambda: store.put("More.", scope=ANN),
        lambda: store.delete("k1", scope=ANN),
        lambda: store.forget(ANN),
    ):
        with pytest.raises(StoreError, match=r"readonly.*who may write the file and its folder"):
            write()


@forks
def test_a_folder_that_may_only_be_read(open_store: Opener) -> None:
    """Where neither file nor folder may be written, a store says who must be allowed to."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "memories.db")
        store.put("Here.", scope=ANN, key="k")
        store.close()
        (Path(folder) / "memories.db").chmod(0o444)
        Path(folder).chmod(0o555)

        def write() -> Memory:
            if os.getuid() == 0:
                os.setuid(65534)  # root may write everywhere, nobody may not
            return store.put("More.", scope=ANN)

        assert "who may write the file and its folder" in str(in_a_fork(write))
        Path(folder).chmod(0o755)


def test_a_place_that_cannot_be_opened(tmp_path: Path, open_store: Opener) -> None:
    """A folder, and a file in a folder that is missing, say to check the path."""
    for place in (tmp_path, tmp_path / "missing" / "memories.db"):
        with pytest.raises(StoreError, match=r"Check the path"):
            open_store(place)


def test_names_of_files(tmp_path: Path, open_store: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any name is a file of that name, and stays that file when the process changes its folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("a?mode=memory&b", "50%20.db", "a#b", "été.db"):
        open_store(name).put("Here.", scope=ANN, key="k")
        assert (tmp_path / name).exists()
    store = open_store("plain.db")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    store.close()
    store.put("Here.", scope=ANN, key="k")
    assert not (tmp_path / "other" / "plain.db").exists()


@pytest.mark.parametrize(
    "place", ["mysql://u:secret@h/d", "nonsense://u:secret@h", "http://[", "", None, 5, object()]
)
def test_a_place_that_is_none(place: Any) -> None:
    """What is no place is a configuration error that shows no password."""
    with pytest.raises((BudgetConfigError, CounterUnavailableError)) as raised:
        MemoryStore(place)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("place", ["mysql://u:secret@h/d", "oracle://u:secret@h/d"])
def test_a_database_that_is_no_store(place: Any) -> None:
    """An unsupported database is named as one, whether its driver is installed or not."""
    with pytest.raises(BudgetConfigError, match="must be a SQLite or PostgreSQL database"):
        MemoryStore(place)


@pytest.mark.parametrize("wait", [0, -1, float("nan"), "soon", None])
def test_a_wait_that_is_none(wait: Any) -> None:
    """A time to wait must be above 0."""
    with pytest.raises(BudgetConfigError, match="wait must be a number of seconds above 0"):
        MemoryStore(":memory:", wait=wait)


# ---- others at the same database ----------------------------------------------------------------------------------------
def test_a_lock_that_is_held_too_long(shared_place: Any, open_store: Opener) -> None:
    """A write that waits longer than `wait` says so; a read does not wait; afterwards all goes on."""
    holder, store = open_store(shared_place), open_store(shared_place, wait=0.3)
    store.put("Before.", scope=ANN, key="k")
    with holder.backend.database.write() as connection:
        holder.backend.database.one_writer(connection, "memories of [('owner', '=ann'), ('project', '')]")
        with pytest.raises(StoreError, match=r"more than 0\.3 seconds: try again"):
            store.put("Meanwhile.", scope=ANN, key="k")
        assert store.get("k", scope=ANN).text == "Before."
    assert store.put("After.", scope=ANN, key="k").text == "After."


def test_more_threads_than_connections(sqlite_file: Path, open_store: Opener) -> None:
    """When no connection gets free in time, the error says so."""
    store = open_store(":memory:", wait=0.1)
    with (
        store.backend.database.read(),
        pytest.raises(StoreError, match=r"connections were in use for 0\.1 seconds"),
    ):
        store.get("k", scope=ANN)
    assert store.get("k", scope=ANN) is None


def test_openers_at_once(sqlite_file: Path, open_store: Opener) -> None:
    """Threads that open the same new file at once all get it."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        stores = list(pool.map(lambda _: open_store(sqlite_file), range(8)))
    stores[0].put("Here.", scope=ANN, key="k")
    assert all(store.get("k", scope=ANN) is not None for store in stores)


# ---- servers --------------------------------------------------------------------------------------------------------------
def test_a_server_that_is_down(tmp_path: Path, open_store: Opener) -> None:
    """A server that does not answer is named, without the password."""
    with pytest.raises(StoreError, match="Check that the server runs") as raised:
        open_store(f"postgresql://user:secret@/d?host={tmp_path}")
    assert "secret" not in str(raised.value)


def test_a_connection_that_breaks(postgres: str, open_store: Opener) -> None:
    """A write whose connection is ended keeps nothing and says what is unknown; the next one goes on."""
    store, admin = open_store(postgres), open_store(postgres)
    store.put("Before.", scope=ANN, key="k")

    def end_it(connection: Any) -> None:
        found = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar()
        with admin.backend.database.read() as other:
            other.exec_driver_sql(f"SELECT pg_terminate_backend({found}, 5000)")

    def broken() -> None:
        with store.backend.database.write() as connection:
            connection.exec_driver_sql("DELETE FROM rankbudget_memories")
            end_it(connection)
            connection.exec_driver_sql("SELECT 1")

    with pytest.raises(StoreError, match=r"broke. Whether the last write was kept is unknown"):
        broken()
    assert store.get("k", scope=ANN).text == "Before."
    with admin.backend.database.read() as other:  # one that is idle in the pool
        mine = "application_name = '' AND pid <> pg_backend_pid() AND state = 'idle'"
        other.exec_driver_sql(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {mine}")
    assert store.get("k", scope=ANN).text == "Before."


# ---- processes --------------------------------------------------------------------------------------------------------------
def in_a_fork(work: Callable[[], Any]) -> Any:
    """What a forked process returns, or the error that it raises."""
    reader, writer = multiprocessing.Pipe(duplex=False)

    def run() -> None:
        try:
            writer.send(work())
        except StoreError as error:
            writer.send(error)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    found = reader.recv()
    process.join()
    assert process.exitcode == 0
    return found


@forks
def test_a_fork_after_use(shared_place: Any, open_store: Opener) -> None:
    """A forked process writes on, also when its parent closes the store meanwhile; both see all."""
    store = open_store(shared_place)
    store.put("Parent.", scope=ANN, key="parent")
    go, opened = multiprocessing.Pipe(duplex=False), multiprocessing.Pipe(duplex=False)

    def write() -> int:
        store.put("Child, before.", scope=ANN, key="before")
        opened[1].send("opened")
        go[0].recv()
        store.put("Child, after.", scope=ANN, key="after")
        return len(store.search("child", scope=ANN))

    def close() -> None:
        opened[0].recv()
        store.close()
        go[1].send("closed")

    closing = threading.Timer(0, close)
    closing.start()
    assert in_a_fork(write) == 3
    closing.join()
    assert [store.get(key, scope=ANN) is not None for key in ("parent", "before", "after")] == [True] * 3


@forks
def test_a_fork_in_the_middle_of_a_write(sqlite_file: Path, open_store: Opener) -> None:
    """A process forked while another thread uses the file refuses it, and says how to start processes."""
    store = open_store(sqlite_file)
    store.put("Parent.", scope=ANN, key="k")
    with store.backend.database.write():
        for used in (lambda: store.get("k", scope=ANN), lambda: MemoryStore(sqlite_file)):
            assert "'spawn' or 'forkserver'" in str(in_a_fork(used))
    assert in_a_fork(lambda: store.get("k", scope=ANN).text) == "Parent."


@forks
def test_a_fork_of_a_database_in_memory(open_store: Opener) -> None:
    """A database in memory stays in its process: a fork and a pickle are refused, not silently emptied."""
    store = open_store(":memory:")
    store.put("Parent.", scope=ANN, key="k")
    assert "is in memory of the process that opened it" in str(in_a_fork(lambda: store.get("k", scope=ANN)))
    with pytest.raises(StoreError, match="must stay in its process"):
        pickle.dumps(store)
    assert store.get("k", scope=ANN).text == "Parent."


def test_a_pickled_store(shared_place: Any, open_store: Opener) -> None:
    """A pickled store is the same database elsewhere."""
    store = open_store(shared_place, least_confidence=0.4)
    store.put("Here.", scope=ANN, key="k")
    copy = pickle.loads(pickle.dumps(store))
    assert (copy.get("k", scope=ANN), copy.least_confidence) == (store.get("k", scope=ANN), 0.4)
    copy.close()
