"""The laws of one conversation, each in a function of its own; `check_laws` asks them all."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from itertools import pairwise
from typing import Any

from ..compression.pieces import is_made_of
from ..messages.codec import Codec
from ..messages.texts import content_text, replace_text, texts_of
from .broken import LawBroken
from .repairs import answers, part, says_nothing, unanswered_results, waiting_from

__all__ = [
    "align",
    "check_alternation",
    "check_opening",
    "check_question",
    "check_system",
    "check_untouched",
    "check_waiting",
    "comparable",
    "shape",
]

_SYSTEM = ("system", "developer")


def align(
    given: Sequence[Any],
    result: Sequence[Any],
    codec: Codec,
    *,
    whole: Container[int],
    inserts: bool,
    edits: bool | str,
) -> list[int | None]:
    """Checks laws 5 and 6; returns the position in `given` that each message of the result comes from.

    An inserted message has None. Those whose `id` is among `whole` must be the same objects.
    """
    sources: list[int | None] = []
    after = 0
    where = {id(m): i for i, m in enumerate(given)}
    prints = [comparable(m, codec) for m in given]
    for number, message in enumerate(result):
        at = where.get(id(message))
        if at is None:
            at = _find(message, prints, after, given, codec, whole=whole, edits=edits)
        elif at < after:
            raise LawBroken(
                5, f"message {at} of the input is at {number}, out of order or twice: {shape(result, codec)}"
            )
        if at is None and not inserts:
            raise LawBroken(5, f"result message {number} was not given: {comparable(message, codec)!r:.200}")
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
    whole: Container[int],
    edits: bool | str,
) -> int | None:
    seen = comparable(message, codec)
    for at in range(after, len(given)):
        if prints[at] == seen and _may_be(message, given[at], codec):
            if id(given[at]) in whole:
                raise LawBroken(5, f"message {at} was kept whole but is another object")
            return at
    if edits is True or edits == codec.role(message):
        for at in range(after, len(given)):
            if _is_cut_of(message, given[at], codec):
                return at
    return None


def _may_be(message: Any, source: Any, codec: Codec) -> bool:
    """Returns whether the host's own ids, where it has them, allow that one comes from the other.

    Equal texts may occur twice; two ids are two messages.
    """
    ids = {codec.message_id(message), codec.message_id(source)} - {None}
    return len(ids) <= 1


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
    if not text or len(text) >= len(whole):
        return False
    parts, sources = texts_of(mine_content), texts_of(theirs_content)
    if len(parts) == len(sources):
        return all(map(is_made_of, parts, sources))
    return is_made_of(text, whole)


def _atoms(content: Any) -> list[Any]:
    """Returns all of a content but its texts."""
    return list(replace_text(content, [""] * len(texts_of(content)))) if isinstance(content, list) else []


def check_system(
    given: Sequence[Any],
    result: Sequence[Any],
    sources: Sequence[int | None],
    codec: Codec,
    *,
    drops_system: bool,
) -> None:
    """Checks law 3: system messages are there, unedited, and the leading ones first."""
    if drops_system:
        return
    system = [i for i, m in enumerate(given) if codec.role(m) in _SYSTEM and not says_nothing(m, codec)]
    lost = [i for i in system if i not in sources]
    if lost:
        raise LawBroken(
            3, f"system messages {lost} are gone: {shape(given, codec)} -> {shape(result, codec)}"
        )
    if any(comparable(result[sources.index(i)], codec) != comparable(given[i], codec) for i in system):
        raise LawBroken(3, "a system message was edited")
    leading = next((i for i, m in enumerate(given) if codec.role(m) not in _SYSTEM), len(given))
    first = [i for i in system if i < leading]
    if list(sources[: len(first)]) != first:
        raise LawBroken(3, f"leading system messages are not first: {shape(result, codec)}")


def check_opening(
    wanted: Sequence[Any], result: Sequence[Any], sources: Sequence[int | None], codec: Codec
) -> None:
    """Checks law 3: the conversation opens with the user or with an inserted message."""
    if not any(part(m, codec) == "user" for m in wanted):
        return
    for message, source in zip(result, sources, strict=True):
        role = part(message, codec)
        if role in _SYSTEM:
            continue
        if role != "user" and source is not None:
            raise LawBroken(3, f"the conversation opens with {role}: {shape(result, codec)}")
        return


def check_question(
    given: Sequence[Any],
    wanted: Sequence[Any],
    result: Sequence[Any],
    sources: Sequence[int | None],
    codec: Codec,
    question: str | None,
    *,
    may_cut: bool,
) -> None:
    """Checks law 4: the current question is there, and whole unless it may be cut."""
    if question is not None:
        last = next((m for m in reversed(result) if part(m, codec) == "user"), None)
        if last is None or question not in content_text(codec.to_dict(last).get("content")):
            raise LawBroken(4, f"the question is not the last user message: {shape(result, codec)}")
        return
    questions = [i for i, m in enumerate(given) if part(m, codec) == "user" and not says_nothing(m, codec)]
    asked = questions[-1] if questions else None
    if asked is None or not wanted:
        return
    if asked not in sources:
        raise LawBroken(4, f"the current question (message {asked}) is gone: {shape(result, codec)}")
    if not may_cut and comparable(result[sources.index(asked)], codec) != comparable(given[asked], codec):
        raise LawBroken(4, f"the current question (message {asked}) was cut, which nothing asked for")


def check_waiting(
    wanted: Sequence[Any],
    result: Sequence[Any],
    sources: Sequence[int | None],
    given: Sequence[Any],
    codec: Codec,
    *,
    ended: bool,
) -> None:
    """Checks that a call at the very end is there, with the results it has: they are not answered yet."""
    waiting = waiting_from(wanted, codec)
    owed = (
        wanted[waiting:] if waiting < len(wanted) else unanswered_results(wanted, codec) if not ended else []
    )
    for message in owed:
        if next(i for i, m in enumerate(given) if m is message) not in sources:
            raise LawBroken(2, f"the call at the end, or a result of it, is gone: {shape(result, codec)}")


def check_untouched(
    wanted: Sequence[Any], result: Sequence[Any], codec: Codec, *, whole: Container[int]
) -> None:
    """Checks law 7: what fits comes back as it was."""
    same = len(wanted) == len(result) and all(
        a is b if id(a) in whole else comparable(a, codec) == comparable(b, codec)
        for a, b in zip(wanted, result, strict=True)
    )
    if not same:
        raise LawBroken(
            7, f"all fits but did not come back untouched: {shape(wanted, codec)} -> {shape(result, codec)}"
        )


def check_alternation(result: Sequence[Any], codec: Codec) -> None:
    """Checks law 3 where a provider demands it: no two messages of one role in a row."""
    roles = [r for r in codec.roles(list(result)) if r not in _SYSTEM]
    for first, second in pairwise(roles):
        if first == second != "tool":
            raise LawBroken(3, f"two {first} messages in a row")


def comparable(message: Any, codec: Codec) -> object:
    """Returns what makes two messages equal: the neutral form without empty fields."""
    neutral = codec.to_dict(message)
    return {key: value for key, value in neutral.items() if value is not None}


def shape(messages: Iterable[Any], codec: Codec) -> str:
    """Writes a conversation as letters.

    S is system, D developer, U user, A assistant with its calls, T a result.
    """
    out = []
    for message in messages:
        role = codec.role(message)
        mark = {"system": "S", "developer": "D", "user": "U", "assistant": "A", "tool": "T"}[role]
        ids = codec.call_ids(message) if role == "assistant" else ()
        mark += f"({','.join(ids)})" if ids else ""
        out.append(mark + "".join(f"[{one}]" for one in answers(message, codec)))
    if len(out) > 24:  # noqa: PLR2004 - a line's worth
        out = [*out[:12], f"..{len(out) - 23}..", *out[-11:]]
    return " ".join(out) or "(nothing)"
