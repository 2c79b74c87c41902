"""Any series of operations, by any owners, does what a plain list of rows does: nothing leaks, nothing is lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from rankbudget import Scope
from rankbudget.errors import StoreError
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


@dataclass(eq=False)
class Row:
    """What was put, and after how many others."""

    at: int
    scope: Scope
    key: str | None
    text: str
    begins: datetime
    ends: datetime | None
    expires: datetime | None
    is_dated: bool
    superseded: bool = False

    @property
    def digest(self) -> str:
        return digest_of(self.text)

    def covers(self, now: datetime) -> bool:
        return self.begins <= now and (self.ends is None or now < self.ends)


class Model:
    """The rules of `MemoryBackend` on a list of what was put, in that order; what holds is asked for each moment."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.numbers = itertools.count()

    def line(self, scope: Scope, key: str | None, digest: str) -> list[Row]:
        """The rows that compete: those of a key, or those of a text without one."""
        mine = [row for row in self.rows if (row.scope, row.key) == (scope, key)]
        return mine if key is not None else [row for row in mine if row.digest == digest]

    def winner(self, line: list[Row], now: datetime) -> Row | None:
        found = [row for row in line if row.covers(now)]
        return max(found, key=lambda row: (row.begins, row.at), default=None)

    def holds(self, row: Row, now: datetime) -> bool:
        winner = self.winner(self.line(row.scope, row.key, row.digest), now)
        return row is winner and not (row.expires and row.expires <= now)

    def named(self, name: str, scope: Scope, now: datetime) -> Row | None:
        found = [row for row in self.rows if (row.scope, row.key) == (scope, name) and self.holds(row, now)]
        return found[0] if found else None

    def periods(self, row: Row) -> list[tuple[datetime, datetime]]:
        line = self.line(row.scope, row.key, row.digest)
        return runs([day for day in EACH_DAY if self.winner(line, day) is row], row.begins)

    def put(self, made: Memory, expires: datetime | None, old: Row | None, now: datetime) -> None:
        begins, digest = made.valid_from or now, digest_of(made.text)
        until = made.valid_to or EACH_DAY[-1] + DAY
        mine = [row for row in self.rows if row.scope == made.scope]
        keys = sorted({row.key for row in mine if row.digest == digest and row.key is not None}, reverse=True)
        key, line = made.key, list[Row]()
        for key in [made.key] if made.key is not None else [*keys, None]:
            line = self.line(made.scope, key, digest)
            if self.told(line, digest, max(begins, now), until, now, made):
                break
        if made.valid_from is None:
            for row in line:
                row.begins = row.begins if row.is_dated or row.superseded else min(row.begins, begins)
        same = self.find_same(line, digest, begins, made, now)
        if same is None and key is not None:
            keyless = self.line(made.scope, None, digest)
            if made.valid_from is not None:
                same = self.find_same(keyless, digest, begins, made, now)
            else:
                same = self.told(keyless, digest, begins, until, now)
            if same is not None:
                same.begins = min(begins, max(same.begins, now) if line else same.begins)
        if same is not None:
            self.set_end(same, made.valid_to, revived=old is not None)
        if same is None:
            same = Row(
                next(self.numbers),
                made.scope,
                key,
                made.text,
                begins,
                made.valid_to,
                expires,
                made.valid_from is not None,
            )
            self.rows.append(same)
        same.key, same.expires = key, expires or same.expires
        same.is_dated |= made.valid_from is not None
        same.text = same.text if made.key is None else made.text
        if old is not None:
            self.end(old, same, begins)

    def set_end(self, same: Row, ends: datetime | None, *, revived: bool) -> None:
        """An end that is not given stays; that of a superseded one is for good, unless it supersedes in turn."""
        if not same.superseded:
            same.ends = ends or same.ends
        elif revived:
            same.ends, same.superseded = ends, False
        elif same.ends is not None:
            same.ends = min(ends or same.ends, same.ends)

    def find_same(
        self, line: list[Row], digest: str, begins: datetime, made: Memory, now: datetime
    ) -> Row | None:
        """The newest row of a text with a date, or without one that which holds."""
        alike = [row for row in line[::-1] if row.digest == digest and self.is_alive(row, now)]
        if made.valid_from is not None:
            return next((row for row in alike if row.begins == begins), None)
        return next((row for row in alike if row is self.winner(line, begins)), None)

    def end(self, old: Row, new: Row, begins: datetime) -> None:
        for row in self.line(old.scope, old.key, old.digest):
            if row is new or row.begins > max(begins, old.begins):
                continue
            if row.ends is None or row.ends > begins:
                row.ends, row.superseded = max(row.begins, begins), True

    def is_alive(self, row: Row, now: datetime) -> bool:
        return not (row.expires and row.expires <= now)

    def told(
        self,
        line: list[Row],
        digest: str,
        begins: datetime,
        until: datetime,
        now: datetime,
        made: Memory | None = None,
    ) -> Row | None:
        """The newest row of a text that wins at some moment of a period, before which a fast clock is set back."""
        seen = line
        if made is not None and made.valid_from is None:
            seen = [
                replace(row, begins=min(row.begins, begins)) if not (row.is_dated or row.superseded) else row
                for row in line
            ]
        alike = [row for row in seen[::-1] if row.digest == digest and self.is_alive(row, now)]
        days = [begins, *[day for day in EACH_DAY if begins <= day < until]]
        return next((row for row in alike if any(self.winner(seen, day) is row for day in days)), None)


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
        still = self._past(scope, self.now)
        assert [
            one for one in past if one.id != put.id and one not in still
        ] == []  # what is over before stays
        assert {(m.valid_from, m.valid_to) for m in past} <= {(m.valid_from, m.valid_to) for m in still}
        assert (put.scope, put.confidence, put.sources) == (scope, None, ("m1",))
        made = Memory(text=text, scope=scope, key=key, **dates)
        self.model.put(made, self.now + span if span else None, old, self.now)
        for name in ("k", "K", "%"):
            self._check_versions(name, scope)

    def _past(self, scope: Scope, until: datetime) -> list[Memory]:
        """Returns what was replaced and is over before a moment, but for what follows it and its number of changes."""
        found = [memory for key in ("k", "K", "%") for memory in self.store.versions(key, scope=scope)]
        over = [m for m in found if m.replaced_by and m.valid_to and m.valid_from < m.valid_to < until]
        return [replace(memory, replaced_by=None, version=0) for memory in over]

    @rule(name=st.sampled_from(("k", "%")), text=texts, scope=mine)
    def update(self, name: str, text: str, scope: Scope) -> None:
        row = self.model.named(name, scope, self.now)
        if row is None:
            with pytest.raises(StoreError, match="name must be"):
                self.store.update(name, lambda _: text, scope=scope)
            return
        assert self.store.update(name, lambda _: text, scope=scope).text == text
        row.text = text

    @rule(name=st.sampled_from(("k", "%")), scope=scopes, whole=st.booleans())
    def remove(self, name: str, scope: Scope, whole: bool) -> None:
        if whole and scope != Scope():
            self._forget(scope)
            return
        gone = [r for r in self.model.rows if r.scope == scope and name == r.key]
        assert self.store.delete(name, scope=scope) == len(gone)
        self.model.rows = [r for r in self.model.rows if r not in gone]

    def _forget(self, subject: Scope) -> None:
        def named(scope: Scope) -> bool:
            user, project = subject.user, subject.project
            return user in {None, scope.user} and project in {None, scope.project}

        gone = [r for r in self.model.rows if named(r.scope)]
        assert self.store.forget(subject).removed["memories"] == len(gone)
        self.model.rows = [r for r in self.model.rows if r not in gone]

    @rule(name=st.sampled_from(("k", "%")), scope=mine, which=st.integers(0, 3))
    def remove_a_version(self, name: str, scope: Scope, which: int) -> None:
        versions = self.store.versions(name, scope=scope)
        if which < len(versions):
            one = versions[which]
            assert self.store.delete(one.id, scope=scope) == 1
            gone = [r for r in self.model.rows if (r.scope, r.key, r.text) == (scope, name, one.text)]
            gone = [
                r
                for r in gone
                if (one.valid_from, one.valid_to or EACH_DAY[-1] + DAY) in self.model.periods(r)
            ]
            self.model.rows.remove(gone[0])
            self._check_versions(name, scope)

    @rule(by=days)
    def move_the_clock(self, by: timedelta) -> None:
        self.now += by

    @rule(reader=scopes, query=texts)
    def search(self, reader: Scope, query: str) -> None:
        found = self.store.search(query, scope=reader, limit=1000)
        assert all(memory.scope.visible_to(reader) for memory in found)
        expected = [
            r for r in self.model.rows if r.scope.visible_to(reader) and self.model.holds(r, self.now)
        ]
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
        parts = [
            (r.text, first, end if end <= EACH_DAY[-1] else None)
            for r in rows
            for first, end in self.model.periods(r)
        ]
        assert sorted(told, key=str) == sorted(parts, key=str)


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
