"""Summaries written by a model or any callable: bounded, incremental, and without a trace when they fail.

Written as a pipeline of calls, so that a blocking and an async driver run the same code. Nothing is stored here: on any failure the caller
still holds what it gave.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from ..counting.protocol import TokenCounter
from .._drivers import Call, Steps
from ..errors import SummaryError
from .cut import truncate_text
from .summary import extractive_summary

__all__ = ["Summarizer", "SummaryWriter", "summarize_steps"]


class SummaryWriter(Protocol):
    """A summarizer that has a blocking and an async form."""

    def summarize(self, text: str, max_tokens: int) -> str:
        """Returns a summary of `text` in at most `max_tokens`."""
        ...

    async def asummarize(self, text: str, max_tokens: int) -> str:
        """Returns what `summarize` returns, without blocking."""
        ...


Summarizer: TypeAlias = "Callable[[str, int], str | Awaitable[str]] | SummaryWriter | Literal['extractive']"
"""`(text, max_tokens) -> str`, blocking or async; an object with both forms; or "extractive", which needs no model."""

_SO_FAR = "Summary so far:\n"
_NEW = "\n\nNew:\n"


def summarize_steps(
    dropped_texts: Sequence[str],
    *,
    previous: str = "",
    max_tokens: int,
    counter: TokenCounter,
    summarizer: Summarizer | None = None,
    input_window: int | None = None,
    timeout: float | None = None,
) -> Steps[str]:
    """Runs a summarizer over texts and returns one summary of at most `max_tokens`.

    The summary is incremental: each call gets the summary so far and the next texts, as many as fit the summarizer's own window; a text
    longer than the window is handed over in parts, nothing of it is left out. An answer that is too long is sent back once to be shortened.

    Args:
        dropped_texts: what to summarize, oldest first.
        previous: the summary so far.
        max_tokens: the bound on the result.
        counter: counts what goes in and what comes out.
        summarizer: writes; None and "extractive" pick sentences without a model.
        input_window: most tokens one call may hold, input and answer together; None knows no limit.
        timeout: seconds one call may take, then it is left behind: a blocking one in its daemon thread, an async one cancelled and not waited
            for. Async code that blocks the event loop cannot be left. None waits for ever.

    Returns:
        The summary; `previous` where there is nothing new.

    Raises:
        SummaryError: the summarizer raised, hung, answered nothing or too much, or its window is too small.

    Example:
        >>> from rankbudget._drivers import drive
        >>> from rankbudget.testing.fakes import WordCounter
        >>> write = lambda text, max_tokens: f"{len(text.split())} words"
        >>> drive(summarize_steps(["a b c", "d e"], previous="", max_tokens=5, counter=WordCounter(), summarizer=write))
        '5 words'
    """
    texts = [text for text in dropped_texts if text.strip()]
    if not texts:
        return previous
    if max_tokens <= 0:
        msg = f"a summary may have {max_tokens} tokens, allowed: 1 or more; give the block more room or drop the summarizer"
        raise SummaryError(msg)
    if summarizer is None or summarizer == "extractive":
        return extractive_summary("\n".join(texts), max_tokens, counter, previous=previous)
    running = previous
    for piece in _pieces(texts, max_tokens, counter, input_window):
        text = f"{_SO_FAR}{running}{_NEW}{piece}" if running else piece
        running = yield from _write(summarizer, text, max_tokens, timeout)
        used = counter.count(running)
        if used > max_tokens and (input_window is None or used + max_tokens <= input_window):
            running = yield from _write(summarizer, running, max_tokens, timeout)
            used = counter.count(running)
        if used > max_tokens:
            msg = f"the summarizer answered {used} tokens, allowed: {max_tokens}; tell it its limit (second argument) or give it more"
            raise SummaryError(msg)
    return running


def _pieces(
    texts: list[str], max_tokens: int, counter: TokenCounter, input_window: int | None
) -> Iterator[str]:
    if input_window is None:
        yield "\n".join(texts)
        return
    # Besides the new text a call holds the answer, the summary so far (as long as an answer) and the words around them.
    room = input_window - 2 * max_tokens - counter.count(_SO_FAR + _NEW) - 2
    if room <= 0:
        msg = (
            f"the summarizer's window of {input_window} tokens cannot hold a summary of {max_tokens} twice and new text; "
            f"allowed: a summary of less than {input_window // 2}"
        )
        raise SummaryError(msg)
    held: list[str] = []
    used = 0
    for part in _parts(texts, room, counter):
        tokens = counter.count(part + "\n")
        if held and used + tokens > room:
            yield "\n".join(held)
            held, used = [], 0
        held.append(part)
        used += tokens
    if held:
        yield "\n".join(held)


def _parts(texts: list[str], room: int, counter: TokenCounter) -> Iterator[str]:
    for text in texts:
        rest = text
        while rest:
            part = truncate_text(rest, room, counter, ellipsis="") or counter.truncate(rest, room) or rest[:1]
            yield part
            rest = rest[len(part) :]


def _write(summarizer: Any, text: str, max_tokens: int, timeout: float | None) -> Steps[str]:
    try:
        answer = yield _call(summarizer, text, max_tokens, timeout)
    except _LateError as error:
        msg = f"the summarizer {_name(summarizer)} did not answer within {timeout:g} seconds; nothing was changed. Raise the timeout or use a faster model"
        raise SummaryError(msg) from error
    except Exception as error:
        msg = (
            f"the summarizer {_name(summarizer)} failed: {type(error).__name__}: {error}; nothing was changed"
        )
        raise SummaryError(msg) from error
    if not isinstance(answer, str) or not answer.strip():
        seen = "an empty text" if isinstance(answer, str) else type(answer).__name__
        msg = f"the summarizer {_name(summarizer)} answered {seen}, allowed: a text; nothing was changed"
        raise SummaryError(msg)
    return answer.strip()


def _call(summarizer: Any, text: str, max_tokens: int, timeout: float | None) -> Call:
    blocking = getattr(summarizer, "summarize", None) or summarizer
    waiting = getattr(summarizer, "asummarize", None) or (blocking if _is_async(blocking) else None)

    async def ask() -> Any:
        if waiting is not None:
            return await _awaited(waiting(text, max_tokens), timeout)
        # A plain callable may still answer with an awaitable; its own work runs in a thread so that it cannot block the loop.
        answer = await _awaited(_threaded(lambda: blocking(text, max_tokens)), timeout)
        return await _awaited(answer, timeout) if inspect.isawaitable(answer) else answer

    if _is_async(blocking):
        return Call(function=None, awaitable=ask)
    return Call(
        function=lambda: _in_time(lambda: _answered(blocking(text, max_tokens)), timeout), awaitable=ask
    )


class _LateError(Exception):
    """A summarizer did not answer in time; what it raises itself, a TimeoutError of its own included, is another thing."""


def _in_time(work: Callable[[], Any], timeout: float | None) -> Any:
    if timeout is None:
        return work()
    done: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
    _start(work, lambda answer, error: done.put((answer, error)))
    try:
        answer, error = done.get(timeout=timeout)
    except queue.Empty:
        raise _LateError from None
    if error is not None:
        raise error
    return answer


def _start(work: Callable[[], Any], tell: Callable[[Any, BaseException | None], None]) -> None:
    """Runs `work` in a daemon thread, which keeps neither the process nor an executor waiting, with the caller's context variables."""

    def run() -> None:
        try:
            answer = work()
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            tell(None, error)
        else:
            tell(answer, None)

    threading.Thread(
        target=contextvars.copy_context().run, args=(run,), daemon=True, name="rankbudget-summary"
    ).start()


def _threaded(work: Callable[[], Any]) -> asyncio.Future[Any]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(answer: Any, error: BaseException | None) -> None:
        if future.done():  # left behind
            return
        if error is None:
            future.set_result(answer)
        else:
            future.set_exception(
                RuntimeError(repr(error)) if isinstance(error, StopIteration) else error
            )  # no future takes a StopIteration

    def tell(answer: Any, error: BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, answer, error)

    _start(work, tell)
    return future


async def _awaited(answer: Awaitable[Any], timeout: float | None) -> Any:
    """Waits for an answer, and not for the end of its cancellation, which one that hangs may never reach."""
    task = asyncio.ensure_future(answer)
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout)
    finally:
        if not task.done():
            task.add_done_callback(
                lambda late: late.cancelled() or late.exception()
            )  # looked at, so that nobody is told of it
            task.cancel()
    if not done:
        raise _LateError
    return task.result()


def _answered(answer: Any) -> Any:
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        msg = "it is async only; use the async method (afit_messages, aassemble, ainvoke) or give a blocking one"
        raise TypeError(msg)
    return answer


def _is_async(function: Any) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - an object whose call is async counts as async
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _name(summarizer: Any) -> str:
    return repr(getattr(summarizer, "__name__", type(summarizer).__name__))
