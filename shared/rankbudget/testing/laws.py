"""The laws every fitted conversation keeps, checked without any of the code that does the fitting.

`check_laws` raises `LawBroken` with the number and the name of the first law that a result breaks. Pairing, repairs and counting are written here a
second time on purpose: a mistake in the product must not hide itself.

     1 limit            the final rendering counts at most the limit
     2 pairing          results follow their call, a call keeps all its results, a call at the very end stays with the results it has
     3 system_first     leading system messages stay and stay first, later ones stay; then comes the user or a summary
     4 question         the current question is there; the result is empty only when the repaired input is
     5 order            what is kept keeps its order and identity; inputs stay as they were
     6 atomic           only text is cut; images, audio, files, thinking and tool calls stay as they are
     7 repeatable       deterministic; what fits comes back untouched; sync and async agree; a larger limit keeps a superset
     8 nothing_lost     a failure changes nothing
     9 stable_prefix    appending a message rewrites the kept prefix only when it must
    10 delimited        inserted text cannot close its delimiter and is introduced as data
    11 scopes           nobody reads what belongs to somebody else
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from ..messages.codec import Codec, DictCodec, block_text, content_text
from ..counting.protocol import TokenCounter, Tool
from ..errors import BudgetExceededError
from .repairs import (
    answers,
    is_broken,
    least_messages,
    pairing_errors,
    part,
    repaired,
    unanswered_results,
    waiting_from,
)
from .snapshots import snapshot

__all__ = [
    "LAWS",
    "LawBroken",
    "check_delimited",
    "check_laws",
    "check_prefix",
    "check_refusal",
    "check_same",
    "check_scopes",
    "check_superset",
]

LAWS = {
    1: "limit",
    2: "pairing",
    3: "system_first",
    4: "question",
    5: "order",
    6: "atomic",
    7: "repeatable",
    8: "nothing_lost",
    9: "stable_prefix",
    10: "delimited",
    11: "scopes",
}
_SYSTEM = ("system", "developer")


class LawBroken(AssertionError):  # noqa: N818 - an assertion, named for what it says
    """Says which law a result breaks.

    Example:
        >>> str(LawBroken(1, "12 tokens > 9"))
        'law 1 (limit): 12 tokens > 9'
    """

    def __init__(self, law: int, message: str) -> None:
        super().__init__(f"law {law} ({LAWS[law]}): {message}")
        self.law = law


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
    edits: bool = True,
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
        edits: a plain text may have been cut.
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
    total = (
        counter.count_messages([codec.to_dict(m) for m in result], list(tools) if tools else None)
        + extra_tokens
    )
    if result and total > limit:
        raise LawBroken(1, f"{total} tokens > {limit} in {_shape(result, codec)}")
    if reported is not None and result and reported != total:
        raise LawBroken(1, f"the report says {reported} tokens, the rendering counts {total}")
    problems = pairing_errors(result, codec)
    if problems:
        raise LawBroken(2, f"{problems[0]} in {_shape(result, codec)}")
    wanted = repaired(given, codec)
    if wanted and not result:
        raise LawBroken(4, f"nothing came back of {_shape(given, codec)}")
    sources = _align(given, result, codec, identity=identity, inserts=inserts, edits=edits)
    _check_system(given, result, sources, codec, drops_system=drops_system)
    _check_opening(wanted, result, sources, codec)
    least = (
        counter.count_messages(least_messages(wanted, codec), list(tools) if tools else None) + extra_tokens
    )
    _check_question(given, wanted, result, sources, codec, question, may_cut=edits and least > limit)
    _check_waiting(wanted, result, sources, given, codec, ended=question is not None)
    if alternate:
        _check_alternation(result, codec)
    if question is None and extra_tokens == 0 and wanted and not remembers and not inserts:
        needed = counter.count_messages([codec.to_dict(m) for m in wanted], list(tools) if tools else None)
        if needed <= limit:
            _check_untouched(wanted, result, codec, identity=identity)


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

    What must stay is every system message, the question, and a tool batch at the very end, with or without its results. With strict=True a broken conversation may be refused.

    Raises:
        LawBroken: law 1 when the refusal has no reason.
    """
    from ..errors import MessageError

    codec = codec or DictCodec()
    if strict and isinstance(error, MessageError):
        if not is_broken(given, codec):
            raise LawBroken(2, f"strict refused a valid conversation: {error}")
        return
    if not isinstance(error, BudgetExceededError):
        raise LawBroken(1, f"{type(error).__name__} instead of BudgetExceededError: {error}") from error
    wanted = repaired(given, codec)
    neutral = least_messages(wanted, codec)
    if question is not None:
        neutral.append({"role": "user", "content": question})
    needed = counter.count_messages(neutral, list(tools) if tools else None) + extra_tokens
    if needed <= limit:
        raise LawBroken(1, f"refused although what must stay counts {needed} <= {limit}: {error}") from error
    if error.needed <= error.limit:
        raise LawBroken(1, f"the error says needed {error.needed} <= limit {error.limit}: {error}") from error


