"""Rows whose calls and results are among content blocks, as hosts read them that keep these beside."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from ..counting.blocks import (
    ANSWERED_BY,
    CALLS,
    arguments_of,
    as_block,
    blocks_of,
    call_reference,
    has_no_id,
    is_result,
    kind_of,
    results_in,
    without_answered,
)
from ..messages.call_ids import with_clear_ids
from ..messages.codec import DictCodec, says_nothing
from ..messages.texts import result_content
from . import sqlalchemy_later as sa
from .history_tables import keys
from .plain import digest_of_text, read, written

_CALLS = CALLS - {"server_tool_use", "server_tool_call", "mcp_tool_use"}
"""Blocks that the application answers; what a provider's own tool did stays in its answer."""
_MAY_HOLD = re.compile(f'"(?:{"|".join(sorted(_CALLS))}|tool_result|function(?:Call|Response|_response))"')
_TOLD_BESIDE = ("type", "name", "status", "is_error", "id", *ANSWERED_BY)
_NOTE, _SEVERAL = "blocks", 0
"""The key under which a thread notes the host that wrote such rows; those of calls are longer."""
_CODEC = DictCodec()


def note_blocks(connection: sa.Connection, thread: int, rows: Iterable[tuple[str, str]]) -> None:
    """Notes who wrote rows, each given as its form and neutral text, that others read as other messages."""
    for form in {form for form, neutral in rows if _MAY_HOLD.search(neutral)}:
        noted = _noted(connection, thread)
        _note(connection, thread, _number(form) if noted in (None, _number(form)) else _SEVERAL)


def has_blocks(connection: sa.Connection, thread: int, form: str) -> bool:
    """Returns whether other hosts than `form` wrote calls or results in blocks."""
    return _noted(connection, thread) not in (None, _number(form))


def forget_blocks(connection: sa.Connection, thread: int, form: str) -> None:
    """Notes that the host `form` has written anew what others wrote in blocks."""
    _note(connection, thread, _number(form) if _noted(connection, thread) == _SEVERAL else None)


def _noted(connection: sa.Connection, thread: int) -> int | None:
    table = keys()
    mine = (table.c.thread == thread) & (table.c.key == _NOTE)
    return connection.execute(table.select().with_only_columns(table.c.sent).where(mine)).scalar()


def _note(connection: sa.Connection, thread: int, host: int | None) -> None:
    table = keys()
    connection.execute(table.delete().where((table.c.thread == thread) & (table.c.key == _NOTE)))
    if host is not None:
        connection.execute(table.insert(), {"thread": thread, "key": _NOTE, "sent": host})


def _number(form: str) -> int:
    return 1 + int(digest_of_text(form)[:7], 16)


def seen_by(form: str, rows: Sequence[Any]) -> Sequence[Any]:
    """Returns rows as the host `form` reads them: calls beside the content, each result a row of its own.

    What one answer asks for is in one row, as its results follow it. The same rows come back where nothing is
    in blocks.
    """
    if not any(row.form != form and _MAY_HOLD.search(row.neutral) for row in rows):
        return rows
    answers: list[list[tuple[Any, dict[str, Any]]]] = []
    before = None
    for row in rows:
        neutral = {**read(row.neutral), "role": row.role}
        goes_on = before is not None and row.form == before.form != form and row.role == "assistant"
        if goes_on and _is_item(before):
            answers[-1].append((row, _messages(neutral)[0]))
        else:
            answers += [[(row, part)] for part in ([neutral] if row.form == form else _messages(neutral))]
        before = row
    made = [message for answer in answers for message in _joined(answer)]
    clear = with_clear_ids(_CODEC, [neutral for _, neutral in made])
    shown, found = Counter[int](), list[Any]()
    for place, ((row, _), neutral) in enumerate(zip(made, clear, strict=True)):
        fields = {**row._mapping, "place": place}  # noqa: SLF001 - SQLAlchemy's own name
        text = written(neutral)
        if row.form != form:
            fields |= {"role": neutral["role"], "neutral": text, "host": None, "digest": digest_of_text(text)}
        if more := shown[row.seq]:  # the others of a row, which has one id
            fields |= {"name": None, "seq": f"{row.seq}.{more}"}
        shown[row.seq] += 1
        found.append(SimpleNamespace(**fields))
    return found


