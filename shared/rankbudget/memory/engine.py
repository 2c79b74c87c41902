"""Opens a database: a path or URL as a SQLAlchemy engine, and new SQLite connections as writers need them."""

from __future__ import annotations

import os
import random
import re
import sqlite3
import time
from pathlib import Path
from typing import Any

from ..errors import BudgetConfigError, CounterUnavailableError
from . import sqlalchemy_later as sa

_PRAGMAS = ("synchronous = FULL", "secure_delete = ON", "foreign_keys = ON", "cache_size = -32000")
"""A commit survives a power cut; what is deleted is overwritten."""
_MOST_MILLISECONDS = 2**31 - 1


_KNOWN = {"sqlite", "postgresql"}


def open_engine(place: Any, wait: float) -> sa.Engine:
    """Returns the engine of a path, a URL or an engine; it connects at its first use."""
    try:
        if isinstance(place, sa.Engine):
            return _known(place)
    except ImportError as error:
        msg = 'a store needs SQLAlchemy, which is not installed: pip install "rankbudget[sql]"'
        raise CounterUnavailableError(msg) from error
    try:
        url = _url_of(place)
        return _known(sa.create_engine(url, pool_timeout=wait, **_options(url, wait)))
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError) as error:
        msg = (
            f"place must be a path or a database URL (got {_without_password(place)}): {type(error).__name__}"
        )
        raise BudgetConfigError(msg) from error
    except ImportError as error:
        shown = _without_password(place)
        if url.get_backend_name() not in _KNOWN:
            msg = f"place must be a SQLite or PostgreSQL database (got {shown})"
            raise BudgetConfigError(msg) from error
        msg = f'the driver of {shown} is not installed ({error}): pip install "rankbudget[postgres]"'
        raise CounterUnavailableError(msg) from error


def _options(url: sa.URL, wait: float) -> dict[str, Any]:
    if in_memory(url):
        # It lives as long as its one connection, which one thread has at a time.
        one = {"poolclass": sa.QueuePool, "pool_size": 1, "max_overflow": 0}
        return {**one, "connect_args": {"check_same_thread": False}}
    if url.get_backend_name() == "sqlite":
        return {}
    timeout = {} if "connect_timeout" in url.query else {"connect_timeout": max(2, round(wait))}
    return {"pool_pre_ping": True, "connect_args": timeout}


def _url_of(place: Any) -> sa.URL:
    """Returns the URL of a place; a path becomes absolute, as the process may change its folder."""
    if isinstance(place, str) and "://" in place:
        url = sa.make_url(place)
    elif isinstance(place, (str, bytes, os.PathLike)) and os.fspath(place):
        url = sa.URL.create("sqlite", database=os.fsdecode(place))
    else:
        msg = f"place must be a path, a database URL or a SQLAlchemy engine (got {place!r:.200})"
        raise BudgetConfigError(msg)
    if url.drivername == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    file = file_of(url)
    return url.set(database=str(file.absolute())) if file and url.database == str(file) else url


def in_memory(url: sa.URL) -> bool:
    """Returns whether it is a SQLite database without a file."""
    name = url.database or ":memory:"
    named = ":memory:" in name or "mode=memory" in name or url.query.get("mode") == "memory"
    return url.get_backend_name() == "sqlite" and named


def file_of(url: sa.URL) -> Path | None:
    """Returns the file of a SQLite database; None for one in memory or on a server."""
    if url.get_backend_name() != "sqlite" or in_memory(url):
        return None
    return Path((url.database or "").removeprefix("file:").partition("?")[0])


def milliseconds(wait: float) -> int:
    """Returns a time to wait as databases take it, where 0 means no timeout or no wait."""
    return round(min(max(1, wait * 1000), _MOST_MILLISECONDS))


def prepare_sqlite(driver: Any, wait: float) -> None:
    """Sets up a new connection: readers beside one writer, which waits for others."""
    driver.execute(f"PRAGMA busy_timeout = {milliseconds(wait)}")
    ends = time.monotonic() + wait
    while True:
        try:
            driver.execute("PRAGMA journal_mode = WAL").fetchall()
            break
        except sqlite3.OperationalError as error:  # SQLite itself does not wait here for other openers
            if "locked" not in str(error) or time.monotonic() > ends:
                raise
            time.sleep(random.uniform(0, 0.02))  # noqa: S311 - spreads the openers
    for pragma in _PRAGMAS:
        driver.execute(f"PRAGMA {pragma}")


def _known(engine: sa.Engine) -> sa.Engine:
    if engine.dialect.name not in _KNOWN:
        msg = f"place must be a SQLite or PostgreSQL database (got {engine.dialect.name})"
        raise BudgetConfigError(msg)
    return engine


def _without_password(place: Any) -> str:
    return re.sub(r"//[^/]*@", "//***@", f"{place!r}")[:200]
