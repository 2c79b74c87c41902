"""The candidates for a question: for each level of its reader those nearest by meaning, and by rare words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from heapq import nlargest
from typing import TYPE_CHECKING, Any

from ..relevance.words import content_terms
from ..segment import Scope
from . import sqlalchemy_later as sa
from .memory import Memory
from .protocol import Near
from .tables import ALWAYS, memories, memory_of, owned_by, seconds
from .terms import Rare, rows_with_rare_terms, rows_with_terms
from .vector_tables import AT_ONCE

if TYPE_CHECKING:
    from .protocol import Question


_HOLDS = """(
    rankbudget_memories.valid_from <= :moment
    AND (rankbudget_memories.valid_to IS NULL OR rankbudget_memories.valid_to > :moment)
    AND (rankbudget_memories.expires_at IS NULL OR rankbudget_memories.expires_at > :moment)
    AND (rankbudget_memories.gaps = 0 OR NOT EXISTS (
        SELECT 1 FROM rankbudget_memories AS later
        WHERE later.owner = rankbudget_memories.owner AND later.project = rankbudget_memories.project
        AND later.line = rankbudget_memories.line
        AND (later.said_from, later.seq) > (rankbudget_memories.said_from, rankbudget_memories.seq)
        AND later.said_from <= :moment AND (later.said_to IS NULL OR later.said_to > :moment)
    ))
)"""
_NEARER = 1e-6
"""What puts a row with a number of the question before the nearest others."""
_BEFORE_A_WORD = 2
"""So many others may come before those with a rare word; none before those with a rare number."""
_OWN = 5
"""Of the candidates by meaning, each level has at least a fifth of the usual number."""


def belongs_to(scope: Scope) -> sa.ColumnElement[bool]:
    """Returns which rows are of exactly this scope."""
    owned = owned_by(scope)
    return (memories().c.owner == owned["owner"]) & (memories().c.project == owned["project"])


def holds_at(now: datetime) -> sa.TextClause:
    """Returns which rows are valid and not expired at a moment, and not interrupted by a later one."""
    return sa.text(_HOLDS).bindparams(moment=seconds(now))  # building it of parts takes ten times as long


def _shown_at(now: datetime, levels: Sequence[Scope]) -> sa.TextClause:
    """Returns which rows hold and are of any level: each owner that a level names, with each project."""
    owned = [owned_by(level) for level in levels]
    values: dict[str, Any] = {"moment": seconds(now)}
    named = []
    for column in ("owner", "project"):
        own = {f"{column}{n}": name for n, name in enumerate(sorted({one[column] for one in owned}))}
        named.append(f"rankbudget_memories.{column} IN ({', '.join([':' + name for name in own])})")
        values |= own
    return sa.text(" AND ".join([*named, _HOLDS])).bindparams(**values)


def near_by_words(
    connection: sa.Connection, query: str, levels: Sequence[Scope], limit: int, now: datetime
) -> Near:
    """Returns for each level the rows with most of the words, then the newest, and all that always matter.

    Those with rare words are among them, however many others share more of the words.
    """
    terms, holds = content_terms(query), holds_at(now)
    found: dict[int, Any] = {}
    for level in levels:
        mine = belongs_to(level) & holds
        nearest = list(rows_with_terms(connection, terms, mine, limit))
        if len(nearest) < limit:
            nearest += _newest(connection, mine, limit)
        found |= {row.seq: row for row in nearest[:limit]}
    seen = _shown_at(now, levels)
    rare = rows_with_rare_terms(connection, terms, seen, limit)
    found |= _rows(connection, set(rare.rows).difference(found), seen)
    found |= {row.seq: row for row in _always(connection, seen)}
    return _near({seq: memory_of(found[seq]) for seq in sorted(found)}, rare)


def near_by_meaning(
    connection: sa.Connection, query: str, asked: Question, levels: Sequence[Scope], limit: int, now: datetime
) -> tuple[Near, list[int]]:
    """Returns the nearest rows, some of each level, those with rare words, and all that always matter.

    Also returns the numbers of rows that were found by meaning and that the database does not show.
    """
    holds, seen = holds_at(now), _shown_at(now, levels)
    rows: dict[int, Any] = {row.seq: row for row in _always(connection, seen)}
    hits: dict[int, float] = {}
    own: set[int] = set()
    for level in levels:
        near = asked.nearest(connection, level, holds, limit, seconds(now))
        hits |= dict(near)
        own |= {seq for seq, _ in near[: -(-limit // _OWN)]}
        if len(near) < limit and not asked.covers(level):
            rows |= {row.seq: row for row in _newest(connection, belongs_to(level) & holds, limit)}
    found = own.union(nlargest(limit, hits, key=hits.__getitem__))
    terms = content_terms(query)
    rare = rows_with_rare_terms(connection, terms, seen, limit)
    rows |= _rows(connection, found.union(rare.rows).difference(rows), seen)
    hits |= asked.scores(connection, [seq for seq in rows if seq not in hits])
    if hits:
        hits |= dict.fromkeys(rare.numbered, max(hits.values()) + _NEARER)  # vectors are blind to numbers
    shown = {seq: memory_of(rows[seq], hits.get(seq)) for seq in sorted(rows)}
    return _near(shown, rare), _lost(connection, found.difference(rows))


def _lost(connection: sa.Connection, missing: Iterable[int]) -> list[int]:
    """Returns those of the rows that the database does not show but for a gap in their period."""
    lost = set(missing)
    if lost:
        gaps = sa.select(memories().c.seq).where(memories().c.seq.in_(lost), memories().c.gaps == 1)
        lost -= set(connection.execute(gaps).scalars())
    return sorted(lost)


def _near(shown: Mapping[int, Memory], rare: Rare) -> Near:
    places = dict.fromkeys(rare.named, _BEFORE_A_WORD) | dict.fromkeys(rare.numbered, 0)
    return Near(shown.values(), {shown[seq].id: most for seq, most in places.items() if seq in shown})


def _rows(connection: sa.Connection, seqs: Iterable[int], seen: sa.TextClause) -> dict[int, Any]:
    """Returns those of the rows that are seen, by their number."""
    rows: dict[int, Any] = {}
    missing = sorted(seqs)
    for start in range(0, len(missing), AT_ONCE):
        some = memories().c.seq.in_(missing[start : start + AT_ONCE])
        rows |= {row.seq: row for row in connection.execute(memories().select().where(some, seen)).all()}
    return rows


def _always(connection: sa.Connection, seen: sa.TextClause) -> Sequence[Any]:
    return connection.execute(memories().select().where(seen, sa.text(ALWAYS))).all()


def _newest(connection: sa.Connection, wanted: sa.ColumnElement[bool], limit: int) -> Sequence[Any]:
    chosen = memories().select().where(wanted).order_by(memories().c.seq.desc())
    return connection.execute(chosen.limit(limit)).all()
