"""The versions of a key are one timeline, whatever dates they have and in whatever order they were put."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankbudget import Scope
from rankbudget.memory import MemoryStore
from rankbudget.testing.conformance._agreement import disagreements

ANN = Scope(user="ann")
DAY = timedelta(days=1)
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
        parts = [one for one in store.versions("k", scope=scope) if one.id == put.id]
        assert (put.valid_from, put.valid_to) == (parts[0].valid_from, parts[-1].valid_to)
        said.append((today if begins is None else begins, ends, put.text))
        check_rows(store, scope)
    assert told(store, clock, scope) == expected(said)


@drawn
@given(data=st.data(), dated=st.lists(notes, unique_by=lambda note: note[0], max_size=5))
def test_notes_come_in_any_order(
    store: MemoryStore, clock: Any, data: st.DataObject, dated: list[Note]
) -> None:
    """Dated notes make the same timeline in any order, also where some say the same, and when all are put once more."""
    scope, clock.now = Scope(user=str(next(numbers))), moment(data.draw(st.integers(0, DAYS)))
    towns = st.sampled_from(("Rome.", "Oslo.", "Bonn."))
    said = [(begins, ends, data.draw(towns)) for begins, ends in dated]
    for begins, ends, text in [*data.draw(st.permutations(said)), *data.draw(st.permutations(said))]:
        store.put(text, scope=scope, key="k", valid_from=moment(begins), valid_to=moment(ends))
        check_rows(store, scope)
    assert told(store, clock, scope) == expected(said)


def test_a_part_that_goes_on_is_found_like_the_first(
    place: Any, clock: Any, open_store: Callable[..., MemoryStore]
) -> None:
    """After a version that holds for some days the older one is found by its words and vector, embedded once."""
    embedded: list[str] = []

    def embed(texts: list[str]) -> list[list[float]]:
        embedded.extend(texts)
        return [[float(len(text)), 1.0] for text in texts]

    store = open_store(place, clock=clock, embed=embed)
    fields = {"scope": ANN, "key": "k", "sources": ("list",), "confidence": 0.5, "metadata": {"by": "bob"}}
    first = store.put("It costs 10.", kind="preference", **fields)
    clock.move(days=1)
    store.put("It costs 8.", scope=ANN, key="k", valid_to=clock.now + 2 * DAY)
    assert disagreements(store.backend.database) == []
    clock.move(days=3)
    [found] = store.search("What does it cost?", scope=ANN)
    assert found.score is not None
    assert replace(found, score=None, version=1) == first
    assert embedded.count("It costs 10.") == 1
    parts = store.versions(first.id, scope=ANN)
    assert [(one.id, one.text) for one in parts] == [(first.id, "It costs 10.")] * 2
    assert parts[-1].valid_from == clock.now - DAY
    assert store.versions(first.id, scope=Scope(user="bob")) == []
    assert store.delete(first.id, scope=Scope(user="bob")) == 0
    assert store.delete(first.id, scope=ANN) == 1
    assert store.search("What does it cost?", scope=ANN) == []


def test_a_replacement_that_moves_leaves_the_others(store: MemoryStore, clock: Any) -> None:
    """A version takes the dates it is given; an older one ends where it begins, and goes on after its end."""
    clock.now = moment(0)
    store.put("Rome.", scope=ANN, key="k")
    store.put("Oslo.", scope=ANN, key="k", valid_from=moment(8))
    oslo = store.versions("k", scope=ANN)[-1]
    for begins, ends in ((6, None), (9, None), (9, 11)):
        oslo = store.replace(replace(oslo, valid_from=moment(begins), valid_to=moment(ends)))
        assert (oslo.valid_from, oslo.valid_to) == (moment(begins), moment(ends))
        check_rows(store, ANN)
    assert told(store, clock, ANN) == ["Rome."] * 9 + ["Oslo."] * 2 + ["Rome."] * 3


def test_what_supersedes_ends_no_plan(store: MemoryStore, clock: Any) -> None:
    """What is superseded comes back at no time, nor what it replaced; what is planned under its key still begins."""
    clock.now = moment(2)
    store.put("Bonn.", scope=ANN, key="k", valid_from=moment(0))
    store.put("Rome.", scope=ANN, key="k", valid_from=moment(1))
    store.put("Oslo.", scope=ANN, key="k", valid_from=moment(9))
    store.put("Kiel.", scope=ANN, key="k", supersedes="k", valid_from=moment(0), valid_to=moment(5))
    check_rows(store, ANN)
    assert told(store, clock, ANN) == ["Kiel."] * 5 + [None] * 4 + ["Oslo."] * 5


def test_what_supersedes_brings_nothing_back(store: MemoryStore, clock: Any) -> None:
    """Whenever the new memory begins, neither what held now nor what held before it ever holds again."""
    for begins in range(6):
        scope, clock.now = Scope(user=str(begins)), moment(5)
        for day, town in ((1, "Rome."), (3, "Oslo.")):
            store.put(town, scope=scope, key="k", valid_from=moment(day))
        store.put(
            "Kiel.", scope=scope, key="k", supersedes="k", valid_from=moment(begins), valid_to=moment(9)
        )
        assert told(store, clock, scope)[begins:] == ["Kiel."] * (9 - begins) + [None] * 5


def test_what_is_superseded_ends_for_good_whatever_is_said_again(store: MemoryStore, clock: Any) -> None:
    """Its text put again is the same memory while it holds, or with its date; neither gives it another end."""
    for at, again in enumerate(
        ({}, {"key": "k"}, {"valid_from": moment(1), "key": "k"}, {"valid_to": moment(12)})
    ):
        for day in (4, 9):
            scope, clock.now = Scope(user=f"{at} {day}"), moment(2)
            rome = store.put("Rome.", scope=scope, key="k", valid_from=moment(1))
            store.put("Oslo.", scope=scope, supersedes="k", valid_from=moment(6))
            clock.now = moment(day)
            said = store.put("Rome.", scope=scope, **again)
            known = day < 6 or "valid_from" in again
            assert (said.id == rome.id, len(store.versions("k", scope=scope))) == (
                known,
                1 if known else len(again.get("key", "")) + 1,
            )
            clock.now = moment(7)
            assert [one.text for one in store.search("", scope=scope)] == ["Oslo."]


def test_decisions_that_supersede_each_other_may_be_put_twice(store: MemoryStore, clock: Any) -> None:
    """After a second import the last decision holds, as after the first; one of them put alone holds from then on."""
    clock.now, rows = moment(9), [("MySQL.", 1, None), ("Postgres.", 3, "k"), ("SQLite.", 6, "k")]
    for text, day, old in [*rows, *rows]:
        put = store.put(text, scope=ANN, key="k", valid_from=moment(day), supersedes=old)
        assert old is None or store.get("k", scope=ANN).id == put.id
    assert told(store, clock, ANN) == [None] + ["MySQL."] * 2 + ["Postgres."] * 3 + ["SQLite."] * 8
    store.put("Postgres.", scope=ANN, key="k", valid_from=moment(3), supersedes="k")
    assert store.get("k", scope=ANN).text == "Postgres."


def test_a_note_without_a_key_leaves_dates_alone(store: MemoryStore, clock: Any) -> None:
    """A text that is known without a key is a version of its own under a dated one, before its date and after."""
    clock.now = moment(5)
    store.put("Thirty.", scope=ANN)
    store.put("Ten.", scope=ANN, key="k")
    store.put("Thirty.", scope=ANN, key="k", valid_from=moment(8))
    store.put("Thirty.", scope=ANN, key="k", valid_from=moment(1), valid_to=moment(3))
    told_days = [store.get("k", scope=ANN).text, len(store.search("", scope=ANN))]
    assert told_days == ["Ten.", 2]
    clock.now = moment(8)
    assert store.get("k", scope=ANN).text == "Thirty."
    for dated in ({"valid_from": moment(8)}, {"valid_from": moment(8), "sources": ("m",)}):
        store.put("Thirty.", scope=ANN, key="k", valid_to=moment(10), **dated)
        store.put("Thirty.", scope=ANN, key="k", **dated)
        assert store.get("k", scope=ANN).valid_to == moment(10)


def test_what_is_superseded_stays_so_when_the_clock_goes_back(store: MemoryStore, clock: Any) -> None:
    """A text of a fast clock that never held, being superseded by a dated one, is not set back to a clock that is behind."""
    clock.now = moment(7)
    store.put("Rome.", scope=ANN, key="k")
    store.put("Oslo.", scope=ANN, key="k", supersedes="k", valid_from=moment(4))
    clock.now = moment(5)
    store.put("Kiel.", scope=ANN, key="k", valid_to=moment(6))
    assert told(store, clock, ANN)[5:] == ["Kiel."] + ["Oslo."] * 8


def test_a_wrong_clock_changes_no_date_that_was_given(store: MemoryStore, clock: Any) -> None:
    """A text without a date that is put long before the dates of others leaves them where they are."""
    clock.now = moment(9)
    for day, town in ((2, "Rome."), (4, "Oslo.")):
        store.put(town, scope=ANN, key="k", valid_from=moment(day))
    clock.now = moment(0)
    early = store.put("Kiel.", scope=ANN, key="k")
    assert told(store, clock, ANN) == ["Kiel."] * 2 + ["Rome."] * 2 + ["Oslo."] * 10
    store.delete(early.id, scope=ANN)
    assert told(store, clock, ANN) == [None] * 2 + ["Rome."] * 2 + ["Oslo."] * 10


def test_the_last_of_undated_texts_holds_whatever_the_clocks_say(store: MemoryStore, clock: Any) -> None:
    """Of texts without dates the one that is put last holds from then on, however often clocks went back."""
    for scope, days in enumerate(itertools.product(range(3), repeat=4)):
        ann = Scope(user=str(scope))
        for at, day in enumerate(days):
            clock.now = moment(day)
            store.put(f"Text {at % 3}.", scope=ann, key="k")
        assert told(store, clock, ann)[day:] == ["Text 0."] * (DAYS - day)


def test_a_date_that_is_the_clocks_own_is_a_date(store: MemoryStore, clock: Any) -> None:
    """What is dated stays where it is, also where it was put at that very moment."""
    clock.now = moment(6)
    store.put("Rome.", scope=ANN, key="k", valid_from=moment(6))
    clock.now = moment(2)
    store.put("Oslo.", scope=ANN, key="k")
    assert told(store, clock, ANN) == [None] * 2 + ["Oslo."] * 4 + ["Rome."] * 8


def test_a_time_to_live_counts_from_the_beginning(store: MemoryStore, clock: Any) -> None:
    """What is planned lives as long as what is said now, and ends nothing when its time is over."""
    clock.now = moment(0)
    store.put("Rome.", scope=ANN, key="k", ttl=3 * DAY)
    store.put("Oslo.", scope=ANN, key="k", valid_from=moment(5), ttl=2 * DAY)
    assert told(store, clock, ANN) == ["Rome."] * 3 + [None] * 2 + ["Oslo."] * 2 + [None] * 7


def test_an_end_that_is_over_is_kept(store: MemoryStore, clock: Any) -> None:
    """A memory with nothing but an end in the past is known, never returned, and ends nothing."""
    now = store.put("Rome.", scope=ANN, key="k")
    store.put("Bonn.", scope=ANN, key="k", valid_to=clock.now - 9 * DAY)
    bonn, rome = store.versions("k", scope=ANN)
    assert (bonn.valid_from, bonn.valid_to, rome) == (bonn.valid_to, clock.now - 9 * DAY, now)
    assert store.get("k", scope=ANN) == now


def test_a_version_that_is_deleted_leaves_its_days_to_the_older_one(store: MemoryStore, clock: Any) -> None:
    """Without a version its timeline is as if it had never been put, however the others were cut by it."""
    clock.now = moment(2)
    store.put("Rome.", scope=ANN, key="k", valid_from=moment(1))
    oslo = store.put("Oslo.", scope=ANN, key="k", valid_from=moment(5))
    kiel = store.put("Kiel.", scope=ANN, key="k", valid_from=moment(3), valid_to=moment(8))
    assert store.delete(oslo.id, scope=ANN) == 1
    assert told(store, clock, ANN) == [None, *["Rome."] * 2, *["Kiel."] * 5, *["Rome."] * 6]
    assert store.delete(kiel.id, scope=ANN) == 1
    assert told(store, clock, ANN) == [None, *["Rome."] * 13]


def test_a_key_with_a_plan_can_be_updated(store: MemoryStore, clock: Any) -> None:
    """What holds now is changed, in all its periods, and what is planned stays."""
    clock.now = moment(0)
    store.put("Rome.", scope=ANN, key="k")
    store.put("Oslo.", scope=ANN, key="k", valid_from=moment(3), valid_to=moment(5))
    store.update("k", lambda memory: "Roma.", scope=ANN)
    assert told(store, clock, ANN) == ["Roma."] * 3 + ["Oslo."] * 2 + ["Roma."] * 9


def test_many_that_are_covered_hide_nothing(
    place: Any, clock: Any, open_store: Callable[..., MemoryStore]
) -> None:
    """Of hundreds of versions that are nearest to a question, only the one that holds takes a place."""
    store = open_store(place, clock=clock, embed=lambda texts: [[1.0, len(text) / 1000] for text in texts])
    clock.now = moment(0)
    for at in range(120):
        store.put(f"The price is {at}.", scope=ANN, key="price")
        clock.move(minutes=1)
    store.put("On sale.", scope=ANN, key="price", valid_to=clock.now + DAY)
    store.put("Likes tea.", scope=ANN)
    assert {one.text for one in store.search("The price is?", scope=ANN)} == {"On sale.", "Likes tea."}
    clock.move(days=2)
    assert {one.text for one in store.search("The price is?", scope=ANN)} == {
        "The price is 119.",
        "Likes tea.",
    }


def test_a_text_of_today_ends_what_a_fast_clock_put(store: MemoryStore, clock: Any) -> None:
    """Of texts without dates the one that is put last holds, also when another machine's clock is ahead."""
    clock.move(minutes=5)
    store.put("Said first.", scope=ANN, key="k")
    clock.move(minutes=-5)
    store.put("Said last.", scope=ANN, key="k")
    for minutes in (0, 4, 1, 60):
        clock.move(minutes=minutes)
        assert store.get("k", scope=ANN).text == "Said last."


