"""What engines make of messages and tools before a chat template renders them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from .blocks import block_text, blocks_of
from .protocol import Message, Tool

_WORD, _READ = re.compile(r"\w+"), 500
"""What of a message is looked for in a rendering, and in how many of its characters."""


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
    return {
        **tool,
        "function": {"name": function.get("name"), "description": None, "parameters": None, **function},
    }


def first_words(content: Any) -> list[str]:
    """Returns the words at the start of a content, which a rendering of it has."""
    texts = (
        [content] if isinstance(content, str) else [block_text(block) or "" for block in blocks_of(content)]
    )
    return _WORD.findall(" ".join(texts)[:_READ])[:-1]


def _parsed(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if isinstance(function, Mapping) and isinstance(function.get("arguments"), str):
        with suppress(ValueError):
            arguments = json.loads(function["arguments"] or "{}")
            return {**call, "function": {**function, "arguments": arguments}}
    return call
