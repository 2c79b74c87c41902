"""LlamaIndex's SQL chat stores, which tasks and threads may use at the same time, and as plain data."""
# ruff: noqa: SLF001 - a store keeps its engine and its table nowhere else

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any
from weakref import WeakKeyDictionary

from llama_index.core.async_utils import asyncio_run
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore
from sqlalchemy import Engine, MetaData, String, cast, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from rankbudget.adapters import with_clear_ids

from ._codec import CODEC
from ._handed import Rows

_OPENING = threading.Lock()
_LOOPS: dict[int, asyncio.AbstractEventLoop] = {}
_JSON_AS_WRITTEN = ("sqlite", "postgresql")
"""Databases that return a JSON value, cast to a text, as it was written."""
_CALL, _OLDER = '"tool_call_id"', '"tool_calls"'
_CALL_ID = re.compile(r'"tool_call_id":\s*(null|"(?:[^"\\]|\\.)*")')
_IS_RESULT = re.compile(r'"role":\s*"tool"')
_MAY_CALL = re.compile(f"{_CALL}|{_OLDER}|{_IS_RESULT.pattern}")
_TURNS: WeakKeyDictionary[Engine, asyncio.Lock] = WeakKeyDictionary()


async def rows_of(store: AsyncDBChatStore, key: str, status: MessageStatus, *, by_name: bool) -> Rows:
    """Returns messages of a chat store, each parsed when it is asked for where the store's kind is known.

    A subclass that reads otherwise, as one that redacts, is asked itself. Each call has an id of its own,
    unless results are told to a client `by_name`.
    """
    kind: Any = type(store)
    if isinstance(store, SQLAlchemyChatStore) and kind.get_messages is SQLAlchemyChatStore.get_messages:
        dialect = _engine_of(store).dialect
        if dialect.name in _JSON_AS_WRITTEN:
            texts = await ask(store, _texts_of, key, status)
            read = getattr(dialect, "_json_deserializer", None) or json.loads

            def make(row: tuple[int, str]) -> ChatMessage:
                return ChatMessage.model_validate(read(row[1]))

            copies = {} if by_name or _have_ids(texts) else _with_ids(texts, make)
            sent = (lambda row: copies.get(row[0]) or make(row)) if copies else None
            return Rows(list(enumerate(texts)), texts, make, sent)
    elif hasattr(kind, "_rows") and kind.get_messages.__module__ == kind._rows.__module__:
        found: Rows = await kind._rows(store, key, status, by_name=by_name)
        return found
    messages = list(await ask(store, "get_messages", key, status=status))
    clear = messages if by_name else with_clear_ids(CODEC, messages)
    rows = list(zip(messages, clear, strict=True))
    return Rows(rows, CODEC.fingerprints(messages), itemgetter(0), itemgetter(1))


def _have_ids(texts: Sequence[str]) -> bool:
    """Returns whether all calls have ids, none twice, and results theirs, as far as the JSON shows it."""
    known = set[str]()
    for text in texts:
        found = _CALL_ID.findall(text) if _CALL in text else ()
        if found and _IS_RESULT.search(text):
            if not known.issuperset(found):
                return False
        elif _OLDER in text or "null" in found or len(known | {*found}) < len(known) + len(found):
            return False
        known.update(found)
    return True


def _with_ids(texts: Sequence[str], make: Callable[[tuple[int, str]], ChatMessage]) -> dict[int, ChatMessage]:
    """Returns copies, by position, of messages whose calls need ids; only calls and results are parsed."""
    other = ChatMessage()
    said = [make((at, text)) if _MAY_CALL.search(text) else other for at, text in enumerate(texts)]
    clear = with_clear_ids(CODEC, said)
    return {at: new for at, (old, new) in enumerate(zip(said, clear, strict=True)) if new is not old}


async def _texts_of(store: SQLAlchemyChatStore, key: str, status: MessageStatus) -> list[str]:
    table: Any = store._table
    wanted = (table.c.key == key) & (table.c.status == status.value)
    query = select(cast(table.c.data, String)).where(wanted).order_by(table.c.timestamp, table.c.id)
    factory: Any = store._async_session_factory
    async with factory() as session:
        return list((await session.execute(query)).scalars())


