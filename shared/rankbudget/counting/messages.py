"""What a message costs in OpenAI's chat format: framing, role, content, and whatever else it carries.

    message  = 3 + role + content [+ 1 + name] [+ tool_call_id] [+ 3 + name + arguments for each tool call]
    request  = 3 + schemas of its tools + its messages

The first line is OpenAI's published formula; the framing of a tool call is the one public estimators agree
on. Parts are counted one by one, so message counts add up. Content blocks cost their text, or what `media.py`
says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from .media import MediaTable

__all__ = [
    "PER_CALL",
    "PER_MESSAGE",
    "PER_NAME",
    "REPLY",
    "as_text",
    "content_tokens",
    "function_of",
    "message_tokens",
]

Count = Callable[[str], int]

PER_MESSAGE = 3
"""Tokens around every message."""
PER_NAME = 1
"""Tokens a name costs besides its own."""
PER_CALL = 3
"""Tokens around the name and the arguments of a tool call."""
REPLY = 3
"""Tokens that prime the reply, once per request."""

_TEXTS = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text", "thinking_text"})
_CALLS = frozenset({"tool_use", "tool_call", "function_call"})
_RESULTS = frozenset({"tool_result", "function_call_output"})
_THOUGHTS = ("thinking", "reasoning", "refusal")
_COUNTED_AS_TEXT = frozenset({"role", "tool_call_id", "reasoning_content", "reasoning", "refusal"})
_MAX_DEPTH = 8  # blocks in tool results in blocks: deeper ones count as JSON


def message_tokens(message: Any, count: Count, media: MediaTable) -> int:
    """Returns what one message adds to a request; never raises on odd content.

    Example:
        >>> words = lambda text: len(text.split())
        >>> message_tokens({"role": "user", "content": "two words"}, words, MediaTable())  # 3 + 1 + 2
        6
        >>> call = {"id": "c1", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
        >>> message = {"role": "assistant", "content": None, "tool_calls": [call]}
        >>> message_tokens(message, words, MediaTable())  # 3 + 1 + 0, then 3 + 1 + 2 for the call
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
        elif key in _COUNTED_AS_TEXT:
            total += count(as_text(value))
        elif key == "name":
            total += PER_NAME + count(as_text(value))
        elif key == "tool_calls" and isinstance(value, (list, tuple)):
            total += sum(_call_tokens(call, count) for call in value)
        elif key == "tool_calls":
            total += count(as_text(value))
        elif key == "function_call":
            total += _call_tokens(value, count)
    return total


def content_tokens(content: Any, count: Count, media: MediaTable, depth: int = 0) -> int:
    """Returns the tokens of a content: None, a text, a list of blocks, or anything else as its text."""
    if isinstance(content, (list, tuple)):
        return sum(_block_tokens(block, count, media, depth) for block in content)
    return _block_tokens(content, count, media, depth)


def as_text(value: Any) -> str:
    """Returns a value as the JSON a request would carry, or its own text where it has none."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except Exception:  # noqa: BLE001 - keys that JSON does not allow, cycles, a __str__ that raises
        try:
            return repr(value)
        except Exception:  # noqa: BLE001 - a __repr__ that raises
            return type(value).__name__


def function_of(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the function inside an OpenAI-style tool or call, or what is given where there is none."""
    function = call.get("function")
    return function if isinstance(function, Mapping) else call


def _call_tokens(call: Any, count: Count) -> int:
    """Returns the tokens of one tool call; the model does not see its id."""
    if not isinstance(call, Mapping):
        return PER_CALL + count(as_text(call))
    function = function_of(call)
    arguments = _first(function, "arguments", "args", "input")
    return PER_CALL + count(as_text(function.get("name") or "")) + count(as_text(arguments))


def _first(block: Mapping[str, Any], *keys: str) -> Any:
    """Returns the first value that is not None, "" when there is none."""
    return next((block[key] for key in keys if block.get(key) is not None), "")


def _block_tokens(block: Any, count: Count, media: MediaTable, depth: int) -> int:
    if block is None:
        return 0
    kind = block.get("type") if isinstance(block, Mapping) else ()
    if depth > _MAX_DEPTH or not (kind is None or isinstance(kind, str)):
        return count(as_text(block))
    if kind in _TEXTS or (kind is None and isinstance(block.get("text"), str)):
        return count(as_text(block.get("text") or ""))
    if kind in _CALLS:
        return _call_tokens(block, count)
    if kind in _RESULTS:
        inner = content_tokens(_first(block, "content", "output"), count, media, depth + 1)
        return PER_CALL + count(as_text(block.get("tool_use_id") or "")) + inner
    if kind in _THOUGHTS:
        texts = [block.get(key) for key in (*_THOUGHTS, "summary", "text")]
        return PER_CALL + sum(content_tokens(text, count, media, depth + 1) for text in texts)
    cost = media.tokens(block)
    return count(as_text(block)) if cost is None else cost
