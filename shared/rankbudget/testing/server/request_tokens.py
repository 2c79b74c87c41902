"""How the server counts.

The whole request is rendered to one string, with framing tokens of its own, and tokenized in one call.
Nothing of the product's counting is used, so that two mistakes must agree before one goes unseen.
"""

from __future__ import annotations

import base64
import importlib.util
import math
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import tiktoken

__all__ = ["request_tokens", "text_tokens"]

_START, _SEP, _END, _CUT = (f"<|strict-{name}-6f1c|>" for name in ("start", "sep", "end", "cut"))
"""Framing tokens of the server's own, which no text of a user spells by accident.

A cut keeps two texts apart and costs nothing.
"""


def request_tokens(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    *,
    encoding: str = "o200k_base",
) -> int:
    """Returns the tokens of a chat request, reply priming included.

    Example:
        >>> request_tokens([{"role": "user", "content": "hi"}])  # start, role, sep, "hi", end; 3 to prime
        8
    """
    rendered = (
        "".join(piece for message in messages for piece in _message(message)) + _START + "assistant" + _SEP
    )
    framed = _framed(encoding)
    found = framed.encode(rendered, allowed_special={_START, _SEP, _END, _CUT}, disallowed_special=())
    blocks = [block for m in messages if isinstance(m.get("content"), list) for block in m["content"]]
    media = sum(_media(block) for block in blocks if isinstance(block, Mapping))
    return len(found) - found.count(framed.encode_single_token(_CUT)) + media + _tools(tools or (), encoding)


def text_tokens(text: str, encoding: str = "o200k_base") -> int:
    """Returns the tokens of a text."""
    return len(_framed(encoding).encode(text, allowed_special=set(), disallowed_special=()))


def _message(message: Mapping[str, Any]) -> Iterator[str]:
    yield _START + str(message.get("role"))
    if message.get("name"):
        yield _SEP + str(message["name"])
    if message.get("tool_call_id"):
        yield _CUT + str(message["tool_call_id"])
    yield _SEP
    content = message.get("content")
    for block in content if isinstance(content, list) else [content or ""]:
        yield (block if isinstance(block, str) else str(block.get("text") or "")) + _CUT
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        yield _SEP + str(function.get("name")) + _SEP + str(function.get("arguments")) + _SEP
    yield _END


def _media(block: Mapping[str, Any]) -> int:
    """Counts media as gpt-4o reads it: pictures in tiles of 512, sound by the second, files flat.

    Where the size is unknown, it is the largest possible count.
    """
    kind = block.get("type")
    if kind == "image_url":
        image = block.get("image_url") or {}
        if image.get("detail") == "low":
            return 85
        data = _decoded(str(image.get("url", "")).partition("base64,")[2])
        return 85 + 170 * (
            _tiles(*struct.unpack(">II", data[16:24])) if data[1:4] == b"PNG" and data[24:] else 8
        )
    if kind == "input_audio":
        data = _decoded(str((block.get("input_audio") or {}).get("data", "")))
        rate = struct.unpack("<I", data[28:32])[0] if data[:4] == b"RIFF" and data[32:] else 4000
        rate = min(max(rate, 4000), 384_000)
        return -(-10 * len(data) // rate) if data else 600
    return 3000 if kind == "file" else 0


def _tiles(width: int, height: int) -> int:
    scale = min(1.0, 2048 / max(width, height))
    scale *= min(1.0, 768 / (min(width, height) * scale))
    return math.ceil(width * scale / 512) * math.ceil(height * scale / 512)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except ValueError:
        return b""


def _tools(tools: Sequence[Mapping[str, Any]], encoding: str) -> int:
    """Counts schemas as public measurements of OpenAI's function namespace do.

    A function costs 7 to open, 3 for its properties and 3 for each of them; the namespace costs 12 to close.
    """
    total = 0
    for tool in tools:
        function = tool.get("function") or {}
        total += 7 + text_tokens(
            f"{function.get('name', '')}:{str(function.get('description') or '').removesuffix('.')}", encoding
        )
        properties = (function.get("parameters") or {}).get("properties") or {}
        if properties:
            total += 3
        for name, field in properties.items():
            total += 3
            if "enum" in field:
                total += -3 + sum(3 + text_tokens(str(item), encoding) for item in field["enum"])
            total += text_tokens(
                f"{name}:{field.get('type', '')}:{str(field.get('description') or '').removesuffix('.')}",
                encoding,
            )
    return total + (12 if tools else 0)


@cache
def _framed(encoding: str) -> tiktoken.Encoding:
    plain = _load(encoding)
    last = plain.max_token_value
    return tiktoken.Encoding(
        name=f"{encoding}-framed",
        pat_str=plain._pat_str,  # noqa: SLF001 - the documented way to extend an encoding reads these
        mergeable_ranks=plain._mergeable_ranks,  # noqa: SLF001
        special_tokens={name: last + 1 + i for i, name in enumerate((_START, _SEP, _END, _CUT))},
    )


def _load(encoding: str) -> tiktoken.Encoding:
    """Loads a vocabulary; without a cache or a network, from the files another installed package ships."""
    spec = importlib.util.find_spec("llama_index")
    bundled = [
        Path(root, "core", "_static", "tiktoken_cache")
        for root in (spec.submodule_search_locations if spec else None) or ()
    ]
    found = next((str(folder) for folder in bundled if folder.is_dir()), None)
    if "TIKTOKEN_CACHE_DIR" in os.environ or found is None:
        return tiktoken.get_encoding(encoding)
    os.environ["TIKTOKEN_CACHE_DIR"] = found
    try:
        return tiktoken.get_encoding(encoding)
    finally:
        del os.environ["TIKTOKEN_CACHE_DIR"]
