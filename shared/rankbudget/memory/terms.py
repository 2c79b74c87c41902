"""Memories by their words: FTS5 in SQLite, a text search vector in PostgreSQL.

Both index the stemmed terms of `relevance.words`, so that every language is read as the ranking reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from .tables import memories

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

_MOST = 64
"""Terms of a question that are looked for; a pasted page has thousands."""
_LONGEST = 64
"""Characters of a term that count; an encoded picture is one term, and PostgreSQL takes 2 kB."""
_MOST_BYTES = 1_000_000
"""Bytes of the terms of one row; PostgreSQL takes a megabyte."""


def add_terms(connection: Connection, seq: int, terms: Sequence[str]) -> None:
    """Indexes the terms of a row, in the place of older ones."""
    from sqlalchemy import text

    remove_terms(connection, [seq])
    terms = [term[:_LONGEST] for term in terms]
    if connection.dialect.name == "sqlite":
        insert = text("INSERT INTO rankbudget_memory_terms (rowid, terms) VALUES (:seq, :terms)")
        connection.execute(insert, {"seq": seq, "terms": " ".join(terms)})
    else:
        insert = text(
            "INSERT INTO rankbudget_memory_terms (seq, terms) "
            "VALUES (:seq, array_to_tsvector(CAST(:terms AS text[])))"
        )
        sizes = accumulate(len(term.encode()) for term in dict.fromkeys(terms))
        small = [term for term, size in zip(dict.fromkeys(terms), sizes, strict=True) if size <= _MOST_BYTES]
        connection.execute(insert, {"seq": seq, "terms": small})


def remove_terms(connection: Connection, rows: Sequence[int]) -> None:
    """Removes rows from the index."""
    from sqlalchemy import column, delete, table

    index = table("rankbudget_memory_terms", column("rowid"), column("seq"))
    key = index.c.rowid if connection.dialect.name == "sqlite" else index.c.seq
    connection.execute(delete(index).where(key.in_(rows)))


def rows_with_terms(
    connection: Connection, terms: Sequence[str], wanted: ColumnElement[bool], limit: int
) -> Sequence[Any]:
    """Returns the rows with most of the terms, rare ones first, among those that are `wanted`."""
    from sqlalchemy import column, func, literal_column, select, table, text

    found = list(dict.fromkeys(term[:_LONGEST] for term in terms))[:_MOST]
    if not found:
        return []
    rows = memories()
    index = table("rankbudget_memory_terms", column("rowid"), column("seq"), column("terms"))
    if connection.dialect.name == "sqlite":
        any_term = " OR ".join(f'"{term}"' for term in found)  # a term has letters and digits only
        matches = text("rankbudget_memory_terms MATCH :any_term").bindparams(any_term=any_term)
        chosen = select(rows).join(index, index.c.rowid == rows.c.seq).where(matches, wanted)
        chosen = chosen.order_by(literal_column("bm25(rankbudget_memory_terms)"), rows.c.seq.desc())
    else:
        any_term = " | ".join(f"'{term}'" for term in found)
        query = text("CAST(:any_term AS tsquery)").bindparams(any_term=any_term)
        chosen = (
            select(rows).join(index, index.c.seq == rows.c.seq).where(index.c.terms.op("@@")(query), wanted)
        )
        chosen = chosen.order_by(func.ts_rank(index.c.terms, query).desc(), rows.c.seq.desc())
    return connection.execute(chosen.limit(limit)).all()
