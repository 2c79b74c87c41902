"""Ways into a library, and all laws through each of them: messages in, messages or a typed refusal out.

An `EntryPoint` says how to open a way in for one drawn application. `check_entry` holds it to every law at once, `check_entry_async` compares the async form,
`check_growth` fills a thread message by message. The codec, and what a host stores beside a text, are tested by the messages `to_host` makes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rankbudget import BudgetError, Codec, MessageError, TokenCounter
from rankbudget.messages.codec import PINNED_ROLES
from rankbudget.testing import (
    Application,
    LawBroken,
    ListCounter,
    WordCounter,
    check_outcome,
    check_prefix,
    check_same,
    check_superset,
    repaired,
    snapshot,
)
from rankbudget.testing.repairs import part, waiting_from

__all__ = [
    "EntryPoint",
    "Opened",
    "check_entry",
    "check_entry_async",
    "check_growth",
    "drawn_summarizer",
]

_COUNTER, _LISTS = WordCounter(), ListCounter()
_LARGER = 50


@dataclass(frozen=True, slots=True)
class Opened:
    """A way in, opened under one limit.

    Args:
        run: takes the whole conversation and returns what fits; one object may be asked again and again.
        arun: the async form.
        stored: returns what is kept of what was put in, for what stores it.
    """

    run: Callable[[list[Any]], Sequence[Any]]
    arun: Callable[[list[Any]], Awaitable[Sequence[Any]]]
    stored: Callable[[], Sequence[Any]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPoint:
    """One way into a library.

    Args:
        name: what it is called.
        open: opens it for an application, a limit and a counter.
        identity: kept messages are the same objects; False for memories, which return copies.
        edits: a plain text may have been cut; a role allows it in messages of that role alone.
        tools: the application's tools are counted.
        superset: a larger limit keeps at least the same.
        stored: it reads a stored thread; see `check_outcome`.
        remembers: one object keeps its cut from turn to turn.
        lists: it takes a counter whose counts do not add up.
        inserts: messages that were not given (a summary) may appear.
        sent: the model is asked next, so a call at the end that waits for results must be dropped; of a
            stored thread a question is next, so that all before may go.
    """

    name: str
    open: Callable[[Application, int, TokenCounter], Opened]
    identity: bool = True
    edits: bool | str = True
    tools: bool = True
    superset: bool = True
    stored: bool = False
    remembers: bool = False
    lists: bool = True
    inserts: bool = False
    sent: bool = False

    @contextmanager
    def named(self) -> Iterator[None]:
        """Lets a failure inside say which way in it happened through."""
        try:
            yield
        except LawBroken as broken:
            broken.args = (f"{broken} (through {self.name})",)
            raise
        except Exception as error:
            msg = f"{type(error).__name__} through {self.name}: {error}"
            raise AssertionError(msg) from error

    def judge(
        self,
        app: Application,
        given: Sequence[Any],
        found: Any,
        limit: int,
        counter: TokenCounter,
        codec: Codec,
        before: object = None,
    ) -> None:
        """Checks what came back, as `check_outcome` does."""
        tools = app.tools if self.tools and app.tools else None
        if before is not None and snapshot(given) != before:
            raise LawBroken(5, "the messages given were changed")
        if self.sent:
            sent = without_waiting(given, codec)
            waits = _only_pinned(sent, codec) and not _only_pinned(given, codec)
            if waits and isinstance(found, MessageError):
                return  # nothing but a call that waits for its results
            if self.stored and len(sent) < len(given):
                sent, found, limit = _asked_next(sent, found, limit, counter, codec, tools)
            given = sent
        rules: dict[str, Any] = {"identity": self.identity, "edits": self.edits}
        rules |= {"stored": self.stored, "inserts": self.inserts}
        check_outcome(given, found, limit=limit, counter=counter, codec=codec, tools=tools, **rules)


def _asked_next(
    sent: list[Any], found: Any, limit: int, counter: TokenCounter, codec: Codec, tools: Any
) -> tuple[list[Any], Any, int]:
    """Returns what was given and found with the next question behind it, and the limit with its tokens."""
    asked, listed = codec.make("user", "next question", origin="query"), list(tools) if tools else None
    failed = isinstance(found, BaseException)
    costs = []
    for held in (repaired(sent, codec), [] if failed else found):
        plain = [codec.to_dict(message) for message in held]
        both = counter.count_messages([*plain, codec.to_dict(asked)], listed)
        costs.append(both - counter.count_messages(plain, listed))
    limit = max(limit, counter.overhead(listed)) if not failed else limit
    return [*sent, asked], found if failed else [*found, asked], limit + max(costs)


def _only_pinned(given: Sequence[Any], codec: Codec) -> bool:
    return all(codec.role(message) in PINNED_ROLES for message in given)


def without_waiting(given: Sequence[Any], codec: Codec) -> list[Any]:
    """Returns a conversation without the calls at its end that wait for results, and without the results these have."""
    valid = repaired(given, codec)
    stays = valid
    while waiting_from(stays, codec) < len(stays):
        stays = stays[: waiting_from(stays, codec)]
    dropped = set(map(id, valid[len(stays) :]))
    return [message for message in given if id(message) not in dropped]


def check_entry(
    entry: EntryPoint,
    app: Application,
    given: Sequence[Any],
    *,
    limit: int,
    codec: Codec,
    before: object = None,
    check_host: Callable[[Sequence[Any], Sequence[Any]], None] | None = None,
) -> None:
    """Holds an entry point to all laws on one application.

    Within the limit and valid, or refused with a reason; the same again, and the same when the result is fitted; no less with a larger limit; the kept prefix
    stays where a turn is appended and fits; a counter that only takes whole lists gets only such as a provider takes.

    Args:
        entry: the way in.
        app: the drawn application.
        given: its conversation in the host's messages.
        limit: tokens allowed.
        codec: reads the host's messages.
        before: what `snapshot(given)` returned before.
        check_host: is given the conversation and the result, for what only the host knows of.

    Raises:
        LawBroken: with the number and name of the law.
    """
    opened = entry.open(app, limit, _COUNTER)
    found = _run(opened.run, given)
    entry.judge(app, given, found, limit, _COUNTER, codec, before)
    if entry.lists:
        entry.judge(app, given, _run(entry.open(app, limit, _LISTS).run, given), limit, _LISTS, codec)
    if opened.stored is not None:
        check_same(given, opened.stored(), codec=codec, what="what is stored")
    if isinstance(found, BudgetError):
        return
    if check_host is not None:
        check_host(given, found)
    check_same(
        found,
        _run(opened.run if entry.remembers else entry.open(app, limit, _COUNTER).run, given),
        codec=codec,
    )
    check_same(found, _run(entry.open(app, limit, _COUNTER).run, found), codec=codec, what="fitting twice")
    if entry.remembers:
        _check_appended(entry, app, given, limit, codec)
    if entry.superset:
        check_superset(given, found, _run(entry.open(app, limit + _LARGER, _COUNTER).run, given), codec=codec)


def check_entry_async(
    entry: EntryPoint,
    app: Application,
    given: Sequence[Any],
    *,
    limit: int,
    codec: Codec,
    run: Callable[[Any], Any],
) -> None:
    """Checks that the async form gives exactly what the sync form gives, or the same refusal; `run` runs an awaitable."""
    sync = _run(entry.open(app, limit, _COUNTER).run, given)
    found = _run(lambda messages: run(entry.open(app, limit, _COUNTER).arun(messages)), given)
    entry.judge(app, given, found, limit, _COUNTER, codec)
    if type(found) is not type(sync) and (isinstance(found, BudgetError) or isinstance(sync, BudgetError)):
        raise LawBroken(7, f"the async form gives {found!r:.200}, the sync form {sync!r:.200}")
    if not isinstance(found, BudgetError):
        check_same(sync, found, codec=codec, what="the async form")


def check_growth(
    entry: EntryPoint,
    app: Application,
    given: Sequence[Any],
    *,
    limit: int,
    codec: Codec,
    before: object = None,
) -> None:
    """Checks every turn of a conversation that grows message by message, read twice each time.

    Always valid and within the limit, the same when read again, and starting with what it started with where that and the new message fit; what is stored is
    what was put in.
    """
    opened = entry.open(app, limit, _COUNTER)
    earlier: Any = None
    for size in range(1, len(given) + 1):
        found = _run(opened.run, given[:size])
        entry.judge(app, given[:size], found, limit, _COUNTER, codec)
        if not isinstance(found, BudgetError):
            check_same(found, _run(opened.run, given[:size]), codec=codec, what="reading again")
        _check_kept(entry, app, given[:size], earlier, found, limit, codec)
        earlier = found
    if opened.stored is not None and given:
        check_same(given, opened.stored(), codec=codec, what="what is stored")
    if before is not None and snapshot(given) != before:
        raise LawBroken(5, "the messages given were changed")


def _check_appended(
    entry: EntryPoint, app: Application, given: Sequence[Any], limit: int, codec: Codec
) -> None:
    """Checks that a turn which still fits leaves what was sent before it in place."""
    asked = next((i for i in range(len(given) - 1, 0, -1) if part(given[i], codec) == "user"), 0)
    if asked:
        opened = entry.open(app, limit, _COUNTER)
        earlier = _run(opened.run, given[:asked])
        found = _run(opened.run, given)
        entry.judge(app, given, found, limit, _COUNTER, codec)
        _check_kept(entry, app, given, earlier, found, limit, codec, added=len(given) - asked)


def _check_kept(
    entry: EntryPoint,
    app: Application,
    given: Sequence[Any],
    earlier: Any,
    found: Any,
    limit: int,
    codec: Codec,
    *,
    added: int = 1,
) -> None:
    """Checks law 9 where nothing forces the prefix to move: it was not cut, is valid with what was added, and both fit."""
    if entry.inserts or earlier is None or isinstance(earlier, BudgetError) or isinstance(found, BudgetError):
        return  # a summary takes room of its own, and is written anew when more is dropped
    texts = [codec.to_dict(m) for m in given]
    if any(codec.to_dict(m) not in texts for m in earlier):
        return  # how much of a text stays depends on what is beside it
    both = [*earlier, *given[len(given) - added :]]
    if repaired(both, codec) != both:
        return
    valid = [codec.to_dict(m) for m in repaired(given, codec)]
    if any(part(m, codec) == "user" and not _answered(m, after, valid, codec) for m, after in pairwise(both)):
        return  # a question whose answer did not fit goes when the next one comes
    roles = [part(m, codec) for m in both]
    if "user" not in roles and not {"assistant", "tool"} & {part(m, codec) for m in found}:
        return  # before any question a step stays only while its call waits
    if len(found) == len(valid):
        return  # a repair made room: all of it is there again, which is worth a new prefix
    tools = list(app.tools) if entry.tools and app.tools else None
    fits = _COUNTER.count_messages([codec.to_dict(m) for m in both], tools) <= limit
    check_prefix(earlier, found, fits=fits, codec=codec)


def _answered(question: Any, after: Any, texts: list[Any], codec: Codec) -> bool:
    """Says whether what follows a question among the kept messages followed it in the conversation."""
    at = texts.index(codec.to_dict(question))
    return at + 1 < len(texts) and texts[at + 1] == codec.to_dict(after)


def drawn_summarizer(app: Application) -> Callable[[str, int], str]:
    """Returns a summarizer for an application: one that is brief, one that goes on for too long, or one that fails.

    Example:
        >>> drawn_summarizer(Application(messages=({"role": "user", "content": "hi"},)))("user: hi", 9)
        'They spoke of this and that.'
    """
    kind = len(app.messages) % 3

    def write(text: str, max_tokens: int) -> str:
        if kind == 0:
            msg = f"no summary of {len(text)} characters today"
            raise TimeoutError(msg)
        return "They spoke of this and that." if kind == 1 else "word " * (3 * max_tokens + 50)

    return write


def _run(call: Callable[[list[Any]], Any], messages: Sequence[Any]) -> Any:
    try:
        return call(list(messages))
    except BudgetError as error:
        return error
