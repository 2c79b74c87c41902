"""The vectors of one scope in memory, and the nearest of them; owns FAISS for memories."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]

FAISS_ABOVE = 20_000
"""Vectors of one scope above which FAISS looks through one byte of each number first."""
_MORE, _LEAST_MORE = 4, 64
"""So many times as many as asked for are found by bytes, then compared exactly."""
_ROOM = 64
"""Vectors that a new scope has room for."""


def products(vectors: Vector, vector: Vector) -> Vector:
    """Returns the inner products, in this thread: threads of a BLAS take longer to start than this takes."""
    import numpy as np

    found: Vector = np.einsum("ij,j->i", vectors, vector)
    return found


class ScopeRows:
    """Rows of one scope: numbers, vectors, and from when until when each holds.

    A position is written once. A changed vector gets a new one, and its old position never holds again.
    """

    def __init__(self, dimension: int) -> None:
        import numpy as np

        self.size = 0
        self.dead = 0
        self._seqs = np.zeros(_ROOM, dtype=np.int64)
        self._spans = np.zeros((2, _ROOM), dtype=np.float64)
        self._vectors = np.zeros((_ROOM, dimension), dtype=np.float32)
        self._places: dict[int, int] = {}
        self._faiss: Any = None

    def __len__(self) -> int:
        return len(self._places)

    @property
    def seqs(self) -> list[int]:
        """The numbers of its rows."""
        return list(self._places)

    def put(self, seq: int, vector: Vector, begins: float, ends: float) -> None:
        """Adds a row, or changes it."""
        import numpy as np

        place = self._places.get(seq)
        if place is None or not np.array_equal(self._vectors[place], vector):
            self.remove(seq)
            place = self._places[seq] = self.size
            self._grow()
            self._seqs[place], self._vectors[place] = seq, vector
            self.size += 1
        self._spans[:, place] = begins, ends

    def remove(self, seq: int) -> None:
        """Removes a row, and overwrites its vector."""
        place = self._places.pop(seq, None)
        if place is None:
            return
        self._spans[:, place] = float("inf")
        self._vectors[place] = 0.0
        self.dead += 1
        if self.dead > max(_ROOM, len(self._places)):
            self._pack()

    def nearest(self, vector: Vector, limit: int, now: float) -> list[tuple[int, float]]:
        """Returns the rows that hold now and are nearest, best first, with their cosine."""
        import numpy as np

        holds = (self._spans[0, : self.size] <= now) & (self._spans[1, : self.size] > now)
        if self.size > FAISS_ABOVE and importlib.util.find_spec("faiss") is not None:
            places = self._near_by_bytes(vector, max(_MORE * limit, _LEAST_MORE), holds)
            scores = products(self._vectors[places], vector)
        else:
            scores = products(self._vectors[: self.size], vector)
            scores[~holds] = -np.inf
            many = self.size > limit
            places = np.argpartition(scores, -limit)[-limit:] if many else np.arange(self.size)
            scores = scores[places]
        order = np.lexsort((-self._seqs[places], -scores))[:limit]
        found = zip(self._seqs[places][order].tolist(), scores[order].tolist(), strict=True)
        return [(seq, score) for seq, score in found if score != -np.inf]

    def scores(self, vector: Vector, seqs: Sequence[int]) -> dict[int, float]:
        """Returns the cosine of those of the rows that it has."""
        known = [seq for seq in seqs if seq in self._places]
        found = products(self._vectors[[self._places[seq] for seq in known]], vector)
        return dict(zip(known, found.tolist(), strict=True))

    def _near_by_bytes(self, vector: Vector, limit: int, holds: Any) -> Any:
        """Returns the places of about the nearest: each number of a vector is compared as one byte."""
        import numpy as np

        faiss: Any = importlib.import_module("faiss")  # its types know only its C++ forms

        if self._faiss is None:
            kind = faiss.ScalarQuantizer.QT_8bit_uniform
            index = faiss.IndexScalarQuantizer(self._vectors.shape[1], kind, faiss.METRIC_INNER_PRODUCT)
            index.train(self._vectors[: self.size])
            self._faiss = index
        if self._faiss.ntotal < self.size:
            self._faiss.add(self._vectors[self._faiss.ntotal : self.size])
        chosen = faiss.IDSelectorBitmap(np.packbits(holds, bitorder="little"))
        threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)  # of this thread: one question is too little work for several
        try:
            options = faiss.SearchParameters(sel=chosen)
            _, found = self._faiss.search(vector[None], min(limit, self.size), params=options)
        finally:
            faiss.omp_set_num_threads(threads)
        return found[0][found[0] >= 0]

    def _grow(self) -> None:
        import numpy as np

        room = len(self._seqs)
        if self.size < room:
            return
        more = max(room, _ROOM)
        self._seqs = np.pad(self._seqs, (0, more))
        self._spans = np.pad(self._spans, ((0, 0), (0, more)))
        self._vectors = np.pad(self._vectors, ((0, more), (0, 0)))

    def _pack(self) -> None:
        """Leaves out the places of removed rows."""
        import numpy as np

        places = np.fromiter(self._places.values(), dtype=np.int64, count=len(self._places))
        self._places = {seq: i for i, seq in enumerate(self._places)}
        self._seqs, self._spans = self._seqs[places], self._spans[:, places]
        self._vectors = self._vectors[places]
        self.size, self.dead, self._faiss = len(places), 0, None
