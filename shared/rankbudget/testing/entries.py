"""One way into a library, and the laws through it: messages in, messages or a typed refusal out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..codec import Codec
from ..counting.protocol import TokenCounter, Tool
from ..errors import BudgetExceededError
from .laws import LawBroken, check_laws, check_refusal, snapshot
from .repairs import least_messages, repaired

__all__ = ["check_outcome"]


def check_outcome(
    given: Sequence[Any],
    found: Any,
    *,
    limit: int,
    counter: TokenCounter,
    codec: Codec,
    tools: Sequence[Tool] | None = None,
    before: object = None,
    identity: bool = True,
    edits: bool = True,
    stored: bool = False,
    remembers: bool = False,
) -> None:
    """Checks laws 1 to 7 on what an entry point did: on the messages it returned, or on the reason of its refusal.

    Args:
        given: the conversation, in the host's own messages.
        found: what came back, or the error that was raised.
        limit: tokens allowed.
        counter: counts the result in its neutral form.
        codec: reads the host's messages.
        tools: tool schemas that are sent with it.
        before: what `snapshot(given)` returned before the call.
        identity: kept messages are the same objects; False for memories, which return copies.
        edits: a plain text may have been cut.
        stored: the conversation is a stored thread. One that is finished waits for its reader's question; all of it may go where its last
            question does not fit.
        remembers: a session, which may keep less than fits.

    Raises:
        LawBroken: with the number and name of the law.

    Example:
        >>> from rankbudget.codec import DictCodec
        >>> from rankbudget.testing import WordCounter
        >>> done = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
        >>> check_outcome(done, [], limit=5, counter=WordCounter(), codec=DictCodec(), stored=True)
    """
    listed = list(tools) if tools else None
    if before is not None and snapshot(given) != before:
        raise LawBroken(5, "the messages given were changed")
    if stored and _finished(given, codec) and counter.count_messages(least_messages(repaired(given, codec), codec), listed) > limit:
        floor = counter.overhead(listed)
        if isinstance(found, BudgetExceededError) and limit < floor:
            return  # not even an empty prompt fits
        asked = codec.make("user", "next question", origin="query")
        limit = max(limit, floor) + counter.count_message(codec.to_dict(asked))  # set aside by whoever asks
        given = [*given, asked]
        found = found if isinstance(found, BaseException) else [*found, asked]
    if isinstance(found, BaseException):
        check_refusal(given, found, limit=limit, counter=counter, codec=codec, tools=listed)
        return
    check_laws(
        given,
        found,
        limit=limit,
        counter=counter,
        codec=codec,
        tools=listed,
        identity=identity,
        edits=edits,
        remembers=remembers,
    )


def _finished(messages: Sequence[Any], codec: Codec) -> bool:
    """Says whether the last message asks for nothing: neither a question, nor a call, nor a result."""
    return bool(messages) and codec.role(messages[-1]) not in {"user", "tool"} and not codec.call_ids(messages[-1])
