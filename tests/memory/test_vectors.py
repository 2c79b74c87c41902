"""Memories by meaning: what is found is what the promise says, wherever the vectors are compared."""

from __future__ import annotations

import itertools
import math
import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankbudget import Scope
from rankbudget.errors import BudgetConfigError, StoreError
from rankbudget.memory import Memory, MemoryStore, vector_rows, vectors
from rankbudget.memory.memory import digest_of
from rankbudget.relevance.embedding import Embedder
from tests.drawing import draws

SCOPES = [
    Scope(user="ann"),
    Scope(user="ann", project="x"),
    Scope(user="bob"),
    Scope(project="x"),
    Scope(project="y"),
    Scope(),
]
READERS = [*SCOPES, Scope(user="bob", project="y")]
TEXTS = [
    f"{who} {what}." for who in ("Ann", "The team", "Bob") for what in ("drinks tea", "sails", "pays 4711")
]
_numbers = itertools.count()


def spread(texts: list[str]) -> np.ndarray:
    """A vector for each text, unlike that of any other."""
    return np.stack([np.random.default_rng(list(text.encode())).standard_normal(8) for text in texts])


@dataclass
class Row:
    scope: Scope
    key: str | None
    text: str
    begins: datetime
    ends: datetime | None = None
    expires: datetime | None = None
    replaced: bool = False

    def holds(self, now: datetime) -> bool:
        return self.begins <= now and all(end is None or now < end for end in (self.ends, self.expires))


@dataclass
class Promise:
    """What a store says it keeps, in plain Python."""

    rows: list[Row] = field(default_factory=list)

    def put(self, scope: Scope, key: str | None, text: str, ttl: float | None, now: datetime) -> None:
        expires = None if ttl is None else now + timedelta(seconds=ttl)
        current = [row for row in self.rows if row.scope == scope and not row.replaced]
        alike = [
            r
            for r in current
            if digest_of(r.text) == digest_of(text) and (key is None or r.key in (key, None))
        ]
        alike.sort(key=lambda row: row.key or "", reverse=True)
        same = next((row for row in alike if row.expires is None or row.expires > now), None)
        name = same.key if same and key is None else key
        over = [row for row in alike if row.expires is not None and row.expires <= now]
        for row in [*over, *[row for row in current if name is not None and row.key == name]]:
            if row is not same:
                row.replaced = True
                row.ends = min([now, *([row.expires] if row.expires else [])])
        if same is None:
            self.rows.append(Row(scope, key, text, now, expires=expires))
            return
        same.expires = expires or same.expires
        same.key = key or same.key

    def delete(self, scope: Scope, key: str) -> None:
        self.rows = [row for row in self.rows if (row.scope, row.key) != (scope, key)]

    def forget(self, user: str) -> None:
        self.rows = [row for row in self.rows if row.scope.user != user]

    def seen(self, reader: Scope, now: datetime) -> list[Row]:
        return [row for row in self.rows if row.scope.visible_to(reader) and row.holds(now)]


PUT = st.tuples(
    st.just("put"), st.sampled_from(SCOPES), st.sampled_from([None, "a", "b"]), st.sampled_from(TEXTS),
    st.sampled_from([None, None, 5.0, 20.0]),
)  # fmt: skip
DELETE = st.tuples(st.just("delete"), st.sampled_from(SCOPES), st.sampled_from(["a", "b"]))
OTHERS = st.one_of(
    DELETE,
    st.tuples(st.just("wait"), st.sampled_from([1.0, 6.0])),
    st.tuples(st.just("forget"), st.sampled_from(["ann", "bob"])),
    st.tuples(st.just("ask"), st.sampled_from(READERS), st.sampled_from(TEXTS)),
)
STEPS = st.lists(st.one_of(PUT, PUT, OTHERS), min_size=4, max_size=25)


