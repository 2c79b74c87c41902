"""Sessions of many conversations, by what the host calls the thread."""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from .session import BudgetSession


class SessionPool:
    """Keeps one session for each thread; the one not used for longest is forgotten. Safe to use from threads.

    Args:
        keep: how many sessions are kept, 1 or more.

    Example:
        >>> pool = SessionPool(keep=2)
        >>> ann = pool.get("ann", lambda: BudgetSession(100))
        >>> pool.get("ann", lambda: BudgetSession(100)) is ann
        True
        >>> pool.forget("ann"), pool.forget("ann")
        (True, False)
    """

    def __init__(self, keep: int = 1000) -> None:
        self.keep = keep
        self._sessions: OrderedDict[Hashable, BudgetSession] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, thread: Hashable, make: Callable[[], BudgetSession]) -> BudgetSession:
        """Returns the session of a thread, made when there is none."""
        with self._lock:
            session = self._sessions.get(thread)
            if session is None:
                session = self._sessions[thread] = make()
            self._sessions.move_to_end(thread)
            while len(self._sessions) > self.keep:
                self._sessions.popitem(last=False)
            return session

    def forget(self, thread: Hashable) -> bool:
        """Forgets a thread; returns whether it was known."""
        with self._lock:
            return self._sessions.pop(thread, None) is not None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.keep,)  # the sessions of this process stay here

    def __deepcopy__(self, memo: dict[int, Any]) -> SessionPool:
        """Returns a pool of its own that starts from what these sessions remember."""
        twin = memo[id(self)] = type(self)(self.keep)
        with self._lock:
            sessions = list(self._sessions.items())
        for thread, session in sessions:
            twin.get(thread, partial(copy.deepcopy, session, memo))
        return twin
