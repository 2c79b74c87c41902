"""What the stateful entry points have in common in the tests: users, their threads, the counter, the summarizer."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from rankbudget import BudgetSession
from rankbudget.testing import WordCounter


class _Words(WordCounter):
    """Counts words and keeps none of the texts."""

    def count(self, text: str) -> int:
        return len(text.split())


COUNTER = _Words()
Thread = Sequence[dict[str, Any]]
"""A user's whole conversation as OpenAI-style dicts; the last message is the current question."""
Rows = list[tuple[str, str]]
"""What the model reads, as role and text."""
MARKER = re.compile(r"z[a-z]+\d+v\d+")


def markers(found: Any) -> set[str]:
    """Returns the markers in a thread or in what a model reads."""
    return set(MARKER.findall(repr(found)))


class Summarizer:
    """Writes the markers of what it is given; can be told to raise, to raise once, or to answer too much."""

    def __init__(self) -> None:
        self.mode = "good"

    def __call__(self, text: str, max_tokens: int) -> str:
        if self.mode.startswith("raises"):
            self.mode = "good" if self.mode == "raises once" else self.mode
            msg = "the summarizer is down"
            raise RuntimeError(msg)
        if self.mode == "too long":
            return "word " * 5000
        return " ".join(dict.fromkeys(MARKER.findall(text)))


@dataclass(frozen=True)
class Way:
    """A stateful entry point.

    Args:
        name: what it is called.
        open: makes it for a limit and a summarizer; what it returns reads a user's thread.
        summarizes: it takes a summarizer.
        whole: nothing but the thread is in its prompt, so that what fits must come back whole.
        named: it is told whose thread it reads; else it is stateless, and a summarizer is refused.
        draws: most scripts it is worth running; an agent's run is slow.
    """

    name: str
    open: Callable[[int, Any], Any]
    summarizes: bool = True
    whole: bool = True
    named: bool = True
    draws: int = 100


class PerUser(ABC):
    """Keeps one object for each user, as the host's application does."""

    def __init__(self, limit: int, summarizer: Any) -> None:
        self.limit = limit
        self.options: dict[str, Any] = {} if summarizer is None else {"summarizer": summarizer}
        self.users: dict[str, Any] = {}

    def of(self, user: str) -> Any:
        if user not in self.users:
            self.users[user] = self.make(user)
        return self.users[user]

    def make(self, user: str) -> Any:
        return BudgetSession(self.limit, counter=COUNTER, **self.options)

    @abstractmethod
    def read(self, user: str, thread: Thread) -> Rows: ...

    async def aread(self, user: str, thread: Thread) -> Rows:
        return await asyncio.to_thread(self.read, user, thread)

    def empty(self) -> None:  # noqa: B027 - a way may keep nothing
        """Deletes what the host itself keeps, its stored messages and the recorded requests, behind our parts' backs."""


def plain(thread: Thread) -> list[dict[str, Any]]:
    return [dict(m) for m in thread]


def run_until_done(answer: Coroutine[Any, Any, Rows]) -> Rows:
    return asyncio.get_event_loop_policy().get_event_loop().run_until_complete(answer)
