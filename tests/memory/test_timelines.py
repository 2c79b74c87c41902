"""The versions of a key are one timeline, whatever dates they have and in whatever order they were put."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankbudget import Scope
from rankbudget.memory import MemoryStore

ANN = Scope(user="ann")
FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)
DAYS = 14
numbers = itertools.count()

Note = tuple[int, int | None]
"""The day from which something holds, and the one on which it no longer does."""
notes = st.builds(
    lambda begins, lasts: (begins, begins + lasts if lasts else None),
    st.integers(1, DAYS - 2),
    st.none() | st.integers(1, 6),
)


def moment(day: int | None) -> datetime | None:
    return None if day is None else FIRST + timedelta(days=day)


def expected(said: list[tuple[int, int | None, str]]) -> list[str | None]:
    """For each day the text that began last of those that were said for it; of two at once the newer one."""
    found: list[str | None] = []
    for day in range(DAYS):
        there = [
            (begins, at, text) for at, (begins, ends, text) in enumerate(said) if begins <= day < (ends or 99)
        ]
        found.append(max(there)[2] if there else None)
    return found


def told(store: MemoryStore, clock: Any, scope: Scope) -> list[str | None]:
    """For each day what `get` returns, which is also what `search` finds."""
    before, found = clock.now, list[str | None]()
    for day in range(DAYS):
        clock.now = moment(day)
        memory = store.get("k", scope=scope)
        found.append(memory.text if memory else None)
        assert [one.text for one in store.search("", scope=scope)] == [text for text in found[-1:] if text]
    clock.now = before
    return found


def check_rows(store: MemoryStore, scope: Scope) -> None:
    """No version ends before it begins, no two hold at once, and one at most is not replaced."""
    versions = store.versions("k", scope=scope)
    assert all(one.valid_to is None or one.valid_from <= one.valid_to for one in versions)
    holding = [one for one in versions if one.valid_to is None or one.valid_from < one.valid_to]
    assert all(
        one.valid_to and one.valid_to <= after.valid_from for one, after in itertools.pairwise(holding)
    )
    assert len([one for one in versions if one.replaced_by is None]) <= 1


drawn = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@drawn
@given(puts=st.lists(st.tuples(st.integers(0, 2), st.none() | notes), max_size=7))
def test_any_puts_make_one_timeline(
    store: MemoryStore, clock: Any, puts: list[tuple[int, Note | None]]
) -> None:
    """After any puts, dated or not, each day has the text that began last of those that were said for it."""
    scope, said, today = Scope(user=str(next(numbers))), list[tuple[int, int | None, str]](), 0
    for at, (passed, note) in enumerate(puts):
        today += passed
        clock.now = moment(today)
        begins, ends = note or (None, None)
        put = store.put(f"Text {at}.", scope=scope, key="k", valid_from=moment(begins), valid_to=moment(ends))
        assert put in store.versions("k", scope=scope)
        said.append((today if begins is None else begins, ends, put.text))
        check_rows(store, scope)
    assert told(store, clock, scope) == expected(said)


@drawn
@given(data=st.data(), dated=st.lists(notes, unique_by=lambda note: note[0], max_size=5))
def test_notes_come_in_any_order(
    store: MemoryStore, clock: Any, data: st.DataObject, dated: list[Note]
) -> None:
    """Dated notes make the same timeline in any order, and when all of them are put once more."""
    scope, clock.now = Scope(user=str(next(numbers))), moment(data.draw(st.integers(0, DAYS)))
    said = [(begins, ends, f"Since {begins}.") for begins, ends in dated]
    for begins, ends, text in [*data.draw(st.permutations(said)), *data.draw(st.permutations(said))]:
        store.put(text, scope=scope, key="k", valid_from=moment(begins), valid_to=moment(ends))
        check_rows(store, scope)
    assert told(store, clock, scope) == expected(said)