def check(stores: list[MemoryStore], clock: Any, steps: list[Any]) -> None:
    """Takes the steps with each store in turn, as several processes would, and asks all of them."""
    promise = Promise()
    turn = itertools.cycle(stores)
    for what, *about in [*steps, *[("ask", reader, TEXTS[0]) for reader in READERS]]:
        store = next(turn)
        if what == "put":
            scope, key, text, ttl = about
            store.put(text, scope=scope, key=key, ttl=ttl)
            promise.put(scope, key, text, ttl, clock())
        elif what == "delete":
            store.delete(about[1], scope=about[0])
            promise.delete(*about)
        elif what == "wait":
            clock.move(seconds=about[0])
        elif what == "forget":
            store.forget(Scope(user=about[0]))
            promise.forget(about[0])
        else:
            ask(stores, promise, *about, clock())


def lifted(near: list[float], found: list[Memory], query: str) -> list[float]:
    """Vectors are blind to numbers: the few memories that have the question's are as near as the nearest."""
    numbered = [i for i, memory in enumerate(found) if "4711" in query and "4711" in memory.text]
    few = numbered if len(numbered) <= 3 else []
    return [max(near) if i in few else score for i, score in enumerate(near)]


def ask(stores: list[MemoryStore], promise: Promise, reader: Scope, query: str, now: datetime) -> None:
    seen = sorted((row.text, row.key or "") for row in promise.seen(reader, now))
    for store in stores:
        found = store.backend.near(query, reader, 50, now)
        assert sorted((memory.text, memory.key or "") for memory in found) == seen
        assert all(memory.scope.visible_to(reader) for memory in found)
        if store.backend.vectors is not None:
            near = lifted([cosine(memory.text, query) for memory in found], found, query)
            assert [memory.score for memory in found] == pytest.approx(near, abs=1e-5)
            few = [memory.score for memory in store.backend.near(query, reader, 2, now)]
            assert sorted(few)[-2:] == pytest.approx(sorted(near)[-2:], abs=1e-5)


def cosine(one: str, other: str) -> float:
    first, second = spread([one, other])
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


