"""Any series of operations, by any owners, does what a plain list of rows does: nothing leaks, nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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
DAY = timedelta(days=1)
days = st.integers(-3, 3).map(lambda number: timedelta(days=number))


START = datetime.fromisoformat("2026-03-01T12:00:00+00:00")
EACH_DAY = [START + timedelta(days=number) for number in range(-150, 300)]
"""All that happens is a whole number of days away from the start; what holds on the last day has no end."""


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
    said: datetime = START
    created: datetime = START

    @property
    def until(self) -> datetime:
        return max(self.begins, min(end for end in (self.ends, self.expires, EACH_DAY[-1] + DAY) if end))

    def holds(self, now: datetime) -> bool:
        return self.begins <= now < self.until

    def meets(self, begins: datetime, ends: datetime, now: datetime) -> bool:
        there = self.begins < min(self.until, ends) and begins < self.until
        return there and not (self.expires and self.expires <= now)

    def end(self, begins: datetime) -> None:
        self.current = False
        self.ends = max(self.begins, min(begins, self.until))


class Model:
    """The rules of `MemoryBackend` on a list, read one by one, and day by day."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def named(self, name: str, scope: Scope, now: datetime) -> Row | None:
        found = [r for r in self.rows if r.scope == scope and name == r.key and r.holds(now)]
        return max(found, key=lambda r: r.begins, default=None)

    def put(self, made: Memory, expires: datetime | None, old: Row | None, now: datetime) -> None:
        begins, until = made.valid_from or now, made.valid_to or EACH_DAY[-1] + DAY
        digest = digest_of(made.text)
        mine = [r for r in self.rows if r.scope == made.scope]
        texts = [r for r in mine if r.current and digest_of(r.text) == digest]
        texts = [r for r in texts if made.key is None or r.key in {made.key, None}]
        texts.sort(key=lambda r: "" if r.key is None else "=" + r.key, reverse=True)
        alive = [r for r in texts if r.meets(begins, until, now)]
        key = alive[0].key if alive and made.key is None else made.key
        held = sorted((r for r in mine if r.key == key is not None), key=lambda r: r.begins)
        held = [r for r in held if r.current or r.begins < r.until] if key is not None else texts
        held = [r for r in held if r.key == key]
        found = [r for r in (*held, *alive) if r.meets(begins, until, now) and digest_of(r.text) == digest]
        between = [r for r in held if found and begins < r.begins < found[0].begins]
        same = found[0] if found and not between else None
        if same is None:
            new = Row(made.id, made.scope, key, made.text, begins, expires=expires, said=begins, created=now)
            self.rows.append(new)
        else:
            new = same
            if not made.valid_to and same.ends and all(row.begins != same.until for row in held):
                until = same.ends  # an end that another one made is made again or not
            begins = min(begins, max(same.begins, now))
            new.said = min(new.said, begins)
        if old is not None and old is not new:
            old.end(begins)
        others = [r for r in held if r is not new and r is not old]
        no_plans = [r for r in others if made.valid_from is None and r.said <= r.created]
        said = {id(r): min(r.said, begins) if r in no_plans else r.said for r in (*others, new)}
        new.key, new.expires, new.current = key, expires or new.expires, True
        self.settle(new, others, said, (begins, until), now)

    def settle(
        self, new: Row, others: list[Row], said: dict[int, datetime], takes: Any, now: datetime
    ) -> None:
        """Gives each day to what was said to begin last, and writes the days of each memory as its periods."""
        begins, until = takes
        days: dict[int, list[datetime]] = {}
        parts = [r for r in others if said[id(r)] == new.said and digest_of(r.text) == digest_of(new.text)]
        for day in EACH_DAY:
            holding = [row for row in others if row.holds(day)]
            newer = begins <= day < until and all(said[id(r)] <= begins and r not in parts for r in holding)
            for row in [new] if newer else holding:
                days.setdefault(id(row), []).append(day)
        rows = {id(row): runs(days.get(id(row), []), row.begins) for row in others}
        mine = runs(days.get(id(new), []), begins)
        if mine[0][0] == begins:  # it keeps what it had before, where nothing else holds
            had = [day for day in EACH_DAY if new.begins <= day < begins]
            free = [
                day
                for day in had
                if not any(first <= day < end for one in rows.values() for first, end in one)
            ]
            mine[0] = (runs([*free, begins], begins)[-1][0], mine[0][1])
        rows[id(new)] = mine
        last = max(part[::-1] for periods in rows.values() for part in periods)[::-1]
        for row in (*others, new):
            periods, was = rows[id(row)], (row.begins, row.until, row.current)
            own = next((at for at, (first, end) in enumerate(periods) if first <= now < end), 0)
            for at, (first, end) in enumerate(periods):
                part = row if at == own else replace(row, id="")
                current = was[2] and (first, end) == last
                if part is not row:
                    self.rows.append(part)
                if row is new or part is not row or was != (first, end, current):
                    part.begins, part.said, part.ends = (
                        first,
                        said[id(row)],
                        end if end <= EACH_DAY[-1] else None,
                    )
                    part.current = current


