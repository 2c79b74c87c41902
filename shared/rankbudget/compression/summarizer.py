"""What a summarizer is, and how one is called: blocking or async, within a number of seconds."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from .._drivers import Call

__all__ = ["LateError", "Summarizer", "async_form_of", "input_window_of", "summary_call"]


class Summarizer(Protocol):
    """Any callable `(text, max_tokens) -> str`; an async callable serves the async entry points alone.

    Two attributes are read where a summarizer has them:

    - `acall(text, max_tokens)`: its async form. Without one, async entry points run the blocking form in a
        thread.
    - `input_window`: most tokens that the text and the answer may have together in one call, or None. The
        summarizer
      subtracts what it adds itself: its instruction, roles, and answer tokens it reserves beyond
      `max_tokens`.
    """

    def __call__(self, text: str, max_tokens: int, /) -> str | Awaitable[str]:
        """Returns a summary of `text` in at most `max_tokens`."""
        ...


class LateError(Exception):
    """A summarizer did not answer in time; a TimeoutError that it raises itself is an ordinary failure."""


def input_window_of(summarizer: object) -> int | None:
    """Returns the most tokens of one call, text and answer together; None where it is not known."""
    window = getattr(summarizer, "input_window", None)
    return window if isinstance(window, int) else None


def async_form_of(summarizer: object) -> Callable[[str, int], Awaitable[str]] | None:
    """Returns the async form of a summarizer; None where it has only a blocking one."""
    form: Any = getattr(summarizer, "acall", None)
    if form is None and _is_async(summarizer):
        form = summarizer
    return form  # type: ignore[no-any-return]  # found by its name


def summary_call(summarizer: Summarizer, text: str, max_tokens: int, timeout: float | None) -> Call:
    """Returns the call of a summarizer in both forms; each raises `LateError` after `timeout` seconds."""

    async def ask() -> Any:
        form = async_form_of(summarizer)
        if form is not None:
            return await _awaited(form(text, max_tokens), timeout)
        answer = await _awaited(asyncio.wrap_future(_in_thread(blocking)), timeout)
        return await _awaited(answer, timeout) if inspect.isawaitable(answer) else answer

    def blocking() -> Any:
        return summarizer(text, max_tokens)

    def ask_blocking() -> Any:
        return _not_awaitable(blocking() if timeout is None else _in_time(blocking, timeout))

    return Call(function=None if _is_async(summarizer) else ask_blocking, awaitable=ask)


def _in_time(work: Callable[[], Any], timeout: float) -> Any:
    future = _in_thread(work)
    if not concurrent.futures.wait([future], timeout).done:
        raise LateError
    return future.result()


def _in_thread(work: Callable[[], Any]) -> concurrent.futures.Future[Any]:
    """Runs `work`, with the caller's context variables, in a daemon thread, which never delays the exit."""
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            answer = work()
        except StopIteration as error:  # no asyncio future takes one
            future.set_exception(RuntimeError(repr(error)))
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            future.set_exception(error)
        else:
            future.set_result(answer)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), daemon=True, name="rankbudget-summary").start()
    return future


async def _awaited(answer: Awaitable[Any], timeout: float | None) -> Any:
    """Waits for an answer; a late one is cancelled and not waited for, because cancelling may hang too."""
    task = asyncio.ensure_future(answer)
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout)
    finally:
        if not task.done():
            # Reading the exception keeps asyncio from logging it.
            task.add_done_callback(lambda late: late.cancelled() or late.exception())
            task.cancel()
    if not done:
        raise LateError
    return task.result()


def _not_awaitable(answer: Any) -> Any:
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        msg = "it is async only; use an async method (afit_messages, aassemble, ainvoke)"
        raise TypeError(msg)
    return answer


def _is_async(function: object) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - an object whose call is async counts as async
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