@pytest.fixture(params=["numpy", "faiss", "pgvector", "server", "words"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a place for each way to compare vectors, with the options of its stores."""
    if request.param == "faiss":
        monkeypatch.setattr(vector_rows, "FAISS_ABOVE", 0)
    if request.param in {"pgvector", "server"}:
        postgres = request.getfixturevalue("postgres")
        if request.param == "server":
            monkeypatch.setattr("rankbudget.memory.vector_tables._with_extension", lambda connection: False)
        return lambda: postgres
    folder = Path(tempfile.mkdtemp(dir=request.getfixturevalue("tmp_path")))
    return lambda: folder / f"{next(_numbers)}.db"


@settings(
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS)
def test_every_way_to_compare_vectors_keeps_the_same_promise(
    place, request, open_store, clock, steps
) -> None:
    """Random puts, replacements, deletions, expiries and waits: no leak, nothing stale, the nearest first."""
    clock.now = datetime.fromisoformat("2026-03-01T12:00:00+00:00")
    embed = False if "words" in request.node.name else spread
    where = place()
    stores = [open_store(where, embed=embed, clock=clock) for _ in range(2)]
    if not stores[0].backend.database.is_sqlite:  # one schema for all examples
        with stores[0].backend.database.write() as connection:
            connection.exec_driver_sql("DELETE FROM rankbudget_memories")
    check(stores, clock, steps)
    for store in stores:
        store.close()


def counting(words: str) -> Any:
    """An embedding by how often each of some words occurs."""

    def embed(texts: list[str]) -> list[list[float]]:
        return [[float(text.lower().count(word)) for word in words.split()] for text in texts]

    embed.__name__ = words
    return embed


ANN = Scope(user="ann")


def stored(store: MemoryStore) -> list[tuple[str, str]]:
    """The embedding and the text of each stored vector."""
    with store.backend.database.read() as connection:
        found = connection.exec_driver_sql(
            "SELECT v.embedder, m.text FROM rankbudget_memory_vectors v "
            "JOIN rankbudget_memories m ON m.seq = v.seq ORDER BY v.embedder, m.seq"
        )
        return [(row[0], row[1]) for row in found]


def test_another_embedding_fills_in_its_own_vectors(shared_place, open_store) -> None:
    """Rows that the new embedding has not seen are embedded in batches; the two never mix."""
    old = open_store(shared_place, embed=counting("tea sail"))
    for n in range(3):
        old.put(f"Tea {n}.", scope=ANN)
    words = open_store(shared_place, embed=False)
    words.put("She sails.", scope=ANN)
    new = open_store(shared_place, embed=counting("sail tea moon"))
    assert [memory.score for memory in new.search("sail", scope=ANN, limit=1)] == pytest.approx([1.0])
    mine = [text for name, text in stored(new) if name == "sail tea moon/3"]
    assert sorted(mine) == ["She sails.", "Tea 0.", "Tea 1.", "Tea 2."]
    assert len(stored(new)) == 7
    assert new.embed_missing() == 0
    assert old.embed_missing() == 1


def unnamed(words: str) -> Any:
    """The same under a name that others have, too."""
    embed = counting(words)
    embed.__name__ = "embed"
    return embed


@dataclass
class HostModel:
    """A framework's embedding, whose method is passed as a function."""

    model: str
    words: str

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return counting(self.words)(texts)


@pytest.mark.parametrize("late", [False, True], ids=["search", "put"])
def test_another_embedding_of_the_same_name_is_told_to_take_its_own(shared_place, open_store, late) -> None:
    """Its vectors never mix with the stored ones: the error asks for a name, with which everything is embedded."""
    stores = [open_store(shared_place, embed=unnamed("tea car")) for _ in range(2)]
    stores[0].put("Drinks tea.", scope=ANN)
    assert stores[1].search("tea", scope=ANN)[0].score == pytest.approx(1.0)  # the same one, made anew
    other = open_store(shared_place, embed=unnamed("car tea"))
    for _ in range(2):  # asked again it is no other
        with pytest.raises(BudgetConfigError, match=r"embed must have its own name .*'embed'"):
            _ = other.put("Drives a car.", scope=ANN) if late else other.search("tea", scope=ANN)
    with pytest.raises(BudgetConfigError, match="embed must have its own name"):
        other.embed_missing()
    named = open_store(shared_place, embed=Embedder(counting("car tea"), name="turned"))
    named.put("Drives a car.", scope=ANN)
    assert [memory.text for memory in named.search("tea", scope=ANN, limit=1)] == ["Drinks tea."]
    assert stored(named)[-2:] == [("turned/2", "Drinks tea."), ("turned/2", "Drives a car.")]


def test_a_method_is_named_by_its_class_and_model(shared_place, open_store) -> None:
    """So another model of one class fills in its own vectors."""
    for model, words in (("small", "tea car"), ("large", "car tea")):
        store = open_store(shared_place, embed=HostModel(model, words).embed_documents)
        store.put("Drinks tea.", scope=ANN)
        assert store.search("tea", scope=ANN)[0].score == pytest.approx(1.0)
    assert {name for name, _ in stored(store)} == {"HostModel(small)/2", "HostModel(large)/2"}


ALTERNATES = "embed must give vectors of one length (got 'embed', then 'embed'). Ask again."


@draws()
@given(lengths=st.lists(st.sampled_from([2, 3]), min_size=1, max_size=12), last=st.sampled_from([2, 3]))
def test_a_model_that_takes_over_counts_as_another_embedding(lengths, last) -> None:
    """Calls answered in vectors of another length mix with no older ones; where they alternate, StoreError names both."""
    left = iter(lengths)

    def embed(texts: Sequence[str]) -> list[list[float]]:
        length = next(left, last)
        return [[1.0, *[float(len(text) % 7)] * (length - 1)] for text in texts]

    store, told = MemoryStore(":memory:", embed=embed), list[str]()
    for number in range(4):
        store.put(f"Tea {number}.", scope=ANN)
        try:
            assert len(store.search(f"Which tea {number}?", scope=ANN)) == number + 1
        except StoreError as error:
            told.append(str(error))
    assert [re.sub("<.*?>|/[23]", "", one) for one in told] == [ALTERNATES] * len(told)
    list(left)
    store.embed_missing()
    assert len(store.search("Some more tea?", scope=ANN)) == 4
    assert len([name for name, _ in stored(store) if name.endswith(f"/{last}")]) == 4
    store.close()


def test_a_changed_text_has_no_old_vector(shared_place, open_store) -> None:
    """Whoever changes a text, with another embedding or by words alone, its older vectors are removed."""
    store = open_store(shared_place, embed=counting("tea sail"))
    store.put("Likes tea.", scope=ANN, key="k")
    assert store.search("tea", scope=ANN)[0].score == pytest.approx(1.0)
    open_store(shared_place, embed=False).update("k", lambda memory: "Likes to sail.", scope=ANN)
    assert stored(store) == []
    assert store.search("sail", scope=ANN)[0].score == pytest.approx(1.0)
    assert stored(store) == [("tea sail/2", "Likes to sail.")]


def test_what_another_process_deleted_takes_no_place(shared_place, open_store) -> None:
    """A hundred near rows that another store deleted do not hide the one that is left."""
    here, there = (open_store(shared_place, embed=counting("tea sail")) for _ in range(2))
    for n in range(100):
        here.put(f"Tea {n}.", scope=ANN, key="many" if n < 1 else f"k{n}")
    here.put("Tea and a sail.", scope=ANN)
    here.search("tea", scope=ANN)
    there.forget(ANN)
    here.put("Sail on.", scope=ANN)
    assert [memory.text for memory in here.backend.near("tea", ANN, 5, here._now())] == ["Sail on."]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 0.0])