def test_tables_of_the_version_before_get_timelines(
    place: Any, open_store: Callable[..., MemoryStore]
) -> None:
    """A store without periods that were said opens, and its memories go on after a shorter one."""
    store = open_store(place)
    store.put("Rome.", scope=ANN, key="k", valid_from=moment(0))
    store.put("Likes tea.", scope=ANN, valid_from=moment(0))
    database = store.backend.database
    with database.write() as connection:
        for index in ("one", "line"):
            connection.exec_driver_sql(f"DROP INDEX rankbudget_memories_{index}")
        for column in ("line", "said_from", "said_to", "gaps", "dated"):
            connection.exec_driver_sql(f"ALTER TABLE rankbudget_memories DROP COLUMN {column}")
        for index, columns, where in (("text", "name, digest", ""), ("key", "name", "AND name <> ''")):
            connection.exec_driver_sql(
                f"CREATE UNIQUE INDEX rankbudget_memories_{index} ON rankbudget_memories "
                f"(owner, project, {columns}) WHERE replaced = 0 {where}"
            )
        connection.exec_driver_sql("DROP TABLE rankbudget_memory_outside")
        connection.exec_driver_sql("UPDATE rankbudget_schema SET version = 2 WHERE part = 'memories'")
    store = open_store(database.engine)
    store.put("Oslo.", scope=ANN, key="k", valid_from=moment(2), valid_to=moment(4))
    store.put("likes tea.", scope=ANN)
    found = [(one.text, one.valid_from, one.valid_to) for one in store.versions("k", scope=ANN)]
    rome, oslo = ("Rome.", moment(0), moment(2)), ("Oslo.", moment(2), moment(4))
    assert found == [rome, oslo, ("Rome.", moment(4), None)]
    assert len(store.search("tea", scope=ANN)) == 2
