"""Reads one row: texts, nested values or JSON, into the blocks of a prompt."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from typing import Any, Literal

from ..counting.blocks import ROLES
from ..errors import RowError, shown
from ..messages.codec import PINNED_ROLES, DictCodec, says_nothing
from ..messages.texts import content_text
from ..segment import Block, Scope, Segment
from .tables import in_python, in_utf8

USUAL_INPUTS = ("system", "history", "documents", "question", "tools")
"""What is read from columns of the same name, where there are such columns."""
INPUTS = (*USUAL_INPUTS, "memory", "examples", "project", "task")
"""What a column can be."""

_BLOCKS = {"system": "system", "history": "history", "documents": "knowledge", "memory": "memory"} | {
    name: name for name in ("examples", "project", "task")
}
_TEXTS = ("system", "question", "project", "task")
"""Inputs whose text is the text itself; a text in any other is JSON."""
_AS_TEXT = (date, time, Decimal)
_TEXT_KEYS = ("text", "content", "page_content")
_OF_MESSAGES = ("content",)
_KEPT_NULLS = dict.fromkeys((*_TEXTS, "history"), _OF_MESSAGES) | {"tools": None}
"""Fields that may be null in inputs that are no documents; tools are sent and counted as they are."""
_PAYLOADS = frozenset({"arguments", "input", "args", "response", "citations"})
"""Fields in which null is a value: what a tool takes and gives; Anthropic requires each key of a citation.

A search of Anthropic's gives `page_age` as null in its content; contents of other results are blocks.
"""
_ROLES_OF_HOSTS = frozenset({"human", "ai", "chatbot", "model"})
"""Words for the user and the assistant that providers refuse; "model" is Gemini's in messages of `parts`."""
_Source = Literal["table", "line", "text"]
"""Where nested values come from: Arrow or pandas, a line of JSON, or the text of a cell that is JSON."""
_FIELDS = ("id", "title", "score", "label", "kind", "priority")


@dataclass(frozen=True, slots=True)
class PromptParts:
    """What a row asks for, as `Assembler.assemble` takes it."""

    blocks: dict[str, Any]
    question: Any = None
    tools: list[Any] | None = None


class Line(dict[str, Any]):
    """Values of a line of JSON: a table may have added nulls to the keys of messages, to nothing else."""


def read_row(row: Mapping[str, Any]) -> PromptParts:
    """Returns the parts of the prompt in a row.

    Args:
        row: values by input ("history", "documents", ...).

    Raises:
        RowError: a value is not JSON or not of the type its input has.
    """
    texts = {name: _decoded(name, in_python(value)) for name, value in row.items()}
    given = {name: value for name, value in texts.items() if not _is_missing(name, value)}
    source: _Source = "line" if isinstance(row, Line) else "table"
    parts = {name: _read(name, value, source) for name, value in given.items()}
    tools, question = parts.pop("tools", None), parts.pop("question", None)
    blocks = {_BLOCKS[name]: value for name, value in parts.items() if value}
    history = blocks.get("history") or ()
    answers = isinstance(question, Mapping) and history and not asks(question)  # results of a call
    if (answers or not question) and not any(map(asks, history)):
        msg = "a row must have a question or a history with a user message (got neither)."
        raise RowError(msg)
    return PromptParts(blocks, question, tools or None)


def read_history(value: Any) -> list[Any]:
    """Returns the messages of a history as `read_row` reads it; raises RowError where it cannot."""
    value = _decoded("history", in_python(value))
    return [] if _is_missing("history", value) else _read("history", value, "table")


def plain(value: Any, keep: Collection[str] | None = _OF_MESSAGES, *, source: _Source = "table") -> Any:
    """Returns nested values as lists and dicts, without the nulls of struct fields that a row does not have.

    Arrow gives every message of a column the fields of all of them. What is in `keep` may be null, with None
    all fields; deeper nulls go. Of a text, in payloads, and in a line below the keys of its messages, only
    empty cells of pandas go; elsewhere these are null. Dates and decimal numbers become texts.
    """
    if isinstance(value, Mapping):
        return _plain_fields(value, keep, source)
    if isinstance(value, list):
        return [plain(inner, keep, source=source) for inner in value]
    if _is_null(value):
        return None
    if isinstance(value, bytes):
        return value.decode()
    return str(value) if isinstance(value, _AS_TEXT) else value


