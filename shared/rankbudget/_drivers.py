"""Input and output are asked for, not done: the steps are written once, for sync and async drivers.

What needs a summary, an embedding or a remote count is a generator. It yields a `Call`; a driver makes the
call and sends the result back, or throws the failure into the generator, which decides what that means.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["Call", "Steps", "adrive", "drive"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """One call to something outside the pipeline.

    Args:
        function: the blocking form; may be None when only an awaitable form exists.
        arguments: positional arguments.
        awaitable: the async form; without one, an async driver runs `function` in a thread.
    """

    function: Callable[..., Any] | None
    arguments: tuple[Any, ...] = ()
    awaitable: Callable[..., Awaitable[Any]] | None = None


Steps = Generator[Call, Any, T]
"""A pipeline: yields calls, is sent their results, returns a T."""


def drive(steps: Steps[T]) -> T:
    """Runs a pipeline to its end with blocking calls.

    Example:
        >>> def pipeline():
        ...     length = yield Call(len, ("four",))
        ...     return length + 1
        >>> drive(pipeline())
        5
    """
    try:
        call = next(steps)
        while True:
            try:
                result = _block(call)
            except Exception as error:  # noqa: BLE001, PERF203 - the pipeline decides what a failure means
                call = steps.throw(error)
            else:
                call = steps.send(result)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # a generator's return value is untyped at run time
    finally:
        steps.close()


async def adrive(steps: Steps[T]) -> T:
    """Runs a pipeline to its end without blocking the event loop."""
    try:
        call = next(steps)
        while True:
            try:
                result = await _wait(call)
            except Exception as error:  # noqa: BLE001, PERF203 - the pipeline decides what a failure means
                call = steps.throw(error)
            else:
                call = steps.send(result)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # a generator's return value is untyped at run time
    finally:
        steps.close()


def _block(call: Call) -> Any:
    if call.function is None or inspect.iscoroutinefunction(call.function):
        name = getattr(call.function or call.awaitable, "__name__", "function")
        how = "Use the async method (afit_messages, aassemble, ainvoke) or give a blocking function."
        msg = f"a call without await must be blocking (got {name!r}, which is async only). {how}"
        raise TypeError(msg)
    return call.function(*call.arguments)


async def _wait(call: Call) -> Any:
    if call.awaitable is not None:
        return await call.awaitable(*call.arguments)
    if inspect.iscoroutinefunction(call.function):
        return await call.function(*call.arguments)
    assert call.function is not None
    return await asyncio.to_thread(call.function, *call.arguments)