@pytest.mark.parametrize("late", [False, True], ids=["put", "filled"])
def test_a_vector_that_is_no_number_is_as_one_of_zeros(shared_place, open_store, number, late) -> None:
    """Texts and questions that the embedding cannot express lose no memory, where there is room: 0/0 is no error of a database."""
    store = open_store(
        shared_place, embed=lambda texts: [[number] * 2 if "odd" in t else [1.0, 0.0] for t in texts]
    )
    writer = open_store(shared_place, embed=False) if late else store
    writer.put("An odd thing.", scope=ANN)
    writer.put("A plain text.", scope=ANN)
    for question in ("text", "odd", "neither", "What odd fellow?"):
        found = {memory.text for memory in store.search(question, scope=ANN)}
        assert found == {"An odd thing.", "A plain text."}
    assert len(stored(store)) == (1 if number else 2)  # zeros are an answer, NaN is tried again


@pytest.mark.parametrize("late", [False, True], ids=["put", "filled"])
def test_what_an_embedder_failed_at_is_embedded_later(shared_place, open_store, monkeypatch, late) -> None:
    """An embedder that gives NaN for some time leaves no memory without a vector for good."""
    down = True
    store = open_store(shared_place, embed=lambda texts: [[math.nan if down else 1.0] for _ in texts])
    writer = open_store(shared_place, embed=False) if late else store
    writer.put("Likes tea.", scope=ANN)
    assert [memory.text for memory in store.search("tea", scope=ANN)] == ["Likes tea."]
    assert stored(store) == []
    down = False
    monkeypatch.setattr(vectors, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + vectors.REST))
    store.search("tea", scope=ANN)
    assert len(stored(store)) == 1


def test_numbers_are_found_that_vectors_miss(open_store) -> None:
    """An identifier in few of many memories is found first, whatever its vector says."""
    store = open_store(":memory:", embed=lambda texts: [[1.0, len(text) / 100] for text in texts])
    for n in range(300):
        store.put(f"Invoice {7000 + n} is {'very ' * (n % 7)}late.", scope=ANN)
    found = store.search("What about 7123?", scope=ANN, limit=10)
    assert "Invoice 7123 is very very very very late." in [memory.text for memory in found]


def test_a_place_that_cannot_be_written_is_searched(sqlite_file, open_store) -> None:
    """Where missing vectors cannot be kept, the search goes on by words."""
    open_store(sqlite_file, embed=False).put("Likes tea.", scope=ANN)
    store = open_store(sqlite_file, embed=counting("tea sail"))
    with store.backend.database.read() as connection:
        connection.exec_driver_sql("PRAGMA query_only = ON")
    assert [memory.text for memory in store.search("tea", scope=ANN)] == ["Likes tea."]


@pytest.mark.parametrize("options", [{"embed": "wordllama"}, {"embed": 3}])
def test_an_embedding_that_is_none_is_refused(options) -> None:
    """`embed` is an embedder, a function, None or False."""
    with pytest.raises(BudgetConfigError, match="embed must be"):
        MemoryStore(":memory:", **options)
