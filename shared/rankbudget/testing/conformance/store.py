"""The rules of a message store, one test each.

A store keeps conversations by key. What it must promise so that nothing is lost:
    1. What is appended is read back, equal, in order; an unknown key reads as empty.
    2. Keys do not see each other.
    3. What is read is the reader's: changing it changes nothing in the store.
    4. What was appended is the store's: changing it later changes nothing in the store.
    5. Appending nothing changes nothing and raises nothing.
    6. `clear` empties one key only.
    7. Appends from many threads are all there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import Any

__all__ = ["StoreConformance"]


class StoreConformance(ABC):
    """Says how to test a store: subclass it and fill its abstract methods.

    They are `make`, `append`, `read`, `clear`, `message`, `text_of` and `edit`.
    """

    threads = 8

    @abstractmethod
    def make(self) -> Any:
        """Returns a new, empty store."""

    @abstractmethod
    def append(self, store: Any, key: str, messages: list[Any]) -> None:
        """Appends messages to the conversation `key`."""

    @abstractmethod
    def read(self, store: Any, key: str) -> list[Any]:
        """Returns the conversation `key`."""

    @abstractmethod
    def clear(self, store: Any, key: str) -> None:
        """Forgets the conversation `key`."""

    def message(self, text: str) -> Any:
        """Returns a new message in the store's own form."""
        return {"role": "user", "content": text}

    def text_of(self, message: Any) -> str:
        """Returns the text of a message."""
        return str(message["content"])

    def edit(self, message: Any, text: str) -> None:
        """Changes the text of a message in place."""
        message["content"] = text

    def _texts(self, store: Any, key: str) -> list[str]:
        return [self.text_of(m) for m in self.read(store, key)]

    def test_rule_1_what_goes_in_comes_out(self) -> None:
        """Appended messages come back in order; an unknown key is empty."""
        store = self.make()
        assert self._texts(store, "a") == []
        self.append(store, "a", [self.message("one"), self.message("two")])
        self.append(store, "a", [self.message("one")])
        assert self._texts(store, "a") == ["one", "two", "one"]

    def test_rule_2_keys_are_apart(self) -> None:
        """One key never shows another key's messages."""
        store = self.make()
        self.append(store, "ann", [self.message("mine")])
        self.append(store, "bob", [self.message("his")])
        assert (self._texts(store, "ann"), self._texts(store, "bob")) == (["mine"], ["his"])

    def test_rule_3_readers_cannot_change_the_store(self) -> None:
        """Changing what was read leaves the store alone."""
        store = self.make()
        self.append(store, "a", [self.message("one")])
        found = self.read(store, "a")
        self.edit(found[0], "CHANGED")
        found.append(self.message("two"))
        assert self._texts(store, "a") == ["one"]

    def test_rule_4_writers_cannot_change_it_later(self) -> None:
        """Changing what was appended leaves the store alone."""
        store, mine = self.make(), self.message("one")
        given = [mine]
        self.append(store, "a", given)
        self.edit(mine, "CHANGED")
        given.append(self.message("two"))
        assert self._texts(store, "a") == ["one"]

    def test_rule_5_appending_nothing(self) -> None:
        """An empty append is no error and no change."""
        store = self.make()
        self.append(store, "a", [])
        assert self._texts(store, "a") == []

    def test_rule_6_clear_is_for_one_key(self) -> None:
        """Clearing a key leaves the others."""
        store = self.make()
        for key in ("a", "b"):
            self.append(store, key, [self.message(key)])
        self.clear(store, "a")
        assert (self._texts(store, "a"), self._texts(store, "b")) == ([], ["b"])

    def test_rule_7_threads(self) -> None:
        """Appends from several threads are all kept, each thread's own in order."""
        store = self.make()

        def write(number: int) -> None:
            for i in range(20):
                self.append(store, "a", [self.message(f"{number}:{i}")])

        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(write, range(self.threads)))
        found = self._texts(store, "a")
        assert len(found) == 20 * self.threads
        for number in range(self.threads):
            assert [t for t in found if t.startswith(f"{number}:")] == [f"{number}:{i}" for i in range(20)]
