"""Keeps databases whole when a process forks: a child must not use what its parent opened.

SQLite notes its locks in the memory of a process. A child that inherits the note of an open file believes
that it holds locks which only its parent has; its writes are lost when the parent closes the file. So a
process closes its idle connections before it forks, and a child refuses a file that another thread used then.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    from .database import Database

_OPENED: WeakSet[Database] = WeakSet()
_INHERITED: list[Any] = []
"""Connections of the parent. They are never closed here, as that would tell the server that it is done."""
_IN_USE: set[str] = set()
"""Files that were open at the fork, as another thread of the parent used them."""


def watch(database: Database) -> None:
    """Looks after a database from now on."""
    _OPENED.add(database)


def refusal(database: Database) -> str:
    """Returns why this process must not use a database, or ""."""
    if database.in_memory and database.process != os.getpid():
        return "is in memory of the process that opened it. Use a file to share it."
    if str(database.file) in _IN_USE:
        return (
            "was in use when this process was forked. Fork before threads use it, or start processes by "
            "'spawn' or 'forkserver'."
        )
    return ""


def _before() -> None:
    for database in list(_OPENED):
        if database.is_sqlite and not database.in_memory:
            database.engine.dispose()


def _in_child() -> None:
    for database in list(_OPENED):
        if database.in_memory:
            continue
        pool = database.engine.pool
        open_ones = [getattr(pool, name, int)() for name in ("checkedin", "checkedout")]
        if database.is_sqlite and (database.connections or any(open_ones)):
            _IN_USE.add(str(database.file))
        _INHERITED.extend((pool, *database.connections))
        database.connections.clear()
        database.engine.dispose(close=False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_child=_in_child)
