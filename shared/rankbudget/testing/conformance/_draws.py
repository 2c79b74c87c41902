"""Runs a check over drawn values, the same values every time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

__all__ = ["for_all"]


def for_all(*strategies: st.SearchStrategy[Any], examples: int) -> Callable[[Callable[..., None]], None]:
    """Returns a decorator that runs the decorated check at once, `examples` times."""

    def run(check: Callable[..., None]) -> None:
        settings(max_examples=examples, deadline=None, database=None, derandomize=True)(
            given(*strategies)(check)
        )()

    return run
