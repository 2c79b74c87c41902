"""A vector store of LangChain or LlamaIndex as the index: never believed, made up for, and emptied."""

from __future__ import annotations

import copy
import dataclasses
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core.vector_stores import SimpleVectorStore

import langchain_budget
import llamaindex_budget
from rankbudget import Scope
from rankbudget.errors import BudgetConfigError, BudgetError, StoreError
from rankbudget.memory import HistoryStore, MemoryStore
from tests.drawing import draws

ANN, BOB = Scope(user="ann"), Scope(user="bob")
WORDS = ("tea", "sail", "moon")


def counted(texts: list[str]) -> list[list[float]]:
    return [[text.lower().count(word) + 0.01 for word in WORDS] for text in texts]


class Counted(Embeddings):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return counted(texts)

    def embed_query(self, text: str) -> list[float]:
        return counted([text])[0]


class Mute(InMemoryVectorStore):
    """A store that cannot be asked what it has."""

    def get_by_ids(self, ids: Any, /) -> Any:
        raise NotImplementedError


STORES = {
    "langchain": lambda: InMemoryVectorStore(Counted()),
    "llamaindex": SimpleVectorStore,
    "mute": lambda: Mute(Counted()),
}


class Held:
    """An index, how to see what it holds, and what makes it fail."""

    def __init__(self, kind: str, store: Any = None) -> None:
        self.store: Any = STORES[kind]() if store is None else store
        self.index: Any = (
            langchain_budget.MemoryVectors(self.store)
            if kind != "llamaindex"
            else llamaindex_budget.MemoryVectors(self.store, embed=counted)
        )

    def __len__(self) -> int:
        held = (
            self.store.store
            if isinstance(self.store, InMemoryVectorStore)
            else self.store.data.embedding_dict
        )
        return len(held)

    def owners(self) -> list[str]:
        """Whose texts it holds."""
        if isinstance(self.store, InMemoryVectorStore):
            return [entry["metadata"]["owner"] for entry in self.store.store.values()]
        return [entry["owner"] for entry in self.store.data.metadata_dict.values()]

    def fail(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        def refuse(*given: Any) -> None:
            msg = "out of reach"
            raise OSError(msg)

        monkeypatch.setattr(self.index, method, refuse)


@pytest.fixture(params=["langchain", "llamaindex"])
def held(request: pytest.FixtureRequest) -> Held:
    return Held(request.param)


def texts(found: list[Any]) -> list[str]:
    return [memory.text for memory in found]


def test_what_the_index_finds_is_checked(held, sqlite_file, open_store, clock) -> None:
    """Another user's, expired and replaced memories are not returned, and hide none that holds."""
    store = open_store(sqlite_file, vectors=held.index, clock=clock)
    for n in range(60):
        store.put(f"Tea {n}.", scope=ANN, key="drink")
        store.put(f"Tea for {n}.", scope=ANN, ttl=5)
    store.put("Tea of Bob.", scope=BOB)
    store.put("She sails, and has tea.", scope=ANN)
    clock.move(seconds=10)
    assert texts(store.search("tea", scope=ANN)) == ["Tea 59.", "She sails, and has tea."]
    assert texts(store.search("tea", scope=BOB)) == ["Tea of Bob."]
    assert store.search("tea", scope=ANN)[0].score > 0.9


def test_rows_that_the_index_missed_are_added(held, sqlite_file, open_store, monkeypatch) -> None:
    """A put succeeds while the index is out of reach, and so do other processes: a later search adds them."""
    with monkeypatch.context() as patch:
        held.fail(patch, "add")
        store = open_store(sqlite_file, vectors=held.index)
        store.put("Likes tea.", scope=ANN)
    open_store(sqlite_file, embed=False).put("Likes to sail.", scope=ANN)
    assert len(held) == 0
    later = open_store(sqlite_file, vectors=held.index)
    assert texts(later.search("sail", scope=ANN)) == ["Likes to sail.", "Likes tea."]
    assert len(held) == 2


def test_a_changed_text_is_changed_in_the_index(held, sqlite_file, open_store) -> None:
    """One entry is left of a memory that was changed, with its newer text."""
    store = open_store(sqlite_file, vectors=held.index)
    store.put("Likes tea.", scope=ANN, key="k")
    store.update("k", lambda memory: "Likes to sail.", scope=ANN)
    store.put("Looks at the moon.", scope=ANN)
    assert texts(store.search("sail", scope=ANN))[0] == "Likes to sail."
    assert len(held) == 2


def test_what_is_deleted_or_forgotten_leaves_the_index(held, sqlite_file, open_store) -> None:
    """The index is emptied of it, and a receipt has nothing to name."""
    store = open_store(sqlite_file, vectors=held.index)
    store.put("Likes tea.", scope=ANN, key="k")
    store.put("Likes to sail.", scope=ANN)
    store.put("Looks at the moon.", scope=BOB)
    assert store.delete("k", scope=ANN) == 1
    assert len(held) == 2
    receipt = store.forget(ANN)
    assert len(held) == 1
    assert not any("index" in one for one in receipt.unreached)


def test_an_index_out_of_reach_is_named(held, sqlite_file, open_store, monkeypatch) -> None:
    """Nothing is deleted where the index cannot be; a receipt names it, and an index that was left out."""
    store = open_store(sqlite_file, vectors=held.index)
    store.put("Likes tea.", scope=ANN, key="k")
    with monkeypatch.context() as patch:
        held.fail(patch, "delete")
        with pytest.raises(StoreError, match="out of reach"):
            store.delete("k", scope=ANN)
        assert store.get("k", scope=ANN) is not None
    assert texts(store.search("tea", scope=ANN)) == ["Likes tea."]
    with monkeypatch.context() as patch:
        held.fail(patch, "delete")
        assert any(held.index.name in one for one in store.forget(ANN).unreached)
    store.put("Likes to sail.", scope=ANN)
    assert any(held.index.name in one for one in open_store(sqlite_file, embed=False).forget(ANN).unreached)


def test_a_search_says_that_the_index_failed(held, sqlite_file, open_store, monkeypatch) -> None:
    """An index that raises is an error of ours that names it."""
    store = open_store(sqlite_file, vectors=held.index)
    store.put("Likes tea.", scope=ANN)
    held.fail(monkeypatch, "search")
    with pytest.raises(StoreError, match=f"the vector index '{held.index.name}' must not raise"):
        store.search("tea", scope=ANN)


def test_what_is_no_vector_store_is_refused(sqlite_file, open_store) -> None:
    """Each adapter takes its framework's vector stores, and a store with one embeds nothing itself."""
    for adapter in (langchain_budget.MemoryVectors, llamaindex_budget.MemoryVectors):
        with pytest.raises(BudgetConfigError, match="store must be"):
            adapter({})
    with pytest.raises(BudgetConfigError, match="embed must be left out"):
        open_store(sqlite_file, vectors=Held("langchain").index, embed=counted)


# ---- which index it is ---------------------------------------------------------------------------
def lost(store: MemoryStore) -> list[str]:
    """The memories that hold and are not found by their meaning."""
    kept = [memory.text for memory in store.search("", scope=ANN)]
    return [
        text for text in kept if all(m.text != text or not m.score for m in store.search(text, scope=ANN))
    ]


STEP = st.tuples(
    st.sampled_from(["put", "put", "delete", "save", "opened anew", "opened as saved", "search"]),
    st.integers(0, 1),
    st.integers(0, 4),
)


@pytest.mark.parametrize("kind", ["langchain", "llamaindex"])
@draws(asynchronous=True)
@given(steps=st.lists(STEP, max_size=25))
def test_each_process_finds_all_whatever_its_own_index_missed(
    kind: str, steps: list[tuple[str, int, int]]
) -> None:
    """Two processes with an index of their own each, of one name: fresh, an old copy, changed behind its back, it is made up for."""
    with tempfile.TemporaryDirectory() as folder:

        def opened(vectors: Any = None) -> tuple[Held, MemoryStore]:
            held = Held(kind, vectors)
            return held, MemoryStore(f"{folder}/m.db", vectors=held.index)

        processes = [opened(), opened()]
        saved = copy.deepcopy(processes[0][0].store)
        for number, (what, which, key) in enumerate(steps):
            held, store = processes[which]
            if what == "put":
                text = f"{WORDS[number % 3]} {WORDS[key % 3]} {number}"
                store.put(text, scope=ANN, key=f"k{key}")
            elif what == "delete":
                store.delete(f"k{key}", scope=ANN)
            elif what == "save":
                saved = copy.deepcopy(held.store)
            elif what == "search":
                assert lost(store) == []
            else:
                store.close()
                processes[which] = opened(copy.deepcopy(saved) if what == "opened as saved" else None)
        for _, store in processes:
            assert lost(store) == []
            store.close()


def test_an_index_holds_the_text_that_holds(held, sqlite_file, open_store) -> None:
    """An entry of an old copy with an older text under the same id is replaced before it is searched."""
    store = open_store(sqlite_file, vectors=held.index)
    old = store.put("Likes tea.", scope=ANN, key="k")
    kept = copy.deepcopy(held.store)
    store.replace(dataclasses.replace(old, text="Likes to sail."))
    store.search("sail", scope=ANN)
    again = Held("llamaindex" if isinstance(kept, SimpleVectorStore) else "langchain", kept)
    found = open_store(sqlite_file, vectors=again.index).search("sail", scope=ANN)
    assert [(memory.text, round(memory.score, 1)) for memory in found] == [("Likes to sail.", 1.0)]


def test_an_index_is_asked_once_and_nothing_is_added_twice(
    held, sqlite_file, open_store, monkeypatch
) -> None:
    """A process that opens an index that has all asks it once, writes nothing, and adds nothing."""
    store = open_store(sqlite_file, vectors=held.index)
    for n in range(20):
        store.put(f"Tea {n}.", scope=ANN)
    later, asked = open_store(sqlite_file, vectors=held.index), list[int]()
    ask = held.index.held
    monkeypatch.setattr(held.index, "held", lambda ids, texts: asked.append(len(ids)) or ask(ids, texts))
    held.fail(monkeypatch, "add")
    for _ in range(3):
        assert texts(later.search("tea", scope=ANN, limit=20))
    assert asked == [20]
    assert later.embed_missing() == 0


def test_an_index_that_cannot_be_asked(sqlite_file, open_store) -> None:
    """An empty one is filled by the first search; what one with gaps lacks is added by `embed_missing`."""
    store = open_store(sqlite_file, vectors=Held("mute").index)
    store.put("Likes tea.", scope=ANN)
    part = Held("mute")
    fresh = open_store(sqlite_file, vectors=part.index)
    assert lost(fresh) == []
    store.put("Likes to sail.", scope=ANN)
    assert fresh.embed_missing() == 1
    assert lost(fresh) == []
    again = open_store(sqlite_file, vectors=Held("mute", part.store).index)
    assert (again.embed_missing(), again.embed_missing(), len(part)) == (2, 0, 2)


def test_an_index_out_of_reach_when_it_is_asked(held, sqlite_file, open_store, monkeypatch) -> None:
    """A failure to tell what it has fails no search; it is asked again."""
    open_store(sqlite_file, vectors=held.index).put("Likes tea.", scope=ANN)
    later = open_store(sqlite_file, vectors=held.index)
    with monkeypatch.context() as patch:
        held.fail(patch, "held")
        assert texts(later.search("tea", scope=ANN)) == ["Likes tea."]


# ---- what it still holds -------------------------------------------------------------------------
class Unsteady:
    """An index that is up, down, or does what it is asked for and fails then."""

    def __init__(self, index: Any) -> None:
        self.index, self.name, self.state = index, index.name, "up"

    def __getattr__(self, method: str) -> Any:
        def call(*given: Any) -> Any:
            if self.state != "down":
                done = getattr(self.index, method)(*given)
            if self.state != "up":
                raise OSError(self.state)
            return done

        return call


CALLS: dict[str, Callable[[MemoryStore, str, int, Scope], Any]] = {
    "put": lambda store, key, n, scope: store.put(f"{WORDS[n % 3]} {n}", scope=scope, key=key),
    "replace the newest": lambda store, key, n, scope: store.put(f"moon {n}", scope=scope, supersedes=key),
    "put for a second": lambda store, key, n, scope: store.put(f"tea {n}", scope=scope, ttl=1),
    "update": lambda store, key, n, scope: store.update(key, lambda _: f"sail {n}", scope=scope),
    "delete": lambda store, key, n, scope: store.delete(key, scope=scope),
    "forget": lambda store, key, n, scope: store.forget(scope),
    "search": lambda store, key, n, scope: store.search("tea", scope=scope),
    "fill": lambda store, key, n, scope: store.embed_missing(),
}
CALL = st.tuples(
    st.sampled_from(["put", *CALLS]),
    st.booleans(),
    st.sampled_from(["up", "up", "down", "up, then fails"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from([ANN, Scope(user="ann", project="p"), BOB]),
)


@pytest.mark.parametrize("kind", list(STORES))
@draws(asynchronous=True)
@given(calls=st.lists(CALL, max_size=12))
def test_a_forgotten_text_leaves_the_index_or_is_named(kind: str, calls: list[Any]) -> None:
    """Whatever was called with the index and without it, while it was up or down: a receipt names what it still holds, and it is emptied as soon as it can be."""
    held = Held(kind)
    index = Unsteady(held.index)
    with tempfile.TemporaryDirectory() as folder:
        stores = [MemoryStore(f"{folder}/m.db", **given) for given in ({"embed": False}, {"vectors": index})]
        for number, (name, with_index, index.state, key, scope) in enumerate(calls):
            with suppress(BudgetError):
                CALLS[name](stores[with_index], key, number, scope)
        index.state = "up"
        stores[1].delete("unknown", scope=BOB)
        bobs = held.owners().count("=bob")
        named = any(held.index.name in place for place in stores[0].forget(ANN).unreached)
        assert named or "=ann" not in held.owners()
        assert not any(held.index.name in place for place in stores[1].forget(ANN).unreached)
        assert "=ann" not in held.owners()
        assert not any(held.index.name in place for place in stores[0].forget(ANN).unreached)
        assert held.owners() == ["=bob"] * bobs
        for store in stores:
            store.close()


def test_a_search_removes_what_was_deleted_without_the_index(
    held, shared_place, open_store, monkeypatch
) -> None:
    """It is removed by the next search that has the index; while that cannot delete, searches go on."""
    store = open_store(shared_place, vectors=held.index)
    store.put("Likes tea.", scope=ANN, key="k")
    store.put("Likes to sail.", scope=ANN)
    open_store(shared_place, embed=False).delete("k", scope=ANN)
    with monkeypatch.context() as patch:
        held.fail(patch, "delete")
        later = open_store(shared_place, vectors=held.index)
        assert texts(later.search("tea", scope=ANN)) == ["Likes to sail."]
    assert len(held) == 2
    store.search("tea", scope=ANN)
    assert len(held) == 1


def test_a_text_deleted_while_it_is_added_leaves_the_index(
    held, shared_place, open_store, monkeypatch
) -> None:
    """What others delete between the reading of a row and its adding is removed again."""
    store, other = open_store(shared_place, vectors=held.index), open_store(shared_place, embed=False)
    add = held.index.add

    def late(*given: Any) -> None:
        other.forget(ANN)
        add(*given)

    monkeypatch.setattr(held.index, "add", late)
    store.put("Likes tea.", scope=ANN)
    assert len(held) == 0


def test_tables_without_notes_get_those_of_what_the_index_has(held, shared_place, open_store) -> None:
    """A database of an earlier version knows its indexes, also where only a store of conversations is opened."""
    store = open_store(shared_place, vectors=held.index)
    store.put("Likes tea.", scope=ANN)
    with store.backend.database.write() as connection:
        connection.exec_driver_sql("DROP TABLE rankbudget_memory_outside")
        connection.exec_driver_sql("UPDATE rankbudget_schema SET version = 3 WHERE part = 'memories'")
    histories = HistoryStore(shared_place)
    assert any(held.index.name in place for place in histories.forget(ANN).unreached)
    histories.close()
    store.forget(ANN)
    assert len(held) == 0
