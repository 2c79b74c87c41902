"""A stored conversation as the core reads it: its newest messages first, each once, with their tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from typing import Any, TypeVar, overload

from ..conversation.state import Summary
from ..conversation.stored import AGAIN, StoredMessages
from ..counting.protocol import TokenCounter
from ..errors import StoreConflictError, StoreError
from ..messages.codec import PINNED_ROLES
from ..messages.measure import Measure, total_before
from ..segment import Scope
from . import sqlalchemy_later as sa
from .block_calls import has_blocks, seen_by
from .database import Database
from .forms import NUMBERED, Counts, HostForm
from .history_tables import ARCHIVED, NO_SUM, messages, threads
from .plain import added, place_value
from .thread_rows import (
    AT_ONCE,
    Head,
    all_rows,
    found,
    locked,
    pinned_rows,
    rows_between,
    rows_named,
    save,
    seal,
)

T = TypeVar("T")
_PAGE = 32
"""Messages read at first; each further page has twice as many."""


class ThreadMessages(StoredMessages):
    """The messages of one thread as they were when it was made.

    Reading one that is not held yet raises StoreConflictError where the thread was edited meanwhile.

    Args:
        database: where the thread is.
        scope: whose it is.
        name: what it is called.
        form: the host whose messages are read.
        counts: the tokens that are stored.
        tokens: the newest messages of about so many, by the length of their texts, are read at once.
        least: so many of the newest are read at once in any case.
    """

    def __init__(
        self,
        database: Database,
        scope: Scope,
        name: str,
        form: HostForm,
        counts: Counts,
        *,
        tokens: int = 0,
        least: int = _PAGE,
    ) -> None:
        self._database, self._scope, self._name = database, scope, name
        self._form, self._counts = form, counts
        self._read: dict[int, Any] = {}
        self._stored: dict[int, tuple[Any, dict[str, int]]] = {}  # row and tokens by counter
        self._tokens: dict[int, int] = {}  # by the id of a message, which stays in `_read`
        self._key: str | None = None
        self._measure: Measure | None = None
        self._page = _PAGE
        self._whole: Sequence[Any] | None = None  # where other places are meant than those of rows
        self._instead: dict[int, Any] = {}  # what is read in the place of rows
        self._until: tuple[str, Mapping[str, Any]] | None = None  # of `until`, with the last id
        with database.read() as connection:
            self._head = head = found(connection, scope, name) or Head(0, 0, "", 0, 0, Summary())
            if has_blocks(connection, head.seq, form.name):
                self._whole = seen_by(form.name, list(all_rows(connection, head)))
                self._hold(self._whole)
                self._pinned = [row.place for row in self._whole if row.role in PINNED_ROLES]
            else:
                self._pinned = self._hold(pinned_rows(connection, head))
                self._read_ahead(connection, tokens, least)
        self.summary = head.summary if self._whole is None else Summary()

    def again(self) -> ThreadMessages:
        of = self._database, self._scope, self._name, self._form, self._counts
        made = ThreadMessages(*of, least=len(self._read) + self._page)
        if self._until is None:
            return made
        last, instead = self._until
        end = made.places([last]).get(last, min(len(self), len(made)) - 1) + 1
        return made.until(end, instead)

    def until(self, end: int, instead: Mapping[str, Any]) -> ThreadMessages:
        """Returns the messages before a place, with others `instead` of those that have their ids."""
        part = copy(self)
        part._end_before(end, instead)  # noqa: SLF001 - its own kind
        return part

    def _end_before(self, end: int, instead: Mapping[str, Any]) -> None:
        row = self._stored[end - 1][0] if end and self[end - 1] is not None else None
        self._until = "" if row is None else _id_of(row), instead
        rows = [row for place, (row, _) in self._stored.items() if place < end]
        self._instead = {place: instead[name] for name, place in self.places(instead).items() if place < end}
        self._head = replace(self._head, size=end)
        self._whole = None if self._whole is None else self._whole[:end]
        self._read, self._stored, self._tokens = {}, {}, {}
        self._hold(rows)
        self._pinned = [place for place in self._pinned if place < end]
        covered = self.summary.summarized
        if covered > end or any(place < covered for place in self._instead):
            self.summary = Summary()

    def places(self, ids: Iterable[str]) -> dict[str, int]:
        """Returns the place of each message that has one of these `ids`; reads only their rows."""
        wanted = dict.fromkeys(ids)
        if self._whole is not None:
            return {name: row.place for row in self._whole if (name := _id_of(row)) in wanted}
        with self._reading() as connection:
            known = rows_named(connection, self._head, list(wanted))
        return {name: row.place for name, row in known.items() if row.place < len(self)}

    # ---- a sequence ------------------------------------------------------------------------------
    def __len__(self) -> int:
        return self._head.size if self._whole is None else len(self._whole)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...

    def __getitem__(self, index: int | slice) -> Any:
        places = range(len(self))[index]
        if isinstance(places, range):
            self._load(places)
            return [self._read[place] for place in places]
        if places not in self._read:
            forward = not places or places - 1 in self._read  # as a summarizer reads, oldest first
            start = places if forward else max(0, places + 1 - self._page)
            self._load(range(start, min(len(self), start + self._page) if forward else places + 1))
            self._page = min(2 * self._page, AT_ONCE)
        return self._read[places]

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), AT_ONCE):
            yield from self[start : start + AT_ONCE]

    def _load(self, places: range) -> None:
        missing = [place for place in places if place not in self._read]
        if not missing:
            return
        start, stop = min(missing), max(missing) + 1
        with self._reading() as connection:
            rows = [
                row
                for first in range(start, stop, AT_ONCE)
                for row in rows_between(connection, self._head, first, min(stop, first + AT_ONCE))
            ]
        self._count(self._hold(rows))

    def _hold(self, rows: Iterable[Any]) -> list[int]:
        """Holds messages, and returns the places of those that are new."""
        new = [row for row in rows if row.place not in self._read]
        for row in new:
            edited = row.place in self._instead
            self._read[row.place] = self._instead[row.place] if edited else self._form.sent(row)
            self._stored[row.place] = row, {} if edited else json.loads(row.counts)
        return [row.place for row in new]

    def _read_ahead(self, connection: sa.Connection, tokens: int, least: int) -> None:
        """Reads the newest messages in the transaction that found the thread: of one state."""
        place = len(self)
        while place > 0 and (tokens > 0 or place > len(self) - least):
            start = max(0, place - self._page)
            rows = rows_between(connection, self._head, start, place)
            self._hold(rows)
            tokens -= sum([1 + len(row.neutral) // 4 for row in rows])
            place, self._page = start, min(2 * self._page, AT_ONCE)

    # ---- what a prompt asks of it ----------------------------------------------------------------
    def pinned(self) -> list[int]:
        return list(self._pinned)

    def roles(self, start: int, stop: int) -> list[str]:
        if self._stored.keys() >= {*range(start, stop)}:
            return [self._stored[place][0].role for place in range(start, stop)]
        table = messages()
        inside = self._mine() & (table.c.place >= start) & (table.c.place < stop)
        with self._reading() as connection:
            roles = connection.execute(sa.select(table.c.role).where(inside).order_by(table.c.place))
            return list(roles.scalars())

    def loaded(self, start: int, stop: int) -> list[int]:
        return sorted([place for place in self._read if start <= place < stop])

    def seal(self, before: int, kept: Sequence[int]) -> bytes:
        if self._whole is not None:
            total, apart = NO_SUM, set(kept)
            for row in self._whole[:before]:
                total = total if row.place in apart else added(total, place_value(row.place, row.digest))
            return bytes.fromhex(total)
        edited = [place for place in self._instead if place < before]
        with self._reading() as connection:
            sealed = seal(connection, self._head, before, [*kept, *edited])
        for place in set(edited).difference(kept):
            digest = self._form.row(self._instead[place])["digest"]
            sealed = bytes.fromhex(added(sealed.hex(), place_value(place, digest)))
        return sealed

    def keep(self, summary: Summary) -> bool:
        if summary == self.summary:
            return True
        if self._whole is not None:
            return False  # a stored summary names rows
        with suppress(StoreError):  # the turn goes on; the session has its summary
            return self._keep(summary)
        return False

    def _keep(self, summary: Summary) -> bool:
        with self._database.write() as connection:
            head = locked(connection, self._scope, self._name)
            if (head.seq, head.version) != (self._head.seq, self._head.version):
                return False
            if seal(connection, head, summary.summarized, summary.kept_before) != summary.digest:
                return False  # what it covers was changed meanwhile
            head.summary, head.version = summary, head.version + 1
            save(connection, head)
        self.summary, self._head.version = summary, head.version
        return True

    # ---- tokens ----------------------------------------------------------------------------------
    def measured(self, measure: Measure, counter: TokenCounter) -> Measure:
        key = self._counts.key(self._form, counter) if self._form.counted_by(measure) else None
        if key is None or self._whole is not None:
            return measure
        if key != self._key:
            self._key, self._measure = key, measure
            self._tokens.clear()
            self._count(list(self._stored))
        return _StoredMeasure(measure, self._tokens.get)

    def _count(self, places: Sequence[int]) -> None:
        """Notes the tokens of messages; what is not stored of them is counted, and stored."""
        if self._key is None or self._measure is None:
            return
        fresh = []
        for place in places:
            message, (row, counts) = self._read[place], self._stored[place]
            if self._key not in counts:
                counts[self._key] = self._measure.group([message])
                fresh += [] if place in self._instead else [(row, counts)]
            self._tokens[id(message)] = counts[self._key]
        if fresh:
            with suppress(StoreError):  # of a database that may only be read, they are counted again
                self._store(fresh)

    def _store(self, fresh: Iterable[tuple[Any, dict[str, int]]]) -> None:
        table = messages()
        same = (table.c.seq == sa.bindparam("row")) & (table.c.digest == sa.bindparam("was"))
        update = table.update().where(same).values(counts=sa.bindparam("now"))
        rows = [{"row": row.seq, "was": row.digest, "now": json.dumps(now)} for row, now in fresh]
        with self._database.write() as connection:
            connection.execute(update, rows)

    def _mine(self) -> sa.ColumnElement[bool]:
        table = messages()
        return (table.c.thread == self._head.seq) & (table.c.place < self._head.size)

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        """Gives a connection that sees the messages as they were when this was made."""
        table = threads()
        with self._database.read() as connection:
            edits = connection.execute(sa.select(table.c.edits).where(table.c.seq == self._head.seq)).scalar()
            if edits != self._head.edits and self._head.seq:
                msg = f"the thread {self._name!r} was changed while it was read. Read it again."
                raise StoreConflictError(msg)
            yield connection


def _id_of(row: Any) -> str:
    """Returns the id by which a row is found."""
    return row.name or f"{NUMBERED}{row.seq}"


class _StoredMeasure:
    """Counts through another measure what is not known."""

    def __init__(self, measure: Measure, known: Callable[[int], int | None]) -> None:
        self.additive, self.overhead = measure.additive, measure.overhead
        self._measure, self._known = measure, known

    def group(self, messages: Sequence[Any]) -> int:
        total = 0
        for message in messages:
            tokens = self._known(id(message))
            total += self._measure.group([message]) if tokens is None else tokens
        return total

    def total(self, messages: Sequence[Any]) -> int:
        return self.overhead + self.group(messages) if self.additive else self._measure.total(messages)

    def added(self, messages: Sequence[Any]) -> int:
        return total_before(self._measure, messages) - self.overhead


def existing(database: Database, scope: Scope) -> list[str]:
    """Returns the names of the conversations of exactly this scope, the oldest first."""
    from .tables import owned_by

    table, owned = threads(), owned_by(scope)
    mine = (table.c.owner == owned["owner"]) & (table.c.project == owned["project"])
    with database.read() as connection:
        names = connection.execute(sa.select(table.c.name).where(mine).order_by(table.c.seq)).scalars()
        return list(dict.fromkeys([name.removesuffix(ARCHIVED) for name in names]))


def of_one_state(read: Callable[[], T]) -> T:
    """Returns what `read` returns; where somebody edits a thread meanwhile, all is read again."""
    for _ in range(AGAIN):
        with suppress(StoreConflictError):
            return read()
    return read()
