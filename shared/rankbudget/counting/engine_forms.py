"""What engines make of messages and tools before a chat template renders them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from .blocks import ARGUMENTS, CALLS, THOUGHTS, is_result, kind_of
from .protocol import Message, Tool

_TEXTS = frozenset({"content", "text", "output", *ARGUMENTS})
"""Under which keys of a message a template must render every text; those of arguments have any keys."""
_CALLS = ("tool_calls", "function")


def in_chat_form(message: Message) -> Message:
    """Returns a Responses item, or a call or result of an older function, as the message templates read."""
    role, content = message.get("role"), message.get("content")
    if role == "function" or (role is None and is_result(kind_of(message))):
        answered, held = message.get("call_id") or message.get("name"), message.get("output") or content
        return {"role": "tool", "tool_call_id": answered, "content": [message] if held is None else held}
    item = content[0] if role == "assistant" and isinstance(content, list) and len(content) == 1 else message
    call = item if kind_of(item) in ("function_call", "custom_tool_call") else message.get("function_call")
    if not isinstance(call, Mapping):
        return message
    function = {"name": call.get("name"), "arguments": call.get("arguments", call.get("input"))}
    made = {"id": call.get("call_id") or call.get("name"), "type": "function", "function": function}
    return {"role": "assistant", "content": "" if call is item else content or "", "tool_calls": [made]}


def with_marks(held: Any, mark: Callable[[str], str], key: str = "") -> Any:
    """Returns a message, or what it has at a key, with marks for its texts and the functions it calls."""
    if isinstance(held, str):
        return mark(held) if key in _TEXTS and held.strip() else held
    if isinstance(held, (list, tuple)):
        return [with_marks(one, mark, key) for one in held]
    if not isinstance(held, Mapping) or (key and kind_of(held) in THOUGHTS):  # which templates leave out
        return held
    return {k: with_marks(one, mark, _read_as(k, held, key)) for k, one in held.items()}


def _read_as(key: str, held: Mapping[str, Any], outer: str) -> str:
    """Returns the key under which templates read what a message, a block or a call has at `key`."""
    if outer in ARGUMENTS:
        return outer
    if key == "content" and held.get("tool_calls"):
        return ""  # some templates show the calls alone
    kind = kind_of(held)
    is_named = key == "name" and (outer in _CALLS or kind in CALLS)
    return "text" if is_named or (key == "data" and kind == "text") else key


def with_objects(message: Message) -> Message:
    """Returns a message whose tool arguments are objects instead of JSON texts, where they are JSON."""
    calls = message.get("tool_calls")
    return {**message, "tool_calls": [*map(_parsed, calls)]} if isinstance(calls, (list, tuple)) else message


def in_blocks(messages: Sequence[Message]) -> list[Message]:
    """Returns messages as engines make them for templates that loop over blocks: null has none."""
    contents = [m.get("content") for m in messages]
    blocks = [[{"type": "text", "text": c}] if isinstance(c, str) else c or [] for c in contents]
    return [{**m, "content": made} for m, made in zip(messages, blocks, strict=True)]


def with_all_fields(tool: Tool) -> Tool:
    """Returns a tool with null for the fields that it lacks, as engines write it that have read it."""
    function = tool.get("function")
    if not isinstance(function, Mapping) or {"description", "parameters"} <= function.keys():
        return tool
    made = {"name": function.get("name"), "description": None, "parameters": None, **function}
    return {**tool, "function": made}


def _parsed(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if isinstance(function, Mapping) and isinstance(function.get("arguments"), str):
        with suppress(ValueError):
            return {**call, "function": {**function, "arguments": json.loads(function["arguments"] or "{}")}}
    return call
