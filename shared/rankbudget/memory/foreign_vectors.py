"""Memories by meaning in a vector index of another library, which the database checks after each search."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from ..errors import StoreError, named_failure
from ..segment import Scope
from . import sqlalchemy_later as sa
from .database import Database
from .nearest import belongs_to
from .outside import OUTSIDE, left_in, note, note_deleted, note_gone, noted
from .tables import memories, owned_by
from .vectors import BATCH, REST, SqlVectors, Whose, whose_of

_WITH_PUT = 16
"""Rows that a put adds to the index: its own, and others that wait."""
_ASKED = 10 * BATCH
"""Rows that a search asks the index for; the others wait for the next one."""
_WIDER, _MOST = 4, 10_000
"""A search that finds too many rows that no longer hold is made wider, up to so many hits."""


class VectorIndex(Protocol):
    """A vector index outside of the database, as an adapter wraps it. It may be late, and is never believed.

    Rules:
        1. `add` replaces what it has under the same id.
        2. `search` returns ids with their similarity, higher is nearer, only of entries whose metadata have
           all the given fields.
        3. `delete` removes ids, and is silent about unknown ones.
        4. `held` may be left out. Then only a search that finds nothing shows that it is not the index that
           an earlier process filled, and `MemoryStore.embed_missing` adds all again.

    Args:
        name: what it is called where a receipt must name it; another name is another index.
    """

    name: str

    def add(self, ids: Sequence[str], texts: Sequence[str], metadata: Sequence[Mapping[str, str]]) -> None:
        """Adds or replaces texts (rule 1)."""

    def search(self, query: str, where: Mapping[str, str], limit: int) -> Sequence[tuple[str, float]]:
        """Returns at most `limit` entries, the nearest first (rule 2)."""

    def delete(self, ids: Sequence[str]) -> None:
        """Removes entries (rule 3)."""

    def held(self, ids: Sequence[str], texts: Sequence[str]) -> Collection[str] | None:
        """Returns which ids it has with these texts; None where it cannot tell (rule 4)."""


class ForeignVectors(SqlVectors):
    """Keeps texts in a `VectorIndex`, and marks in the database which rows are there.

    A row without a mark is added by the next put, or by the first search that would see it. So what a crash,
    an outage or another process left out is made up for. A mark that this object did not write says only that
    some index of this name got the row: it may have been one in the memory of another process, or a newer one
    than the file that was opened. So this index is asked for the row before it is believed to have it.

    Args:
        database: where the memories are.
        index: where they are found.
    """

    compares_itself = False

    def __init__(self, database: Database, index: VectorIndex) -> None:
        super().__init__(database)
        self.index = index
        self.held_by = index.name
        self.key = OUTSIDE + index.name
        self._held: dict[int, str] = {}  # digests of the texts that this index has
        self._unsure: dict[int, tuple[Whose, str]] = {}  # marked rows that it may lack, also if it does
        self._silent = 0.0  # until then it is not asked, as it cannot tell
        self._swept = 0.0  # until then searches leave deleted rows in it, as it did not delete them

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.database, self.index)

    def embed(self, text: str) -> None:
        """Does nothing: the index embeds texts when it gets them."""

    def write(self, connection: sa.Connection, seq: int, text: str, vector: Any) -> None:
        """Notes that the index will get the row; no transaction waits for that."""
        del text, vector
        row = memories().select().where(memories().c.seq == seq)
        note(connection, self.index.name, connection.execute(row).all())

    def written(self) -> None:
        """Adds the rows that were written; what fails is tried again by a search."""
        self.read_changes()
        try:
            self._fill(None, _WITH_PUT)
        except Exception:  # noqa: BLE001 - the row is kept, whatever the index says
            self._resting = time.monotonic() + REST

    def ask(self, query: str, levels: Sequence[Scope], limit: int) -> _Hits:
        """Returns what the index finds for each level."""
        if time.monotonic() >= self._swept and self.sweep():
            self._swept = time.monotonic() + REST
        self.read_changes()
        whose = [whose_of(level) for level in levels]
        self._look(whose)
        self._fill(whose)
        hits = {level: self.search(query, level, limit) for level in levels}
        for level, found in hits.items():
            if not found and self._lacks([whose_of(level)]):  # it cannot tell, but it has none of them
                self._fill([whose_of(level)])
                hits[level] = self.search(query, level, limit)
        return _Hits(self, query, hits)

    def fill(self) -> int:
        """Adds all rows that the index lacks, and all again of which it cannot tell."""
        self.read_changes()
        while self._look(None):
            pass
        self._lacks(None)
        return super().fill()

    def _take(self, row: Any) -> None:
        super()._take(row)
        if row.known and self._held.get(row.seq) != row.digest:
            self._unsure[row.seq] = (row.owner, row.project), row.digest
        else:
            self._unsure.pop(row.seq, None)

    def _drop(self, seq: int) -> None:
        super()._drop(seq)
        self._held.pop(seq, None)
        self._unsure.pop(seq, None)

    def _waiting(self, whose: Collection[Whose] | None) -> list[int]:
        """Returns the rows of anybody or of these that the index was not asked for."""
        rows = self._unsure.items()
        mine = [seq for seq, (own, _) in rows if whose is None or own in whose]
        return [seq for seq in mine if seq not in self.missing]

    def _lacks(self, whose: Collection[Whose] | None) -> bool:
        """Notes that the index has none of the rows it was not asked for; returns whether there are any."""
        with self.lock:
            waiting = self._waiting(whose)
            self.missing |= {seq: self._unsure[seq][0] for seq in waiting}
        return bool(waiting)

    def _look(self, whose: Collection[Whose] | None) -> bool:
        """Asks the index for marked rows, and notes which it lacks; returns whether there were any."""
        if time.monotonic() < self._silent:
            return False
        with self.lock:
            waiting = self._waiting(whose)[-_ASKED:]
        for start in range(0, len(waiting), BATCH):
            part = waiting[start : start + BATCH]
            rows = self._texts(part)
            held = self._asked(rows)
            if held is None:
                self._silent = time.monotonic() + REST
                return False
            with self.lock:
                for seq in set(part) - {row.seq for row in rows}:
                    self._drop(seq)  # it was deleted
                for row in rows:
                    if row.id in held:
                        self._has(row)
                    elif row.seq in self._unsure:
                        self.missing[row.seq] = row.owner, row.project
        return bool(waiting)

    def _asked(self, rows: Sequence[Any]) -> Collection[str] | None:
        """Returns which rows the index has; None where it cannot tell, or not now."""
        ask = getattr(self.index, "held", None)
        try:
            return ask([row.id for row in rows], [row.text for row in rows]) if ask else None
        except Exception:  # noqa: BLE001 - any library's errors; where it is out of reach, the search says so
            return None

    def _has(self, row: Any) -> None:
        if self._unsure.get(row.seq, ("", row.digest))[1] == row.digest:  # else it was changed meanwhile
            self._held[row.seq] = row.digest
            self._unsure.pop(row.seq, None)

    def remove(self, wanted: sa.ColumnElement[bool]) -> tuple[str, ...]:
        """Removes rows from the index; first their marks, so that rows that stay are added again."""
        marks = sa.table("rankbudget_memory_vectors", sa.column("seq"), sa.column("embedder"))
        with self.database.write() as connection:
            found = connection.execute(sa.select(memories().c.seq, memories().c.id).where(wanted)).all()
            for start in range(0, len(found), BATCH):
                seqs = [row.seq for row in found[start : start + BATCH]]
                connection.execute(marks.delete().where(marks.c.seq.in_(seqs), marks.c.embedder == self.key))
                written = memories().update().where(memories().c.seq.in_(seqs))
                connection.execute(written.values(replaced=memories().c.replaced))  # all processes look again
        return self._deleted([row.id for row in found])

    def sweep(self, subject: Scope | None = None) -> tuple[str, ...]:
        """Removes deleted rows from the index, whoever deleted them, and the notes that it may have them."""
        with self.database.read() as connection:
            left = left_in(connection, self.index.name, subject)
        return self._deleted(left, done=True)

    def _deleted(self, ids: Sequence[str], *, done: bool = False) -> tuple[str, ...]:
        """Removes entries from the index; `done` where none of them is added again."""
        try:
            for start in range(0, len(ids), BATCH):
                part = ids[start : start + BATCH]
                self.index.delete(part)
                if done:
                    with self.database.write() as connection:
                        note_deleted(connection, self.index.name, part)
        except Exception as error:  # noqa: BLE001 - any library's errors
            return (f"the vector index {self.index.name!r}: {error!r:.200}",)
        return ()

    def _announce(self, rows: Sequence[Any]) -> None:
        """Notes that the index gets rows."""
        with self.database.read() as connection:
            known = noted(connection, self.index.name, [row.id for row in rows])
        if fresh := [row for row in rows if row.id not in known]:
            with self.database.write() as connection:
                note(connection, self.index.name, fresh)

    def _key_of(self, vector: Any) -> str:
        del vector
        return self.key

    def _embedded(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        """Adds rows to the index, and returns the marks of those that have none."""
        import numpy as np

        metadata = [{"owner": row.owner, "project": row.project} for row in rows]
        with named_failure(f"the vector index {self.index.name!r}", StoreError):
            self.index.add([row.id for row in rows], [row.text for row in rows], metadata)
        self._take_back(rows)
        mark = np.ones(1, dtype=np.float32)
        with self.lock:
            marks = [self._row(row.seq, row.text, mark) for row in rows if row.seq not in self._unsure]
            for row in rows:
                self._has(row)
        return marks

    def _take_back(self, rows: Sequence[Any]) -> None:
        """Removes from the index what others deleted while it was added."""
        there = {row.seq for row in self._texts([row.seq for row in rows])}
        deleted = [row for row in rows if row.seq not in there]
        if deleted:
            ids = [row.id for row in deleted]
            with self.database.write() as connection:
                note(connection, self.index.name, deleted)
                note_gone(connection, ids)
            self._deleted(ids, done=True)

    def search(self, query: str, level: Scope, limit: int) -> list[tuple[str, float]]:
        with named_failure(f"the vector index {self.index.name!r}", StoreError):
            return [(name, float(score)) for name, score in self.index.search(query, owned_by(level), limit)]


class _Hits:
    """What a foreign index found; each hit counts only where the database shows its row."""

    def __init__(
        self, vectors: ForeignVectors, query: str, hits: Mapping[Scope, list[tuple[str, float]]]
    ) -> None:
        self._vectors = vectors
        self._query = query
        self._hits = hits

    def nearest(
        self, connection: sa.Connection, level: Scope, holds: sa.TextClause, limit: int, now: float
    ) -> list[tuple[int, float]]:
        """Returns rows that the index found, and that hold; it is asked for more where many do not."""
        del now
        hits, asked = self._hits[level], limit
        while True:
            found = self._shown(connection, hits, belongs_to(level) & holds)[:limit]
            if len(found) == limit or len(hits) < asked or asked >= _MOST:
                return found
            asked *= _WIDER
            hits = self._vectors.search(self._query, level, asked)

    def scores(self, connection: sa.Connection, seqs: Sequence[int]) -> dict[int, float]:
        """Returns nothing: the index compares only what it finds."""
        del connection, seqs
        return {}

    def covers(self, level: Scope) -> bool:
        """Returns that rows may be missing."""
        del level
        return False

    def lost(self, seqs: Iterable[int]) -> None:
        """Does nothing: each hit was looked up."""

    @staticmethod
    def _shown(
        connection: sa.Connection, hits: Sequence[tuple[str, float]], wanted: sa.ColumnElement[bool]
    ) -> list[tuple[int, float]]:
        rows, seqs = memories().c, dict[str, int]()
        for start in range(0, len(hits), BATCH):
            names = [name for name, _ in hits[start : start + BATCH]]
            found = connection.execute(sa.select(rows.id, rows.seq).where(rows.id.in_(names), wanted))
            seqs |= {row.id: row.seq for row in found}
        return [(seqs[name], score) for name, score in dict(hits).items() if name in seqs]
