"""Threads of a `HistoryStore` as LlamaIndex's chat stores."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.storage.chat_store import BaseChatStore
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus

from rankbudget import Scope
from rankbudget.adapters import check_options, typed_errors
from rankbudget.errors import BudgetConfigError, shown
from rankbudget.memory import HistoryStore, StoredThread, ThreadMessages

from ._handed import Rows
from ._options import by_name, check_part
from ._stored import BY_NAME, FORM

_NO_FIELDS = ("class_name", "scope", "store")
"""What a store takes beside its fields; LlamaIndex writes the class's name into plain data."""


class StoredChatStore(BaseChatStore):
    """Conversations in a database, which other hosts may have begun; a key is a thread's name.

    A `BudgetChatMemoryBuffer` reads only what fits of them. `set_messages` changes only what is another
    message than before; what it replaces stays `replaced` in its `thread`. It is plain data: place and scope.

    Args:
        place: path of a SQLite file, or a database URL.
        user: whose conversations they are; None for nobody's.
        project: the project they belong to; None for none.
        scope: both as a `Scope`, instead of `user` and `project`.
        store: the `HistoryStore` itself, instead of a place.

    Raises:
        BudgetConfigError: an option is wrong.

    Example:
        >>> store = HistoryStore(":memory:")
        >>> chats = StoredChatStore(store=store, user="ann")
        >>> chats.add_message("t1", ChatMessage("Where do ferns grow?"))
        >>> store.thread("t1", scope=Scope(user="ann")).messages()
        [{'role': 'user', 'content': 'Where do ferns grow?'}]
    """

    place: str = ""
    user: str | None = None
    project: str | None = None

    _store: HistoryStore = PrivateAttr()

    @by_name
    def __init__(self, **data: Any) -> None:
        _, scope, store = [data.pop(name, None) for name in _NO_FIELDS]
        check_part(type(self), data, beside=_NO_FIELDS)
        _check_alone(data, "scope", scope, Scope, ("user", "project"))
        _check_alone(data, "store", store, HistoryStore, ("place",))
        if scope is not None:
            data |= {"user": scope.user, "project": scope.project}
        if store is not None:
            data["place"] = store.database.engine.url.render_as_string(hide_password=False)
        with typed_errors():
            super().__init__(**data)
        self._store = HistoryStore(self.place) if store is None else store

    @classmethod
    def class_name(cls) -> str:
        """Returns the name under which LlamaIndex writes it."""
        return cls.__name__

    def __getstate__(self) -> dict[str, Any]:
        self._store.database.__reduce__()  # refuses a database in memory, which the base would leave out
        return super().__getstate__()

    def close(self) -> None:
        """Closes its connections; the next use opens new ones."""
        self._store.close()

    def thread(self, key: str) -> StoredThread:
        """Returns the conversation that `key` names."""
        return self._store.thread(key, scope=Scope(user=self.user, project=self.project), form=FORM)

    def conversation(self, key: str, tokens: int = 0, *, by_name: bool = False) -> ThreadMessages:
        """Returns what `key` names as it is now; about so many newest `tokens` are read at once.

        Each call has an id of its own, unless `by_name`: Google's older clients name a result by its id.
        """
        thread = self.thread(key)
        thread.form = BY_NAME if by_name else FORM
        return thread.conversation(tokens)

    def get_messages(self, key: str) -> list[ChatMessage]:
        """Returns all messages of a key, each an object of its own."""
        return self.thread(key).messages()

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Makes a conversation consist of these messages."""
        self.thread(key).replace(messages)

    def add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        """Adds a message at the end, or before position `idx`."""
        thread = self.thread(key)
        if idx is None:
            thread.append([message])
        else:
            thread.insert(idx, [message])

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Removes a conversation, its archived part too, and returns what it was, None for none."""
        return self.thread(key).remove() or None

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Removes one message and returns it; None where there is none."""
        found: ChatMessage | None = self.thread(key).delete(idx)
        return found

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Removes the last message and returns it; None where there is none."""
        return self.delete_message(key, -1)

    def get_keys(self) -> list[str]:
        """Returns the keys of all conversations of this scope."""
        return self._store.threads(scope=Scope(user=self.user, project=self.project))


