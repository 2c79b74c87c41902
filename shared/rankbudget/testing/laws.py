"""The laws every fitted conversation keeps, checked without any of the code that does the fitting.

`check_laws` raises `LawBroken` with the number and the name of the first law that a result breaks. Pairing,
repairs and counting are written here a second time on purpose: a mistake in the product must not hide itself.

     1 limit            the final rendering counts at most the limit
     2 pairing          results follow their call, a call keeps all its results;
                        a call at the very end stays with the results it has
     3 system_first     leading system messages stay and stay first, later ones stay;
                        then comes the user or a summary
     4 question         the current question is there; the result is empty only when the repaired input is
     5 order            what is kept keeps its order and identity; inputs stay as they were
     6 atomic           only text is cut; images, audio, files, thinking and tool calls stay as they are
     7 repeatable       deterministic; what fits comes back untouched; sync and async agree;
                        a larger limit keeps a superset
     8 nothing_lost     a failure changes nothing
     9 stable_prefix    appending a message rewrites the kept prefix only when it must
    10 delimited        inserted text cannot close its delimiter and is introduced as data
    11 scopes           no reader sees what belongs to another one
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from ..counting.protocol import TokenCounter, Tool
from ..errors import BudgetExceededError, MessageError
from ..messages.codec import PINNED_ROLES, Codec, DictCodec
from .broken import LAWS, LawBroken
from .repairs import is_broken, least_messages, mended, pairing_errors, part, repaired, says_nothing
from .single_laws import (
    align,
    check_alternation,
    check_opening,
    check_question,
    check_system,
    check_untouched,
    check_waiting,
    comparable,
    shape,
)
from .snapshots import snapshot

__all__ = [
    "LAWS",
    "LawBroken",
    "check_delimited",
    "check_laws",
    "check_outcome",
    "check_prefix",
    "check_refusal",
    "check_same",
    "check_scopes",
    "check_superset",
]


def check_laws(
    given: Sequence[Any],
    result: Sequence[Any],
    *,
    limit: int,
    counter: TokenCounter,
    codec: Codec | None = None,
    tools: Sequence[Tool] | None = None,
    question: str | None = None,
    before: object = None,
    extra_tokens: int = 0,
    identity: bool = True,
    inserts: bool = False,
    edits: bool | str = True,
    shortens_question: bool = False,
    drops_system: bool = False,
    alternate: bool = False,
    remembers: bool = False,
    reported: int | None = None,
) -> None:
    """Checks laws 1 to 7 on one fitted conversation.

    Args:
        given: the conversation that was fitted, in the host's own messages.
        result: what came back.
        limit: tokens allowed.
        counter: counts the result in its neutral form.
        codec: reads the host's messages; None for plain dicts.
        tools: tool schemas that are sent with it.
        question: a text that must be the last user message, when it was not part of `given`.
        before: what `snapshot(given)` returned before the call; given, inputs are checked for changes.
        extra_tokens: tokens the host adds to the request outside these messages.
        identity: kept messages are the same objects; False for memories, which return copies.
        inserts: messages that were not given (a summary, context) may appear.
        edits: a plain text may have been cut; a role allows it in messages of that role alone.
        shortens_question: a current question that does not fit may have been cut.
        drops_system: system messages of the history are not this part's business.
        alternate: no two messages of one role in a row.
        remembers: a session, which may keep less than fits; otherwise what fits must come back untouched.
        reported: the total the report claims; it must be the count.

    Raises:
        LawBroken: with the number and name of the law.
    """
    codec = codec or DictCodec()
    if before is not None and snapshot(given) != before:
        raise LawBroken(5, "the messages given were changed")
    schemas = list(tools) if tools else None
    total = counter.count_messages([codec.to_dict(m) for m in result], schemas) + extra_tokens
    if result:
        _check_total(total, limit, reported, shape(result, codec))
    problems = pairing_errors(result, codec)
    if problems:
        raise LawBroken(2, f"{problems[0]} in {shape(result, codec)}")
    if any(says_nothing(m, codec) for m in result):
        raise LawBroken(2, f"a message says nothing in {shape(result, codec)}")
    left = mended(given, codec)
    wanted = [m for m in left if m is not None]
    if wanted and not result:
        raise LawBroken(4, f"nothing came back of {shape(given, codec)}")
    whole = {id(m) for m in given} if identity else set()
    given = [m if one is None else one for m, one in zip(given, left, strict=True)]
    sources = align(given, result, codec, whole=whole, inserts=inserts, edits=edits)
    check_system(given, result, sources, codec, drops_system=drops_system)
    check_opening(wanted, result, sources, codec)
    least = counter.count_messages(least_messages(wanted, codec), schemas) + extra_tokens
    may_cut = shortens_question and least > limit
    check_question(given, wanted, result, sources, codec, question, may_cut=may_cut)
    check_waiting(wanted, result, sources, given, codec, ended=question is not None)
    if alternate:
        check_alternation(result, codec)
    alone = question is None and extra_tokens == 0
    if alone and wanted and not remembers and not inserts:
        needed = counter.count_messages([codec.to_dict(m) for m in wanted], schemas)
        if needed <= limit:
            check_untouched(wanted, result, codec, whole=whole)


def _check_total(total: int, limit: int, reported: int | None, found: str) -> None:
    if total > limit:
        raise LawBroken(1, f"{total} tokens > {limit} in {found}")
    if reported is not None and reported != total:
        raise LawBroken(1, f"the report says {reported} tokens, the rendering counts {total}")


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
    edits: bool | str = True,
    stored: bool = False,
    inserts: bool = False,
    shortens_question: bool = False,
) -> None:
    """Checks laws 1 to 7 on the messages an entry point returned, or on the reason of its refusal.

    Args:
        given: the conversation, in the host's own messages.
        found: what came back, or the error that was raised.
        limit: tokens allowed.
        counter: counts the result in its neutral form.
        codec: reads the host's messages.
        tools: tool schemas that are sent with it.
        before: what `snapshot(given)` returned before the call.
        identity: kept messages are the same objects; False for memories, which return copies.
        edits: a plain text may have been cut; a role allows it in messages of that role alone.
        stored: the conversation is a stored thread. One that is finished is read for its reader's next
            question, so all of it may go.
        inserts: messages that were not given (a summary) may appear.
        shortens_question: a current question that does not fit may have been cut.

    Raises:
        LawBroken: with the number and name of the law.

    Example:
        >>> from rankbudget.messages.codec import DictCodec
        >>> from rankbudget.testing import WordCounter
        >>> done = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
        >>> check_outcome(done, [], limit=5, counter=WordCounter(), codec=DictCodec(), stored=True)
    """
    listed = list(tools) if tools else None
    if before is not None and snapshot(given) != before:
        raise LawBroken(5, "the messages given were changed")
    if stored and _finished(repaired(given, codec), codec):
        floor = counter.overhead(listed)
        if isinstance(found, BudgetExceededError) and limit < floor:
            return  # not even an empty prompt fits
        kept = [] if inserts or isinstance(found, BaseException) else found
        if [part(m, codec) for m in kept if codec.role(m) not in {"system", "developer"}][-1:] == ["user"]:
            raise LawBroken(4, f"the last question came back without its answer: {shape(found, codec)}")
        asked = codec.make("user", "next question", origin="query")
        came = [] if isinstance(found, BaseException) else [codec.to_dict(m) for m in found]
        valid = [codec.to_dict(m) for m in repaired(given, codec)]
        # Its cost is set aside by whoever asks; beside all of it that may be less than beside what came back.
        own, least = (_added(counter, held, codec.to_dict(asked), listed) for held in (came, valid))
        limit = max(limit, floor)
        limit = max(limit + min(own, least), own + min(counter.count_messages(came, listed), limit))
        given = [*given, asked]
        found = found if isinstance(found, BaseException) else [*found, asked]
    rules: dict[str, Any] = {"limit": limit, "counter": counter, "codec": codec, "tools": listed}
    if isinstance(found, BaseException):
        check_refusal(given, found, **rules)
    else:
        rules["shortens_question"] = shortens_question
        check_laws(given, found, identity=identity, edits=edits, inserts=inserts, **rules)


def _added(counter: TokenCounter, messages: list[Any], asked: Any, tools: list[Tool] | None) -> int:
    """Returns what one message more costs; where counts do not add up, that depends on the others."""
    return counter.count_messages([*messages, asked], tools) - counter.count_messages(messages, tools)


def check_refusal(
    given: Sequence[Any],
    error: BaseException,
    *,
    limit: int,
    counter: TokenCounter,
    codec: Codec | None = None,
    tools: Sequence[Tool] | None = None,
    question: str | None = None,
    extra_tokens: int = 0,
    strict: bool = False,
) -> None:
    """Checks that an error was the right answer: it is typed, and what must stay really does not fit.

    What must stay is every system message, the question, and a tool batch at the very end, with or without
    its results. With strict=True a broken conversation may be refused, else only one without a valid message,
    or one whose newest question is empty.

    Raises:
        LawBroken: law 1 when the refusal has no reason.
    """
    codec = codec or DictCodec()
    if strict and isinstance(error, MessageError):
        if not is_broken(given, codec):
            raise LawBroken(2, f"strict refused a valid conversation: {error}")
        return
    wanted = repaired(given, codec)
    # A request that is sent may not end in a call either.
    said = [m for m in given if codec.role(m) not in PINNED_ROLES]
    valid = [m for m in wanted if codec.role(m) not in PINNED_ROLES and not codec.call_ids(m)]
    if isinstance(error, MessageError) and said and (not valid or _asks_nothing(said, valid, codec)):
        return
    if not isinstance(error, BudgetExceededError):
        raise LawBroken(1, f"{type(error).__name__} instead of BudgetExceededError: {error}") from error
    neutral = least_messages(wanted, codec)
    if question is not None:
        neutral.append({"role": "user", "content": question})
    needed = counter.count_messages(neutral, list(tools) if tools else None) + extra_tokens
    if needed <= limit:
        raise LawBroken(1, f"refused although what must stay counts {needed} <= {limit}: {error}") from error
    if error.needed <= error.limit:
        raise LawBroken(1, f"the error says needed {error.needed} <= limit {error.limit}: {error}") from error


def _asks_nothing(said: Sequence[Any], valid: Sequence[Any], codec: Codec) -> bool:
    newest_is_empty = part(said[-1], codec) == "user" and says_nothing(said[-1], codec)
    return newest_is_empty and part(valid[-1], codec) == "assistant"


def check_same(
    first: Sequence[Any], second: Sequence[Any], *, codec: Codec | None = None, what: str = "the same call"
) -> None:
    """Checks law 7: two results are equal message for message."""
    codec = codec or DictCodec()
    if [comparable(m, codec) for m in first] != [comparable(m, codec) for m in second]:
        raise LawBroken(7, f"{what} differs: {shape(first, codec)} then {shape(second, codec)}")


def check_superset(
    given: Sequence[Any], smaller: Sequence[Any], larger: Sequence[Any], *, codec: Codec | None = None
) -> None:
    """Checks law 7: what a smaller limit keeps, a larger limit keeps too."""
    codec = codec or DictCodec()
    given = [m if one is None else one for m, one in zip(given, mended(given, codec), strict=True)]
    low, high = (
        {i for i in align(given, found, codec, whole=(), inserts=True, edits=True) if i is not None}
        for found in (smaller, larger)
    )
    if not low <= high:
        raise LawBroken(7, f"a larger limit loses the messages {sorted(low - high)}")


def check_prefix(
    earlier: Sequence[Any], later: Sequence[Any], *, fits: bool, codec: Codec | None = None
) -> None:
    """Checks law 9: if the earlier prompt and what was appended fit, the later one starts with it."""
    codec = codec or DictCodec()
    if fits and [comparable(m, codec) for m in later[: len(earlier)]] != [
        comparable(m, codec) for m in earlier
    ]:
        raise LawBroken(
            9,
            "the kept prefix was rewritten although all fits:"
            f" {shape(earlier, codec)} then {shape(later, codec)}",
        )


def check_delimited(rendered: str, payloads: Iterable[str], *, tags: Iterable[str]) -> None:
    """Checks law 10: no inserted text brings a delimiter of the rendering with it.

    Args:
        rendered: the finished text.
        payloads: the texts that were inserted.
        tags: the names of the delimiters in use, as "knowledge".
    """
    pattern = re.compile(rf"<\s*(/?)\s*({'|'.join(map(re.escape, tags))})(?:\s[^>]*)?>", re.IGNORECASE)
    for payload in payloads:
        for match in pattern.finditer(payload):
            around = payload[max(0, match.start() - 12) : match.end() + 12]
            if around in rendered:
                raise LawBroken(10, f"an inserted text brings {match.group()!r} into the prompt: {around!r}")
    opened: list[str] = []
    for match in pattern.finditer(rendered):
        closes, name = match.groups()
        if not closes:
            opened.append(name)
        elif not opened or opened.pop() != name:
            raise LawBroken(10, f"{match.group()!r} closes what is not open")
    if opened:
        raise LawBroken(10, f"the delimiter {opened[-1]!r} is not closed")


def check_scopes(rendered: str, memories: Iterable[Any], reader: Any) -> None:
    """Checks law 11: no text of a scope the reader may not see is in the prompt.

    Each of the `memories` has a text and a scope.
    """
    for memory in memories:
        if (
            memory.scope is not None
            and not memory.scope.visible_to(reader)
            and memory.text.strip()
            and memory.text in rendered
        ):
            raise LawBroken(11, f"a text of {memory.scope} reached {reader}: {memory.text[:60]!r}")


def _finished(messages: Sequence[Any], codec: Codec) -> bool:
    """Says whether the last message, system notes apart, is neither a question, nor a call, nor a result."""
    said = [m for m in messages if codec.role(m) not in {"system", "developer"}]
    if not said:
        return bool(messages)
    return codec.role(said[-1]) not in {"user", "tool"} and not codec.call_ids(said[-1])
