"""What a message costs in OpenAI's chat format: its published formula, and calls as estimators have them.

message  = 3 + role + content [+ 1 + name] [+ tool_call_id] [+ 3 + name + arguments for each tool call]
request  = 3 + schemas of its tools + its messages
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .blocks import (
    CALLS,
    CONTENTS,
    TEXTS,
    THOUGHTS,
    arguments_of,
    as_block,
    blocks_of,
    function_of,
    is_result,
    kind_of,
)
from .media import MediaTable, inline_content

Count = Callable[[str], int]

PER_MESSAGE = 3  # tokens around every message
PER_NAME = 1  # tokens a name costs besides its own
PER_CALL = 3  # tokens around the name and the arguments of a tool call
REPLY = 3  # tokens that prime the reply, once per request

_COUNTED_AS_TEXT = frozenset(
    {
        "role", "name", "tool_call_id", "tool_name", "tool_calls", "refusal",
        "thinking", "reasoning", "reasoning_content", "reasoning_details",
    }
)  # fmt: skip
_CALL_WITH_ARGUMENTS = CALLS - {
    "computer_call", "apply_patch_call", "shell_call", "local_shell_call", "mcp_approval_request",
}  # fmt: skip
_NAMING = frozenset({"id", "call_id", "type", "name", "index", "status", "function"})
_THOUGHT_TEXTS = ("thinking", "reasoning", "refusal", "summary", "text")
_SIGNED_CHARACTERS = 4  # of an encrypted thought for each of its tokens
_MAX_DEPTH = 8  # blocks in tool results in blocks: deeper ones count as JSON


def message_tokens(message: Any, count: Count, media: MediaTable, *, start: int = PER_MESSAGE) -> int:
    """Returns what one message adds to a request, `start` of it around it; never raises on odd content."""
    if not isinstance(message, Mapping):
        message = as_block(message)
    if not isinstance(message, Mapping):
        return start + count(as_text(message))
    if message.get("role") is None and kind_of(message):  # an item of OpenAI's Responses API
        return start + _block_tokens(message, count, media, 0)
    fields = [(key, value) for key, value in message.items() if value is not None]
    return start + sum([_field_tokens(key, value, count, media) for key, value in fields])


def _field_tokens(key: str, value: Any, count: Count, media: MediaTable) -> int:
    """Returns the tokens of one field of a message; 0 for what is not sent, or not shown to a model."""
    if key in CONTENTS:
        return content_tokens(value, count, media)
    if key == "tool_calls" and isinstance(value, (list, tuple)):
        return sum([_call_tokens(as_block(call), count) for call in value])
    if key in _COUNTED_AS_TEXT:
        return (PER_NAME if key == "name" else 0) + count(as_text(value))
    if key == "function_call":
        return _call_tokens(value, count)
    if key == "images":  # as Ollama takes them: base64, or a path
        return content_tokens([_image(image) for image in blocks_of(value)], count, media)
    if key == "audio" and isinstance(value, Mapping):
        return content_tokens({**value, "type": "audio"}, count, media)
    return 0


def content_tokens(content: Any, count: Count, media: MediaTable, depth: int = 0) -> int:
    """Returns the tokens of a content: None, a text, a list of blocks, or anything else as its text."""
    return sum([_block_tokens(as_block(block), count, media, depth) for block in blocks_of(content)])


def as_text(value: Any, separators: tuple[str, str] | None = None) -> str:
    """Returns a value as the JSON a request would carry, or its own text where it has none."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, separators=separators, default=str)
    except Exception:  # noqa: BLE001 - keys that JSON does not allow, cycles, a __str__ that raises
        try:
            return repr(value)
        except Exception:  # noqa: BLE001 - a __repr__ that raises
            return type(value).__name__


def _call_tokens(call: Any, count: Count) -> int:
    """Returns the tokens of one tool call; the model does not see its id."""
    if not isinstance(call, Mapping):
        return PER_CALL + count(as_text(call))
    function = function_of(call)
    given = arguments_of(function)
    if given is None:  # whatever else it holds may be sent
        given = {key: held for key, held in function.items() if key not in _NAMING and held is not None} or ""
    return PER_CALL + count(as_text(function.get("name") or "")) + count(as_text(given))


def _first(block: Mapping[str, Any], *keys: str) -> Any:
    """Returns the first value that is not None, "" when there is none."""
    return next((block[key] for key in keys if block.get(key) is not None), "")


def _image(image: Any) -> dict[str, Any]:
    value = image.get("value") if isinstance(image, Mapping) else getattr(image, "value", image)
    return {"type": "image", "base64": value}


def _block_tokens(block: Any, count: Count, media: MediaTable, depth: int) -> int:
    if block is None:
        return 0
    kind = kind_of(block)
    if depth > _MAX_DEPTH or not kind:
        return count(as_text(block))
    if kind in TEXTS:
        return count(as_text(block.get("text") or ""))
    if kind in _CALL_WITH_ARGUMENTS:
        return _call_tokens(block, count)
    if is_result(kind):
        held = next((block[key] for key in ("content", "output", "response") if key in block), as_text(block))
        named = count(as_text(_first(block, "tool_use_id", "name")))
        return PER_CALL + named + content_tokens(held, count, media, depth + 1)
    if kind in THOUGHTS or kind == "refusal":
        return PER_CALL + _thought_tokens(block, count, media, depth)
    inline = inline_content(block)
    if inline is not None:
        about = [as_text(block[key]) for key in ("title", "context") if block.get(key)]
        return content_tokens([*about, *blocks_of(inline)], count, media, depth + 1)
    cost = media.tokens(block)
    return count(as_text(block)) if cost is None else cost


def _thought_tokens(block: Mapping[str, Any], count: Count, media: MediaTable, depth: int) -> int:
    """Returns the tokens of thinking: of its text, or, where it is encrypted, what its length says."""
    texts: Sequence[Any] = [block.get(key) for key in _THOUGHT_TEXTS]
    written = sum([content_tokens(text, count, media, depth + 1) for text in texts])
    sealed = _first(block, "encrypted_content", "data")
    reported = block.get("tokens")
    if isinstance(reported, int):
        return max(written, reported)
    return written + (-(-len(sealed) // _SIGNED_CHARACTERS) if isinstance(sealed, str) else 0)
