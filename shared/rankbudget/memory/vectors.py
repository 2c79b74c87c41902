"""Memories by meaning: their vectors are beside them in the database, and compared there or here."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal

from ..errors import BudgetConfigError, StoreError, shown
from ..relevance.embedding import Embedder, EmbeddingScorer, EmbedFunction, missing_reason
from ..segment import Scope
from . import sqlalchemy_later as sa
from .database import Database
from .tables import memories, owned_by
from .vector_rows import ScopeRows
from .vector_tables import AT_ONCE, Changes, first_vector, has_vector_type, key_of, write_vectors, written

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .protocol import Question

    Vector = NDArray[np.float32]

Whose = tuple[str, str]
"""The owner and the project of a row, as the table has them."""
BATCH = 500
"""Rows without a vector that one search embeds: the others wait for the next one."""
_TRIES = 3
"""How often a question is embedded anew where rows get vectors of another length meanwhile."""
REST = 60.0
"""Seconds until rows are embedded again after the database refused to keep their vectors."""


class SqlVectors:
    """Vectors in the database, under the name of their embedding, so that two embeddings never mix.

    The database compares them where it has pgvector; else this process does, in an index that it reads from
    the database and brings up to date at each search. Rows without a vector of this embedding are embedded by
    the searches that would see them, a batch each.

    Args:
        database: where the memories are; its tables must be there at the first use.
        embed: an `Embedder`, a function from texts to vectors, or None for wordllama's, loaded at first use.
    """

    def __init__(self, database: Database, embed: Embedder | EmbedFunction | None = None) -> None:
        self.database = database
        self._embed = embed
        self.lock = RLock()
        self.key = ""
        self._changes = Changes()
        self.missing: dict[int, Whose] = {}
        self._resting = 0.0
        self.rows: dict[Whose, ScopeRows] = {}
        self.whose: dict[int, Whose] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.database, self._embed)

    @cached_property
    def embedder(self) -> Embedder:
        """Turns texts into vectors."""
        return EmbeddingScorer(self._embed).embedder

    @cached_property
    def typed(self) -> bool:
        """Whether the database has a type for vectors, and compares them itself."""
        if self.database.is_sqlite:
            return False
        with self.database.read() as connection:
            return has_vector_type(connection)

    @property
    def compares_itself(self) -> bool:
        """Whether vectors are compared in this process."""
        return not self.typed

    def embed(self, text: str) -> Any:
        """Returns the vector of a text."""
        vector: Vector = self.embedder.raw((text,))[0]
        self._under(vector)
        return vector

    def write(self, connection: sa.Connection, seq: int, text: str, vector: Any) -> None:
        """Writes the vector of a row; one that is no number is left to a later search."""
        row = self._row(seq, text, vector)
        if row["vector"] is not None:
            write_vectors(connection, [row], typed=self.typed)

    def written(self) -> None:
        """Does nothing: a search sees what was written."""

    def ask(self, query: str, levels: Sequence[Scope], limit: int) -> Question:
        """Returns the question with its vector, the index as new as the database."""
        del limit
        for _ in range(_TRIES):  # the embedding may be another one meanwhile
            asked = Asked(self, self.embed(query))
            self.read_changes()
            if self._fill([whose_of(level) for level in levels]):
                self.read_changes()
            if asked.key == self.key:
                break
        return asked

    def fill(self) -> int:
        """Embeds all rows without a vector, batch by batch; it may be stopped and called again."""
        self.embed("a")
        self.read_changes()
        total = 0
        while done := self._fill(None):
            total += done
            self.read_changes()
        return total

    def remove(self, wanted: sa.ColumnElement[bool]) -> tuple[str, ...]:
        """Reaches everything: the database removes vectors with their rows."""
        del wanted
        return ()

    def sweep(self, subject: Scope | None = None) -> tuple[str, ...]:
        """Does nothing, as there is nothing to reach."""
        del subject
        return ()

    def removed(self, seqs: Iterable[int]) -> None:
        """Removes rows from memory, too."""
        with self.lock:
            for seq in seqs:
                self._drop(seq)

    def _under(self, vector: Vector) -> None:
        """Starts anew where the embedding has other vectors than before."""
        key, _ = self._key_of(vector), self.typed  # asked for before a transaction needs it
        if key != self.key:
            self._check_same(key)
        with self.lock:
            if key != self.key:
                self.key, self._changes = key, Changes()
                self.missing, self.rows, self.whose = {}, {}, {}

    def _check_same(self, key: str) -> None:
        """Raises BudgetConfigError where another embedding of the same name wrote the vectors of this key."""
        with self.database.read() as connection:
            stored = first_vector(connection, key)
        if stored is not None and not self.embedder.gives(*stored):
            msg = (
                f"embed must have its own name (got {self.embedder.name!r}, under which vectors of another "
                "embedding are stored). Give Embedder(function, name=..)."
            )
            raise BudgetConfigError(msg)

    def read_changes(self) -> None:
        """Reads what was written since the last time; later readers see no older state."""
        with self.database.read() as connection, self.lock:  # a state read under the lock is the newest
            fresh = self._changes.read(connection)
            for start in range(0, len(fresh), AT_ONCE):
                for row in connection.execute(self._changed(fresh[start : start + AT_ONCE])):
                    self._take(row)

    def _changed(self, seqs: Sequence[int]) -> Any:
        rows = memories().c
        vectors = sa.table(
            "rankbudget_memory_vectors", sa.column("seq"), sa.column("embedder"), sa.column("vector")
        )
        mine = sa.and_(vectors.c.seq == rows.seq, vectors.c.embedder == self.key)
        vector = vectors.c.vector if self.compares_itself else sa.literal_column("1")
        known = vectors.c.seq.is_not(None).label("known")
        dates = rows.valid_from, rows.valid_to, rows.expires_at
        own = rows.seq, rows.owner, rows.project, rows.digest
        found = sa.select(*own, *dates, known, vector.label("vector"))
        return found.select_from(sa.outerjoin(memories(), vectors, mine)).where(rows.seq.in_(seqs))

    def _take(self, row: Any) -> None:
        whose = row.owner, row.project
        if row.known:
            self.missing.pop(row.seq, None)
        else:
            self.missing[row.seq] = whose
        if self.compares_itself:
            self._index(row, whose)

    def _index(self, row: Any, whose: Whose) -> None:
        """Takes a changed row into the index."""
        import numpy as np

        if not row.known:
            if row.seq in self.whose:
                self.rows[self.whose.pop(row.seq)].remove(row.seq)
            return

        vector = np.frombuffer(row.vector, dtype="<f4")
        rows = self.rows.setdefault(whose, ScopeRows(len(vector)))
        self.whose[row.seq] = whose
        ends = [end for end in (row.valid_to, row.expires_at) if end is not None]
        rows.put(row.seq, vector, row.valid_from, min(ends, default=math.inf))

    def _fill(self, whose: Sequence[Whose] | None, most: int = BATCH) -> int:
        """Embeds at most `most` rows without a vector, of anybody or of these; returns how many."""
        with self.lock:
            waiting = [seq for seq, own in self.missing.items() if whose is None or own in whose][-most:]
        if not waiting or time.monotonic() < self._resting:
            return 0
        found = self._texts(waiting)
        if not self._is_kept(self._announce, found):
            return 0
        fresh = self._embedded(found)
        failed = {row["seq"] for row in fresh if row["vector"] is None}
        if not self._is_kept(self._write, [row for row in fresh if row["vector"] is not None]):
            return 0
        if failed:  # the embedder gave no numbers: they are found by their words until it does
            self._resting = time.monotonic() + REST
        with self.lock:
            for seq in set(waiting) - failed:
                self.missing.pop(seq, None)
        return len(waiting) - len(failed)

    def _is_kept(self, write: Callable[[Sequence[Any]], None], rows: Sequence[Any]) -> bool:
        """Writes something of rows, and returns whether the database took it."""
        try:
            write(rows)
        except StoreError:  # it is read-only, or busy: these rows are found by their words
            self._resting = time.monotonic() + REST
            return False
        return True

    def _announce(self, rows: Sequence[Any]) -> None:
        """Does nothing: the database gets the vectors of rows, and nobody else."""

    def _write(self, fresh: Sequence[dict[str, Any]]) -> None:
        """Writes the vectors of rows."""
        if not fresh:
            return
        rows, seqs = memories().c, [row["seq"] for row in fresh]
        with self.database.write() as connection:  # rows first, as their writers lock them
            locked = sa.select(rows.seq).where(rows.seq.in_(seqs)).order_by(rows.seq)
            connection.execute(locked.with_for_update()).all()
            write_vectors(connection, fresh, typed=self.typed)

    def _texts(self, seqs: Sequence[int]) -> Sequence[Any]:
        """Returns rows as an index needs them."""
        rows = memories().c
        own = rows.seq, rows.id, rows.text, rows.digest, rows.owner, rows.project
        with self.database.read() as connection:
            return connection.execute(sa.select(*own).where(rows.seq.in_(seqs))).all()

    def _embedded(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        """Returns what to write for rows."""
        vectors = self.embedder.raw([row.text for row in rows])
        if len(vectors):
            self._under(vectors[0])
        return [self._row(row.seq, row.text, vector) for row, vector in zip(rows, vectors, strict=True)]

    def _row(self, seq: int, text: str, vector: Vector) -> dict[str, Any]:
        value = written(vector, typed=self.typed) if _is_number(vector) else None
        return {"seq": seq, "text": text, "embedder": self._key_of(vector), "vector": value}

    def _key_of(self, vector: Vector) -> str:
        return key_of(self.embedder.name, vector)

    def drop_deleted(self, connection: sa.Connection, whose: Whose) -> None:
        table = memories().c
        owned = sa.select(table.seq).where((table.owner == whose[0]) & (table.project == whose[1]))
        there = set(connection.execute(owned).scalars())
        known = [*self.rows[whose].seqs, *[seq for seq, own in self.missing.items() if own == whose]]
        for seq in known:
            if seq not in there:
                self._drop(seq)

    def _drop(self, seq: int) -> None:
        self.missing.pop(seq, None)
        whose = self.whose.pop(seq, None)
        if whose is not None:
            self.rows[whose].remove(seq)


class Asked:
    """A question with its vector."""

    def __init__(self, vectors: SqlVectors, vector: Vector) -> None:
        import numpy as np

        self._vectors = vectors
        self._vector = vector if _is_number(vector) else 0 * np.nan_to_num(vector)
        self.key = vectors._key_of(vector)  # noqa: SLF001 - its own kind

    def nearest(
        self, connection: sa.Connection, level: Scope, holds: sa.TextClause, limit: int, now: float
    ) -> list[tuple[int, float]]:
        """Returns rows of a level, the nearest first, by cosine."""
        own = self._own()
        if own.typed:
            rows, (owner, project) = memories().c, whose_of(level)
            mine = (rows.owner == owner) & (rows.project == project) & holds
            return list(self._compared(connection, mine, limit).items())
        with own.lock:
            found = own.rows.get(whose_of(level))
            return found.nearest(self._vector, limit, now) if found else []

    def scores(self, connection: sa.Connection, seqs: Sequence[int]) -> dict[int, float]:
        """Returns the cosine of rows."""
        own = self._own()
        if own.typed:
            known: dict[int, float] = {}
            for start in range(0, len(seqs), AT_ONCE):
                part = memories().c.seq.in_(seqs[start : start + AT_ONCE])
                known |= self._compared(connection, part, None)
            return known
        with own.lock:
            by_scope: dict[Whose, list[int]] = {}
            for seq in seqs:
                if seq in own.whose:
                    by_scope.setdefault(own.whose[seq], []).append(seq)
            found: dict[int, float] = {}
            for whose, some in by_scope.items():
                found |= own.rows[whose].scores(self._vector, some)
            return found

    def _own(self) -> SqlVectors:
        if self._vectors.key == self.key:
            return self._vectors
        then = self._vectors.key
        msg = f"embed must give vectors of one length (got {self.key!r}, then {then!r}). Ask again."
        raise StoreError(msg)

    def covers(self, level: Scope) -> bool:
        """Returns whether no row of a level lacks a vector."""
        with self._vectors.lock:
            return whose_of(level) not in self._vectors.missing.values()

    def lost(self, seqs: Iterable[int]) -> None:
        """Removes deleted rows from the index; the others changed meanwhile, and are read again."""
        own = self._vectors
        own.read_changes()
        with own.database.read() as connection, own.lock:
            for whose in {own.whose[seq] for seq in seqs if seq in own.whose}:
                own.drop_deleted(connection, whose)

    def _compared(
        self, connection: sa.Connection, wanted: sa.ColumnElement[bool], limit: int | None
    ) -> dict[int, float]:
        vectors = sa.table(
            "rankbudget_memory_vectors", sa.column("seq"), sa.column("embedder"), sa.column("vector")
        )
        rows, key = memories().c, self._vectors.key
        asked = sa.text("CAST(:asked AS vector)").bindparams(asked=written(self._vector, typed=True))
        distance = vectors.c.vector.op("<#>", return_type=sa.Float())(asked).label("distance")
        found = (
            sa.select(rows.seq, distance)
            .join(vectors, vectors.c.seq == rows.seq)
            .where(vectors.c.embedder == key, wanted)
            .order_by(distance, rows.seq.desc())
        )
        result = connection.execute(found.limit(limit) if limit else found)
        return {row.seq: -row.distance for row in result}


def _is_number(vector: Vector) -> bool:
    """Returns whether an embedder gave numbers, not NaN or infinite ones."""
    import numpy as np

    return bool(np.isfinite(vector).all())


def whose_of(level: Scope) -> Whose:
    """Returns a scope as the columns of its rows."""
    owned = owned_by(level)
    return owned["owner"], owned["project"]


def vectors_of(
    database: Database, embed: Embedder | EmbedFunction | Literal[False] | None
) -> SqlVectors | None:
    """Returns how memories are found by meaning; None for by their words alone."""
    if embed is False or (embed is None and missing_reason() is not None):
        return None
    given: Any = embed
    if given is not None and not callable(given) and not isinstance(given, Embedder):
        msg = (
            "embed must be a function from texts to vectors, an Embedder, None for the embedded default, or "
            f"False for words alone (got {shown(given)})"
        )
        raise BudgetConfigError(msg)
    return SqlVectors(database, embed)
