"""Memories by meaning in a vector index of another library, which the database checks after each search."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import named_failure
from ..segment import Scope
from .database import Database
from .nearest import belongs_to
from .tables import memories, owned_by
from .vector_tables import OUTSIDE
from .vectors import BATCH, REST, SqlVectors, whose_of

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, TextClause

_WITH_PUT = 16
"""Rows that a put adds to the index: its own, and others that wait."""
_WIDER, _MOST = 4, 10_000
"""A search that finds too many rows that no longer hold is made wider, up to so many hits."""


class VectorIndex(Protocol):
    """A vector index outside of the database, as an adapter wraps it. It may be late, and is never believed.

    Rules:
        1. `add` replaces what it has under the same id.
        2. `search` returns ids with their similarity, higher is nearer, only of entries whose metadata have
           all the given fields.
        3. `delete` removes ids, and is silent about unknown ones.

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


class ForeignVectors(SqlVectors):
    """Keeps texts in a `VectorIndex`, and marks in the database which rows are there.

    A row without a mark is added by the next put, or by the first search that would see it. So what a crash,
    an outage or another process left out is made up for.

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

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.database, self.index)

    def embed(self, text: str) -> None:
        """Does nothing: the index embeds texts when it gets them."""

    def write(self, connection: Connection, seq: int, text: str, vector: Any) -> None:
        """Does nothing: no transaction waits for the index."""

    def written(self) -> None:
        """Adds the rows that were written; what fails is tried again by a search."""
        self.read_changes()
        try:
            self._fill(None, _WITH_PUT)
        except Exception:  # noqa: BLE001 - the row is kept, whatever the index says
            self._resting = time.monotonic() + REST

    def ask(self, query: str, levels: Sequence[Scope], limit: int) -> _Hits:
        """Returns what the index finds for each level."""
        self.read_changes()
        self._fill([whose_of(level) for level in levels])
        return _Hits(self, query, {level: self.search(query, level, limit) for level in levels})

    def remove(self, wanted: ColumnElement[bool]) -> tuple[str, ...]:
        """Removes rows from the index; first their marks, so that rows that stay are added again."""
        from sqlalchemy import column, select, table

        marks = table("rankbudget_memory_vectors", column("seq"), column("embedder"))
        with self.database.write() as connection:
            found = connection.execute(select(memories().c.seq, memories().c.id).where(wanted)).all()
            for start in range(0, len(found), BATCH):
                seqs = [row.seq for row in found[start : start + BATCH]]
                connection.execute(marks.delete().where(marks.c.seq.in_(seqs), marks.c.embedder == self.key))
                written = memories().update().where(memories().c.seq.in_(seqs))
                connection.execute(written.values(replaced=memories().c.replaced))  # all processes look again
        try:
            for start in range(0, len(found), BATCH):
                self.index.delete([row.id for row in found[start : start + BATCH]])
        except Exception as error:  # noqa: BLE001 - any library's errors
            return (f"the vector index {self.index.name!r}: {error!r:.200}",)
        return ()

    def _embedded(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        """Adds rows to the index, and returns their marks."""
        import numpy as np

        metadata = [{"owner": row.owner, "project": row.project} for row in rows]
        with named_failure(f"the vector index {self.index.name!r}"):
            self.index.add([row.id for row in rows], [row.text for row in rows], metadata)
        return [self._row(row.seq, row.text, np.ones(1, dtype=np.float32)) for row in rows]

    def search(self, query: str, level: Scope, limit: int) -> list[tuple[str, float]]:
        with named_failure(f"the vector index {self.index.name!r}"):
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
        self, connection: Connection, level: Scope, holds: TextClause, limit: int, now: float
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

    def scores(self, connection: Connection, seqs: Sequence[int]) -> dict[int, float]:
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
        connection: Connection, hits: Sequence[tuple[str, float]], wanted: ColumnElement[bool]
    ) -> list[tuple[int, float]]:
        from sqlalchemy import select

        rows, seqs = memories().c, dict[str, int]()
        for start in range(0, len(hits), BATCH):
            names = [name for name, _ in hits[start : start + BATCH]]
            found = connection.execute(select(rows.id, rows.seq).where(rows.id.in_(names), wanted))
            seqs |= {row.id: row.seq for row in found}
        return [(seqs[name], score) for name, score in dict(hits).items() if name in seqs]
