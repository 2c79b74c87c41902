"""SQLite and PostgreSQL keep every rule of a memory backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rankbudget.memory import MemoryStore
from rankbudget.testing import MemoryConformance


class TestSqliteFile(MemoryConformance):
    @pytest.fixture(autouse=True)
    def _place(self, sqlite_file: Path) -> None:
        self.place: Any = sqlite_file

    def make(self, **options: Any) -> MemoryStore:
        return MemoryStore(self.place, **options)


class TestSqliteInMemory(MemoryConformance):
    processes = False

    def make(self, **options: Any) -> MemoryStore:
        return MemoryStore(":memory:", **options)


class TestPostgres(MemoryConformance):
    @pytest.fixture(autouse=True)
    def _place(self, postgres: str) -> None:
        self.place = postgres

    def make(self, **options: Any) -> MemoryStore:
        return MemoryStore(self.place, **options)
