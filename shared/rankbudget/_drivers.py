"""Input and output, asked for, not done: generators yield calls, a blocking or async driver makes them."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

from .errors import named_options

_log = logging.getLogger("rankbudget")

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """One call to something outside the pipeline, whose result is sent back or whose failure is thrown in."""

    function: Callable[..., Any] | None  # the blocking form; None when only an awaitable form exists
    arguments: tuple[Any, ...] = ()
    awaitable: Callable[..., Awaitable[Any]] | None = None  # without one, `function` runs in a thread


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
                if call.function is None or inspect.iscoroutinefunction(call.function):
                    _refuse(call)
                result = call.function(*call.arguments)
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


def blocking(steps: Callable[P, Steps[T]]) -> Callable[P, T]:
    """Returns the function that runs a pipeline with blocking calls; `awaiting` makes its async form.

    Example:
        >>> @blocking
        ... def size(text: str):
        ...     return (yield Call(len, (text,)))
        >>> size("four"), asyncio.run(awaiting(size)("four"))
        (4, 4)
    """
    start = named_options(steps)

    @wraps(steps)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return drive(start(*args, **kwargs))

    _state_result(run)
    return run


def awaiting(run: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Returns the async form of a function that `blocking` made, with its parameters and the name `a...`."""
    steps: Callable[P, Steps[T]] = run.__wrapped__  # type: ignore[attr-defined]  # `blocking` sets it
    start = named_options(steps)

    @wraps(steps)
    async def arun(*args: P.args, **kwargs: P.kwargs) -> T:
        return await adrive(start(*args, **kwargs))

    name, place = steps.__name__, steps.__qualname__.rpartition(".")[0]
    arun.__name__ = f"a{name}"
    arun.__qualname__ = f"{place}.a{name}" if place else f"a{name}"
    arun.__doc__ = (
        f"Returns what `{name}` returns, without blocking the event loop; the arguments are the same."
    )
    _state_result(arun)
    return arun


def is_blocking(value: Any) -> bool:
    """Returns whether a value can be called and its answer need not be awaited.

    Example:
        >>> is_blocking(print), is_blocking(asyncio.sleep)
        (True, False)
    """
    is_async = inspect.iscoroutinefunction
    return callable(value) and not (is_async(value) or is_async(type(value).__call__))


def send_report(on_report: Callable[[Any], Any] | None, report: Any) -> None:
    """Calls the user's callback; what it raises is logged: an answer is worth more than its report."""
    if on_report is not None:
        try:
            on_report(report)
        except Exception:  # noqa: BLE001 - whatever it raises
            _log.exception("on_report failed")


def _state_result(run: Any) -> None:
    """Gives a function the signature of its steps, returning T instead of `Steps[T]`."""
    stated = inspect.signature(run)
    made = str(stated.return_annotation).removeprefix("Steps[").removesuffix("]")
    run.__signature__ = stated.replace(return_annotation=made)


def _refuse(call: Call) -> NoReturn:
    name = getattr(call.function or call.awaitable, "__name__", "function")
    advice = "Use the async method (afit_messages, aassemble, ainvoke), or give a blocking function."
    msg = f"{name!r} must be blocking here (got an async function). {advice}"
    raise TypeError(msg)


async def _wait(call: Call) -> Any:
    function = call.awaitable or call.function
    assert function is not None
    if call.awaitable is not None or inspect.iscoroutinefunction(function):
        return await function(*call.arguments)
    return await asyncio.to_thread(function, *call.arguments)
