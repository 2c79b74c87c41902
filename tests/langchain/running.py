"""A conversation that is running: what the host's config says while a graph calls a part of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from langchain_core.runnables.config import var_child_runnable_config

__all__ = ["on_thread"]


@contextmanager
def on_thread(name: str = "t") -> Iterator[None]:
    """Names the thread, as `invoke(.., config={"configurable": {"thread_id": name}})` does."""
    token = var_child_runnable_config.set({"configurable": {"thread_id": name}})
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)
