"""What a memory store stands on: a backend, and where it has vectors, their index."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from ..segment import Scope
from . import sqlalchemy_later as sa
from .memory import Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What `MemoryStore.forget` removed, and what it could not reach.

    Args:
        subject: who was forgotten.
        removed: number of rows by what they are, as "memories" or "messages".
        unreached: one sentence for each place that may still hold something of the subject.
    """

    subject: Scope
    removed: Mapping[str, int] = field(default_factory=dict, hash=False)
    unreached: tuple[str, ...] = ()


class Near(list[Memory]):
    """Candidates for a question.

    Args:
        memories: what was found.
        named: for the ids of the few that have a rare word of the question, how many others may come first:
            two, none where it is a number.
    """

    def __init__(self, memories: Iterable[Memory] = (), named: Mapping[str, int] | None = None) -> None:
        super().__init__(memories)
        self.named: Mapping[str, int] = named or {}


class MemoryBackend(Protocol):
    """Keeps memories where many threads and processes reach them.

    Rules:
        1. `put` stores one row for one normalised text (`digest_of`) of a scope and key, and for one
           beginning if it is dated: the same again changes that row. Another text under the key of its scope
           stays beside it: at each moment that one holds which began last of those whose validity covers it,
           the newer one of two that began together. A memory named by `supersedes` ends for good where the
           new one begins, with all that began before it under its key. A memory that cannot be kept beside
           the one that holds is refused by StoreUnsupportedError.
        2. `get`, `replace`, `versions` and `delete` reach only memories of exactly this scope, by key or id.
        3. `get` and `near` return what holds at `now`: valid, not expired. Nothing is deleted by a clock.
        4. `replace` writes a memory whose version is still the stored one; else StoreConflictError. Many may
           try at once: one of them succeeds.
        5. `near` returns what its reader may see (`Scope.visible_to`): for each level, the nearest to the
           query by words or meaning, with their similarity as score, and all that always matter: kind "core"
           or "preference", and static ones. A `Near` also says which few have a rare word.
        6. What returned was kept: a process killed after that loses nothing of it, one killed before keeps
           all of it or nothing.
        7. `forget` removes every row of a user or project, in all scopes that name it.
        8. A promise that it cannot keep is listed in `lacks` by its method's name, and the method raises
           StoreUnsupportedError.
    """

    lacks: frozenset[str]

    def put(self, memory: Memory, *, given: Collection[str], supersedes: str | None, now: datetime) -> Memory:
        """Stores a memory (rule 1), of which the `given` fields are set, and returns it with id and dates."""

    def get(self, name: str, scope: Scope, now: datetime) -> Memory | None:
        """Returns the memory with a key or id (rules 2 and 3)."""

    def replace(self, memory: Memory) -> Memory:
        """Writes a changed memory and returns it with its new version (rule 4)."""

    def versions(self, name: str, scope: Scope) -> list[Memory]:
        """Returns all that ever held under a key or id, oldest first."""

    def near(self, query: str, reader: Scope, limit: int, now: datetime) -> list[Memory]:
        """Returns at most about `limit` candidates of each level (rule 5)."""

    def delete(self, name: str, scope: Scope) -> int:
        """Removes all versions of a memory, and returns how many there were."""

    def forget(self, subject: Scope) -> Receipt:
        """Removes all of a user or project (rule 7)."""


class Question(Protocol):
    """A question that was embedded, before the transaction that answers it."""

    def nearest(
        self, connection: sa.Connection, level: Scope, holds: sa.TextClause, limit: int, now: float
    ) -> list[tuple[int, float]]:
        """Returns rows of a level that hold, the nearest first, with their similarity."""

    def scores(self, connection: sa.Connection, seqs: Sequence[int]) -> dict[int, float]:
        """Returns the similarity of rows, of those that have a vector."""

    def covers(self, level: Scope) -> bool:
        """Returns whether all rows of a level have a vector."""

    def lost(self, seqs: Iterable[int]) -> None:
        """Hears that the database does not show rows that were found; the question is asked again."""


class Vectors(Protocol):
    """Where the vectors of memories are, and who compares them."""

    def embed(self, text: str) -> Any:
        """Returns what `write` needs for a text; it may take long, so no transaction is open."""

    def write(self, connection: sa.Connection, seq: int, text: str, vector: Any) -> None:
        """Writes the vector of a row in the transaction that writes the row."""

    def written(self) -> None:
        """Hears that a transaction that wrote was kept."""

    def ask(self, query: str, levels: Sequence[Scope], limit: int) -> Question:
        """Embeds a question, and some of the rows that have no vector yet."""

    def fill(self) -> int:
        """Embeds all rows that have no vector yet, and returns how many there were."""

    def remove(self, wanted: sa.ColumnElement[bool]) -> tuple[str, ...]:
        """Removes rows from where the database does not reach, and says where that failed."""

    def sweep(self, subject: Scope | None = None) -> tuple[str, ...]:
        """Removes deleted rows, all of a `subject` in any case, as `remove` does."""

    def removed(self, seqs: Iterable[int]) -> None:
        """Hears that rows were deleted."""


def by_its_name(
    backend: MemoryBackend, memory: Memory, supersedes: str | None, now: datetime
) -> tuple[Memory, str | None]:
    """Returns a memory to put, and what it supersedes: its key may be the id of one that it replaces."""
    named = None if memory.key is None else backend.get(memory.key, memory.scope, now)
    if named is None or named.id != memory.key:
        return memory, supersedes
    return (replace(memory, key=named.key), supersedes) if named.key else (memory, supersedes or named.id)
