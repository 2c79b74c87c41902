"""What is made once in a process, also when several threads ask for it first at the same time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from threading import RLock
from typing import TypeVar

T = TypeVar("T")
_MAKING = RLock()
"""One for all: what is made may ask for something else that is made once."""


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