def check_same(
    first: Sequence[Any], second: Sequence[Any], *, codec: Codec | None = None, what: str = "the same call"
) -> None:
    """Checks law 7: two results are equal message for message."""
    codec = codec or DictCodec()
    if [_print(m, codec) for m in first] != [_print(m, codec) for m in second]:
        raise LawBroken(7, f"{what} differs: {_shape(first, codec)} then {_shape(second, codec)}")


def check_superset(
    given: Sequence[Any], smaller: Sequence[Any], larger: Sequence[Any], *, codec: Codec | None = None
) -> None:
    """Checks law 7: what a smaller limit keeps, a larger limit keeps too."""
    codec = codec or DictCodec()
    low = {
        i for i in _align(given, smaller, codec, identity=False, inserts=True, edits=True) if i is not None
    }
    high = {
        i for i in _align(given, larger, codec, identity=False, inserts=True, edits=True) if i is not None
    }
    if not low <= high:
        raise LawBroken(7, f"a larger limit loses the messages {sorted(low - high)}")


def check_prefix(
    earlier: Sequence[Any], later: Sequence[Any], *, fits: bool, codec: Codec | None = None
) -> None:
    """Checks law 9: when the earlier prompt and what was appended fit, the later prompt starts with the earlier one."""
    codec = codec or DictCodec()
    if fits and [_print(m, codec) for m in later[: len(earlier)]] != [_print(m, codec) for m in earlier]:
        raise LawBroken(
            9,
            f"the kept prefix was rewritten although all fits: {_shape(earlier, codec)} then {_shape(later, codec)}",
        )


def check_delimited(rendered: str, payloads: Iterable[str], *, tags: Iterable[str]) -> None:
    """Checks law 10: no inserted text brings a delimiter of the rendering with it.

    Args:
        rendered: the finished text.
        payloads: the texts that were inserted.
        tags: the names of the delimiters in use, as "knowledge".
    """
    import re

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
    """Checks law 11: no text of a scope the reader may not see is in the prompt; `memories` have a text and a scope."""
    for memory in memories:
        if (
            memory.scope is not None
            and not memory.scope.visible_to(reader)
            and memory.text.strip()
            and memory.text in rendered
        ):
            raise LawBroken(11, f"a text of {memory.scope} reached {reader}: {memory.text[:60]!r}")


# ---------------------------------------------------------------- the single laws
def _align(
    given: Sequence[Any], result: Sequence[Any], codec: Codec, *, identity: bool, inserts: bool, edits: bool
) -> list[int | None]:
    """Returns the position in `given` that each message of the result comes from, None for an inserted one; checks laws 5 and 6."""
    sources: list[int | None] = []
    after = 0
    where = {id(m): i for i, m in enumerate(given)}
    prints = [_print(m, codec) for m in given]
    for number, message in enumerate(result):
        at = where.get(id(message))
        if at is None:
            at = _find(message, prints, after, given, codec, identity=identity, edits=edits)
        elif at < after:
            raise LawBroken(
                5,
                f"message {at} of the input stands at {number}, out of order or twice: {_shape(result, codec)}",
            )
        if at is None and not inserts:
            raise LawBroken(5, f"result message {number} was not given: {_print(message, codec)!r:.200}")
        sources.append(at)
        after = after if at is None else at + 1
    return sources


def _find(
    message: Any,
    prints: Sequence[object],
    after: int,
    given: Sequence[Any],
    codec: Codec,
    *,
    identity: bool,
    edits: bool,
) -> int | None:
    seen = _print(message, codec)
    for at in range(after, len(given)):
        if prints[at] == seen and _may_be(message, given[at], codec):
            if identity:
                raise LawBroken(5, f"message {at} was kept whole but is another object")
            return at
    if edits:
        for at in range(after, len(given)):
            if _is_cut_of(message, given[at], codec):
                return at
    return None


def _may_be(message: Any, source: Any, codec: Codec) -> bool:
    """Returns whether the host's own ids, where it has them, allow that one comes from the other: equal texts may stand twice."""
    return len({codec.message_id(message), codec.message_id(source)} - {None}) < 2  # noqa: PLR2004 - two ids are two messages


def _is_cut_of(message: Any, source: Any, codec: Codec) -> bool:
    """Returns whether `message` is `source` with less text and everything else as it was."""
    mine, theirs = codec.to_dict(message), codec.to_dict(source)
    if not _may_be(message, source, codec):
        return False
    if codec.role(message) != codec.role(source) or codec.result_id(message) != codec.result_id(source):
        return False
    if codec.call_ids(message) != codec.call_ids(source) or mine.get("tool_calls") != theirs.get(
        "tool_calls"
    ):
        return False
    mine_content, theirs_content = mine.get("content"), theirs.get("content")
    if isinstance(theirs_content, list) != isinstance(mine_content, list):
        return False
    if _atoms(mine_content) != _atoms(theirs_content):
        return False
    text, whole = content_text(mine_content), content_text(theirs_content)
    return (
        len(text) < len(whole) and bool(text) and (whole.startswith(text[:10]) or whole.endswith(text[-10:]))
    )


