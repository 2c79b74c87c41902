"""The rows of one timeline in the database: what was put is written once, and when each holds follows."""

from __future__ import annotations

import math
from typing import Any

from ..segment import Scope
from . import sqlalchemy_later as sa
from .memory import Memory
from .nearest import belongs_to
from .tables import memories, row_of
from .timeline import VERSION, Version, periods_of, version_of


def versions_of(connection: sa.Connection, scope: Scope, line: str) -> list[Version]:
    """Returns the versions of one timeline."""
    columns = [memories().c[name] for name in VERSION]
    mine = belongs_to(scope) & (memories().c.line == line)
    return [version_of(row) for row in connection.execute(sa.select(*columns).where(mine)).all()]


def keys_of(connection: sa.Connection, scope: Scope, digest: str) -> list[str | None]:
    """Returns the keys under which a scope has a text, and last that of a memory without one."""
    name = memories().c.name
    mine = belongs_to(scope) & (memories().c.digest == digest) & (memories().c.replaced == 0) & (name != "")
    names = connection.execute(sa.select(name).where(mine).order_by(name.desc())).scalars()
    return [*[name[1:] for name in names], None]


def settle(connection: sa.Connection, scope: Scope, line: str, own: int | None = None) -> None:
    """Writes when each version of a timeline holds, and which is the newest of a text.

    A row that somebody else's put changes, not the `own` one, gets its next version.
    """
    table, held = memories(), versions_of(connection, scope, line)
    parts = periods_of(held)
    newest = {one.digest: one.seq for one in sorted(held)}
    for one in sorted(held, key=lambda one: newest[one.digest] == one.seq):  # no two are it at any moment
        begins, ends = parts[one.seq][0][0], parts[one.seq][-1][1]
        gaps, replaced = int(len(parts[one.seq]) > 1), int(newest[one.digest] != one.seq)
        if (begins, ends, gaps, replaced) == (*one.holds, one.gaps, one.replaced):
            continue
        change: dict[str, Any] = {"valid_from": begins, "valid_to": open_end(ends)}
        if one.seq != own and (begins, ends) != one.holds:
            change["version"] = table.c.version + 1
        written = table.update().where(table.c.seq == one.seq)
        connection.execute(written.values(**change, gaps=gaps, replaced=replaced))


def set_back(connection: sa.Connection, memory: Memory, now: float) -> None:
    """Lets begin now what a fast clock put for later, without a date, under the key or text of a memory."""
    table = memories()
    later = (table.c.said_from > now) & (table.c.dated == 0) & table.c.replaced_by.is_(None)
    mine = belongs_to(memory.scope) & (table.c.line == row_of(memory)["line"])
    connection.execute(table.update().where(mine, later).values(said_from=now))


def make_way(connection: sa.Connection, memory: Memory) -> None:
    """Notes that another row will be the newest with the text of a memory under its key."""
    table, row = memories(), row_of(memory)
    alike = belongs_to(memory.scope) & (table.c.digest == row["digest"]) & (table.c.name == row["name"])
    connection.execute(table.update().where(alike, table.c.replaced == 0).values(replaced=1))


def end(connection: sa.Connection, old: Any, new: Any, begins: float) -> str:
    """Ends a row and what began before it or the new one, for good, where that begins; returns its line."""
    table = memories()
    said, row = table.c.said_from, table.c.seq
    mine = (table.c.owner == old.owner) & (table.c.project == old.project) & (table.c.line == old.line)
    goes_on = (said <= begins) & (table.c.said_to.is_(None) | (table.c.said_to > begins))
    ended = mine & (row != new.seq) & (goes_on | ((said > begins) & (said <= old.said_from)))
    ends = sa.case((said > begins, said), else_=begins)
    change = {"said_to": ends, "replaced_by": new.id, "version": table.c.version + 1}
    connection.execute(table.update().where(ended).values(change))
    return str(old.line)


def open_end(moment: float) -> float | None:
    """Returns the end of a period as rows have it."""
    return moment if moment < math.inf else None
