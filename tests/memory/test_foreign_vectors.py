"""A vector store of LangChain or LlamaIndex as the index: never believed, made up for, and emptied."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core.vector_stores import SimpleVectorStore

import langchain_budget
import llamaindex_budget
from rankbudget import Scope
from rankbudget.errors import BudgetConfigError, BudgetError, StoreError

ANN, BOB = Scope(user="ann"), Scope(user="bob")
WORDS = ("tea", "sail", "moon")


def counted(texts: list[str]) -> list[list[float]]:
    return [[text.lower().count(word) + 0.01 for word in WORDS] for text in texts]


class Counted(Embeddings):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return counted(texts)

    def embed_query(self, text: str) -> list[float]:
        return counted([text])[0]


class Held:
    """An index, how to see what it holds, and what makes it fail."""

    def __init__(self, kind: str) -> None:
        self.store: Any = InMemoryVectorStore(Counted()) if kind == "langchain" else SimpleVectorStore()
        self.index: Any = (
            langchain_budget.MemoryVectors(self.store)
            if kind == "langchain"
            else llamaindex_budget.MemoryVectors(self.store, embed=counted)
        )

    def __len__(self) -> int:
        held = (
            self.store.store
            if isinstance(self.store, InMemoryVectorStore)
            else self.store.data.embedding_dict
        )
        return len(held)

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
    with pytest.raises(BudgetError, match=f"the vector index '{held.index.name}' must not raise"):
        store.search("tea", scope=ANN)


def test_what_is_no_vector_store_is_refused(sqlite_file, open_store) -> None:
    """Each adapter takes its framework's vector stores, and a store with one embeds nothing itself."""
    for adapter in (langchain_budget.MemoryVectors, llamaindex_budget.MemoryVectors):
        with pytest.raises(BudgetConfigError, match="store must be"):
            adapter({})
    with pytest.raises(BudgetConfigError, match="embed must be left out"):
        open_store(sqlite_file, vectors=Held("langchain").index, embed=counted)
