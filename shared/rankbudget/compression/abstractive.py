"""Summaries written by a model or any callable: bounded, incremental, and without effect when they fail.

Written as a pipeline of calls, so that a blocking and an async driver run the same code. Nothing is stored
here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from .._drivers import Steps
from ..counting.protocol import TokenCounter
from ..errors import SummaryError, shown
from .summarizer import LateError, Summarizer, input_window_of, summary_call
from .truncate import truncate_text

__all__ = ["Summarizer", "summarize_steps"]

_SO_FAR = "Summary so far:\n"
_NEW = "\n\nNew:\n"


def summarize_steps(
    dropped_texts: Sequence[str],
    *,
    previous: str = "",
    max_tokens: int,
    counter: TokenCounter,
    summarizer: Summarizer | Literal["extractive"] | None = None,
    input_window: int | None = None,
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
        input_window: most tokens of one call, input and answer together; None asks the summarizer.
        timeout: seconds that one call may take; then a blocking call is abandoned in its daemon thread and an
            async one is cancelled. Async code that blocks the event loop cannot be interrupted. None: no
            timeout.

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
        from .summary import extractive_summary  # loads the ranking of sentences

        return extractive_summary("\n".join(texts), max_tokens, counter, previous=previous)
    window = input_window_of(summarizer) if input_window is None else input_window
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
                f"the summarizer {_name(summarizer)} must answer at most {max_tokens} tokens (got {used}). "
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


def _write(summarizer: Summarizer, text: str, max_tokens: int, timeout: float | None) -> Steps[str]:
    who = f"the summarizer {_name(summarizer)}"
    try:
        answer = yield summary_call(summarizer, text, max_tokens, timeout)
    except LateError as error:
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
    return repr(getattr(summarizer, "__name__", type(summarizer).__name__))
