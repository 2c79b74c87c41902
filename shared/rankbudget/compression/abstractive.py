"""Summaries written by a model or any callable: bounded, incremental, and without effect when they fail."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

from .._drivers import Call, Steps
from ..counting.protocol import TokenCounter
from ..errors import SummaryError, shown
from .truncate import truncate_text

_SO_FAR = "Summary so far:\n"
_NEW = "\n\nNew:\n"
_MOST_LATE = 8
"""Calls of one summarizer that may hang in their threads; until one returns, it is not asked again."""


Summarizer = Callable[[str, int], Any]
"""`(text, max_tokens) -> str`, blocking, or async for async entry points alone.

Two attributes are read where it has them: `acall(text, max_tokens)`, its async form, without which the
blocking form runs in a thread; and `input_window`, most tokens that text and answer may have together in one
call, less what it adds itself (an instruction, roles, answer tokens it reserves beyond `max_tokens`).
"""


def summarize_steps(
    dropped_texts: Sequence[str],
    *,
    previous: str = "",
    max_tokens: int,
    counter: TokenCounter,
    summarizer: Summarizer | Literal["extractive"] | None = None,
    timeout: float | None = None,
) -> Steps[str]:
    """Runs a summarizer over texts, oldest first, and returns one summary of at most `max_tokens`.

    Each call gets the summary so far (`previous` at first) and the next texts, as many as fit the
    summarizer's window; a text longer than the window is split. An answer that is too long is sent back once
    to be shortened.

    Args:
        dropped_texts: what to summarize; without new text `previous` is returned.
        previous: the summary so far.
        max_tokens: the bound on the result.
        counter: counts what goes in and what comes out.
        summarizer: writes; None and "extractive" pick sentences without a model.
        timeout: seconds that one call may take; then a blocking call is abandoned in its daemon thread and an
            async one is cancelled. Async code that blocks the event loop cannot be interrupted.

    Raises:
        SummaryError: the summarizer raised, timed out, answered nothing or too much, or its window is too
            small.
    """
    texts = [text for text in dropped_texts if text.strip()]
    if not texts:
        return previous
    if max_tokens <= 0:
        msg = f"max_tokens of a summary must be 1 or more (got {max_tokens}). Give it more room."
        raise SummaryError(msg)
    if summarizer is None or summarizer == "extractive":
        from .extractive import extractive_summary  # loads the ranking of sentences

        pick = partial(extractive_summary, previous=previous)
        chosen: str = yield Call(pick, ("\n".join(texts), max_tokens, counter))  # may take seconds
        return chosen
    window = getattr(summarizer, "input_window", None)
    running = previous
    for piece in _pieces(texts, max(max_tokens, counter.count(previous)), max_tokens, counter, window):
        text = f"{_SO_FAR}{running}{_NEW}{piece}" if running else piece
        running = yield from _write(summarizer, text, max_tokens, timeout)
        used = counter.count(running)
        if used > max_tokens and (window is None or used + max_tokens <= window):
            running = yield from _write(summarizer, running, max_tokens, timeout)
            used = counter.count(running)
        if used > max_tokens:
            msg = (
                f"{_name(summarizer)} must answer at most {max_tokens} tokens (got {used}). "
                "Pass its second argument on to the model, or give the summary more room."
            )
            raise SummaryError(msg)
    return running


def _pieces(
    texts: list[str], carried: int, max_tokens: int, counter: TokenCounter, window: int | None
) -> Iterator[str]:
    """Yields pieces that fit one call beside the summary so far (`carried` tokens) and the answer."""
    if window is None:
        yield "\n".join(texts)
        return
    room = window - max_tokens - carried - counter.count(_SO_FAR + _NEW) - 2
    if room <= 0:
        msg = (
            f"the summarizer's window must hold a summary of {carried} tokens, an answer of {max_tokens} and "
            f"new text (got {window}). Ask for a summary of fewer than {window // 2}."
        )
        raise SummaryError(msg)
    held: list[str] = []
    used = 0
    for text in texts:
        rest = text
        while rest:
            part = truncate_text(rest, room, counter, ellipsis="") or counter.truncate(rest, room) or rest[:1]
            rest = rest[len(part) :]
            tokens = counter.count(part + "\n")
            if held and used + tokens > room:
                yield "\n".join(held)
                held, used = [], 0
            held.append(part)
            used += tokens
    yield "\n".join(held)


class _LateError(Exception):
    """A summarizer did not answer in time; a TimeoutError that it raises itself is an ordinary failure."""


def _write(summarizer: Summarizer, text: str, max_tokens: int, timeout: float | None) -> Steps[str]:
    who = _name(summarizer)
    try:
        answer = yield _call(summarizer, text, max_tokens, timeout)
    except _LateError as error:
        msg = f"{who} must answer within {timeout:g} seconds. Raise the timeout or use a faster model."
        raise SummaryError(msg) from error
    except Exception as error:
        msg = f"{who} failed: {type(error).__name__}: {error}; nothing was changed."
        raise SummaryError(msg) from error
    if not isinstance(answer, str) or not answer.strip():
        msg = f"{who} must answer a text (got {shown(answer)}); nothing was changed."
        raise SummaryError(msg)
    return answer.strip()


def _name(summarizer: Summarizer) -> str:
    return f"the summarizer {getattr(summarizer, '__name__', type(summarizer).__name__)!r}"


def _call(summarizer: Summarizer, text: str, max_tokens: int, timeout: float | None) -> Call:
    """Returns the call of a summarizer in both forms; each raises `_LateError` after `timeout` seconds."""
    # An object whose `__call__` is async counts as async.
    is_async = any(map(inspect.iscoroutinefunction, (summarizer, type(summarizer).__call__)))
    form: Any = getattr(summarizer, "acall", None) or (summarizer if is_async else None)

    def ask() -> Any:
        return summarizer(text, max_tokens)

    if timeout is not None and _late[id(summarizer)] >= _MOST_LATE:
        raise _LateError

    async def ask_async() -> Any:
        if form is not None:
            return await _awaited(form(text, max_tokens), timeout)
        future = _in_thread(ask)
        try:
            answer = await _awaited(asyncio.wrap_future(future), timeout)
        except _LateError:
            _abandon(summarizer, future)
            raise
        return await _awaited(answer, timeout) if inspect.isawaitable(answer) else answer

    def ask_blocking() -> Any:
        if timeout is None:
            answer = ask()
        else:
            future = _in_thread(ask)
            if not concurrent.futures.wait([future], timeout).done:
                _abandon(summarizer, future)
                raise _LateError
            answer = future.result()
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()
            msg = "it is async only; use an async method (afit_messages, aassemble, ainvoke)"
            raise TypeError(msg)
        return answer

    return Call(function=None if is_async else ask_blocking, awaitable=ask_async)


def _in_thread(work: Callable[[], Any]) -> concurrent.futures.Future[Any]:
    """Runs `work`, with the caller's context variables, in a daemon thread, which never delays the exit."""
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except StopIteration as error:  # no asyncio future takes one
            future.set_exception(RuntimeError(repr(error)))
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            future.set_exception(error)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), daemon=True, name="rankbudget-summary").start()
    return future


_late: Counter[int] = Counter()
_late_lock = threading.Lock()


def _abandon(summarizer: Summarizer, future: concurrent.futures.Future[Any]) -> None:
    """Counts a call that is left behind in its thread, until it returns."""

    def count(one: int) -> None:
        with _late_lock:
            _late[id(summarizer)] += one
            if not _late[id(summarizer)]:
                del _late[id(summarizer)]

    count(1)
    future.add_done_callback(lambda _: count(-1))


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
        raise _LateError
    return task.result()