def _is_item(row: Any) -> bool:
    """Returns whether a row is an item of OpenAI's Responses API, whose answer goes on in the next one.

    Chat messages are answers of their own: one whose call has no result must not take the next with it.
    """
    return row.role == "assistant" and bool(row.host) and read(row.neutral)["content"] == [read(row.host)]


def _joined(items: list[tuple[Any, dict[str, Any]]]) -> list[tuple[Any, dict[str, Any]]]:
    """Returns the items of an answer that calls tools as one message, those of others as they are."""
    parts = [part for _, part in items]
    calls = [call for part in parts for call in part.get("tool_calls") or ()]
    if len(items) == 1 or not calls:
        return items
    content = [block for part in parts for block in blocks_of(part.get("content"))]
    return [(items[0][0], {**parts[0], **parts[-1], "content": content, "tool_calls": calls})]


def _messages(neutral: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns what a message says as messages: with its calls beside it, or its results before it."""
    listed = [(as_block(block), block) for block in blocks_of(neutral.get("content"))]
    if neutral["role"] == "assistant":
        return [_with_calls(neutral, listed)]
    results = [_result(held) for held, _ in listed if is_result(kind_of(held))]
    if not results:
        return [neutral]
    rest = [block for held, block in listed if not is_result(kind_of(held))]
    beside = {**neutral, "role": "user", "content": rest}
    return results if says_nothing(beside) else [*results, beside]


def _with_calls(neutral: dict[str, Any], listed: Sequence[tuple[Any, Any]]) -> dict[str, Any]:
    """Returns an answer with the calls in its blocks beside it, each once."""
    beside, found = list(neutral.get("tool_calls") or ()), [held for held, _ in listed if _is_call(held)]
    if isinstance(older := neutral.get("function_call"), Mapping):
        neutral = {key: value for key, value in neutral.items() if key != "function_call"}
        beside = beside or [{"type": "function", "function": older}]
    more = without_answered(list(map(call_reference, found)), list(map(call_reference, beside)))
    for block in found:
        if (reference := call_reference(block)) in more:
            more.remove(reference)
            beside.append(_call(block, reference))
    if found:
        neutral = {**neutral, "content": [block for held, block in listed if not _is_call(held)] or None}
    return {**neutral, "tool_calls": beside} if beside else neutral


def _is_call(block: Any) -> bool:
    return kind_of(block) in _CALLS


def _call(block: Mapping[str, Any], reference: str) -> dict[str, Any]:
    given = arguments_of(block)
    given = _own_fields(block) if given is None else given
    kind, field = ("custom", "input") if kind_of(block) == "custom_tool_call" else ("function", "arguments")
    asked = {"name": block.get("name") or kind_of(block), field: given}
    return {**({} if has_no_id(reference) else {"id": reference}), "type": kind, kind: asked}


def _result(block: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the message of one result."""
    [answered] = results_in([block])
    told = {"name": block["name"]} if block.get("name") else {}
    named = {} if has_no_id(answered) else {"tool_call_id": answered}
    held = result_content(block)
    if held is None:
        held = _own_fields(block) or ""
    if isinstance(held, (list, tuple)):
        held = [part if isinstance(part, (str, Mapping)) else written(part) for part in held]
    elif not isinstance(held, str):
        held = written(held)
    return {"role": "tool", **told, **named, "content": held}


def _own_fields(block: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a block of a kind of its own says."""
    return {key: value for key, value in block.items() if key not in _TOLD_BESIDE}
