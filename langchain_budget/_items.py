"""Lists of what a slot is given or keeps, which know more than their items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.documents import Document

from rankbudget import Block, Segment
from rankbudget.adapters import Piece

from ._convert import from_segment


class KeptItems(list[Any]):
    """Kept pieces as the objects they came as, shortened ones as copies; and how the report names them."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        pieces = list(pieces)
        super().__init__(from_segment(p.segment, None if p.whole else p.rendition.text) for p in pieces)
        self.ids = [piece.segment.id for piece in pieces]


class Remembered(list[Document]):
    """A store's memories as documents, and the block in which they compete for a prompt."""

    def __init__(self, documents: Iterable[Document], competing: Block) -> None:
        super().__init__(documents)
        self._competing = competing

    def block_of(self, segments: Sequence[Segment]) -> Block:
        """Returns the block with the segments of these documents, which the store's own rules choose from."""
        near = {segment.id: segment.score for segment in self._competing.segments}
        own = [replace(segment, score=near.get(segment.id, segment.score)) for segment in segments]
        return replace(self._competing, segments=own)