class StoredAsyncChatStore(AsyncDBChatStore):
    """The same conversations for `Memory` and `BudgetMemory`, as `sql_store=`.

    Archived messages of a key are beside its conversation, and go with it.

    Args:
        place, user, project, scope, store: see `StoredChatStore`.
        chats: the `StoredChatStore` they are in, instead of these.

    Raises:
        BudgetConfigError: an option is wrong.

    Example:
        >>> chats = StoredAsyncChatStore(place=":memory:", user="ann")
        >>> asyncio.run(chats.add_message("t1", ChatMessage("Where do ferns grow?")))
        >>> asyncio.run(chats.count_messages("t1"))
        1
    """

    chats: StoredChatStore

    @by_name
    def __init__(self, **data: Any) -> None:
        own = sorted({*StoredChatStore.model_fields, *_NO_FIELDS})
        check_options(type(self).__name__, data, ["chats", *own])
        chats = data.get("chats")
        _check_alone(data, "chats", chats, (StoredChatStore, Mapping), own)
        with typed_errors():
            super().__init__(chats=StoredChatStore(**data) if chats is None else chats)

    async def get_messages(
        self,
        key: str,
        status: MessageStatus | None = MessageStatus.ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        """Returns the messages of a key, archived ones first, from `offset` on and at most `limit`."""
        thread = self._thread(key, status)
        found = await asyncio.to_thread(thread.messages, archived=status is None)
        start = offset or 0
        return found[start : None if limit is None else start + limit]

    async def _rows(self, key: str, status: MessageStatus, *, by_name: bool) -> Rows:
        """Returns what `get_messages` does, each message made when it is asked for."""
        rows = await asyncio.to_thread(self._thread(key, status)._rows)  # noqa: SLF001 - not public
        keys = [(row.form, row.role, row.name, row.neutral, row.host) for row in rows]
        return Rows(rows, keys, FORM.message, None if by_name else FORM.sent)

    async def count_messages(self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE) -> int:
        """Returns how many messages a key has; reads none."""
        return await asyncio.to_thread(self._thread(key, status).size, archived=status is None)

    async def add_message(
        self, key: str, message: ChatMessage, status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Adds a message at the end."""
        await self.add_messages(key, [message], status)

    async def add_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Adds messages at the end, all of them or none."""
        await asyncio.to_thread(self._thread(key, status).append, messages)

    async def set_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Makes a conversation consist of these messages."""
        await asyncio.to_thread(self._thread(key, status).replace, messages)

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Removes one message and returns it; None where there is none."""
        return await asyncio.to_thread(self.chats.delete_message, key, idx)

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        """Removes a conversation."""
        await asyncio.to_thread(self._thread(key, status).clear, archived=status is None)

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Takes the `n` oldest messages out of a conversation and returns them; they stay stored."""
        return await asyncio.to_thread(self.chats.thread(key).take_oldest, n)

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Archives the `n` oldest messages and returns them."""
        return await asyncio.to_thread(self.chats.thread(key).take_oldest, n, archive=True)

    async def get_keys(self) -> list[str]:
        """Returns the keys of all conversations of the scope."""
        return await asyncio.to_thread(self.chats.get_keys)

    @classmethod
    def class_name(cls) -> str:
        """Returns the name under which LlamaIndex writes it."""
        return cls.__name__

    def _thread(self, key: str, status: MessageStatus | None) -> StoredThread:
        """Returns the thread of a key's messages, with None that of all, whose archive is asked for, too."""
        thread = self.chats.thread(key)
        return thread._archive() if status == MessageStatus.ARCHIVED else thread  # noqa: SLF001


def _check_alone(data: Mapping[str, Any], name: str, value: Any, kind: Any, others: Iterable[str]) -> None:
    """Raises BudgetConfigError for a value of a wrong kind, and for options that it would replace."""
    if value is None:
        return
    if not isinstance(value, kind):
        known = getattr(kind, "__name__", "StoredChatStore")
        msg = f"{name} must be a {known} (got {shown(value)})."
        raise BudgetConfigError(msg)
    beside = [f"{other}=" for other in others if data.get(other) is not None]
    if beside:
        msg = f"{name} must be given alone (got {' and '.join(beside)} too). Leave {name}= or the others out."
        raise BudgetConfigError(msg)
