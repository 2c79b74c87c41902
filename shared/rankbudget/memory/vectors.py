"""Memories by meaning."""

from __future__ import annotations

from typing import Any


class SqlVectors:
    """Vectors of memories beside their rows."""

    def embed(self, text: str) -> Any:
        """Returns the vector of a text."""
        raise NotImplementedError

    def write(self, connection: Any, seq: int, vector: Any) -> None:
        """Writes the vector of a row, inside the row's transaction."""
        raise NotImplementedError
