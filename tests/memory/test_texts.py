"""Any text, name, date and number is kept as it is, or refused; none is read as a command."""

from __future__ import annotations

import json
import threading
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Scope, counter_for
from rankbudget.errors import BudgetConfigError
from rankbudget.memory import Memory, MemoryStore
from rankbudget.memory.memory import LONGEST_NAME
from rankbudget.testing.conformance._agreement import disagreements

ANN = Scope(user="ann")
HOSTILE = (
    "'; DROP TABLE rankbudget_memories; --",
    '" OR 1=1 --',
    "%",
    "_",
    "*",
    'a" NEAR b',
    "terms: x AND NOT y ^z",
    "{a b}: + - (",
    "'a' & !b | (c <-> d):*",
    "\\",
    ":name $1 %s %(x)s ?",
    "\u2028\u202e\ufeff",
    "=ann",
    "",
)
storable = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60)


@pytest.fixture(params=[":memory:", "postgres"])
def kept(request: pytest.FixtureRequest, open_store: Any) -> MemoryStore:
    """One store for all draws of a test."""
    return open_store(request.param if ":" in request.param else request.getfixturevalue("postgres"))


@pytest.mark.parametrize("word", HOSTILE)
def test_no_text_is_a_command(kept: MemoryStore, word: str) -> None:
    """Commands in a text, key, user, project or question are their characters and nothing else."""
    scope = Scope(user=word, project=word)
    key = word or "none"  # an empty one is refused
    put = kept.put(
        f"Text {word}", scope=scope, key=key, sources=(word,), source_type=word, metadata={word: word}
    )
    kept.put("Of somebody else.", scope=Scope(user="ann", project=word), key=key)
    assert kept.get(key, scope=scope) == put
    assert [memory.id for memory in kept.search(word or "text", scope=scope)] == [put.id]
    assert kept.search(f"text {word}", scope=scope)[0].metadata == {word: word}
    assert kept.update(key, lambda memory: memory.text + word, scope=scope).text == f"Text {word}{word}"
    assert kept.delete(key, scope=scope) == 1
    assert kept.search(word, scope=scope) == []
    assert disagreements(kept.backend.database) == []


def test_any_text_and_name_comes_back(kept: MemoryStore) -> None:
    """What was put is read back, equal, and found by its own words, in every script."""

    @given(storable.filter(str.strip), storable.filter(bool), storable, st.integers(0, 10**15))
    def check(text: str, key: str, user: str, stamp: int) -> None:
        scope = Scope(user=user)
        moment = datetime(1900, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=stamp)
        put = kept.put(text, scope=scope, key=key, created_at=moment, metadata={"text": text, "n": stamp})
        assert kept.get(key, scope=scope) == put
        assert (put.text, put.created_at, put.metadata) == (text, moment, {"text": text, "n": stamp})
        assert put.id in {memory.id for memory in kept.search(text, scope=scope)}
        kept.forget(scope)

    check()


@pytest.mark.parametrize("bad", ["a\0b", "a\ud800b", 5])
def test_what_no_database_holds(kept: MemoryStore, bad: Any) -> None:
    """NUL characters, lone surrogates and other types are refused wherever they are given, before the database."""
    nobody = Scope(user="ann") if bad == 5 else Scope(user=bad)
    tries = [
        lambda: kept.put(bad, scope=ANN),
        lambda: kept.put("Text.", scope=ANN, key=bad),
        lambda: kept.put("Text.", scope=ANN, source_type=bad),
        lambda: kept.get(bad, scope=ANN),
        lambda: kept.delete(bad, scope=ANN),
        lambda: kept.versions(bad, scope=ANN),
        lambda: kept.update(bad, str, scope=ANN),
    ]
    tries += [] if bad == 5 else [lambda: kept.get("k", scope=nobody), lambda: kept.search("k", scope=nobody)]
    for call in tries:
        with pytest.raises(BudgetConfigError, match="must"):
            call()
    surely = kept.put("Text.", scope=ANN, metadata={"any": "a\0\ud800"}, sources=("a\0\ud800",))
    assert kept.get(surely.id, scope=ANN) == surely
    assert [memory.id for memory in kept.search("text a\0b\ud800", scope=ANN)] == [surely.id]