def _atoms(content: Any) -> list[Any]:
    return [block for block in content if block_text(block) is None] if isinstance(content, list) else []


def _check_system(
    given: Sequence[Any],
    result: Sequence[Any],
    sources: Sequence[int | None],
    codec: Codec,
    *,
    drops_system: bool,
) -> None:
    if drops_system:
        return
    system = [i for i, m in enumerate(given) if codec.role(m) in _SYSTEM]
    lost = [i for i in system if i not in sources]
    if lost:
        raise LawBroken(
            3, f"system messages {lost} are gone: {_shape(given, codec)} -> {_shape(result, codec)}"
        )
    if any(_print(result[sources.index(i)], codec) != _print(given[i], codec) for i in system):
        raise LawBroken(3, "a system message was edited")
    leading = next((i for i, m in enumerate(given) if codec.role(m) not in _SYSTEM), len(given))
    if list(sources[:leading]) != list(range(leading)):
        raise LawBroken(3, f"leading system messages are not first: {_shape(result, codec)}")


def _check_opening(
    wanted: Sequence[Any], result: Sequence[Any], sources: Sequence[int | None], codec: Codec
) -> None:
    if not any(part(m, codec) == "user" for m in wanted):
        return
    for message, source in zip(result, sources, strict=True):
        role = part(message, codec)
        if role in _SYSTEM:
            continue
        if role != "user" and source is not None:
            raise LawBroken(3, f"the conversation opens with {role}: {_shape(result, codec)}")
        return


def _check_question(
    given: Sequence[Any],
    wanted: Sequence[Any],
    result: Sequence[Any],
    sources: Sequence[int | None],
    codec: Codec,
    question: str | None,
    *,
    may_cut: bool,
) -> None:
    if question is not None:
        last = next((m for m in reversed(result) if part(m, codec) == "user"), None)
        if last is None or question not in content_text(codec.to_dict(last).get("content")):
            raise LawBroken(4, f"the question is not the last user message: {_shape(result, codec)}")
        return
    asked = next((i for i in range(len(given) - 1, -1, -1) if part(given[i], codec) == "user"), None)
    if asked is None or not wanted:
        return
    if asked not in sources:
        raise LawBroken(4, f"the current question (message {asked}) is gone: {_shape(result, codec)}")
    if not may_cut and _print(result[sources.index(asked)], codec) != _print(given[asked], codec):
        raise LawBroken(4, f"the current question (message {asked}) was cut although it fits whole")


def _check_waiting(
    wanted: Sequence[Any],
    result: Sequence[Any],
    sources: Sequence[int | None],
    given: Sequence[Any],
    codec: Codec,
    *,
    ended: bool,
) -> None:
    """Checks that a call at the very end is there, with the results it has: nobody has answered them yet."""
    waiting = waiting_from(wanted, codec)
    owed = (
        wanted[waiting:] if waiting < len(wanted) else unanswered_results(wanted, codec) if not ended else []
    )
    for message in owed:
        if next(i for i, m in enumerate(given) if m is message) not in sources:
            raise LawBroken(2, f"the call at the end, or a result of it, is gone: {_shape(result, codec)}")


def _check_untouched(wanted: Sequence[Any], result: Sequence[Any], codec: Codec, *, identity: bool) -> None:
    same = len(wanted) == len(result) and all(
        a is b if identity else _print(a, codec) == _print(b, codec)
        for a, b in zip(wanted, result, strict=True)
    )
    if not same:
        raise LawBroken(
            7, f"all fits but did not come back untouched: {_shape(wanted, codec)} -> {_shape(result, codec)}"
        )


def _check_alternation(result: Sequence[Any], codec: Codec) -> None:
    roles = [r for r in codec.roles(list(result)) if r not in _SYSTEM]
    for first, second in pairwise(roles):
        if first == second != "tool":
            raise LawBroken(3, f"two {first} messages in a row")


def _print(message: Any, codec: Codec) -> object:
    neutral = codec.to_dict(message)
    return {key: value for key, value in neutral.items() if value is not None}


def _shape(messages: Iterable[Any], codec: Codec) -> str:
    """Writes a conversation as letters: S system, D developer, U user, A assistant with its calls, T result."""
    out = []
    for message in messages:
        role = codec.role(message)
        mark = {"system": "S", "developer": "D", "user": "U", "assistant": "A", "tool": "T"}[role]
        ids = codec.call_ids(message) if role == "assistant" else ()
        mark += f"({','.join(ids)})" if ids else ""
        out.append(mark + "".join(f"[{one}]" for one in answers(message, codec)))
    return " ".join(out if len(out) <= 24 else [*out[:12], f"..{len(out) - 23}..", *out[-11:]]) or "(nothing)"  # noqa: PLR2004 - a line's worth
