"""An event loop that is closed again: LlamaIndex's blocking calls open one in the main thread and leave it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def closed_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """Gives a blocking test the loop LlamaIndex would otherwise open, and closes it."""
    if inspect.iscoroutinefunction(getattr(request.node, "obj", None)):
        yield  # an async test has its own
        return
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()
