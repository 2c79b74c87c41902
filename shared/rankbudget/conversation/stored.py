"""A conversation in a database, of which only what a prompt needs is read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from .._drivers import Call, Steps
from ..counting.protocol import TokenCounter
from ..messages.measure import Measure
from .state import Summary, ThreadState

AGAIN = 10
"""How often a conversation is read again that was edited while it was read."""


class StoredMessages(Sequence[Any]):
    """The messages of a stored conversation, oldest first, each read when it is asked for.

    Rules:
        1. It never changes: what others write meanwhile is not in it. A message is one object, however often
           it is asked for.
        2. `pinned` and `roles` read no content. `loaded` are the positions whose messages were read.
        3. `seal` is the same for the same messages, in every process and host, and another one as soon as one
           of them changes, moves or goes.
        4. `measured` returns a measure that counts no message whose tokens are stored.
        5. `keep` replaces the stored summary unless somebody else did so since this was read.
        6. What can no longer be read, as others changed it meanwhile, raises StoreConflictError. `again` then
           has more of it at once, so that some next one has all that a prompt needs.
    """

    summary: Summary
    """The stored one; empty where there is none, or what it covers has changed."""

    @abstractmethod
    def pinned(self) -> list[int]:
        """Returns where system and developer messages are."""

    @abstractmethod
    def roles(self, start: int, stop: int) -> list[str]:
        """Returns the roles of the messages from position `start` to before `stop`."""

    @abstractmethod
    def loaded(self, start: int, stop: int) -> list[int]:
        """Returns the positions from `start` to before `stop` whose messages were read, in order."""

    @abstractmethod
    def seal(self, before: int, kept: Sequence[int]) -> bytes:
        """Returns a hash of the messages before a position, apart from `kept`."""

    @abstractmethod
    def measured(self, measure: Measure, counter: TokenCounter) -> Measure:
        """Returns `measure` with what is stored of the tokens that `counter` counts."""

    @abstractmethod
    def again(self) -> StoredMessages:
        """Returns the conversation as it is now (rule 6)."""

    @abstractmethod
    def keep(self, summary: Summary) -> bool:
        """Stores a summary beside the conversation; returns whether nobody was faster."""


def with_stored(
    known: tuple[ThreadState, ...], history: Sequence[Any], summarizer: object
) -> tuple[ThreadState, ...]:
    """Returns what a session knows, with the summary that another process or host stored, if it needs one."""
    if summarizer is None or not isinstance(history, StoredMessages) or not history.summary.text:
        return known
    return (*known, ThreadState(summary=history.summary))


def keep_summary(history: Sequence[Any], state: ThreadState | None) -> Steps[None]:
    """Stores the summary of a plan beside a stored conversation."""
    if isinstance(history, StoredMessages) and state is not None and state.summary.text:
        yield Call(history.keep, (state.summary,))
