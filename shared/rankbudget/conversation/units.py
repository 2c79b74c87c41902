"""The parts of one conversation: units that stay or go together, and the turns that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Broken = tuple[int, str]
"""The position of a message that no valid conversation may hold, and why."""


@dataclass(slots=True)
class Unit:
    """A run of messages that lives or dies together: positions `start` to before `stop`."""

    start: int
    stop: int
    waiting: bool = False  # a tool call at the very end that still waits for (some of) its results
    tokens: int = -1  # counted when they are asked for
    holes: tuple[int, ...] = ()  # positions inside that do not belong: results without a call

    def positions(self) -> Sequence[int]:
        """Returns the positions that belong."""
        if not self.holes:
            return range(self.start, self.stop)
        return [i for i in range(self.start, self.stop) if i not in self.holes]


@dataclass(slots=True)
class Turn:
    """A question and all up to the next one; a thread without any is one turn without a question."""

    start: int
    stop: int
    question: Unit | None
    body: list[Unit]
    broken: Sequence[Broken]

    @property
    def units(self) -> list[Unit]:
        """The question and the body, oldest first; a million turns hold no list of their own for it."""
        return self.body if self.question is None else [self.question, *self.body]

    def core(self) -> list[Unit]:
        """Returns what an exchange is at the least: the question and its last answer or tool batch."""
        if self.question is None:
            return self.body[-1:]
        return [self.question, self.body[-1]] if self.body else [self.question]
