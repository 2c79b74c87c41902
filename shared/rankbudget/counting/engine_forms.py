"""What engines make of messages and tools before a chat template renders them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from .blocks import block_text, blocks_of, is_result, kind_of
from .protocol import Message, Tool

_WORD, _READ = re.compile(r"\w+"), 500
"""What of a message is looked for in a rendering, and in how many of its characters."""


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


def with_marks(message: Message, mark: str) -> Message:
    """Returns a message whose calls name a function that no text has, to be looked for in a rendering."""
    calls = [call for call in blocks_of(message.get("tool_calls")) if kind_of(call) == "function"]
    made = [{**call, "function": {**call["function"], "name": mark}} for call in calls]
    return {**message, "tool_calls": made} if made else message


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


def first_words(content: Any) -> list[str]:
    """Returns the words at the start of a content, which a rendering of it has."""
    texts = [block_text(block) or "" for block in blocks_of(content)]
    return _WORD.findall(" ".join(texts)[:_READ])[:-1]


def _parsed(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if isinstance(function, Mapping) and isinstance(function.get("arguments"), str):
        with suppress(ValueError):
            return {**call, "function": {**function, "arguments": json.loads(function["arguments"] or "{}")}}
    return call
