"""Messages in SQL databases that many tasks and threads use at once."""

from __future__ import annotations

import asyncio
import copy
import itertools
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore

from llamaindex_budget import BudgetMemory, _database
from tests.llamaindex.models import exchanges, say


def _databases(place: str, tmp_path: Any) -> list[Any]:
    """Returns the memories of two users in one database, or each in an own one."""
    options: dict[str, Any] = {"token_limit": 4000}
    if place == "own":
        return [BudgetMemory.from_defaults(session_id=user, **options) for user in ("ann", "bob")]
    address = f"sqlite+aiosqlite:///{tmp_path}/m.db" if "file" in place else "sqlite+aiosqlite:///:memory:"
    if place == "file of two stores":
        options["async_database_uri"] = address
        return [BudgetMemory.from_defaults(session_id=user, **options) for user in ("ann", "bob")]
    store = SQLAlchemyChatStore(table_name="m", async_database_uri=address)
    if place == "restored":
        options["chat_history"] = exchanges(1)
    return [
        BudgetMemory.from_defaults(session_id=user, chat_store=store, **options) for user in ("ann", "bob")
    ]


@pytest.mark.parametrize(
    ("place", "threads"),
    [
        *itertools.product(["own", "shared", "restored", "file", "file of two stores"], [False, True]),
        ("file of a server", False),
    ],
)
def test_messages_put_at_the_same_time_are_all_kept(
    place: str, threads: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First writes and reads of many tasks or threads at once: nothing is lost, each writer's order is kept."""
    if place == "file of a server":  # a database of another kind is used from the caller's own event loop
        monkeypatch.setattr(_database, "_is_sqlite", lambda _: False)
    memories = made = _databases(place, tmp_path)
    if place == "restored":
        memories = [copy.deepcopy(memory) for memory in made]
    before = 2 if place == "restored" else 0

    async def write(memory: Any, writer: int) -> None:
        for i in range(5):
            if writer == 5 and place in {"own", "shared"}:  # a blocking call, while other tasks write
                memory.put(say("user", f"{writer} {i}"))
            else:
                await memory.aput(say("user", f"{writer} {i}"))
            assert len(await memory.aget()) > i + before

    async def write_all() -> None:
        await asyncio.gather(*(write(memory, writer) for memory in memories for writer in range(6)))

    if threads:
        with ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(asyncio.run, write(m, writer)) for m in memories for writer in range(6)]
            for job in jobs:
                job.result()
    else:
        asyncio.run(write_all())
    for memory in memories:
        stored = [m.content or "" for m in memory.get_all()][before:]
        assert len(stored) == 30
        for writer in range(6):
            assert [text for text in stored if text.startswith(f"{writer} ")] == [
                f"{writer} {i}" for i in range(5)
            ]
    for memory in [*memories, *made]:
        asyncio.run(memory.sql_store._async_engine.dispose())  # the host closes no connection


async def test_a_first_write_that_is_cancelled_leaves_the_database_usable() -> None:
    """A request that timed out while the tables were made; the next one makes them."""
    memory = BudgetMemory.from_defaults(token_limit=4000)
    for steps in range(1, 12):
        first = asyncio.create_task(memory.aput(say("user", "late")))
        others = [asyncio.create_task(memory.aput(say("user", f"{steps} {i}"))) for i in range(2)]
        for _ in range(steps):
            await asyncio.sleep(0)
        first.cancel()
        others[0].cancel()
        await asyncio.wait([first, *others])
        assert not others[1].exception()
        assert f"{steps} 1" in [m.content for m in await memory.aget_all()]
        await memory.sql_store._async_engine.dispose()
        memory = BudgetMemory.from_defaults(token_limit=4000)


def test_threads_that_come_first_use_one_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that use a database first at the same time share the event loop that owns the connections."""
    made, together = [], threading.Barrier(8)
    new_event_loop = asyncio.new_event_loop

    def slowly() -> Any:
        time.sleep(0.05)  # a switch of threads at the worst moment
        made.append(new_event_loop())
        return made[-1]

    monkeypatch.setattr(asyncio, "new_event_loop", slowly)
    monkeypatch.setattr(_database, "_LOOPS", {})

    def first(_: int) -> Any:
        together.wait()
        return _database._loop(os.getpid())

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(first, range(8)))
    assert len(found) == len(made) == 1
    made[0].call_soon_threadsafe(made[0].stop)
    while made[0].is_running():
        time.sleep(0.01)
    made[0].close()
