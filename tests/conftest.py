"""What every test stands on: repeatable draws, no network, no tracing, no connection that outlives its answer."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import inspect
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

os.environ.update(
    LANGSMITH_TRACING="false", LANGCHAIN_TRACING_V2="false", HF_HUB_OFFLINE="1", ANONYMIZED_TELEMETRY="false"
)

_SLOW_MACHINES = [
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
]  # a drawn conversation is large, and CI machines are small
settings.register_profile("fast", max_examples=10, deadline=None, suppress_health_check=_SLOW_MACHINES)
settings.register_profile("smoke", max_examples=3, deadline=None, suppress_health_check=_SLOW_MACHINES)
settings.register_profile("dev", max_examples=25, deadline=None, suppress_health_check=_SLOW_MACHINES)
settings.register_profile(
    "ci",
    max_examples=60,
    deadline=None,
    suppress_health_check=_SLOW_MACHINES,
    derandomize=True,
    database=None,
    print_blob=True,
)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE")
    or ("ci" if os.environ.get("CI", "").lower() in {"1", "true"} else "dev")
)

_LOCAL = {"localhost", "127.0.0.1", "::1", "0.0.0.0", "", None}


def _refuse(target: object) -> None:
    host = target[0] if isinstance(target, tuple) else None  # a path is a local socket
    if isinstance(host, bytes):
        host = host.decode()
    if host not in _LOCAL:
        msg = f"a test asked the network for {target!r}; tests run offline"
        raise RuntimeError(msg)


@pytest.fixture(autouse=True, scope="session")
def offline() -> Iterator[None]:
    """Refuses every connection that leaves this machine."""
    connect, connect_ex, getaddrinfo = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo

    def local_connect(self: socket.socket, address: Any) -> None:
        _refuse(address)
        return connect(self, address)

    def local_connect_ex(self: socket.socket, address: Any) -> int:
        _refuse(address)
        return connect_ex(self, address)

    def local_getaddrinfo(host: Any, *rest: Any, **options: Any) -> Any:
        _refuse((host,))
        return getaddrinfo(host, *rest, **options)

    patch = pytest.MonkeyPatch()
    patch.setattr(socket.socket, "connect", local_connect)
    patch.setattr(socket.socket, "connect_ex", local_connect_ex)
    patch.setattr(socket, "getaddrinfo", local_getaddrinfo)
    yield
    patch.undo()


@pytest.fixture(autouse=True, scope="session")
def no_kept_connections() -> Iterator[None]:
    """Has the hosts' model clients close each connection with its answer: no test closes the clients, and their loops are gone before them."""
    if importlib.util.find_spec("httpcore") is None:
        yield
        return
    import httpcore

    patch = pytest.MonkeyPatch()
    for pool in (httpcore.ConnectionPool, httpcore.AsyncConnectionPool):
        patch.setattr(pool, "__init__", functools.partialmethod(_keeping_none, pool.__init__))
    yield
    patch.undo()


def _keeping_none(self: Any, made: Any, *args: Any, **options: Any) -> None:
    made(self, *args, **{**options, "max_keepalive_connections": 0})


_BLOCKING = {"llamaindex", "memory", "parity", "test_demo.py", "test_server.py", "test_readme.py"}
"""Folders and files whose tests call the blocking form of what is async in LlamaIndex."""


@pytest.fixture(autouse=True)
def closed_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """Gives such a test the event loop LlamaIndex would otherwise open in the main thread and leave, and closes it."""
    if _BLOCKING.isdisjoint(request.node.path.parts) or inspect.iscoroutinefunction(
        getattr(request.node, "obj", None)
    ):
        yield  # an async test has a loop of its own
        return
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()
