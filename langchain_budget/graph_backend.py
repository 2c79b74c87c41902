"""A LangGraph store as the backend of a `MemoryStore`: what it promises, and errors for the rest."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

from rankbudget import Scope
from rankbudget.errors import BudgetConfigError, StoreError, StoreUnsupportedError, shown
from rankbudget.memory import Memory, digest_of, levels_of

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore, SearchItem

_PAGE = 500
"""Items that are read at once."""


class GraphBackend:
    """Keeps the memories of a `MemoryStore` in a LangGraph store.

    Such a store lets the last write win, so `update` and `replace` raise StoreUnsupportedError, and it cannot
    delete by prefix, so `forget` does. Memories are found by meaning where the store has an index; else its
    first memories are read and ranked by the built-in scorer.

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

    lacks = frozenset({"replace", "forget"})

    def __init__(self, store: BaseStore, *, most: int = 10_000) -> None:
        if not hasattr(store, "list_namespaces"):
            msg = f"store must be a LangGraph BaseStore (got {shown(store)})"
            raise BudgetConfigError(msg)
        self.store = store
        self.most = most

    def put(self, memory: Memory, *, supersedes: str | None, now: datetime) -> Memory:
        """Stores a memory under its key or the digest of its text; what it replaces is kept as a version."""
        name = f"k:{memory.key}" if memory.key is not None else f"t:{digest_of(memory.text)}"
        old = self.get(name, memory.scope, now)
        same = old if old is not None and digest_of(old.text) == digest_of(memory.text) else None
        begins = memory.valid_from or now
        stored = replace(
            memory,
            id=name,
            created_at=memory.created_at or now,
            valid_from=begins,
            version=old.version + 1 if old else 1,
        )
        if same is not None:
            sources = tuple(dict.fromkeys((*same.sources, *memory.sources)))
            stored = replace(stored, created_at=same.created_at, valid_from=same.valid_from, sources=sources)
        ended = [] if old is None or same is not None else [old]
        ended += [self._superseded(supersedes, memory.scope, now)] if supersedes is not None else []
        for one in ended:
            if one.id != name or one is old:
                self._end(one, begins, name)
        self.store.put(_place(memory.scope), name, stored.to_dict())
        return stored

    def _superseded(self, name: str, scope: Scope, now: datetime) -> Memory:
        found = self.get(name, scope, now)
        if found is None:
            msg = f"supersedes must be the key or id of a memory of this scope (got {name!r:.80})"
            raise StoreError(msg)
        return found

    def _end(self, old: Memory, moment: datetime, by: str) -> None:
        """Keeps a memory as a version that holds until a moment."""
        kept = replace(old, id=f"v:{uuid.uuid4().hex}", valid_to=moment, replaced_by=by)
        self.store.put(_place(old.scope), kept.id, kept.to_dict())
        self.store.delete(_place(old.scope), old.id)

    def get(self, name: str, scope: Scope, now: datetime) -> Memory | None:
        """Returns the memory with a key or id that holds now."""
        for key in (name, f"k:{name}"):
            item = self.store.get(_place(scope), key)
            found = Memory.from_dict(item.value) if item is not None else None
            if found is not None and found.holds_at(now):
                return found
        return None

    def versions(self, name: str, scope: Scope) -> list[Memory]:
        """Returns all that ever held under a key or id, the oldest first."""
        found = [m for m in self._all(scope) if name in {m.id, m.key} or m.replaced_by in {name, f"k:{name}"}]
        return sorted(found, key=lambda memory: (str(memory.valid_from), memory.version))

    def near(self, query: str, reader: Scope, limit: int, now: datetime) -> list[Memory]:
        """Returns for each scope of the reader the nearest memories, and all that always matter."""
        found: dict[str, Memory] = {}
        for scope in levels_of(reader):
            items = self.store.search(_place(scope), query=query or None, limit=limit)
            ranked = bool(items) and all(item.score is not None for item in items)
            if not ranked:
                items = list(self._items(scope))
            else:
                for field, value in (("kind", "core"), ("kind", "preference"), ("static", True)):
                    items += self._items(scope, {field: value})
            for item in items:
                memory = Memory.from_dict(item.value)
                if item.namespace == _place(scope) and memory.holds_at(now):
                    found.setdefault(
                        f"{scope}{item.key}", replace(memory, score=item.score if ranked else None)
                    )
        return list(found.values())

    def delete(self, name: str, scope: Scope) -> int:
        """Removes all versions of a memory, and returns how many there were."""
        found = self.versions(name, scope)
        for memory in found:
            self.store.delete(_place(scope), memory.id)
        return len(found)

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

    def _all(self, scope: Scope) -> Iterator[Memory]:
        return (Memory.from_dict(item.value) for item in self._items(scope))

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