def test_long_texts_and_names(kept: MemoryStore) -> None:
    """A long text, one with a megabyte of different words and one word without an end are kept and found."""
    texts = (
        "word " * 20_000,
        " ".join(f"{i:064x}" for i in range(17_000)),
        "f00d" * 50_000,
        "\u8a18\u61b6" * 9_000,
    )
    for i, text in enumerate(texts):
        put = kept.put(text, scope=ANN, key=f"k{i}")
        assert kept.get(f"k{i}", scope=ANN).text == text
        found = kept.backend.near(text[:200], ANN, 1, datetime.now(timezone.utc))
        assert found[0].id == put.id
    names = "\U0001f9e0" * LONGEST_NAME
    wide = kept.put("Wide names.", scope=Scope(user=names, project=names), key=names)
    assert kept.get(names, scope=wide.scope) == wide
    with pytest.raises(BudgetConfigError, match="at most 200 characters"):
        kept.put("Wider.", scope=ANN, key=names + "x")


def test_moments_at_the_ends_of_time(kept: MemoryStore) -> None:
    """The first and last moment, any time zone, and a life without end are kept and compared."""
    for i, zone in enumerate(
        (None, timezone.utc, timezone(timedelta(hours=14)), timezone(-timedelta(hours=14)))
    ):
        first, last = datetime.min.replace(tzinfo=zone), datetime.max.replace(tzinfo=zone)
        kept.put(
            f"Text {i}.",
            scope=ANN,
            key=f"k{i}",
            valid_from=first,
            valid_to=last,
            review_at=last,
            created_at=first,
        )
        found = kept.get(f"k{i}", scope=ANN)
        assert found.valid_from.year == 1
        assert found.valid_to.year == 9999
        assert kept.put("For ever.", scope=ANN, key="ttl", ttl=1e15).expires_at.year == 9999
    assert len(kept.search("text", scope=ANN)) == 5
    assert kept.fit("text", scope=ANN, max_tokens=500, counter=len).segments


def test_naive_moments(kept: MemoryStore) -> None:
    """A date without a time zone is UTC; a clock without one is refused, as it would shift every date."""
    put = kept.put("Text.", scope=ANN, review_at=datetime(2020, 1, 1), valid_from=datetime(2020, 1, 1))  # noqa: DTZ001 - the point
    assert put.review_at == put.valid_from == datetime(2020, 1, 1, tzinfo=timezone.utc)
    assert kept.get(put.id, scope=ANN) == put
    assert put.holds_at(datetime(2020, 1, 2))  # noqa: DTZ001 - the same
    kept._clock = lambda: datetime(2026, 1, 1)  # noqa: DTZ001 - the same
    for call in (lambda: kept.put("More.", scope=ANN), lambda: kept.search("text", scope=ANN)):
        with pytest.raises(BudgetConfigError, match="clock must return a datetime with a time zone"):
            call()


def test_numbers_and_metadata(kept: MemoryStore) -> None:
    """An unknown confidence stays unknown; numbers of any type are kept; metadata is what JSON can hold."""
    unknown = kept.put("Unknown.", scope=ANN)
    assert (unknown.confidence, kept.get(unknown.id, scope=ANN).confidence) == (None, None)
    assert 'confidence="' not in kept.fit("unknown", scope=ANN, max_tokens=99, counter=len).text
    put = kept.put("Known.", scope=ANN, confidence=Decimal("0.25"), priority=True + 1)
    assert (put.confidence, put.priority) == (0.25, 2)
    for metadata in ({"a": object()}, {("a",): 1}, {1: 2, "a": 3}, [1]):
        with pytest.raises(BudgetConfigError, match="metadata of a memory must"):
            kept.put("Text.", scope=ANN, metadata=metadata)
    assert json.dumps(put.metadata) == "{}"


def test_many_core_memories(kept: MemoryStore) -> None:
    """All memories of kind "core" are candidates, more than fifty, too, and what fits is within the limit."""
    for i in range(120):
        kept.put(f"Core {i}.", scope=ANN, kind="core")
    found = kept.search("core", scope=ANN, limit=1000)
    assert len(found) == 120
    made = kept.fit("core", scope=ANN, max_tokens=100, counter="o200k_base")
    assert 0 < counter_for("o200k_base").count(made.text) <= 100


def test_limits_without_end(kept: MemoryStore) -> None:
    """A limit beyond any database's numbers is all."""
    kept.put("Text.", scope=ANN)
    assert len(kept.search("text", scope=ANN, limit=10**30)) == 1


def test_a_memory_checks_its_fields() -> None:
    """All problems of a memory are named at once."""
    with pytest.raises(BudgetConfigError) as raised:
        Memory(text=" ", scope="ann", key="\0", confidence=2, sources=["m"], metadata={"a": threading})
    said = str(raised.value)
    for name in ("text", "scope", "key", "confidence", "sources", "metadata"):
        assert f"{name} of a memory must" in said or f"{name} must" in said
