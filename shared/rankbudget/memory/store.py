"""Memories that outlive a conversation: put, read, changed, found, fitted into a prompt, and forgotten."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import wraps
from typing import Any, Literal, TypeVar

from ..errors import (
    BudgetConfigError,
    StoreConflictError,
    StoreError,
    check_count,
    check_number,
    named_options,
    refuse,
    shown,
)
from ..relevance.embedding import Embedder, EmbedFunction
from ..relevance.memories import OVER_RETRIEVE, MemoryWeights
from ..report.report import FitResult
from ..segment import Block, Scope
from .choosing import all_confident, as_one, confident, fit_memories, ranked, routed
from .database import WAIT, Database
from .foreign_vectors import ForeignVectors, VectorIndex
from .memory import (
    Memory,
    after,
    check_reading,
    check_same,
    check_scope,
    check_storable,
    check_validity,
    in_utc,
    utc,
)
from .protocol import MemoryBackend, Near, Receipt, by_its_name
from .shells import fills, shells_of
from .sql import SqlBackend
from .vectors import vectors_of

T = TypeVar("T")
Change = Callable[[Memory], "Memory | str"]
"""Gets the stored memory, returns it changed (`dataclasses.replace`), or its new text."""
_SLEEP, _LONGEST_SLEEP = 0.02, 0.5
"""Most seconds before a change that came second is tried again, at first and after many times."""
_SHARE = "a number from 0 to 1"
_MOST = 1_000_000
"""Most memories that a search looks at."""
_WIDEST = 3_200
"""Candidates of a level at most."""
_OWN = frozenset({"id", "version", "replaced_by", "score", "expires_at"})
"""Fields that the store sets."""


def _in_thread(method: Callable[..., T]) -> Callable[..., Coroutine[Any, Any, T]]:
    """Returns the async form of a method: drivers block, so it runs in a thread."""

    @wraps(method)
    async def run(*args: Any, **options: Any) -> T:
        return await asyncio.to_thread(method, *args, **options)

    return run


class MemoryStore:
    """Keeps memories of users, projects and everybody in a database, shared by threads and processes.

    Every operation names a scope: whose memory it is, or who reads. There is no default, as a forgotten scope
    would show one user's memories to another. What returned was kept, and no model takes part.

    Args:
        place: path of a SQLite file, a database URL, a SQLAlchemy engine, or a `MemoryBackend`.
        embed: turns texts into vectors, by which memories are found: an `Embedder`, or a function from texts
            to vectors; None takes wordllama's where it is installed, False finds memories by words alone.
        vectors: an index of another library that embeds and finds memories, as an adapter's `MemoryVectors`.
        weights: how much similarity, priority, recency and kind count in the ranking.
        least_confidence: memories of a lower known confidence are left out of prompts, 0 to 1.
        clock: returns the moment "now", with a time zone; for tests and replays.
        wait: seconds that a write waits for other writers, above 0.

    Raises:
        StoreError: the database cannot be opened, is damaged, or was written by a newer version.
        CounterUnavailableError: SQLAlchemy or the database's driver is not installed.

    Example:
        >>> store, ann = MemoryStore(":memory:"), Scope(user="ann")
        >>> _ = store.put("Prefers tabs over spaces.", scope=ann, kind="preference", key="indent")
        >>> _ = store.put("Prefers two spaces.", scope=ann, kind="preference", key="indent")
        >>> store.get("indent", scope=ann).text, store.get("indent", scope=Scope(user="bob"))
        ('Prefers two spaces.', None)
        >>> [segment.text for segment in store.fit("Which indent?", scope=ann, max_tokens=50).segments]
        ['Prefers two spaces.']
    """

    @named_options
    def __init__(
        self,
        place: Any,
        *,
        embed: Embedder | EmbedFunction | Literal[False] | None = None,
        vectors: VectorIndex | None = None,
        weights: MemoryWeights | None = None,
        least_confidence: float = 0.0,
        clock: Callable[[], datetime] | None = None,
        wait: float = WAIT,
    ) -> None:
        problems: list[str] = []
        self.least_confidence = check_number(
            "least_confidence", least_confidence, problems, high=1, allowed=_SHARE
        )
        refuse(problems)
        self.weights = weights
        self.wait = wait
        self._clock = clock or _utc_now
        made = hasattr(place, "near")
        if (made or vectors is not None) and embed is not None:
            found_by = "place" if made else "vectors"
            msg = f"embed must be left out where {found_by} finds memories by itself (got {shown(embed)})"
            raise BudgetConfigError(msg)
        self.backend: MemoryBackend = place if made else _backend(Database(place, wait=wait), embed, vectors)

    @named_options
    def put(
        self,
        text: str,
        *,
        scope: Scope,
        key: str | None = None,
        supersedes: str | None = None,
        ttl: timedelta | float | None = None,
        **fields: Any,
    ) -> Memory:
        """Stores a text and returns it as a memory.

        The same text again, but for case and spaces, makes no second memory: the fields given now are set
        anew, and sources are added; only one with another `valid_from` is a version of its own. Another text
        under the same key ends the older one where it begins; what began later stays. All are kept with their
        validity (`versions`).

        Args:
            text: what to remember.
            scope: whose memory it is.
            key: a name that one memory of the scope has at a time; the id of one means that one.
            supersedes: key or id of the memory of this scope that it replaces.
            ttl: seconds, or a timedelta, from now or its beginning on, after which it is never returned.
            fields: other fields of `Memory`, as kind, priority, confidence, sources or review_at.

        Raises:
            BudgetConfigError: a field is wrong, or belongs to the store, or `valid_from` is after `valid_to`.
            StoreError: the database refuses, or `supersedes` names no memory.
        """
        own = sorted(_OWN.intersection(fields))
        if own:
            msg = f"the store itself sets {', '.join(own)} of a memory. Leave it out."
            raise BudgetConfigError(msg)
        now = self._now()
        memory = in_utc(Memory(text=text, scope=scope, key=key, **fields))
        check_validity(memory)
        if ttl is not None:
            memory = replace(memory, expires_at=after(max(memory.valid_from or now, now), ttl))
        given = [*fields, *(["expires_at"] if ttl is not None else [])]
        memory, supersedes = by_its_name(self.backend, memory, supersedes, now)
        return self.backend.put(memory, given=given, supersedes=supersedes, now=now)

    @named_options
    def get(self, name: str, *, scope: Scope) -> Memory | None:
        """Returns the memory of exactly this scope with a key or id; None where there is none now."""
        _check(scope, name)
        return self.backend.get(name, scope, self._now())

    @named_options
    def update(self, name: str, change: Change, *, scope: Scope) -> Memory:
        """Changes a memory so that no other change is lost, whoever writes at the same time.

        Args:
            name: its key or id.
            change: gets the stored memory and returns it changed, or its new text. It may be called several
                times, when others were faster.
            scope: whose memory it is.

        Raises:
            StoreError: there is no such memory.
            StoreConflictError: another memory of the scope has its new text or key, or others were faster for
                longer than `wait` seconds.
        """
        _check(scope, name)
        given: Any = change
        if not callable(given):
            msg = f"change must be a function of the stored memory (got {shown(given)})"
            raise BudgetConfigError(msg)
        ends = time.monotonic() + self.wait
        seen, pause = ("", 0), _SLEEP
        while True:
            memory = self.backend.get(name, scope, self._now())
            if memory is None:
                msg = f"name must be the key or id of a memory of this scope that holds (got {shown(name)})"
                raise StoreError(msg)
            changed = change(memory)
            changed = replace(memory, text=changed) if isinstance(changed, str) else changed
            check_same(memory, changed)
            try:
                return self.replace(changed)
            except StoreConflictError:
                if time.monotonic() > ends or (memory.id, memory.version) == seen:  # nobody changed it
                    raise
                seen = memory.id, memory.version
                time.sleep(random.uniform(0, pause))  # noqa: S311 - spreads the writers
                pause = min(2 * pause, _LONGEST_SLEEP)

    def replace(self, memory: Memory) -> Memory:
        """Writes a memory that was read and changed, and returns it with its new version.

        Args:
            memory: one that the store returned, with other fields; not of another scope.

        Raises:
            BudgetConfigError: it was never stored, or ends before it begins.
            StoreConflictError: somebody changed, replaced or deleted it meanwhile, or another memory of its
                scope has its text or key.
        """
        if not getattr(memory, "id", ""):
            msg = (
                f"memory must be one that the store returned (got {shown(memory)}). Use put() for a new one."
            )
            raise BudgetConfigError(msg)
        check_validity(memory)
        return self.backend.replace(in_utc(memory))

    @named_options
    def versions(self, name: str, *, scope: Scope) -> list[Memory]:
        """Returns all that ever held under a key or id, oldest first, with their validity."""
        _check(scope, name)
        return self.backend.versions(name, scope)

    @named_options
    def search(
        self, query: str, *, scope: Scope, limit: int = OVER_RETRIEVE, least_confidence: float = 0.0
    ) -> list[Memory]:
        """Returns what a reader may see and is nearest to a question, the most useful first.

        Args:
            query: what is asked.
            scope: who reads: memories of this user, of this project, and of everybody.
            limit: how many at most, 1 or more.
            least_confidence: memories of a lower known confidence are left out, 0 to 1.
        """
        problems: list[str] = []
        check_count("limit", limit, problems, low=1)
        check_number("least_confidence", least_confidence, problems, high=1, allowed=_SHARE)
        check_reading(query, scope, problems)
        refuse(problems)
        now = self._now()
        shells = shells_of(self.backend, query, scope, now, _MOST, lambda found: len(found) >= limit)
        sure = [confident(shell, least_confidence) for shell in shells]
        return [memory for shell in sure for memory in ranked(query, shell, self.weights, now)][:limit]

    @named_options
    def fit(
        self, query: str, *, scope: Scope, max_tokens: int, counter: Any = "o200k_base", named: bool = False
    ) -> FitResult:
        """Returns the memories that a reader's question needs most, within `max_tokens`.

        The fifty nearest compete, and all that always matter, by similarity, priority, recency and kind; then
        the next nearest, as long as there is room. So a larger `max_tokens` keeps no less.

        Args:
            query: what is asked.
            scope: who reads.
            max_tokens: most tokens of `.text`.
            counter: a model or encoding name, or anything `counter_for` takes.
            named: in `.text`, give the key or id of each, which `delete` takes, as its source.

        Returns:
            `.segments` with each memory as `.source`; `.text`, tagged as in a prompt with source, confidence
            and date; `.report` with a reason for each.
        """
        problems: list[str] = []
        most = check_count("max_tokens", max_tokens, problems)
        shells, low = self._candidates(query, scope, problems, fills(most))
        result = fit_memories(query, shells, scope, most, counter, self.weights, self._now(), named=named)
        return replace(result, report=result.report.noting(*low))

    @named_options
    def competing(self, query: str, *, scope: Scope, limit: int = OVER_RETRIEVE) -> Block:
        """Returns what competes for a question as one block, which keeps what `fit` does in the same room.

        Args:
            query: what is asked.
            scope: who reads; the assembler must have the same one.
            limit: how many at most, 1 or more.
        """
        return self._ranked(query, scope, limit)[1]

    @named_options
    def blocks(self, query: str, *, scope: Scope) -> list[Block]:
        """Returns what may matter for a question as blocks for an `Assembler`.

        What `route_memory_to_block` sends to the system or project block is in "preferences".

        Args:
            query: what is asked.
            scope: who reads; the assembler must have the same one.
        """
        shells, low = self._candidates(query, scope, [], fills(0))
        return routed(query, shells[0], self.weights, self._now(), low)

    @named_options
    def delete(self, name: str, *, scope: Scope) -> int:
        """Removes all versions of the memory of exactly this scope with a key or id; returns how many."""
        _check(scope, name)
        return self.backend.delete(name, scope)

    @named_options
    def forget(self, subject: Scope) -> Receipt:
        """Removes all that belongs to a user or a project, whatever its scope, and says what may be left.

        Args:
            subject: `Scope(user="ann")`, or a project, or one user's part of one.

        Raises:
            BudgetConfigError: `subject` names nobody: everybody's memories are deleted one by one.
        """
        _check(subject)
        if subject == Scope():
            msg = "subject must name a user or a project (got Scope()). Delete everybody's memories by name."
            raise BudgetConfigError(msg)
        return self.backend.forget(subject)

    def embed_missing(self) -> int:
        """Embeds all memories that the embedding of this store has not seen, and returns how many.

        A search embeds some of those that it would see; after a change of `embed=`, this embeds all at once.
        It may be stopped and called again. A vector store that cannot tell what it has gets all again.
        """
        vectors = getattr(self.backend, "vectors", None)
        return vectors.fill() if vectors is not None else 0

    def close(self) -> None:
        """Closes its connections; the next use opens new ones. A database in memory is gone."""
        close = getattr(self.backend, "close", None)
        if close is not None:
            close()

    def _now(self) -> datetime:
        now = self._clock()
        if getattr(now, "tzinfo", None) is None:
            msg = f"clock must return a datetime with a time zone (got {shown(now)})"
            raise BudgetConfigError(msg)
        return utc(now)

    aput = _in_thread(put)
    aget = _in_thread(get)
    aupdate = _in_thread(update)
    asearch = _in_thread(search)
    afit = _in_thread(fit)
    acompeting = _in_thread(competing)
    ablocks = _in_thread(blocks)
    adelete = _in_thread(delete)
    aforget = _in_thread(forget)

    def _ranked(self, query: str, scope: Scope, limit: int) -> tuple[list[Memory], Block]:
        """Returns what competes, the most useful first, and as one block."""
        problems: list[str] = []
        check_count("limit", limit, problems, low=1)
        shells, low = self._candidates(query, scope, problems, lambda found: len(found) >= limit)
        return as_one(query, shells, self.weights, self._now(), limit, low)

    def _candidates(
        self, query: str, scope: Scope, problems: list[str], enough: Callable[[Sequence[Memory]], bool]
    ) -> tuple[list[Near], list[str]]:
        """Returns what competes for a place, and a warning about what is too little known to do so."""
        check_reading(query, scope, problems)
        refuse(problems)
        shells = shells_of(self.backend, query, scope, self._now(), _WIDEST, enough)
        return all_confident(shells, self.least_confidence)


def _backend(database: Database, embed: Any, index: VectorIndex | None) -> SqlBackend:
    found = vectors_of(database, embed) if index is None else ForeignVectors(database, index)
    return SqlBackend(database, found)


def _check(scope: object, name: object = "") -> None:
    problems: list[str] = []
    check_scope(scope, problems)
    check_storable("name", name, problems)
    refuse(problems)


def _utc_now() -> datetime:
    return datetime.now(timezone.utc)
