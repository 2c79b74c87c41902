"""Which messages memory blocks were handed: one fingerprint of each, which holds no content."""

from __future__ import annotations

from array import array
from base64 import b85encode
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any

from llama_index.core.base.llms.types import ChatMessage

from rankbudget.adapters import PINNED_ROLES, ROLES, Plan, ReadOnce, digest_of

from ._codec import CODEC

_ROLES = tuple(dict.fromkeys(ROLES.values()))


class Notes:
    """Role and fingerprint of messages, by a hash of what a store holds: 17 bytes each, no content."""

    def __init__(self) -> None:
        self._keys, self._roles, self._prints = array("q"), bytearray(), list[str]()

    def __len__(self) -> int:
        return len(self._keys)

    def only(self, keys: Container[int]) -> dict[int, tuple[str, str]]:
        """Forgets all others, and returns role and fingerprint by key."""
        roles = [_ROLES[number] for number in self._roles]
        noted = zip(self._keys, zip(roles, self._prints, strict=True), strict=True)
        found = {key: note for key, note in noted if key in keys}
        self._keys = array("q", found)
        self._roles = bytearray([_ROLES.index(role) for role, _ in found.values()])
        self._prints = [seal for _, seal in found.values()]
        return found

    def add(self, key: int, role: str, seal: str) -> None:
        """Notes a message."""
        self._keys.append(key)
        self._roles.append(_ROLES.index(role))
        self._prints.append(seal)


class Rows(ReadOnce):
    """The messages of a store, each made when it is asked for.

    Args:
        rows: what the store holds of each message.
        keys: the same as what can be hashed: it changes whenever the message does.
        make: makes the message of a row.
        sent: makes the message of a row as a prompt has it, where its calls need other ids.
    """

    def __init__(
        self,
        rows: Sequence[Any],
        keys: Iterable[Hashable],
        make: Callable[[Any], Any],
        sent: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(rows, sent or make)
        self._as_written = make if sent else None
        self.keys = list(map(hash, keys))
        self.notes = Notes()
        self.noted: dict[int, tuple[str, str]] = {}  # what is in it is not read again

    def note(self, at: int) -> tuple[str, str]:
        """Returns role and fingerprint of a message."""
        key = self.keys[at]
        if key not in self.noted:
            message = self._as_written(self._source[at]) if self._as_written else self[at]
            self.noted[key] = CODEC.role(message), prints_of([message])[0]
            self.notes.add(key, *self.noted[key])
        return self.noted[key]

    def roles(self, start: int, stop: int) -> list[str]:
        """Returns the roles of the messages from position `start` to before `stop`."""
        return [self.note(at)[0] for at in range(start, stop)]

    @cached_property
    def prints(self) -> dict[int, str]:
        """The fingerprints of what blocks may be handed, all but instructions, by position."""
        notes = map(self.note, range(len(self)))
        return {at: seal for at, (role, seal) in enumerate(notes) if role not in PINNED_ROLES}

    def left_out(self, plan: Plan) -> list[int]:
        """Returns what a plan leaves out whole: older exchanges, and steps inside those that it keeps."""
        kept = set(map(id, plan.history))
        stays = {at for at, message in self._held.items() if id(message) in kept}
        return [at for at in self.prints if at not in stays and at not in plan.edits]


def prints_of(messages: Sequence[ChatMessage]) -> list[str]:
    """Returns a fingerprint of each message, the same in every process."""
    return [b85encode(digest_of([found])).decode("ascii") for found in CODEC.fingerprints(messages)]


def beyond(known: Sequence[str], now: Sequence[str]) -> list[int]:
    """Returns the positions of what `now` has more than `known`; of equal ones the last."""
    same = min(len(known), len(now))
    if known[:same] == now[:same]:  # as in most turns, where something was added at most
        return list(range(same, len(now)))
    held = Counter(known)
    new = []
    for at, one in enumerate(now):
        if held[one]:
            held[one] -= 1
        else:
            new.append(at)
    return new
