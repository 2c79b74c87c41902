"""Reads how large an image is from what a message carries, without opening or fetching anything.

A block may say its size; otherwise the first bytes of an embedded PNG, JPEG, GIF or WebP do.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Mapping
from typing import Any

__all__ = ["embedded_bytes", "image_size"]

Size = tuple[int, int]

_DATA_URL = re.compile(r"^data:[\w.+/-]*(?:;[\w=-]+)*;base64,", re.IGNORECASE)
_PLACES = ("image_url", "source", "inlineData", "inline_data", "input_audio", "file", "metadata", "extras")
_FRAMES = {bytes([marker]) for marker in range(0xC0, 0xD0)} - {
    b"\xc4",
    b"\xc8",
    b"\xcc",
}  # the segments of a JPEG that say its size
_HEAD = 262_144  # a JPEG may carry a preview before it says its size


def image_size(block: Mapping[str, Any]) -> Size | None:
    """Returns the width and height of an image block in pixels, None when nothing in it tells.

    Example:
        >>> image_size({"type": "image", "width": 800, "height": 600, "url": "https://example.org/a.png"})
        (800, 600)
    """
    for part in (block, *(block[place] for place in _PLACES if isinstance(block.get(place), Mapping))):
        width, height = part.get("width"), part.get("height")
        if _whole(width) and _whole(height):
            return int(width), int(height)
    head = embedded_bytes(block, most=_HEAD)
    return None if head is None else _size_of(head)


def embedded_bytes(block: Mapping[str, Any], *, most: int) -> bytes | None:
    """Returns the first bytes of the data a block embeds as base64, None when it only refers to them."""
    for part in (block, *(block[place] for place in _PLACES if isinstance(block.get(place), Mapping))):
        for key in ("url", "image_url", "data", "base64", "file_data"):
            found = part.get(key)
            if not isinstance(found, str):
                continue
            data_url = _DATA_URL.match(found[:200])
            if data_url is None and key in {"url", "image_url"}:
                continue
            start = data_url.end() if data_url else 0
            raw = found[start : start + -(-most // 3) * 4]
            try:
                return base64.b64decode(raw[: len(raw) // 4 * 4], validate=False)[:most]
            except (binascii.Error, ValueError):
                return None
        data = part.get("data")
        if isinstance(data, (bytes, bytearray)):
            return bytes(data[:most])
    return None


def _size_of(head: bytes) -> Size | None:
    try:
        if head.startswith(b"\x89PNG\r\n\x1a\n"):
            return _positive(struct.unpack(">II", head[16:24]))
        if head[:6] in {b"GIF87a", b"GIF89a"}:
            return _positive(struct.unpack("<HH", head[6:10]))
        if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
            return _webp(head)
        if head.startswith(b"\xff\xd8"):
            return _jpeg(head)
    except (struct.error, IndexError):
        return None
    return None


def _jpeg(head: bytes) -> Size | None:
    place = 2
    while place + 9 < len(head) and head[place : place + 1] == b"\xff":
        marker = head[place + 1 : place + 2]
        if marker == b"\xff":  # padding
            place += 1
        elif marker in _FRAMES:
            height, width = struct.unpack(">HH", head[place + 5 : place + 9])
            return _positive((width, height))
        else:
            place += 2 + struct.unpack(">H", head[place + 2 : place + 4])[0]
    return None


def _webp(head: bytes) -> Size | None:
    kind = head[12:16]
    if kind == b"VP8 ":
        width, height = struct.unpack("<HH", head[26:30])
        return _positive((width & 0x3FFF, height & 0x3FFF))
    if kind == b"VP8L":
        bits = struct.unpack("<I", head[21:25])[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X":
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    return None


def _positive(size: tuple[Any, ...]) -> Size | None:
    width, height = size
    return (width, height) if width > 0 and height > 0 else None


def _whole(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 1
