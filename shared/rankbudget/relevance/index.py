"""An index of texts by meaning, kept in memory and saved to a folder; owns faiss."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..errors import (
    BudgetConfigError,
    CounterUnavailableError,
    EmbeddingIndexError,
    check_count,
    check_list,
    named_options,
    refuse,
    shown,
)
from ..segment import Scope, Segment
from .corpus import scored_texts
from .embedding import Embedder, EmbeddingScorer, EmbedFunction
from .index_files import read_index, write_index

if TYPE_CHECKING:
    from .embedding import Vectors

Backend = Literal["auto", "numpy", "faiss"]
FAISS_ABOVE = 100_000
"""Texts above which "auto" takes FAISS: below, one numpy product is as fast and needs no copy of vectors."""


class EmbeddingIndex:
    """Finds the texts nearest in meaning to a query.

    Args:
        embed: an `Embedder`, a function from texts to vectors, or None for wordllama's embedded default.
        backend: "numpy", "faiss", or "auto" for FAISS above `faiss_above` texts where it is installed.
        faiss_above: number of texts at which "auto" changes over.

    Raises:
        BudgetConfigError: an option is wrong.
        CounterUnavailableError: "faiss" is asked for and not installed.

    Example:
        >>> index = EmbeddingIndex(lambda texts: [[text.count("a"), text.count("b")] for text in texts])
        >>> index.add(["aab", "b", "a"], metadata=[{"page": 1}, {"page": 2}, {"page": 3}])
        >>> found = index.search("a", k=2)
        >>> [(segment.id, segment.metadata["page"], round(segment.score, 2)) for segment in found]
        [('2', 3, 1.0), ('0', 1, 0.89)]
    """

    @named_options
    def __init__(
        self,
        embed: Embedder | EmbedFunction | None = None,
        *,
        backend: Backend = "auto",
        faiss_above: int = FAISS_ABOVE,
    ) -> None:
        if backend not in get_args(Backend):
            msg = f"backend must be one of {', '.join(get_args(Backend))} (got {backend!r})"
            raise BudgetConfigError(msg)
        problems: list[str] = []
        check_count("faiss_above", faiss_above, problems)
        refuse(problems)
        if backend == "faiss" and importlib.util.find_spec("faiss") is None:
            msg = 'backend "faiss" needs faiss, which is not installed: pip install "rankbudget[faiss]"'
            raise CounterUnavailableError(msg)
        self._embedder = EmbeddingScorer(embed).embedder
        self.backend: Backend = backend
        self.faiss_above = faiss_above
        self._segments: list[Segment] = []
        self._ids: set[str] = set()
        self._parts: list[Vectors] = []
        self._faiss: Any = None
        self._lock = RLock()

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """What it holds, in the order it was added."""
        return tuple(self._segments)

    @property
    def dimension(self) -> int | None:
        """How many numbers a vector has; None while the index is empty."""
        return int(self._parts[0].shape[1]) if self._parts else None

    @property
    def uses_faiss(self) -> bool:
        """Whether a search that may see everything goes through FAISS."""
        if self.backend == "auto":
            return len(self) > self.faiss_above and importlib.util.find_spec("faiss") is not None
        return self.backend == "faiss"

    @named_options
    def add(
        self, texts: Sequence[str | Segment], *, metadata: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Adds texts or segments; plain texts get their position as id.

        Args:
            texts: what to add; ids must be new.
            metadata: one mapping per text, merged over a segment's own.

        Raises:
            EmbeddingIndexError: `texts` is no list, or `metadata` has another length.
        """
        given: Any = texts  # callers without type checks give anything
        if not isinstance(given, Iterable) or isinstance(given, (str, bytes, Mapping)):
            msg = f"texts must be a list of texts or segments (got {type(texts).__name__}); put it in a list"
            raise EmbeddingIndexError(msg)
        if metadata is not None:
            check_list("metadata", metadata, "mappings")
            if len(metadata) != len(texts) or not all(isinstance(one, Mapping) for one in metadata):
                got = f"{len(metadata)} entries for {len(texts)} texts: {shown(metadata)}"
                msg = f"metadata must have one mapping per text (got {got})"
                raise EmbeddingIndexError(msg)
        start = len(self)
        fresh = [
            text if isinstance(text, Segment) else Segment(id=str(start + i), text=text)
            for i, text in enumerate(texts)
        ]
        if metadata is not None:
            fresh = [
                dataclasses.replace(segment, metadata={**segment.metadata, **more})
                for segment, more in zip(fresh, metadata, strict=True)
            ]
        if fresh:
            self._append(fresh, self._embedder.raw(scored_texts(fresh)))

    @named_options
    def search(self, query: str, k: int = 10, *, scope: Scope | None = None) -> list[Segment]:
        """Returns the `k` segments nearest to the query, best first, their cosine in `score`.

        Args:
            query: what is asked.
            k: how many at most.
            scope: who asks; segments of other users or projects are not found.

        Raises:
            EmbeddingIndexError: the index was built with another embedding.
        """
        problems: list[str] = []
        check_count("k", k, problems)
        refuse(problems)
        if k == 0 or not self._segments or not query.strip():
            return []
        vector = self._embedder.vectors((query,))
        with self._lock:
            visible = [
                i for i, s in enumerate(self._segments) if s.scope is None or s.scope.visible_to(scope)
            ]
            vectors = self._vectors()
            if not visible:
                return []
            if vector.shape[1] != self.dimension:
                msg = (
                    f"the query's vector must have {self.dimension} numbers (got {vector.shape[1]}); "
                    f"search with the embedding the index was built with ({self._embedder.name!r})"
                )
                raise EmbeddingIndexError(msg)
            if self.uses_faiss and len(visible) == len(self):
                found = self._near_faiss(vectors, vector, k)
            else:
                found = _near_numpy(vectors, vector, k, visible)
            return [dataclasses.replace(self._segments[i], score=score) for i, score in found]

    @named_options
    def save(self, folder: str | Path) -> None:
        """Writes the index to `folder`, without `source` objects; readers see the old or the new one."""
        with self._lock:
            vectors = self._vectors() if self._parts else None
            write_index(Path(folder), self._segments, vectors, self._embedder.name)

    @classmethod
    @named_options
    def load(
        cls,
        folder: str | Path,
        embed: Embedder | EmbedFunction | None = None,
        *,
        backend: Backend = "auto",
        faiss_above: int = FAISS_ABOVE,
    ) -> EmbeddingIndex:
        """Reads the index in `folder`.

        Raises:
            EmbeddingIndexError: it is damaged, or of another embedding.
        """
        index = cls(embed, backend=backend, faiss_above=faiss_above)
        segments, vectors = read_index(Path(folder), index._embedder.name)
        if segments:
            name = index._embedder.name
            if not index._embedder.gives(scored_texts(segments[:1])[0], vectors[0]):
                msg = (
                    f"the embedding must be the one the index was built with (got another {name!r}). "
                    "Load it with that one, or build the index anew."
                )
                raise EmbeddingIndexError(msg)
            index._append(segments, vectors)
        return index

    def _append(self, segments: Sequence[Segment], vectors: Vectors) -> None:
        """Adds what was embedded, all of it or nothing."""
        import numpy as np

        broken = [segments[int(i)].id for i in np.flatnonzero(~np.isfinite(vectors).all(axis=1))]
        if broken:
            msg = (
                f"the embedding {self._embedder.name!r} must give finite numbers (did not for {broken[:5]!r})"
            )
            raise EmbeddingIndexError(msg)
        counts = Counter([segment.id for segment in segments])
        with self._lock:
            twice = [name for name, count in counts.items() if count > 1 or name in self._ids]
            if twice:
                msg = f"ids must be new to the index, each once (got {twice[:5]!r} again)"
                raise EmbeddingIndexError(msg)
            if self.dimension not in (None, vectors.shape[1]):
                msg = (
                    f"new vectors must have {self.dimension} numbers (got {vectors.shape[1]}); "
                    "use one embedding for all"
                )
                raise EmbeddingIndexError(msg)
            self._parts.append(vectors)
            self._segments.extend(segments)
            self._ids.update(counts)

    def _vectors(self) -> Vectors:
        """Returns all vectors as one array, put together only when they are needed."""
        import numpy as np

        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        return self._parts[0]

    def _near_faiss(self, vectors: Vectors, vector: Vectors, k: int) -> list[tuple[int, float]]:
        import faiss
        import numpy as np

        if self._faiss is None:
            self._faiss = faiss.IndexFlatIP(vectors.shape[1])
        if self._faiss.ntotal < len(vectors):
            self._faiss.add(np.ascontiguousarray(vectors[self._faiss.ntotal :]))
        scores, ids = self._faiss.search(np.ascontiguousarray(vector), min(k, len(vectors)))
        found = [(int(i), float(score)) for i, score in zip(ids[0], scores[0], strict=True)]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))


def _near_numpy(vectors: Vectors, vector: Vectors, k: int, visible: list[int]) -> list[tuple[int, float]]:
    import numpy as np

    rows = vectors if len(visible) == len(vectors) else vectors[visible]
    scores = rows @ vector[0]
    # All that equal the k-th best stay until the stable sort, so ties fall in the order of adding.
    least = np.partition(scores, len(scores) - k)[len(scores) - k] if k < len(scores) else -np.inf
    candidates = np.flatnonzero(scores >= least)
    best = candidates[np.argsort(-scores[candidates], kind="stable")][:k]
    return [(visible[int(i)], float(scores[i])) for i in best]