def _plain_fields(value: Mapping[Any, Any], keep: Collection[str] | None, source: _Source) -> dict[Any, Any]:
    if value.get("role") is None and source == "line":
        source = "text"
    elif keep == _OF_MESSAGES and (value.get("parts") or (value.get("role") is None and "type" in value)):
        keep = ()  # Gemini's, an item of OpenAI's Responses API, or a block: "content" is another one's field
    payloads = {*_PAYLOADS, "content"} if value.get("type") == "web_search_tool_result" else _PAYLOADS
    made: dict[Any, Any] = {}
    for key, inner in value.items():
        within: _Source = "text" if source != "table" or key in payloads else "table"
        one = plain(inner, keep and (), source=within)
        if one is not None or _is_null_there(key, inner, keep, source):
            made[key] = one
    return made


def _is_null_there(key: Any, given: Any, keep: Collection[str] | None, source: _Source) -> bool:
    return keep is None or key in keep or (given is None and source == "text")


def _decoded(name: str, value: Any) -> Any:
    """Returns a cell of Parquet's type BINARY as the text that it holds, any other as it is."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        return value
    try:
        return bytes(value).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"{name} must be UTF-8 text (got {error}). Convert the column."
        raise RowError(msg) from error


def _is_missing(name: str, value: Any) -> bool:
    if isinstance(value, str):
        if name == "question":  # one of blanks is an error: another text would be asked instead
            return not value
        return _is_blank(value) or value.strip() == "null"
    return _is_null(value)


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _is_null(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)  # an empty cell of pandas and numpy
    return value is None or type(value).__name__ in {"NAType", "NaTType"}


def _read(name: str, value: Any, source: _Source) -> Any:
    text = str(value) if isinstance(value, str) else ""
    if text:
        value, source = _messages_in(name, text) if name in _TEXTS else parsed(name, text), "text"
        if isinstance(value, str) or (name == "question" and not _has_role(value, {"user"})):
            return text
    if not text or "NaN" in text:  # JSON has none: Python wrote records of pandas
        value = plain(value, _KEPT_NULLS.get(name, _TEXT_KEYS), source=source)
    if name == "question":
        return _message(name, _checked(name, value, _has_role(value, {"user"}), "a text or a user message"))
    if name in (*_TEXTS, "history") and isinstance(value, Mapping):
        value = [value]
    _checked(name, value, isinstance(value, list), "a list, or a text that is a JSON list")
    if name in {"history", "tools"}:
        return _objects(name, value)
    if name in _TEXTS:
        return _texts(name, value)
    segments = [_segment(name, i, one) for i, one in enumerate(value) if not _is_empty(one)]
    return Block(name=_BLOCKS[name], segments=segments)


def _objects(name: str, given: list[Any]) -> list[Any]:
    kind = "messages" if name == "history" else "tool schemas"
    _checked(name, given, all(isinstance(one, Mapping) for one in given), f"a list of {kind}")
    return [_message(name, one) for one in given] if name == "history" else given


def _texts(name: str, given: list[Any]) -> list[Any]:
    """Returns a list of texts; of "system", those beside system messages become messages, too."""
    given = [content_text(one["parts"]) if _is_instruction(one) else one for one in given]
    given = [one for one in given if not _is_blank(one)]
    if given and all(_is_block(one) for one in given):
        given = [{"role": "system", "content": given}]
    fine = all(isinstance(one, str) or _has_role(one, PINNED_ROLES) for one in given)
    _checked(name, given, fine, "texts or system messages")
    if all(isinstance(one, str) for one in given):
        return given
    made = [{"role": "system", "content": one} if isinstance(one, str) else one for one in given]
    made = [_message(name, one) for one in made if not says_nothing(DictCodec().to_dict(one))]
    is_system = name == "system"  # the other blocks have texts
    return made if is_system else [content_text(DictCodec().to_dict(one).get("content")) for one in made]


def _messages_in(name: str, text: str) -> Any:
    """Returns the message, or the list of texts or messages, that a text is the JSON of; else the text."""
    try:
        value = json.loads(text) if text.lstrip()[:1] in ("[", "{") else text
    except (ValueError, RecursionError):
        return text
    value = [one for one in value if one is not None] if isinstance(value, list) else value
    listed = value if isinstance(value, list) else [value]
    fine = all(isinstance(one, str) or (isinstance(one, Mapping) and "role" in one) for one in listed)
    fine = fine or (name != "question" and all(_is_block(one) or _is_instruction(one) for one in listed))
    return value if fine and (listed or name != "question") else text


def _has_role(value: Any, roles: Collection[str]) -> bool:
    return isinstance(value, Mapping) and ROLES.get(str(value.get("role"))) in roles


def _is_block(value: Any) -> bool:
    """Returns whether a value is a content block with a text, as in a system prompt of Anthropic."""
    return isinstance(value, Mapping) and "role" not in value and isinstance(value.get("text"), str)


def _is_instruction(value: Any) -> bool:
    """Returns whether a value is a system instruction of Gemini's: parts that are texts."""
    parts = value.get("parts") if isinstance(value, Mapping) and value.get("role") is None else None
    return isinstance(parts, list) and bool(parts) and all(map(_is_block, parts))


