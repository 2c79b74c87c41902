"""Any series of operations, by any owners, does what a plain list of rows does: nothing leaks, nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from rankbudget import Scope
from rankbudget.errors import StoreConflictError, StoreError
from rankbudget.memory import Memory, MemoryStore
from rankbudget.memory.forgetting import remove_memories
from rankbudget.memory.memory import digest_of

NAMES = ("ann", "An%n", "", "=", "' OR 1=1 --", None)
BOTH = Scope(user="ann", project="shop")
scopes = st.sampled_from((Scope(user="ann"), BOTH, Scope(user=""), Scope(project="shop"), Scope()))
mine = st.sampled_from((Scope(user="ann"), BOTH))  # many operations must meet the same memories
keys = st.sampled_from(("k", "K", "%", None))
texts = st.sampled_from(
    ("Likes tea.", "likes  TEA.", "Owns a boat.", 'Says "MATCH" OR *', "Été à Paris", "记忆")
)
days = st.integers(-3, 3).map(lambda number: timedelta(days=number))


@dataclass
class Row:
    """What the model knows of a memory."""

    id: str
    scope: Scope
    key: str | None
    text: str
    begins: datetime
    ends: datetime | None = None
    expires: datetime | None = None
    current: bool = True

    def holds(self, now: datetime) -> bool:
        return self.begins <= now and not self.over(now, now)

    def over(self, begins: datetime, now: datetime) -> bool:
        return bool((self.ends and self.ends <= begins) or (self.expires and self.expires <= now))

    def end(self, begins: datetime) -> None:
        self.current = False
        moments = [moment for moment in (begins, self.ends, self.expires) if moment]
        self.ends = max(self.begins, min(moments))


class Model:
    """The rules of `MemoryBackend` on a list, read one by one."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def named(self, name: str, scope: Scope, now: datetime) -> Row | None:
        found = [r for r in self.rows if r.scope == scope and name in {r.id, r.key} and r.holds(now)]
        return max(found, key=lambda r: (r.id == name, r.begins), default=None)

    def after_the_past(self, scope: Scope, key: str | None, begins: datetime, now: datetime) -> datetime:
        """What was replaced and is over stays: a memory of its key holds after it."""
        mine = [r for r in self.rows if r.scope == scope and r.key == key is not None and not r.current]
        return max([begins, *(r.ends for r in mine if r.ends and r.ends <= now)])

    def put(self, made: Memory, expires: datetime | None, old: Row | None, now: datetime) -> None:
        begins = self.after_the_past(made.scope, made.key, made.valid_from or now, now)
        current = [r for r in self.rows if r.scope == made.scope and r.current]
        current = [r for r in current if digest_of(r.text) == digest_of(made.text)]
        if made.key is not None:
            current = [r for r in current if r.key in {made.key, None}]
        alive = [r for r in current if not r.over(begins, now)]
        same = max(alive, key=lambda r: "=" + r.key if r.key is not None else "", default=None)
        key = same.key if same and made.key is None else made.key
        mine = [r for r in self.rows if r.scope == made.scope and r.key == key is not None]
        over = [r for r in current if r.over(begins, now)]
        begins = min(begins, same.begins) if same else begins
        begins = self.after_the_past(made.scope, key, begins, now)
        ended = [r for r in mine if r.current or (r.ends and r.ends > max(begins, r.begins))]
        ended += over + ([old] if old else [])
        for row in ended:
            if row is not same:
                row.end(begins)
        if same is None:
            self.rows.append(Row(made.id, made.scope, made.key, made.text, begins, expires=expires))
        else:
            same.key, same.begins = key, begins
            same.expires = expires or same.expires


