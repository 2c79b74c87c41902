"""Memories by their words: FTS5 in SQLite, a text search vector in PostgreSQL.

Both index the stemmed terms of `relevance.words`, so that every language is read as the ranking reads it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from heapq import nsmallest
from itertools import accumulate
from typing import Any, NamedTuple

from . import sqlalchemy_later as sa
from .tables import memories

_MOST = 64
"""Terms of a question that are looked for; a pasted page has thousands."""
_FEW, _MANY = 3, 1_000
"""A term that so few of a reader's memories have says which are meant; a number, a hundredth of so many."""
_NAMED = 5
"""Memories at most that are said to be meant."""
_QUOTA = 10
"""Each rare term brings at least a tenth of the candidates by words, the rarest first."""
_RARE = 500
"""Memories that the rarest terms of a question may be in, all together, beside a search by meaning."""
_SAMPLE, _AT_ONCE = 2_000, 500
"""Rows of a reader that say how rare a term is, and rows that are read in one statement."""
_LONGEST = 64
"""Characters of a term that count; an encoded picture is one term, and PostgreSQL takes 2 kB."""
_MOST_BYTES = 1_000_000
"""Bytes of the terms of one row; PostgreSQL takes a megabyte."""


def add_terms(connection: sa.Connection, seq: int, terms: Sequence[str]) -> None:
    """Indexes the terms of a row, in the place of older ones."""
    remove_terms(connection, [seq])
    terms = [term[:_LONGEST] for term in terms]
    if connection.dialect.name == "sqlite":
        insert = sa.text("INSERT INTO rankbudget_memory_terms (rowid, terms) VALUES (:seq, :terms)")
        connection.execute(insert, {"seq": seq, "terms": " ".join(terms)})
    else:
        insert = sa.text(
            "INSERT INTO rankbudget_memory_terms (seq, terms) "
            "VALUES (:seq, array_to_tsvector(CAST(:terms AS text[])))"
        )
        sizes = accumulate(len(term.encode()) for term in dict.fromkeys(terms))
        small = [term for term, size in zip(dict.fromkeys(terms), sizes, strict=True) if size <= _MOST_BYTES]
        connection.execute(insert, {"seq": seq, "terms": small})


def remove_terms(connection: sa.Connection, rows: Sequence[int]) -> None:
    """Removes rows from the index."""
    index = sa.table("rankbudget_memory_terms", sa.column("rowid"), sa.column("seq"))
    key = index.c.rowid if connection.dialect.name == "sqlite" else index.c.seq
    connection.execute(sa.delete(index).where(key.in_(rows)))


def rows_with_terms(
    connection: sa.Connection, terms: Sequence[str], wanted: sa.ColumnElement[bool], limit: int
) -> Sequence[Any]:
    """Returns the rows with most of the terms, rare ones first, among those that are `wanted`."""
    found = _looked_for(terms)
    if not found:
        return []
    if connection.dialect.name != "sqlite":
        return connection.execute(_with_any(found).where(wanted).limit(limit)).all()
    return _rows_by_worth(connection, found, wanted, limit)


def _rows_by_worth(
    connection: sa.Connection, terms: Sequence[str], wanted: sa.ColumnElement[bool], limit: int
) -> Sequence[Any]:
    """Returns what FTS5's bm25() would, if it knew of no others' rows than those that are wanted.

    Of more than two thousand the newest say how rare each term is.
    """
    rows, index = memories(), sa.table("rankbudget_memory_terms", sa.column("rowid"), sa.column("terms"))
    any_term = " OR ".join(f'"{term}"' for term in terms)  # a term has letters and digits only
    matches = sa.text("rankbudget_memory_terms MATCH :any_term").bindparams(any_term=any_term)
    some = sa.select(index.c.rowid, index.c.terms).join_from(index, rows, index.c.rowid == rows.c.seq)
    newest = some.where(matches, wanted).order_by(index.c.rowid.desc()).limit(_SAMPLE)
    held = [(seq, set(said.split()).intersection(terms)) for seq, said in connection.execute(newest)]
    counts = Counter(term for _, some in held for term in some)
    worth = {term: math.log(1 + len(held) / (1 + counts[term])) for term in terms}
    if len(held) < _SAMPLE:
        best = nsmallest(limit, held, key=lambda one: (-sum(map(worth.__getitem__, sorted(one[1]))), -one[0]))
        order = {seq: place for place, (seq, _) in enumerate(best)}
        parts = [list(order)[start : start + _AT_ONCE] for start in range(0, len(order), _AT_ONCE)]
        found = [
            row for part in parts for row in connection.execute(rows.select().where(rows.c.seq.in_(part)))
        ]
        return sorted(found, key=lambda row: order[row.seq])
    each = _for_each(connection, terms, "SELECT rowid AS seq, :w{n} AS worth FROM {with_term}")
    each = each.bindparams(*[sa.bindparam(f"w{n}", worth[term]) for n, term in enumerate(terms)])
    pairs = each.columns(sa.column("seq"), sa.column("worth")).subquery("pairs")
    total = sa.func.sum(pairs.c.worth).label("total")
    sums = sa.select(pairs.c.seq, total).group_by(pairs.c.seq).subquery("sums")
    # "+ 0" makes SQLite look the rows up by their numbers rather than walk through all of a reader.
    chosen = sa.select(rows).join_from(sums, rows, rows.c.seq == sums.c.seq + 0).where(wanted)
    return connection.execute(chosen.order_by(sums.c.total.desc(), rows.c.seq.desc()).limit(limit)).all()


