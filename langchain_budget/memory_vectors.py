"""A LangChain vector store as the index of a `MemoryStore`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

from rankbudget.errors import named_options


class MemoryVectors:
    """Has a vector store embed and find memories: `MemoryStore(place, vectors=MemoryVectors(store))`.

    The database stays the truth: what the vector store finds counts only where the database says that its
    reader may see it, and that it holds.

    Args:
        store: any `VectorStore` whose `add_documents` replaces what has the same id.
        name: what receipts call it; memories are added again to an index of another name.
        filter_of: makes the store's own `filter` of the fields `owner` and `project`; None gives these fields
            themselves, or for an `InMemoryVectorStore` a function.
        distances: its scores are distances: lower is nearer.

    Raises:
        BudgetConfigError: `store` is no vector store.

    Example:
        >>> from rankbudget import Scope
        >>> from rankbudget.memory import MemoryStore
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> found = MemoryVectors(InMemoryVectorStore(DeterministicFakeEmbedding(size=8)))
        >>> store, ann = MemoryStore(":memory:", vectors=found), Scope(user="ann")
        >>> _ = store.put("Ann likes tea.", scope=ann)
        >>> [(m.text, round(m.score, 2)) for m in store.search("Ann likes tea.", scope=ann)]
        [('Ann likes tea.', 1.0)]
    """

    @named_options
    def __init__(
        self,
        store: VectorStore,
        *,
        name: str | None = None,
        filter_of: Callable[[Mapping[str, str]], Any] | None = None,
        distances: bool = False,
    ) -> None:
        self.store = store
        self.name = name or type(store).__name__
        self._filter = filter_of or (_function if isinstance(store, InMemoryVectorStore) else dict)
        self._sign = -1.0 if distances else 1.0

    def add(self, ids: Sequence[str], texts: Sequence[str], metadata: Sequence[Mapping[str, str]]) -> None:
        """Adds texts, or replaces those of the same ids."""
        documents = [
            Document(page_content=text, metadata=dict(about), id=name)
            for name, text, about in zip(ids, texts, metadata, strict=True)
        ]
        self.store.add_documents(documents, ids=list(ids))

    def search(self, query: str, where: Mapping[str, str], limit: int) -> list[tuple[str, float]]:
        """Returns ids with their similarity, the nearest first."""
        found = self.store.similarity_search_with_score(query, k=limit, filter=self._filter(where))
        return [(document.id, self._sign * score) for document, score in found if document.id is not None]

    def delete(self, ids: Sequence[str]) -> None:
        """Removes entries."""
        self.store.delete(list(ids))

    def held(self, ids: Sequence[str], texts: Sequence[str]) -> set[str] | None:
        """Returns which ids the store has with these texts; None where it cannot be asked."""
        try:
            found = {document.id: document.page_content for document in self.store.get_by_ids(list(ids))}
        except NotImplementedError:
            return None
        return {name for name, text in zip(ids, texts, strict=True) if found.get(name) == text}


def _function(where: Mapping[str, str]) -> Callable[[Document], bool]:
    return lambda document: all(document.metadata.get(field) == value for field, value in where.items())
