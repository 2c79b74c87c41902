"""What a message costs in OpenAI's chat format: a framing, its role, its content, and whatever else it carries.

    message  = 3 + role + content [+ 1 + name] [+ tool_call_id] [+ 3 + name + arguments for each tool call]
    request  = 3 + schemas of its tools + its messages

The first line is OpenAI's published formula; the framing of a tool call is the one public estimators agree on. Parts are counted one by one,
so message counts add up by construction. Content blocks cost their text, or what `media.py` says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from .media import MediaTable

__all__ = ["PER_CALL", "PER_MESSAGE", "PER_NAME", "REPLY", "as_text", "content_tokens", "message_tokens"]

Count = Callable[[str], int]

PER_MESSAGE = 3
"""Tokens around every message."""
PER_NAME = 1
"""Tokens a name costs besides its own."""
PER_CALL = 3
"""Tokens around the name and the arguments of a tool call."""
REPLY = 3
"""Tokens that prime the reply, once per request."""

_TEXT_BLOCKS = frozenset(
    {"text", "input_text", "output_text", "summary_text", "reasoning_text", "thinking_text"}
)
_MAX_DEPTH = 8  # blocks in tool results in blocks: deeper is counted as JSON


def message_tokens(message: Any, count: Count, media: MediaTable) -> int:
    """Returns what one message adds to a request; never raises on odd content.

    Example:
        >>> words = lambda text: len(text.split())
        >>> message_tokens({"role": "user", "content": "two words"}, words, MediaTable())  # 3 framing, 1 role, 2 content
        6
        >>> call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
        >>> message_tokens({"role": "assistant", "content": None, "tool_calls": [call]}, words, MediaTable())  # 3 + 1 + 0 + 3 + 1 + 2
        10
    """
    if not isinstance(message, Mapping):
        return PER_MESSAGE + count(as_text(message))
    total = PER_MESSAGE
    for key, value in message.items():
        if value is None:
            continue
        if key == "content":
            total += content_tokens(value, count, media)
        elif key == "role":
            total += count(value if isinstance(value, str) else as_text(value))
        elif key == "name":
            total += PER_NAME + count(value if isinstance(value, str) else as_text(value))
        elif key in ("tool_call_id", "reasoning_content", "reasoning", "refusal"):
            total += count(value if isinstance(value, str) else as_text(value))
        elif key == "tool_calls":
            total += (
                sum(_call_tokens(call, count) for call in value)
                if isinstance(value, (list, tuple))
                else count(as_text(value))
            )
        elif key == "function_call":
            total += _call_tokens(value, count)
    return total


def content_tokens(content: Any, count: Count, media: MediaTable, depth: int = 0) -> int:
    """Returns the tokens of a message's content: None, a text, a list of blocks, or anything else as its text."""
    if content is None:
        return 0
    if isinstance(content, str):
        return count(content)
    if isinstance(content, Mapping):
        return _block_tokens(content, count, media, depth)
    if isinstance(content, (list, tuple)):
        return sum(_block_tokens(block, count, media, depth) for block in content)
    return count(as_text(content))


def as_text(value: Any) -> str:
    """Returns a value as the JSON a request would carry, or its own text where it has none."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except Exception:  # noqa: BLE001 - keys no JSON has, cycles, a __str__ that raises: a host's object may do anything
        try:
            return repr(value)
        except Exception:  # noqa: BLE001 - the same
            return type(value).__name__


def _call_tokens(call: Any, count: Count) -> int:
    """Returns the tokens of one tool call; its id is for pairing and not shown to the model."""
    if not isinstance(call, Mapping):
        return PER_CALL + count(as_text(call))
    function = call.get("function")
    function = function if isinstance(function, Mapping) else call
    arguments = next(
        (function[key] for key in ("arguments", "args", "input") if function.get(key) is not None), ""
    )
    return PER_CALL + count(as_text(function.get("name") or "")) + count(as_text(arguments))


def _block_tokens(block: Any, count: Count, media: MediaTable, depth: int) -> int:
    if block is None:
        return 0
    if isinstance(block, str):
        return count(block)
    if not isinstance(block, Mapping) or depth > _MAX_DEPTH:
        return count(as_text(block))
    kind = block.get("type")
    if kind is not None and not isinstance(kind, str):
        return count(as_text(block))
    if kind in _TEXT_BLOCKS or (kind is None and isinstance(block.get("text"), str)):
        return count(as_text(block.get("text") or ""))
    if kind in ("tool_use", "tool_call", "function_call"):
        return _call_tokens(block, count)
    if kind in ("tool_result", "function_call_output"):
        inner = next((block[key] for key in ("content", "output") if block.get(key) is not None), None)
        return (
            PER_CALL
            + count(as_text(block.get("tool_use_id") or ""))
            + content_tokens(inner, count, media, depth + 1)
        )
    if kind in ("thinking", "reasoning", "refusal"):
        texts = [
            block[key] for key in ("thinking", "reasoning", "refusal", "summary", "text") if block.get(key)
        ]
        return PER_CALL + sum(content_tokens(text, count, media, depth + 1) for text in texts)
    cost = media.tokens(block)
    if cost is not None:
        return cost
    return count(as_text(block))