class Rare(NamedTuple):
    """Numbers of rows with rare terms: all, the few with a number, and the few with any term."""

    rows: Sequence[int] = ()
    numbered: Sequence[int] = ()
    named: Sequence[int] = ()


def rows_with_rare_terms(
    connection: sa.Connection, terms: Sequence[str], wanted: sa.TextClause, limit: int
) -> Rare:
    """Returns rows with the rarest terms, so that each of these brings some, and the best of all.

    What most memories have in common, a search by meaning finds. So the rarest terms count that together are
    in at most five hundred memories. Vectors are blind to numbers: one that few of those that are `wanted`
    have says which of them are meant, and so does a word.
    """
    rare: list[str] = []
    rows = 0
    for count, term in sorted(_holders(connection, _looked_for(terms))):
        rows += count
        if rows > _RARE:
            break
        rare.append(term)
    held = _rows_by_term(connection, rare, wanted)
    worth: dict[int, float] = {}
    for some in held.values():
        for seq in some:
            worth[seq] = worth.get(seq, 0.0) + 1 / len(some)
    best = sorted(worth, key=lambda seq: (-worth[seq], -seq))
    rank = {seq: place for place, seq in enumerate(best)}.__getitem__
    numbers = [term for term in held if any(map(str.isdigit, term))]
    few = _few(connection, wanted) if numbers else 0
    with_number = {seq for term in numbers if len(held[term]) <= few for seq in held[term]}
    with_any = with_number.union(*[some for some in held.values() if len(some) <= _FEW])
    quota = max(1, limit // _QUOTA)
    brought = [seq for some in sorted(held.values(), key=len) for seq in nsmallest(quota, some, key=rank)]
    chosen = list(dict.fromkeys([*brought, *best]))[:limit]
    numbered = nsmallest(limit, with_number, key=rank)
    named = nsmallest(_NAMED, with_any, key=rank)
    return Rare([*chosen, *numbered, *named], numbered, named)


def _rows_by_term(
    connection: sa.Connection, terms: Sequence[str], wanted: sa.TextClause
) -> dict[str, list[int]]:
    """Returns the numbers of the wanted rows with each term, for terms that few rows have."""
    if not terms:
        return {}
    key = "rowid" if connection.dialect.name == "sqlite" else "seq"
    find = f"SELECT {{n}} AS place, {key} AS seq FROM {{with_term}}"  # noqa: S608 - fixed words
    each = _for_each(connection, terms, find)
    pairs = each.columns(sa.column("place"), sa.column("seq")).subquery("held")
    found = sa.select(pairs.c.place, pairs.c.seq).join(memories(), memories().c.seq == pairs.c.seq)
    held: dict[str, list[int]] = {}
    for place, seq in connection.execute(found.where(wanted)).all():
        held.setdefault(terms[place], []).append(seq)
    return held


def _looked_for(terms: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(term[:_LONGEST] for term in terms))[:_MOST]


def _few(connection: sa.Connection, wanted: sa.TextClause) -> int:
    """Returns in how many of a reader's memories a number is at most: one of a hundred, or a few."""
    some = sa.select(memories().c.seq).where(wanted).limit(_MANY).subquery()
    return max(_FEW, connection.execute(sa.select(sa.func.count()).select_from(some)).scalar_one() // 100)


def _holders(connection: sa.Connection, terms: Sequence[str]) -> list[tuple[int, str]]:
    """Returns in how many memories each term is, counted only so far as matters; without those in none."""
    if not terms:
        return []
    count = "SELECT {n} AS place, count(*) AS held FROM (SELECT 1 FROM {with_term} LIMIT :most) AS some{n}"
    counts = connection.execute(_for_each(connection, terms, count), {"most": _RARE + 1}).all()
    return [(held, terms[place]) for place, held in counts if held]


def _for_each(connection: sa.Connection, terms: Sequence[str], find: str) -> sa.TextClause:
    """Returns a statement for each term, by its number `{n}`, about the rows `{with_term}`, as one."""
    sqlite = connection.dialect.name == "sqlite"
    match, quote = ("MATCH :t{n}", '"') if sqlite else ("@@ CAST(:t{n} AS tsquery)", "'")
    find = find.replace("{with_term}", "rankbudget_memory_terms WHERE terms " + match)
    each = sa.text(" UNION ALL ".join([find.replace("{n}", str(n)) for n in range(len(terms))]))
    # a term has letters and digits only
    return each.bindparams(**{f"t{n}": f"{quote}{term}{quote}" for n, term in enumerate(terms)})


def _with_any(terms: Sequence[str]) -> sa.Select[Any]:
    """Returns PostgreSQL's statement that finds rows with any of the terms, the best first."""
    rows, index = memories(), sa.table("rankbudget_memory_terms", sa.column("seq"), sa.column("terms"))
    any_term = " | ".join(f"'{term}'" for term in terms)
    query = sa.text("CAST(:any_term AS tsquery)").bindparams(any_term=any_term)
    chosen = sa.select(rows).join_from(rows, index, index.c.seq == rows.c.seq)
    chosen = chosen.where(index.c.terms.op("@@")(query))
    return chosen.order_by(sa.func.ts_rank(index.c.terms, query).desc(), rows.c.seq.desc())
