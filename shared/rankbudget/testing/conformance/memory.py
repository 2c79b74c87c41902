"""The rules of a memory backend, one test each, asked through `MemoryStore`.

They are the numbered rules of `rankbudget.memory.MemoryBackend`. What a backend lists in `lacks` must raise
StoreUnsupportedError instead; a rule that needs such a method is asked without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from ...errors import StoreConflictError, StoreUnsupportedError
from ...segment import Scope
from ._processes import add_times, all_processes, killed_writer, put_times

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...memory import MemoryStore

__all__ = ["MemoryConformance"]

ANN, BOB, SHOP = Scope(user="ann"), Scope(user="bob"), Scope(project="shop")
METHODS = frozenset({"put", "get", "replace", "versions", "near", "delete", "forget"})


class _Clock:
    """A clock that stands still until it is set."""

    now = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)

    def __call__(self) -> datetime:
        return self.now


def _day(number: int) -> datetime:
    return _Clock.now + timedelta(days=number)


class MemoryConformance(ABC):
    """Says how to test a backend for memories: subclass it and fill `make`.

    `writers` threads, and processes, write at once, each `times` times. Set `processes` to
    False where only one process can reach a store; otherwise what `make` returns must be picklable.
    """

    writers = 4
    times = 10
    processes = True

    @abstractmethod
    def make(self, **options: Any) -> MemoryStore:
        """Returns a new, empty store; `options` are those of `MemoryStore`, as its clock."""

    @contextmanager
    def _made(self, **options: Any) -> Iterator[MemoryStore]:
        store = self.make(**options)
        try:
            yield store
        finally:
            store.close()

    def _current(self, store: MemoryStore, scope: Scope = ANN) -> list[str]:
        return sorted(memory.text for memory in store.search("", scope=scope, limit=1000))

    def test_rule_1_one_row_for_a_text_and_a_key(self) -> None:
        """The same text changes its row, another text under a key replaces it, and so does `supersedes`."""
        with self._made() as store:
            first = store.put("Likes tea.", scope=ANN, kind="preference", sources=("m1",))
            again = store.put("likes  TEA.", scope=ANN, sources=("m2",))
            assert (again.id, again.kind, again.sources) == (first.id, "preference", ("m1", "m2"))
            old = store.put("Lives in Rome.", scope=ANN, key="home")
            new = store.put("Lives in Paris.", scope=ANN, key="home")
            assert store.get("home", scope=ANN) == new
            last = store.put("Moves to Oslo.", scope=ANN, supersedes="home")
            assert self._current(store) == ["Likes tea.", "Moves to Oslo."]
            if "versions" not in store.backend.lacks:
                rome, paris = store.versions("home", scope=ANN)
                assert (rome.id, rome.replaced_by, rome.valid_to) == (old.id, new.id, new.valid_from)
                assert (paris.id, paris.replaced_by, paris.valid_to) == (new.id, last.id, last.valid_from)

    def test_rule_1_the_versions_of_a_key_are_a_timeline(self) -> None:
        """What held before, holds later or for a while ends nothing else, in whatever order it is put."""
        clock = _Clock()
        dates = ((0, None), (-9, None), (-30, -20), (9, None), (5, None), (2, 4))
        for order in (dates, dates[::-1]):
            with self._made(clock=clock) as store:
                for begins, ends in order:
                    first, last = _day(begins), None if ends is None else _day(ends)
                    with suppress(StoreUnsupportedError):
                        store.put(f"Since {begins}.", scope=ANN, key="k", valid_from=first, valid_to=last)
                if "versions" in store.backend.lacks:
                    continue
                expected = ((-25, -30), (-15, None), (-5, -9), (1, 0), (3, 2), (4, 0), (6, 5), (99, 9))
                for day, begun in expected:
                    clock.now = _day(day)
                    assert self._current(store) == ([] if begun is None else [f"Since {begun}."])
                clock.now = _Clock.now

    def test_rule_1_the_one_that_holds_stays(self) -> None:
        """What is over, or began before the one that holds, takes nothing from it; it may be refused."""
        clock = _Clock()
        for begins, ends in ((-30, -20), (-9, None)):
            with self._made(clock=clock) as store:
                now = store.put("Now.", scope=ANN, key="k", valid_from=_day(-1))
                last = None if ends is None else _day(ends)
                with suppress(StoreUnsupportedError):
                    store.put("Past.", scope=ANN, key="k", valid_from=_day(begins), valid_to=last)
                assert store.get("k", scope=ANN) == now
                assert self._current(store) == ["Now."]

    def test_rule_1_many_put_the_same(self) -> None:
        """Of many that put one text there is one row, and of many under one key one that holds."""

        def write(writer: int) -> None:
            for i in range(self.times):
                store.put("All say this.", scope=ANN)
                store.put(f"{writer} says {i}.", scope=ANN, key="last")

        with self._made() as store:
            self._in_threads(write)
            found = self._current(store)
            assert len(found) == len(["the text", "the key"])
            last = store.get("last", scope=ANN)
            assert last is not None
            assert found == sorted(["All say this.", last.text])
            if "versions" not in store.backend.lacks:
                assert len(store.versions("last", scope=ANN)) == self.writers * self.times

    def test_rule_2_exactly_this_scope(self) -> None:
        """A key or id reaches nothing of another scope, the wider and the narrower one included."""
        others = (BOB, SHOP, Scope(), Scope(user="ann", project="shop"), Scope(user="", project=""))
        with self._made() as store:
            mine = store.put("Mine.", scope=ANN, key="k")
            for scope in others:
                assert store.get("k", scope=scope) is store.get(mine.id, scope=scope) is None
                if "versions" not in store.backend.lacks:
                    assert store.versions("k", scope=scope) == []
                if "delete" not in store.backend.lacks:
                    assert store.delete("k", scope=scope) == 0
            assert store.get("k", scope=ANN) == store.get(mine.id, scope=ANN) == mine
            if "delete" not in store.backend.lacks:
                assert store.delete(mine.id, scope=ANN) == 1
                assert store.get("k", scope=ANN) is None

    def test_rule_3_what_holds_now(self) -> None:
        """Neither the future nor the past is returned, and a clock that jumps deletes nothing."""
        clock = _Clock()
        start, day = clock.now, timedelta(days=1)
        with self._made(clock=clock) as store:
            store.put("Short.", scope=ANN, key="short", ttl=day)
            store.put("Later.", scope=ANN, key="later", valid_from=start + 2 * day)
            store.put("Was.", scope=ANN, key="was", valid_to=start + day)
            expected = {0: ["Short.", "Was."], 1: [], 2: ["Later."], 900: ["Later."]}
            for days in (0, 900, 2, 1, 0):
                clock.now = start + days * day
                assert self._current(store) == expected[days]
                keys = [key for key in ("later", "short", "was") if store.get(key, scope=ANN)]
                assert len(keys) == len(expected[days])

    def test_rule_4_the_stored_version(self) -> None:
        """Who replaces what somebody changed, replaced or deleted meanwhile gets a conflict."""
        with self._made() as store:
            seen = store.put("One.", scope=ANN, key="k")
            if self._unsupported(store, "replace", lambda: store.replace(seen)):
                return
            assert store.update("k", lambda _: "Two.", scope=ANN).version > seen.version
            self._conflicts(store, seen)
            seen = store.update("k", lambda memory: memory, scope=ANN)
            store.put("Three.", scope=ANN, key="k")
            self._conflicts(store, seen)
            assert self._current(store) == ["Three."]

    def test_rule_4_no_change_is_lost(self) -> None:
        """Threads, then processes, add one each time to the same number: none is lost."""
        with self._made() as store:
            store.put("0 changes", scope=ANN, key="n")
            if "replace" in store.backend.lacks:
                return
            self._in_threads(lambda _: add_times(store, ANN, self.times))
            expected = self.writers * self.times
            if self.processes:
                all_processes(add_times, [(store, ANN, self.times)] * self.writers)
                expected *= 2
            found = store.get("n", scope=ANN)
            assert found is not None
            assert found.text == f"{expected} changes"

    def test_rule_5_what_its_reader_may_see(self) -> None:
        """A search shows every level that a reader may see and no other, and always what always matters."""
        names: tuple[str | None, ...] = ("ann", "bob", None)
        scopes = [Scope(user=user, project=project) for user in names for project in ("shop", "club", None)]
        with self._made() as store:
            for i, scope in enumerate(scopes):
                store.put(f"A heart {i}.", scope=scope, kind="core")
                store.put(f"A habit {i}.", scope=scope, kind="preference")
                store.put(f"A place {i}.", scope=scope, static=True)
                for j in range(3):
                    store.put(f"Tea {j} of {i}.", scope=scope)
            for reader in scopes:
                seen = {i for i, scope in enumerate(scopes) if scope.visible_to(reader)}
                always = {f"A {what} {i}." for i in seen for what in ("heart", "habit", "place")}
                near = store.backend.near("Which tea?", reader, 2, datetime.now(timezone.utc))
                found = [memory.text for memory in near]
                assert len(set(found)) == len(found)
                assert always == {text for text in found if text.startswith("A ")}
                assert {text.split()[-1] for text in found if text not in always} == {f"{i}." for i in seen}
                everything = {memory.text for memory in store.search("Which tea?", scope=reader, limit=1000)}
                assert everything == always | {f"Tea {j} of {i}." for i in seen for j in range(3)}

    def test_rule_6_a_killed_writer(self) -> None:
        """What a process was told is kept stays when it is killed."""
        if not self.processes:
            return
        with self._made() as store:
            for after in (1, 1 + self.times):
                told = killed_writer(put_times, (store, ANN, f"{after}-"), after)
                kept = [store.get(name, scope=ANN) for name in told]
                assert len(told) >= after
                assert [memory.text for memory in kept if memory] == [f"Text {name}." for name in told]

    def test_rule_7_forgetting(self) -> None:
        """Of a forgotten user or project nothing is left in any scope that names it; others keep theirs."""
        both = Scope(user="ann", project="shop")
        with self._made() as store:
            for scope in (ANN, BOB, SHOP, both, Scope()):
                store.put(f"Of {scope}.", scope=scope, key="k")
            if self._unsupported(store, "forget", lambda: store.forget(ANN)):
                return
            receipt = store.forget(ANN)
            assert (receipt.subject, receipt.removed["memories"]) == (ANN, 2)
            left = [scope for scope in (ANN, BOB, SHOP, both, Scope()) if store.get("k", scope=scope)]
            assert left == [BOB, SHOP, Scope()]
            assert store.forget(SHOP).removed["memories"] == 1
            assert store.forget(SHOP).removed["memories"] == 0

    def test_rule_8_what_it_lacks(self) -> None:
        """What a backend lists as missing are its methods, and each refuses by StoreUnsupportedError."""
        with self._made() as store:
            lacks = store.backend.lacks
            assert lacks <= METHODS
            if "put" not in lacks:
                store.put("Mine.", scope=ANN, key="k")
            calls: dict[str, Callable[[], object]] = {
                "put": lambda: store.put("Mine.", scope=ANN),
                "get": lambda: store.get("k", scope=ANN),
                "replace": lambda: store.update("k", lambda memory: memory, scope=ANN),
                "versions": lambda: store.versions("k", scope=ANN),
                "near": lambda: store.search("mine", scope=ANN),
                "delete": lambda: store.delete("k", scope=ANN),
                "forget": lambda: store.forget(ANN),
            }
            for method, call in calls.items():
                if not self._unsupported(store, method, call):
                    call()

    def _in_threads(self, write: Callable[[int], None]) -> None:
        with ThreadPoolExecutor(self.writers) as pool:
            list(pool.map(write, range(self.writers)))

    def _conflicts(self, store: MemoryStore, memory: Any) -> None:
        refused = False
        with suppress(StoreConflictError):
            store.replace(memory)
            refused = True
        assert not refused, "a version that is not the stored one must be refused"

    def _unsupported(self, store: MemoryStore, method: str, call: Callable[[], object]) -> bool:
        """Returns whether the backend lacks a method; then calling it must say so."""
        if method not in store.backend.lacks:
            return False
        try:
            call()
        except StoreUnsupportedError:
            return True
        msg = f"{method} is in `lacks` and must raise StoreUnsupportedError"
        raise AssertionError(msg)
