"""SQLAlchemy's names, loaded with the first that is used, and tables, made at their first use.

So who stores nothing need not have the library.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache, wraps
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from sqlalchemy import *  # noqa: F403 - all its names, to type checkers

T = TypeVar("T")
_MAKING = RLock()
"""One for all: what is made may ask for something else that is made once."""


def __getattr__(name: str) -> Any:
    value = globals()[name] = getattr(importlib.import_module("sqlalchemy"), name)
    return value


def once(make: Callable[[], T]) -> Callable[[], T]:
    """Returns a function that calls another one the first time, and then returns what that made.

    `functools.cache` alone lets two threads call it, and two tables of one name are an error.
    """
    made = cache(make)

    @wraps(make)
    def get() -> T:
        with _MAKING:
            return made()

    return get
