"""Reads how large an image is from what a message carries, without opening or fetching anything.

The first bytes of an embedded PNG, JPEG, GIF or WebP say its size; a block that only refers to an image may.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["embedded_bytes", "image_size", "media_type"]

Size = tuple[int, int]

_DATA_URL = re.compile(r"^data:([^,;]{0,100})(?:;[^,]{0,99})?;base64,", re.IGNORECASE)
_BASE64 = re.compile(r"[\w+/=\s-]*\Z", re.ASCII)
_PLACES = ("image_url", "source", "inlineData", "inline_data", "input_audio", "file", "metadata", "extras")
_DATA = ("url", "image_url", "data", "base64", "file_data", "result")
_TYPES = ("media_type", "mime_type", "mimeType", "mimetype")
_HEAD = 262_144  # a JPEG may carry a preview before it says its size
_SIZES: tuple[tuple[bytes, int, int, Any, int, int, int], ...] = (
    (rb"\x89PNG\r\n\x1a\n", 16, 8, "big", 32, 0xFFFFFFFF, 0),
    (rb"GIF8[79]a", 6, 4, "little", 16, 0xFFFF, 0),
    (rb"RIFF.{4}WEBPVP8 ", 26, 4, "little", 16, 0x3FFF, 0),
    (rb"RIFF.{4}WEBPVP8L", 21, 4, "little", 14, 0x3FFF, 1),
    (rb"RIFF.{4}WEBPVP8X", 24, 6, "little", 24, 0xFFFFFF, 1),
)
"""A format's start; place, length and byte order of its size; shift and mask of a side; what to add."""
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # the segments of a JPEG that hold its size
_PADDING = 0xFF


def image_size(block: Mapping[str, Any]) -> Size | None:
    """Returns the width and height of an image block in pixels, None when they are unknown."""
    head = embedded_bytes(block, most=_HEAD)
    if head:
        size = _jpeg_size(head) if head.startswith(b"\xff\xd8") else _size(head)
        return size if size and min(size) > 0 else None
    for part in _parts(block):
        width, height = part.get("width"), part.get("height")
        if isinstance(width, (int, float)) and isinstance(height, (int, float)) and min(width, height) >= 1:
            return int(width), int(height)
    return None


def embedded_bytes(block: Mapping[str, Any], *, most: int) -> bytes | None:
    """Returns the first bytes of the data a block embeds as base64, None when it only refers to them."""
    for key, found in ((key, part.get(key)) for part in _parts(block) for key in _DATA):
        if isinstance(found, (bytes, bytearray)):
            return bytes(found[:most])
        data_url = _data_url(found)
        is_plain = isinstance(found, str) and key not in {"url", "image_url"} and _BASE64.match(found[:200])
        if not data_url and not is_plain:
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
        said = [part[key] for key in _TYPES if isinstance(part.get(key), str)]
        said += [url[1] for key in _DATA if (url := _data_url(part.get(key)))]
        if said:
            return str(said[0])
    return ""


def _parts(block: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [block, *(block[place] for place in _PLACES if isinstance(block.get(place), Mapping))]


def _data_url(value: Any) -> re.Match[str] | None:
    return _DATA_URL.match(value[:400]) if isinstance(value, str) else None


def _size(head: bytes) -> Size | None:
    for start, at, length, order, shift, mask, more in _SIZES:
        if len(head) >= at + length and re.match(start, head, re.DOTALL):
            both = int.from_bytes(head[at : at + length], order)
            low, high = (both & mask) + more, (both >> shift & mask) + more
            return (high, low) if order == "big" else (low, high)
    return None


def _jpeg_size(head: bytes) -> Size | None:
    place = 2
    while place + 9 < len(head) and head[place] == _PADDING:
        marker = head[place + 1]
        if marker in _FRAMES:
            high, wide = head[place + 5 : place + 7], head[place + 7 : place + 9]
            return int.from_bytes(wide, "big"), int.from_bytes(high, "big")
        padded = marker == _PADDING
        place += 1 if padded else 2 + int.from_bytes(head[place + 2 : place + 4], "big")
    return None
