"""What a MemoryStore promises, on every kind of database."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rankbudget import Scope
from rankbudget.errors import BudgetConfigError, StoreConflictError, StoreError
from rankbudget.memory import Memory, MemoryStore

ANN = Scope(user="ann")
DAY = timedelta(days=1)


def texts(store: MemoryStore) -> list[str]:
    return sorted(memory.text for memory in store.search("", scope=ANN, limit=1000))


def test_a_memory_is_read_back(store: MemoryStore) -> None:
    """What was put is found by key and by id, in exactly its scope."""
    put = store.put("Prefers tabs.", scope=ANN, key="indent", kind="preference")
    assert store.get("indent", scope=ANN) == store.get(put.id, scope=ANN) == put
    assert store.get("indent", scope=Scope(user="bob")) is None


def test_the_same_text_keeps_what_is_not_said_again(store: MemoryStore) -> None:
    """Putting a text again sets the fields that are given, also to their defaults; its new form only under its key."""
    first = store.put(
        "Prefers tabs.", scope=ANN, kind="preference", static=True, source_type="adr", confidence=0.4
    )
    again = store.put("prefers  TABS.", scope=ANN, confidence=0.9, metadata={"by": "bob"})
    assert again == replace(first, confidence=0.9, metadata={"by": "bob"}, version=2)
    named = store.put("prefers  TABS.", scope=ANN, key="indent")
    assert named == replace(again, text="prefers  TABS.", key="indent", version=3)
    assert store.put("Prefers tabs.", scope=ANN) == replace(named, version=4)
    plain = {"kind": "fact", "static": False, "metadata": {}, "confidence": None}
    assert store.put("Prefers tabs.", scope=ANN, **plain) == replace(named, version=5, **plain)
    assert [one.text for one in store.search("TABS", scope=ANN)] == ["prefers  TABS."]


def test_a_chain_of_replacements(store: MemoryStore, clock: Any) -> None:
    """Each replaced memory names the next one and ends where it begins; only the last one holds."""
    chain = [store.put("Text 0.", scope=ANN, key="k")]
    for i in range(1, 4):
        clock.move(days=1)
        chain.append(store.put(f"Text {i}.", scope=ANN, key="k", supersedes=chain[-1].id if i % 2 else None))
    stored = store.versions("k", scope=ANN)
    assert [one.id for one in stored] == [one.id for one in chain]
    assert [one.replaced_by for one in stored] == [*[one.id for one in chain[1:]], None]
    assert [one.valid_to for one in stored] == [*[one.valid_from for one in chain[1:]], None]
    assert texts(store) == ["Text 3."]
    with pytest.raises(StoreError, match="supersedes must be the key or id"):
        store.put("Text 4.", scope=ANN, supersedes=chain[0].id)
    with pytest.raises(StoreError, match="supersedes must be the key or id"):
        store.put("Text 4.", scope=Scope(user="bob"), supersedes="k")


def test_a_replacement_that_begins_later(store: MemoryStore, clock: Any) -> None:
    """Until a future memory begins the older one holds, or one that is put in between."""
    store.put("Rome.", scope=ANN, key="home")
    store.put("Oslo.", scope=ANN, key="home", valid_from=clock.now + 10 * DAY)
    assert texts(store) == ["Rome."]
    clock.move(days=10)
    assert texts(store) == ["Oslo."]
    clock.move(days=-5)
    assert texts(store) == ["Rome."]
    store.put("Paris.", scope=ANN, key="home")
    for days, text in ((0, "Paris."), (4, "Paris."), (1, "Oslo."), (100, "Oslo."), (-106, "Rome.")):
        clock.move(days=days)
        assert texts(store) == [text]


def test_a_text_that_is_over_begins_anew(store: MemoryStore, clock: Any) -> None:
    """A text put again after it expired, or after its validity ended, holds again, in a row of its own."""
    first = store.put("Is ill.", scope=ANN, ttl=DAY)
    second = store.put("Is away.", scope=ANN, valid_to=clock.now + DAY)
    clock.move(days=2)
    assert texts(store) == []
    assert store.put("Is ill.", scope=ANN).id != first.id
    assert store.put("Is away.", scope=ANN).id != second.id
    assert texts(store) == ["Is away.", "Is ill."]
    clock.move(days=-2)
    assert texts(store) == ["Is away.", "Is ill."]


def test_a_text_of_the_future_that_is_said_now(store: MemoryStore, clock: Any) -> None:
    """A text that was to hold later holds from now on when it is put without a date."""
    later = store.put("Oslo.", scope=ANN, key="home", valid_from=clock.now + DAY)
    store.put("oslo.", scope=ANN)
    assert store.get("home", scope=ANN).text == "oslo."
    assert [one.id for one in store.versions("home", scope=ANN)][-1] == later.id


def test_a_text_that_holds_takes_a_key_at_once(store: MemoryStore, clock: Any) -> None:
    """A text that holds already ends the older one of the key it is given; with a date it is a version that begins then."""
    store.put("Rome.", scope=ANN, key="home")
    oslo = store.put("Oslo.", scope=ANN)
    store.put("Oslo.", scope=ANN, key="home", valid_from=clock.now + DAY)
    assert store.get("home", scope=ANN).text == "Rome."
    assert store.put("Oslo.", scope=ANN, key="home").id == oslo.id
    assert texts(store) == ["Oslo."]
    assert store.get("home", scope=ANN).text == "Oslo."


def test_a_clock_that_jumped(store: MemoryStore, clock: Any) -> None:
    """What was written and read under a clock far ahead loses nothing once it is set right."""
    store.put("Short.", scope=ANN, ttl=DAY, key="short")
    store.put("Always.", scope=ANN, key="always")
    clock.move(days=9000)
    assert texts(store) == ["Always."]
    store.put("Short.", scope=ANN, key="short")
    store.put("Always, said ahead.", scope=ANN, key="always")
    store.update("always", lambda memory: memory, scope=ANN)
    clock.move(days=-9000)
    assert texts(store) == ["Always.", "Short."]
    store.put("Always, said now.", scope=ANN, key="always")
    clock.move(days=9001)
    assert texts(store) == ["Always, said now.", "Short."]


def test_who_read_the_older_memory_cannot_revive_it(store: MemoryStore) -> None:
    """What was replaced after it was read cannot be written; what is known to be history stays history."""
    seen = store.put("Rome.", scope=ANN, key="home")
    store.put("Oslo.", scope=ANN, key="home")
    with pytest.raises(StoreConflictError, match="Read it again"):
        store.replace(replace(seen, text="Roma."))
    old = store.replace(replace(store.versions("home", scope=ANN)[0], text="Roma.", valid_to=None))
    assert texts(store) == ["Oslo."]
    store.put("Bern.", scope=ANN, supersedes="home")
    oslo = store.versions(old.key, scope=ANN)[-1]
    store.replace(replace(oslo, text="Oslo, Norway."))
    assert texts(store) == ["Bern."]


def test_changes_that_no_retry_makes_right(store: MemoryStore) -> None:
    """A change to another owner, to nothing, or to the text of another memory is refused at once."""
    store.put("Rome.", scope=ANN, key="a")
    store.put("Oslo.", scope=ANN, key="b")
    wrong = (lambda m: replace(m, scope=Scope()), lambda m: None, lambda m: replace(m, id="x"))
    for change in wrong:
        with pytest.raises(BudgetConfigError, match="change must return"):
            store.update("a", change, scope=ANN)
    with pytest.raises(StoreConflictError, match="has the text or key"):
        store.update("a", lambda memory: replace(memory, key="b"), scope=ANN)
    with pytest.raises(BudgetConfigError, match=r"Use put\(\) for a new one"):
        store.replace(Memory(text="New.", scope=ANN))
    with pytest.raises(StoreConflictError):
        store.replace(replace(store.get("a", scope=ANN), scope=Scope(user="bob")))
    assert texts(store) == ["Oslo.", "Rome."]


def test_a_replacement_without_dates_keeps_them(store: MemoryStore) -> None:
    """A memory built anew from id and version keeps when it was put and since when it holds."""
    put = store.put("Rome.", scope=ANN, key="home")
    store.replace(Memory(text="Oslo.", scope=ANN, id=put.id, version=put.version, key="home"))
    found = store.get("home", scope=ANN)
    assert (found.text, found.created_at, found.valid_from) == ("Oslo.", put.created_at, put.valid_from)


def test_stale_and_doubtful_memories(store: MemoryStore, clock: Any) -> None:
    """A prompt reports memories past their review; an unknown confidence is never taken for a low one."""
    store.put("Unknown.", scope=ANN)
    store.put("Doubtful.", scope=ANN, confidence=0.1)
    store.put("Old.", scope=ANN, key="old", review_at=clock.now - DAY)
    store.least_confidence = 0.5
    made = store.fit("which?", scope=ANN, max_tokens=500, counter=len)
    assert sorted(segment.text for segment in made.segments) == ["Old.", "Unknown."]
    assert any("stale memories" in warning and "old" in warning for warning in made.report.warnings)
    assert any("low confidence" in warning for warning in made.report.warnings)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: s.search(None, scope=ANN), "query must be a text"),
        (lambda s: s.fit(5, scope=ANN, max_tokens=9), "query must be a text"),
        (lambda s: s.blocks(b"x", scope=ANN), "query must be a text"),
        (lambda s: s.put("x", scope=ANN, static="yes"), "static of a memory must be True or False"),
        (lambda s: s.put("x", scope=ANN, key=""), "key of a memory must be a name"),
        (lambda s: s.update("n", "text", scope=ANN), "change must be a function"),
    ],
)
def test_a_wrong_type_is_named(store: MemoryStore, call: Any, words: str) -> None:
    """What cannot be a question, a key or a change is a typed error before the database is asked."""
    store.put("0", scope=ANN, key="n")
    with pytest.raises(BudgetConfigError, match=words):
        call(store)


def test_a_backdated_memory_leaves_the_past_alone(store: MemoryStore, clock: Any) -> None:
    """A memory that is said to hold since long ago holds until what is known begins, and changes none of it."""
    for text in ("Rome.", "Paris.", "Oslo."):
        store.put(text, scope=ANN, key="home")
        clock.move(days=5)
    known = store.versions("home", scope=ANN)
    new = store.put("Bern.", scope=ANN, key="home", valid_from=clock.now - 99 * DAY)
    assert store.versions("home", scope=ANN) == [replace(new, replaced_by=known[0].id), *known]
    assert new.valid_to == known[0].valid_from
    assert store.get("home", scope=ANN) == known[-1]


def test_a_memory_does_not_end_before_it_begins(store: MemoryStore, clock: Any) -> None:
    """Every door that takes dates refuses a validity that ends first; one without a time zone is UTC."""
    day = clock.now
    naive = (day - DAY).replace(tzinfo=None)
    with pytest.raises(BudgetConfigError, match="valid_from must not be after valid_to"):
        store.put("Text.", scope=ANN, valid_from=day, valid_to=naive)
    put = store.put("Text.", scope=ANN, key="k", valid_from=day, valid_to=day + DAY)
    with pytest.raises(BudgetConfigError, match="valid_from must not be after valid_to"):
        store.update("k", lambda memory: replace(memory, valid_to=naive), scope=ANN)
    assert store.get("k", scope=ANN) == put