async def ask(store: AsyncDBChatStore, method: Any, *args: Any, **options: Any) -> Any:
    """Calls a chat store's method of that name, or a function of the store."""
    call = partial(method, store) if callable(method) else getattr(store, method)
    if not isinstance(store, SQLAlchemyChatStore):
        return await call(*args, **options)
    engine = _engine_of(store)

    async def asked() -> Any:
        if store._table is None:
            await _make_table(store)
        return await call(*args, **options)

    if not _is_sqlite(engine):
        return await asked()
    done = asyncio.run_coroutine_threadsafe(_alone(engine, asked), _loop(os.getpid()))
    return await asyncio.shield(asyncio.wrap_future(done))


async def _alone(engine: AsyncEngine, call: Callable[[], Awaitable[Any]]) -> Any:
    # All share the one connection of a database in memory: one that only reads rolls back what another has
    # written. A connection waits for the event loop that uses it; no blocking call holds up this one.
    async with _TURNS.setdefault(engine.sync_engine, asyncio.Lock()):
        return await call()


async def _make_table(store: SQLAlchemyChatStore) -> None:
    """Makes the table of a store, which itself lets a second task go on before it is made."""
    try:
        twin = await _with_table(store)
    except DBAPIError:  # another store, thread or process made it between its look and its own making
        twin = await _with_table(store)
    store._async_session_factory = twin._async_session_factory
    store._table, store._db_data = twin._table, twin._db_data


async def _with_table(store: SQLAlchemyChatStore) -> SQLAlchemyChatStore:
    twin = store.model_copy()
    twin._metadata = MetaData()
    await twin.count_messages("")
    return twin


def _engine_of(store: SQLAlchemyChatStore) -> AsyncEngine:
    with _OPENING:
        store._async_engine = store._async_engine or create_async_engine(store.async_database_uri)
        return store._async_engine


def _is_sqlite(engine: AsyncEngine) -> bool:
    return engine.url.get_backend_name() == "sqlite"


def _loop(process: int) -> asyncio.AbstractEventLoop:
    """Returns the one event loop of a process that uses its databases; a forked process has no threads."""
    with _OPENING:  # of threads that come first at the same time, each would make a loop of its own
        if process not in _LOOPS:
            _LOOPS[process] = asyncio.new_event_loop()
            run = _LOOPS[process].run_forever
            threading.Thread(target=run, name="rankbudget-sqlite", daemon=True).start()
        return _LOOPS[process]


def database_of(store: AsyncDBChatStore, session_id: str) -> dict[str, Any] | None:
    """Returns where a database is, with the rows of one that lives in this process; None for other stores."""
    if not isinstance(store, SQLAlchemyChatStore):
        return None
    engine = _engine_of(store)
    address = engine.url.render_as_string(hide_password=False)
    place = {"table_name": store.table_name, "async_database_uri": address, "db_schema": store.db_schema}
    if not _is_sqlite(engine) or engine.url.database not in (None, "", ":memory:"):
        return place
    rows = asyncio_run(ask(store, "_dump_db_data"))
    return {**place, "db_data": [row for row in rows if row["key"] == session_id]}


def address_of(store: AsyncDBChatStore, session_id: str) -> dict[str, Any] | None:
    """Returns the same of a `StoredAsyncChatStore`, too; None for one that lives in this process."""
    from .stored_chat import StoredAsyncChatStore

    if not isinstance(store, StoredAsyncChatStore):
        return database_of(store, session_id)
    from rankbudget.memory.engine import in_memory

    chats = store.chats
    return None if in_memory(chats._store.database.engine.url) else {"chats": chats.model_dump(mode="json")}


def opened(values: dict[str, Any]) -> dict[str, Any]:
    """Returns a part's arguments with the store that `address_of` wrote, unless they have another."""
    database = values.pop("database", None)
    if database is None or "sql_store" in values:
        return values
    if "chats" in database:
        from .stored_chat import StoredAsyncChatStore, StoredChatStore

        return {**values, "sql_store": StoredAsyncChatStore(chats=StoredChatStore(**database["chats"]))}
    return {**values, "sql_store": SQLAlchemyChatStore(**database)}
