"""A LangGraph store as the backend of a `MemoryStore`: what it promises, and errors for the rest."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

from rankbudget import Scope
from rankbudget.errors import BudgetConfigError, StoreError, StoreUnsupportedError, named_options, shown
from rankbudget.memory import Memory, digest_of, levels_of

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore, SearchItem

_PAGE = 500
"""Items that are read at once."""
_ALWAYS: tuple[dict[str, Any], ...] = ({"kind": "core"}, {"kind": "preference"}, {"static": True})
"""What matters in every prompt."""
_GIVEN = (
    *("kind", "priority", "confidence", "source_type", "static"),
    *("valid_to", "expires_at", "review_at", "metadata"),
)
"""Fields that putting a text again may change."""


class GraphBackend:
    """Keeps the memories of a `MemoryStore` in a LangGraph store.

    Such a store lets the last write win, so `update`, `replace` and `versions` raise StoreUnsupportedError.
    So does `forget`, as nothing is deleted by prefix. Memories are found by meaning where the store has an
    index; else its first memories are read and ranked by the built-in scorer.

    Args:
        store: a LangGraph `BaseStore`.
        most: memories of one scope that are read where the store has no index, 1 or more.

    Raises:
        BudgetConfigError: `store` is no LangGraph store.

    Example:
        >>> from langgraph.store.memory import InMemoryStore
        >>> from rankbudget.memory import MemoryStore
        >>> store, ann = MemoryStore(GraphBackend(InMemoryStore())), Scope(user="ann")
        >>> _ = store.put("Ann likes tea.", scope=ann, key="drink")
        >>> store.get("drink", scope=ann).text, store.get("drink", scope=Scope())
        ('Ann likes tea.', None)
    """

    lacks = frozenset({"replace", "versions", "forget"})

    @named_options
    def __init__(self, store: BaseStore, *, most: int = 10_000) -> None:
        if not hasattr(store, "list_namespaces"):
            msg = f"store must be a LangGraph BaseStore (got {shown(store)})"
            raise BudgetConfigError(msg)
        self.store = store
        self.most = most

    def put(self, memory: Memory, *, given: Collection[str], supersedes: str | None, now: datetime) -> Memory:
        """Stores a memory under its key or the digest of its text, in the place of what it replaces.

        Raises:
            StoreError: `supersedes` names no memory.
            StoreUnsupportedError: it is to hold later or held before, and another one of its key holds now.
        """
        name = _name_of(memory)
        old = self._named(name, memory.scope)
        ended = self._called(supersedes, memory.scope, now) if supersedes is not None else None
        if supersedes is not None and ended is None:
            scoped = "must be the key or id of a memory of this scope that holds"
            msg = f"supersedes {scoped} (got {supersedes!r:.80})"
            raise StoreError(msg)
        begins = memory.valid_from or min(now, _utc(memory.valid_to or now))
        _check_place(memory, _utc(begins), old, ended, now)
        if old is not None and old.holds_at(now) and digest_of(old.text) == digest_of(memory.text):
            stored = _put_again(old, memory, given)
        else:
            first: dict[str, Any] = {"id": uuid.uuid4().hex, "version": 1, "valid_from": begins}
            stored = replace(memory, **first, created_at=memory.created_at or now)
        if ended is not None and ended.id != stored.id:
            self.store.delete(_place(ended.scope), _name_of(ended))
        self.store.put(_place(memory.scope), name, stored.to_dict())
        return stored

    def get(self, name: str, scope: Scope, now: datetime) -> Memory | None:
        """Returns the memory with a key or id that holds now."""
        return self._called(name, scope, now)

    def _called(self, name: str, scope: Scope, now: datetime) -> Memory | None:
        found = [self._named(f"k:{name}", scope), *self._with_id(name, scope)]
        return next((memory for memory in found if memory is not None and memory.holds_at(now)), None)

    def _named(self, name: str, scope: Scope) -> Memory | None:
        item = self.store.get(_place(scope), name)
        return None if item is None else Memory.from_dict(item.value)

    def _with_id(self, name: str, scope: Scope) -> list[Memory]:
        return [Memory.from_dict(item.value) for item in self._items(scope, {"id": name})]

    def versions(self, name: str, scope: Scope) -> NoReturn:  # noqa: ARG002 - the protocol's signature
        """Raises StoreUnsupportedError: where the last write wins, older memories are lost."""
        msg = "a LangGraph store keeps no older memories; use MemoryStore(path) for versions"
        raise StoreUnsupportedError(msg)

    def near(self, query: str, reader: Scope, limit: int, now: datetime) -> list[Memory]:
        """Returns for each scope of the reader the nearest memories, and all that always matter."""
        found: dict[str, Memory] = {}
        for scope in levels_of(reader):
            always = [item for wanted in _ALWAYS for item in self._items(scope, wanted)]
            items = self.store.search(_place(scope), query=query or None, limit=limit + len(always))
            ranked = bool(items) and all(item.score is not None for item in items)
            items = [*items, *always] if ranked else self._items(scope)
            for item in items:
                memory = Memory.from_dict(item.value)
                if item.namespace == _place(scope) and memory.holds_at(now):
                    found.setdefault(
                        f"{scope}{item.key}", replace(memory, score=item.score if ranked else None)
                    )
        return list(found.values())

    def delete(self, name: str, scope: Scope) -> int:
        """Removes the memory with a key or id, and returns how many there were."""
        found = [self._named(f"k:{name}", scope), *self._with_id(name, scope)]
        names = {_name_of(memory) for memory in found if memory is not None}
        for one in names:
            self.store.delete(_place(scope), one)
        return len(names)

    def replace(self, memory: Memory) -> NoReturn:  # noqa: ARG002 - the protocol's signature
        """Raises StoreUnsupportedError: in a LangGraph store the last write wins."""
        msg = (
            "a LangGraph store cannot compare before it writes; use MemoryStore(path) for update and replace"
        )
        raise StoreUnsupportedError(msg)

    def forget(self, subject: Scope) -> NoReturn:  # noqa: ARG002 - the protocol's signature
        """Raises StoreUnsupportedError: a LangGraph store cannot delete by prefix, nor say what is left."""
        msg = "a LangGraph store cannot delete all of a user or project; use MemoryStore(path) for forget"
        raise StoreUnsupportedError(msg)

    def _items(self, scope: Scope, wanted: dict[str, Any] | None = None) -> list[SearchItem]:
        """Returns the items of exactly one scope, at most `most`."""
        found: list[SearchItem] = []
        while len(found) < self.most:
            page = self.store.search(_place(scope), filter=wanted, limit=_PAGE, offset=len(found))
            found += page
            if len(page) < _PAGE:
                break
        return [item for item in found if item.namespace == _place(scope)]


def _place(scope: Scope) -> tuple[str, ...]:
    """Returns the namespace of a scope: none begins another one, so that a search finds one scope alone."""
    user, project = (
        "-" if name is None else f"={quote(name, safe='')}" for name in (scope.user, scope.project)
    )
    return ("memories", user.replace(".", "%2E"), project.replace(".", "%2E"))


def _name_of(memory: Memory) -> str:
    return f"k:{memory.key}" if memory.key is not None else f"t:{digest_of(memory.text)}"


def _put_again(old: Memory, memory: Memory, given: Collection[str]) -> Memory:
    """Returns a stored memory with the fields given now, the new sources, and under its key the new text."""
    said: dict[str, Any] = {name: getattr(memory, name) for name in given if name in _GIVEN}
    said |= {} if memory.key is None else {"text": memory.text}
    sources = tuple(dict.fromkeys((*old.sources, *memory.sources)))
    return replace(old, **said, sources=sources, version=old.version + 1)


def _check_place(
    memory: Memory, begins: datetime, old: Memory | None, ended: Memory | None, now: datetime
) -> None:
    """Raises StoreUnsupportedError for what does not hold now, where another memory of its key does."""
    if (old or ended) and begins > now:
        msg = "a LangGraph store holds one memory of a key; put the new one when it begins to hold"
        raise StoreUnsupportedError(msg)
    if old is None or old.valid_from is None or (ended and ended.id == old.id):
        return
    planned = _utc(old.valid_from) > now
    over = memory.valid_to is not None and _utc(memory.valid_to) <= now
    earlier = over or begins < _utc(old.valid_from)
    if (planned or (old.holds_at(now) and earlier)) and digest_of(old.text) != digest_of(memory.text):
        msg = "a LangGraph store holds one memory of a key; what held before that one has no place"
        raise StoreUnsupportedError(msg)


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
