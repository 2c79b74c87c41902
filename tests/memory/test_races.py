"""Many threads and processes write at once: nothing is lost, nothing is there twice, every wait ends."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rankbudget import Scope
from rankbudget.errors import StoreConflictError, StoreError
from rankbudget.memory import MemoryStore
from rankbudget.testing.conformance._agreement import disagreements
from rankbudget.testing.conformance._processes import add_times, all_processes, put_same

ANN = Scope(user="ann")
WRITERS = 8


def at_once(work: Callable[[int], Any], times: int = WRITERS) -> list[Any]:
    """The results of as many threads."""
    with ThreadPoolExecutor(times) as pool:
        return list(pool.map(work, range(times)))


@pytest.mark.slow
def test_threads_change_one_number(store: MemoryStore) -> None:
    """8 threads that each read, add one and write 50 times leave 400."""
    store.put("0 changes", scope=ANN, key="n")
    at_once(lambda _: add_times(store, ANN, 50))
    found = store.get("n", scope=ANN)
    assert (found.text, found.version) == ("400 changes", 401)


@pytest.mark.slow
def test_processes_change_one_number(shared_store: MemoryStore) -> None:
    """8 processes that each read, add one and write 50 times leave 400."""
    shared_store.put("0 changes", scope=ANN, key="n")
    all_processes(add_times, [(shared_store, ANN, 50)] * WRITERS)
    found = shared_store.get("n", scope=ANN)
    assert (found.text, found.version) == ("400 changes", 401)


def test_one_row_for_one_text(store: MemoryStore) -> None:
    """Threads that put the same texts, some with a key, make one row of each, with all their sources."""

    def write(writer: int) -> None:
        for i in range(10):
            store.put(f"Text {i}.", scope=ANN, sources=(f"m{writer}",), key=f"k{i}" if writer % 2 else None)

    at_once(write)
    found = store.search("text", scope=ANN, limit=1000)
    assert sorted(memory.text for memory in found) == [f"Text {i}." for i in range(10)]
    assert {frozenset(memory.sources) for memory in found} == {frozenset(f"m{w}" for w in range(WRITERS))}
    assert sorted(memory.key for memory in found) == [f"k{i}" for i in range(10)]


@pytest.mark.slow
def test_processes_put_the_same(shared_store: MemoryStore) -> None:
    """Processes that put one text, and others under one key, leave one row of it, and one that holds."""
    all_processes(put_same, [(shared_store, ANN, 10)] * 4)
    found = shared_store.search("text", scope=ANN, limit=1000)
    assert sorted(memory.text for memory in found) == [
        "All say this.",
        shared_store.get("last", scope=ANN).text,
    ]
    assert disagreements(shared_store.backend.database) == []


def test_one_memory_supersedes_another(store: MemoryStore) -> None:
    """Of threads that supersede the same memory one succeeds; the others hear that it no longer holds."""
    old = store.put("Old.", scope=ANN)

    def supersede(writer: int) -> str | None:
        try:
            return store.put(f"New {writer}.", scope=ANN, supersedes=old.id).id
        except StoreError:
            return None

    made = [found for found in at_once(supersede) if found]
    assert len(made) == 1
    assert store.versions(old.id, scope=ANN)[0].replaced_by == made[0]


def test_puts_and_replacements_under_one_key(store: MemoryStore) -> None:
    """A replacement that was prepared before another text took the key is refused: one memory holds."""
    store.put("Start.", scope=ANN, key="k")

    def write(writer: int) -> None:
        for i in range(10):
            if writer % 2:
                store.put(f"Put {writer} {i}.", scope=ANN, key="k")
            else:
                store.update("k", lambda memory: f"{memory.text[:40]} {writer}{i}", scope=ANN)  # noqa: B023

    at_once(write)
    assert len(store.search("put", scope=ANN, limit=1000)) == 1
    versions = store.versions("k", scope=ANN)
    assert [one.valid_to for one in versions[:-1]] == [one.valid_from for one in versions[1:]]


def test_forgetting_beside_writers(shared_store: MemoryStore) -> None:
    """Forgetting and deleting while others put and change ends no writer; a conflict is all that one sees."""
    store = shared_store

    def write(writer: int) -> None:
        for i in range(8):
            store.put(f"Text {i} of {writer}.", scope=ANN, key=f"k{i}", supersedes=None)
            try:
                store.update(f"k{i}", lambda memory: memory.text + " More.", scope=ANN)
            except StoreConflictError:
                raise
            except StoreError as error:
                assert "name must be" in str(error)  # noqa: PT017 - it was forgotten meanwhile

    def remove(writer: int) -> None:
        for i in range(8):
            store.forget(ANN) if i % 4 == 0 else store.delete(f"k{i}", scope=ANN)

    at_once(lambda writer: remove(writer) if writer < 2 else write(writer))
    store.forget(ANN)
    assert store.search("text", scope=ANN) == []


@pytest.mark.slow
def test_threads_and_tasks_at_once(store: MemoryStore) -> None:
    """More tasks and threads than connections share one store: all they put is there."""
    import asyncio

    async def tasks(writer: int) -> None:
        puts = (store.aput(f"Task {writer} {i}.", scope=ANN, key=f"t{writer}-{i}") for i in range(10))
        await asyncio.gather(*puts)
        assert await store.aget(f"t{writer}-0", scope=ANN) is not None

    at_once(lambda writer: asyncio.run(tasks(writer)))
    assert len(store.search("task", scope=ANN, limit=1000)) == 80
