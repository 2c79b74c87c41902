"""A LlamaIndex vector store as the index of a `MemoryStore`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import MetadataMode, TextNode
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)

from rankbudget.adapters import EmbeddingScorer
from rankbudget.errors import named_options

from .models import embedder

_PRINT = "text_sha256"
"""Metadata by which a store without texts can tell which text an entry is of."""


class MemoryVectors:
    """Has a vector store find memories: `MemoryStore(place, vectors=MemoryVectors(store))`.

    The database stays the truth: what the vector store finds counts only where the database says that its
    reader may see it, and that it holds.

    Args:
        store: any vector store that filters by metadata and deletes by node id.
        embed: a LlamaIndex embedding, or a function from texts to vectors; None takes the embedded default.
        name: what receipts call it; memories are added again to an index of another name.

    Raises:
        BudgetConfigError: `store` is no vector store.

    Example:
        >>> from llama_index.core.vector_stores import SimpleVectorStore
        >>> from rankbudget import Scope
        >>> from rankbudget.memory import MemoryStore
        >>> found = MemoryVectors(SimpleVectorStore())
        >>> store, ann = MemoryStore(":memory:", vectors=found), Scope(user="ann")
        >>> _ = store.put("Ann likes tea.", scope=ann)
        >>> [(m.text, round(m.score, 2)) for m in store.search("Ann likes tea.", scope=ann)]
        [('Ann likes tea.', 1.0)]
    """

    @named_options
    def __init__(
        self,
        store: BasePydanticVectorStore,
        *,
        embed: BaseEmbedding | Callable[[list[str]], Any] | None = None,
        name: str | None = None,
    ) -> None:
        self.store = store
        self._scorer = EmbeddingScorer(embedder(embed) if isinstance(embed, BaseEmbedding) else embed)
        self.name = name or type(store).__name__

    def add(self, ids: Sequence[str], texts: Sequence[str], metadata: Sequence[Mapping[str, str]]) -> None:
        """Adds texts, or replaces those of the same ids."""
        vectors = self._scorer.embedder.vectors(texts).tolist()
        nodes = [
            TextNode(id_=name, text=text, metadata={**about, **self._print(text)}, embedding=vector)
            for name, text, about, vector in zip(ids, texts, metadata, vectors, strict=True)
        ]
        self.store.delete_nodes(list(ids))
        self.store.add(list(nodes))

    def search(self, query: str, where: Mapping[str, str], limit: int) -> list[tuple[str, float]]:
        """Returns ids with their similarity, the nearest first."""
        filters = MetadataFilters(filters=[MetadataFilter(key=key, value=where[key]) for key in where])
        vector = self._scorer.embedder.vectors((query,))[0].tolist()
        asked = VectorStoreQuery(query_embedding=vector, similarity_top_k=limit, filters=filters)
        found = self.store.query(asked)
        names = found.ids or [node.node_id for node in found.nodes or []]
        return list(zip(names, found.similarities or [0.0] * len(names), strict=True))

    def delete(self, ids: Sequence[str]) -> None:
        """Removes entries."""
        self.store.delete_nodes(list(ids))

    def held(self, ids: Sequence[str], texts: Sequence[str]) -> set[str] | None:
        """Returns which ids the store has with these texts; None where it cannot be asked."""
        if isinstance(self.store, SimpleVectorStore):
            kept = self.store.data.metadata_dict
            prints = [kept.get(name, {}).get(_PRINT) for name in ids]
            pairs = zip(ids, texts, prints, strict=True)
            return {name for name, text, found in pairs if found == self._print(text)[_PRINT]}
        if not self.store.stores_text:
            return None
        try:
            nodes = self.store.get_nodes(node_ids=list(ids))
        except NotImplementedError:
            return None
        known = {node.node_id: node.get_content(MetadataMode.NONE) for node in nodes}
        return {name for name, text in zip(ids, texts, strict=True) if known.get(name) == text}

    def _print(self, text: str) -> dict[str, str]:
        return {} if self.store.stores_text else {_PRINT: sha256(text.encode()).hexdigest()}
