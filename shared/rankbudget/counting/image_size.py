"""Reads how large an image is from what a message carries, without opening or fetching anything.

The first bytes of an embedded PNG, JPEG, GIF or WebP say its size; a block that only refers to an image may.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Mapping
from typing import Any

__all__ = ["embedded_bytes", "image_size", "media_type"]

Size = tuple[int, int]

_DATA_URL = re.compile(r"^data:([^,;]{0,100})(?:;[^,]{0,99})?;base64,", re.IGNORECASE)
_PLACES = ("image_url", "source", "inlineData", "inline_data", "input_audio", "file", "metadata", "extras")
_DATA = ("url", "image_url", "data", "base64", "file_data", "result")
_TYPES = ("media_type", "mime_type", "mimeType", "mimetype")
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # the segments of a JPEG that hold its size
_PADDING = 0xFF
_HEAD = 262_144  # a JPEG may carry a preview before it says its size


def image_size(block: Mapping[str, Any]) -> Size | None:
    """Returns the width and height of an image block in pixels, None when they are unknown."""
    head = embedded_bytes(block, most=_HEAD)
    if head:
        try:
            size = _size_of(head)
        except (struct.error, IndexError):
            size = None
        return size if size and min(size) > 0 else None
    for part in _parts(block):
        width, height = part.get("width"), part.get("height")
        if isinstance(width, (int, float)) and isinstance(height, (int, float)) and min(width, height) >= 1:
            return int(width), int(height)
    return None


def embedded_bytes(block: Mapping[str, Any], *, most: int) -> bytes | None:
    """Returns the first bytes of the data a block embeds as base64, None when it only refers to them."""
    for part in _parts(block):
        for key in _DATA:
            found = part.get(key)
            if isinstance(found, (bytes, bytearray)):
                return bytes(found[:most])
            if not isinstance(found, str):
                continue
            data_url = _DATA_URL.match(found[:400])
            if data_url is None and key in {"url", "image_url"}:
                continue
            start = data_url.end() if data_url else 0
            raw = found[start : start + -(-most // 3) * 4]
            try:
                return base64.b64decode(raw[: len(raw) // 4 * 4], validate=False)[:most]
            except (binascii.Error, ValueError):
                return None
    return None


def media_type(block: Mapping[str, Any]) -> str:
    """Returns the media type that a block says its data has, "" where it says none."""
    for part in _parts(block):
        for key in _TYPES:
            if isinstance(part.get(key), str):
                return str(part[key])
        for key in _DATA:
            found = part.get(key)
            data_url = _DATA_URL.match(found[:400]) if isinstance(found, str) else None
            if data_url is not None:
                return data_url.group(1)
    return ""


def _parts(block: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [block, *(block[place] for place in _PLACES if isinstance(block.get(place), Mapping))]


def _size_of(head: bytes) -> Size | None:
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        width, height = struct.unpack(">II", head[16:24])
        return width, height
    if head[:6] in {b"GIF87a", b"GIF89a"}:
        width, height = struct.unpack("<HH", head[6:10])
        return width, height
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return _webp(head)
    return _jpeg(head) if head.startswith(b"\xff\xd8") else None


def _jpeg(head: bytes) -> Size | None:
    place = 2
    while place + 9 < len(head) and head[place] == _PADDING:
        marker = head[place + 1]
        if marker == _PADDING:
            place += 1
        elif marker in _FRAMES:
            height, width = struct.unpack(">HH", head[place + 5 : place + 9])
            return width, height
        else:
            place += 2 + struct.unpack(">H", head[place + 2 : place + 4])[0]
    return None


def _webp(head: bytes) -> Size | None:
    kind = head[12:16]
    if kind == b"VP8 ":
        width, height = struct.unpack("<HH", head[26:30])
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L":
        bits = struct.unpack("<I", head[21:25])[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X":
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    return None
