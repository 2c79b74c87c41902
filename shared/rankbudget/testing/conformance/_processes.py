"""Processes that write to one store at once, or are killed while they do."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...memory import MemoryStore
    from ...segment import Scope

_LONGEST = 120.0
"""Seconds after which a process hangs."""


def _context() -> Any:
    """Returns how processes start: not as forks of this one, which has threads and open databases."""
    known = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in known else "spawn")
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload([__name__, "rankbudget.memory.sql", "sqlalchemy.dialects.sqlite"])
    return context


def all_processes(work: Callable[..., None], arguments: Sequence[tuple[Any, ...]]) -> None:
    """Runs one process for each of the arguments, at once; each must end well."""
    started = [_context().Process(target=work, args=given) for given in arguments]
    for process in started:
        process.start()
    for process in started:
        process.join(_LONGEST)
        assert process.exitcode == 0, f"a writing process ended with {process.exitcode}"
        process.close()


def killed_writer(work: Callable[..., None], arguments: tuple[Any, ...], after: int) -> list[Any]:
    """Runs a process that reports what was kept, kills it after so many reports, and returns all of them."""
    reader, writer = _context().Pipe(duplex=False)
    process = _context().Process(target=work, args=(*arguments, writer))
    process.start()
    writer.close()
    told: list[Any] = []
    try:
        while len(told) < after and reader.poll(_LONGEST):
            told.append(reader.recv())
        process.kill()
        while reader.poll(_LONGEST):
            told.append(reader.recv())
    except EOFError:  # it is dead, and all that it said was read
        pass
    process.join(_LONGEST)
    process.close()
    reader.close()
    return told


def add_times(store: MemoryStore, scope: Scope, times: int) -> None:
    """Adds one to the number that the memory "n" begins with, so many times."""
    for _ in range(times):
        store.update("n", lambda memory: f"{int(memory.text.split()[0]) + 1} changes", scope=scope)


def put_same(store: MemoryStore, scope: Scope, times: int) -> None:
    """Puts the same texts, each under the same key, as the other processes do."""
    for i in range(times):
        store.put(f"Text {i}.", scope=scope, key="last")
        store.put("All say this.", scope=scope)


def put_times(store: MemoryStore, scope: Scope, prefix: str, told: Connection) -> None:
    """Puts memories without end, each under a key with the prefix, and prints each key that was kept."""
    for i in itertools.count():
        name = f"{prefix}{i}"
        store.put(f"Text {name}.", scope=scope, key=name)
        told.send(name)