def names_of(history: Iterable[Any]) -> list[str]:
    """Returns how outputs name the messages of a history, whose own ids are texts."""
    own = DictCodec().message_id
    return [own(message) or f"history-{i}" for i, message in enumerate(history)]


def asks(message: Mapping[str, Any]) -> bool:
    """Returns whether a message is a question of the user's, neither empty nor results of calls."""
    codec = DictCodec()
    is_users = codec.role(message) == "user" and not codec.answers(message)
    return is_users and not says_nothing(codec.to_dict(message))


def parsed(name: str, text: str) -> Any:
    """Returns what a text is the JSON of."""
    try:
        value = json.loads(text)
        return json.loads(value) if isinstance(value, str) else value  # some exports encode a list twice
    except (ValueError, RecursionError) as error:
        rule, why = "JSON", "a text, no list" if text.lstrip().startswith('"') else error
        if name in ("documents", "memory", "examples") and text.lstrip()[0] not in '[{"':
            rule, why = "a list of texts or of objects", "a text, no list"
        msg = f"{name} must be {rule} (got {shown(text)}: {why}). Give a JSON list or nested values."
        raise RowError(msg) from error


def _message(name: str, message: Any) -> Any:
    """Returns a message as providers take it: a role of theirs, its id a text, no `scope`, no empty calls.

    One that not all may see is refused.
    """
    scope = _scope_of(name, message) or Scope()
    _checked(name, scope, scope.visible_to(None), "messages without a scope, as a batch has no reader")
    role, given, other = message.get("role"), message.get("id"), dict[str, Any]()
    in_parts = message.get("parts") is not None
    if isinstance(role, str) and role in _ROLES_OF_HOSTS and not (role == "model" and in_parts):
        other["role"] = "model" if in_parts and ROLES[role] == "assistant" else ROLES[role]
    if isinstance(given, (int, float)):
        other["id"] = str(_whole(name, given))
    # OpenAI answers 400 to an empty list of calls, and templates to null.
    empty = {"scope", *(() if message.get("tool_calls") else ("tool_calls",))} & message.keys()
    if not other and not empty:
        return message
    return {key: other.get(key, value) for key, value in message.items() if key not in empty}


def _scope_of(name: str, item: Mapping[str, Any]) -> Scope | None:
    given = item.get("scope") or {}
    _checked(name, given, isinstance(given, Mapping), "objects whose scope has a user or a project")
    return Scope(**given) if given else None


def _checked(name: str, value: Any, is_right: object, rule: str) -> Any:
    if not is_right:
        msg = f"{name} must be {rule} (got {shown(value)})."
        raise RowError(msg)
    return value


def _is_empty(item: Any) -> bool:
    """Returns whether a document is null, or its text is null or has only blanks."""
    texts = [item[key] for key in _TEXT_KEYS if key in item] if isinstance(item, Mapping) else [item]
    return bool(texts) and all(map(_is_blank, texts))


def _segment(name: str, position: int, item: Any) -> Segment:
    if isinstance(item, str):
        return Segment(id=f"{name}-{position}", text=item)
    fields = item if isinstance(item, Mapping) else {}
    text = next((fields[key] for key in _TEXT_KEYS if not _is_blank(fields.get(key))), None)
    _checked(name, item, isinstance(text, str), "texts, or objects with a 'text'")
    known = {key: fields[key] for key in _FIELDS if fields.get(key) is not None}
    for key in known.keys() & {"id", "priority", "title", "label"}:
        known[key] = _whole(name, known[key])
        if key in ("title", "label") and isinstance(known[key], (int, float)):
            known[key] = str(known[key])
    if "score" in known:
        known["score"] = _number(name, known["score"])
    given = known.pop("id", f"{name}-{position}")
    return Segment(id=in_utf8(str(given)), text=text or "", scope=_scope_of(name, fields), **known)


def _number(name: str, value: Any) -> float:
    """Returns a number as a float; the decimals of a database are texts here."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    _checked(name, value, not math.isnan(number), "objects whose score is a number")
    return number


def _whole(name: str, value: Any) -> Any:
    """Returns a whole number as an int: pandas makes floats of a column of ids in which one is missing."""
    if not isinstance(value, float) or not value.is_integer():
        return value
    is_exact = abs(value) < 2**53
    _checked(name, value, is_exact, "objects with exact ids; write such large numbers as texts")
    return int(value)