class Machine(RuleBasedStateMachine):
    """Asks the store and the model the same."""

    def __init__(self, opened: Callable[..., MemoryStore]) -> None:
        super().__init__()
        self.now = datetime.fromisoformat("2026-03-01T12:00:00+00:00")
        self.store = opened(clock=lambda: self.now)
        self.model = Model()

    @rule(text=texts, scope=scopes, key=keys)
    def put(self, text: str, scope: Scope, key: str | None) -> None:
        self._put(text, scope, key, None, None, None)

    @rule(text=texts, scope=mine, key=keys, later=days)
    def put_later(self, text: str, scope: Scope, key: str | None, later: timedelta) -> None:
        self._put(text, scope, key, later, None, None)

    @rule(text=texts, scope=mine, key=keys, ttl=st.integers(1, 3))
    def put_for_days(self, text: str, scope: Scope, key: str | None, ttl: int) -> None:
        self._put(text, scope, key, None, ttl, None)

    @rule(text=texts, scope=mine, key=keys, name=st.sampled_from(("k", "%")))
    def supersede(self, text: str, scope: Scope, key: str | None, name: str) -> None:
        if self.model.named(name, scope, self.now) is None:
            with pytest.raises(StoreError, match="supersedes"):
                self.store.put(text, scope=scope, key=key, supersedes=name)
        else:
            self._put(text, scope, key, None, None, name)

    def _put(self, text: str, scope: Scope, key: Any, later: Any, ttl: Any, supersedes: Any) -> None:
        old = self.model.named(supersedes, scope, self.now) if supersedes else None
        begins = self.now + later if later is not None else None
        span = timedelta(days=ttl) if ttl else None
        past = self._past(scope)
        put = self.store.put(
            text, scope=scope, key=key, valid_from=begins, ttl=span, supersedes=supersedes, sources=("m1",)
        )
        now_past = self._past(scope)
        assert all(now_past[name] == memory for name, memory in past.items())  # the past stays
        assert (put.scope, put.confidence, put.sources) == (scope, None, ("m1",))
        made = Memory(text=text, scope=scope, key=key, valid_from=begins, id=put.id)
        self.model.put(made, self.now + span if span else None, old, self.now)

    def _past(self, scope: Scope) -> dict[str, Memory]:
        """Returns what was replaced and is over."""
        found = [memory for key in ("k", "K", "%") for memory in self.store.versions(key, scope=scope)]
        return {m.id: m for m in found if m.replaced_by and m.valid_to and m.valid_to <= self.now}

    @rule(name=st.sampled_from(("k", "%")), text=texts, scope=mine)
    def update(self, name: str, text: str, scope: Scope) -> None:
        row = self.model.named(name, scope, self.now)
        if row is None:
            with pytest.raises(StoreError, match="name must be"):
                self.store.update(name, lambda _: text, scope=scope)
            return
        others = [r for r in self.model.rows if r is not row and r.current and r.scope == scope]
        taken = any(r.key == row.key and digest_of(r.text) == digest_of(text) for r in others)
        if taken or not row.current:
            with pytest.raises(StoreConflictError):
                self.store.update(name, lambda _: text, scope=scope)
        else:
            assert self.store.update(name, lambda _: text, scope=scope).text == text
            row.text = text

    @rule(name=st.sampled_from(("k", "%")), scope=scopes, whole=st.booleans())
    def remove(self, name: str, scope: Scope, whole: bool) -> None:
        if whole and scope != Scope():
            self._forget(scope)
            return
        gone = [r for r in self.model.rows if r.scope == scope and name in {r.id, r.key}]
        assert self.store.delete(name, scope=scope) == len(gone)
        self.model.rows = [r for r in self.model.rows if r not in gone]

    def _forget(self, subject: Scope) -> None:
        def named(scope: Scope) -> bool:
            user, project = subject.user, subject.project
            return user in {None, scope.user} and project in {None, scope.project}

        gone = [r for r in self.model.rows if named(r.scope)]
        assert self.store.forget(subject).removed["memories"] == len(gone)
        self.model.rows = [r for r in self.model.rows if r not in gone]

    @rule(by=days)
    def move_the_clock(self, by: timedelta) -> None:
        self.now += by

    @rule(reader=scopes, query=texts)
    def search(self, reader: Scope, query: str) -> None:
        found = self.store.search(query, scope=reader, limit=1000)
        assert all(memory.scope.visible_to(reader) for memory in found)
        expected = [r for r in self.model.rows if r.scope.visible_to(reader) and r.holds(self.now)]
        assert sorted((m.id, m.text) for m in found) == sorted((r.id, r.text) for r in expected)
        kept = self.store.fit(query, scope=reader, max_tokens=10_000, counter=len).segments
        assert {segment.id for segment in kept} <= {row.id for row in expected}

    @rule(scope=scopes, name=keys.filter(bool))
    def get(self, scope: Scope, name: str) -> None:
        found, expected = self.store.get(name, scope=scope), self.model.named(name, scope, self.now)
        assert (found.text if found else None) == (expected.text if expected else None)
        told = [(m.id, m.valid_from, m.valid_to) for m in self.store.versions(name, scope=scope)]
        rows = [r for r in self.model.rows if r.scope == scope and r.key == name]
        assert sorted(told, key=str) == sorted(((r.id, r.begins, r.ends) for r in rows), key=str)

    @invariant()
    def one_holds_under_a_key(self) -> None:
        holding = [(r.scope, r.key) for r in self.model.rows if r.key is not None and r.holds(self.now)]
        assert len(holding) == len(set(holding))


def test_nothing_leaks_and_nothing_is_lost(place: Any, open_store: Callable[..., MemoryStore]) -> None:
    """Random scopes, names and operations: the store returns exactly what the model does, and to no other reader."""
    from sqlalchemy import true

    store = open_store(place)

    def opened(clock: Callable[[], datetime]) -> MemoryStore:
        with store.backend.database.write() as connection:
            remove_memories(connection, true())
        store._clock = clock
        return store

    run_state_machine_as_test(
        lambda: Machine(opened), settings=settings(stateful_step_count=40, phases=[Phase.generate])
    )
