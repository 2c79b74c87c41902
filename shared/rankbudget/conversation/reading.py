"""A long conversation that is read only as far as it is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence, Sequence
from typing import Any

from .stored import StoredMessages


class ReadOnce(Sequence[Any]):
    """Reads a message from its source when it is first asked for, or makes it of that, and holds it."""

    def __init__(self, source: Sequence[Any], make: Callable[[Any], Any] = lambda message: message) -> None:
        self._source, self._make = source, make
        self._size = len(source)
        self._held: dict[int, Any] = {}

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self[position] for position in range(*at.indices(self._size))]
        position = range(self._size)[at]
        if position not in self._held:
            self._held[position] = self._make(self._source[position])
        return self._held[position]


class WithCopies(Sequence[Any]):
    """Messages with `copies` in the place of some, by position."""

    def __init__(self, source: Sequence[Any], copies: Mapping[int, Any]) -> None:
        self._source, self._copies = source, copies

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, at: Any) -> Any:
        places = range(len(self))[at]
        if isinstance(places, int):
            return self._copies[places] if places in self._copies else self._source[places]
        return [self._copies.get(i, found) for i, found in zip(places, self._source[at], strict=True)]


def held(messages: Sequence[Any]) -> Sequence[Any]:
    """Returns messages as they are now, whatever is done to their list; what cannot change is read lazily."""
    if isinstance(messages, (MutableSequence, tuple)):
        return list(messages)
    return messages if isinstance(messages, (ReadOnce, StoredMessages)) else ReadOnce(messages)