def runs(days: list[datetime], begins: datetime) -> list[tuple[datetime, datetime]]:
    """Returns days that follow each other as one period; without days, the empty one of a beginning."""
    found: list[tuple[datetime, datetime]] = []
    for day in days:
        first = found.pop()[0] if found and found[-1][1] == day else day
        found.append((first, day + DAY))
    return found or [(begins, begins)]


class Machine(RuleBasedStateMachine):
    """Asks the store and the model the same."""

    def __init__(self, opened: Callable[..., MemoryStore]) -> None:
        super().__init__()
        self.now = START
        self.store = opened(clock=lambda: self.now)
        self.model = Model()

    @rule(text=texts, scope=scopes, key=keys)
    def put(self, text: str, scope: Scope, key: str | None) -> None:
        self._put(text, scope, key, None, None, None)

    @rule(text=texts, scope=mine, key=keys, later=days, lasts=st.none() | st.integers(0, 3))
    def put_later(
        self, text: str, scope: Scope, key: str | None, later: timedelta, lasts: int | None
    ) -> None:
        self._put(text, scope, key, later, None, None, lasts)

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

    def _put(
        self, text: str, scope: Scope, key: Any, later: Any, ttl: Any, supersedes: Any, lasts: Any = None
    ) -> None:
        old = self.model.named(supersedes, scope, self.now) if supersedes else None
        begins = self.now + later if later is not None else None
        span = timedelta(days=ttl) if ttl else None
        dates = {"valid_from": begins, "valid_to": None if lasts is None else begins + lasts * DAY}
        past = self._past(scope, min(begins or self.now, self.now))
        put = self.store.put(
            text, scope=scope, key=key, ttl=span, supersedes=supersedes, sources=("m1",), **dates
        )
        assert all(memory in self._past(scope, self.now) for memory in past)  # what is over before stays
        assert (put.scope, put.confidence, put.sources) == (scope, None, ("m1",))
        made = Memory(text=text, scope=scope, key=key, id=put.id, **dates)
        self.model.put(made, self.now + span if span else None, old, self.now)
        for name in ("k", "K", "%"):
            self._check_versions(name, scope)

    def _past(self, scope: Scope, until: datetime) -> list[Memory]:
        """Returns what was replaced and is over at a moment."""
        found = [memory for key in ("k", "K", "%") for memory in self.store.versions(key, scope=scope)]
        return [m for m in found if m.replaced_by and m.valid_to and m.valid_to <= until]

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
        assert sorted(m.text for m in found) == sorted(r.text for r in expected)
        kept = self.store.fit(query, scope=reader, max_tokens=10_000, counter=len).segments
        assert {segment.text for segment in kept} <= {row.text for row in expected}

    @rule(scope=scopes, name=keys.filter(bool))
    def get(self, scope: Scope, name: str) -> None:
        found, expected = self.store.get(name, scope=scope), self.model.named(name, scope, self.now)
        assert (found.text if found else None) == (expected.text if expected else None)
        self._check_versions(name, scope)

    def _check_versions(self, name: str, scope: Scope) -> None:
        told = [(m.text, m.valid_from, m.valid_to) for m in self.store.versions(name, scope=scope)]
        rows = [r for r in self.model.rows if r.scope == scope and r.key == name]
        assert sorted(told, key=str) == sorted(((r.text, r.begins, r.ends) for r in rows), key=str)

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
