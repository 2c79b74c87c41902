"""What images, audio, files and videos cost, without opening or fetching anything.

formula  tokens of an image; one of unknown size costs the most an image can
tiles    base + per_tile for each 512 x 512, within 2048 x 2048, shorter side 768; base for detail "low"
patches  patches of 32 x 32, at most 1,536, times a factor
pixels   width x height / 750, longer side at most 1568, at most 1,600
squares  258 up to 384 x 384, else 258 for each square of two thirds of the shorter side (256 to 768)
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .media_forms import ADDRESSES, DATA, data_url, media_kind, media_parts
from .models import plain_name

Size = tuple[int, int]

_BASE64 = re.compile(r"[\w+/=\s-]*\Z", re.ASCII)
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

_PAGE = re.compile(rb"/Type\s*/Page\b(?!s)")
_PAGES = re.compile(rb"/Count\s+(\d{1,5})\b")
_BYTES_PER_PAGE = 30_000  # where a PDF does not say how many pages it has
_MOST_BYTES = 64_000_000
_MOST_PATCHES = 1_536
_MOST_SQUARES = 36
_MOST_TILES = 8
_MOST_PIXEL_TOKENS = 1_600
_ONE_SQUARE = 384
_AUDIO_BYTES_PER_SECOND = 4_000  # dense speech, 32 kbit/s: other formats have fewer seconds in as many bytes
_MOST_BYTES_PER_SECOND = 384_000  # 96 kHz, stereo, 16 bit: a WAV header that says more is not believed


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaTable:
    """Says what each kind of media costs, in tokens.

    Args:
        formula: how images are counted; "fixed" takes `image` for every image.
        base: tokens of an image before its tiles.
        per_tile: tokens of each tile.
        factor: tokens of each patch.
        image: tokens of an image of unknown size; None takes the most the formula can give.
        audio_per_second: tokens of a second of audio.
        audio: tokens of audio of unknown length.
        file: tokens of a file that is only referred to, and the least of an embedded one.
        page: tokens of a page of a PDF.
        video: tokens of a video, as of one minute.

    Example:
        >>> table = MediaTable()  # gpt-4o
        >>> table.tokens({"type": "image", "width": 1024, "height": 1024})  # 768 x 768: 4 tiles, 85 + 4 x 170
        765
        >>> table.tokens({"type": "text", "text": "no media"}) is None
        True
    """

    formula: Literal["tiles", "patches", "pixels", "squares", "fixed"] = "tiles"
    base: int = 85
    per_tile: int = 170
    factor: float = 1.0
    image: int | None = None
    audio_per_second: float = 10.0
    audio: int = 600
    file: int = 3_000
    page: int = 1_500
    video: int = 18_000

    def tokens(self, block: Mapping[str, Any]) -> int | None:
        """Returns the tokens of a media block, None for a block of another kind."""
        kind = media_kind(block)
        if kind == "image":
            return self._image(block)
        if kind == "audio":
            data = _embedded_bytes(block, most=_MOST_BYTES) or b""
            seconds = len(data) / _bytes_per_second(data)
            return math.ceil(seconds * self.audio_per_second) if seconds else self.audio
        if kind == "file":
            return self._file(block)
        return self.video if kind == "video" else None

    def _image(self, block: Mapping[str, Any]) -> int:
        inner = block.get("image_url")
        detail = (inner.get("detail") if isinstance(inner, Mapping) else None) or block.get("detail")
        if self.formula == "tiles" and detail == "low":
            return self.base
        size = None if self.formula == "fixed" else image_size(block)
        if size is None and self.image is not None:
            return self.image
        most, each, base = {
            "patches": (_MOST_PATCHES, self.factor, 0),
            "pixels": (_MOST_PIXEL_TOKENS, 1, 0),
            "squares": (_MOST_SQUARES, 258, 0),
        }.get(self.formula, (_MOST_TILES, self.per_tile, self.base))
        return base + math.ceil((most if size is None else _units(self.formula, *size)) * each)

    def _file(self, block: Mapping[str, Any]) -> int:
        inline = inline_content(block)
        if isinstance(inline, str):  # rather too many tokens for plain text
            return math.ceil(len(inline.encode("utf-8", "surrogatepass")) / 2)
        data = _embedded_bytes(block, most=_MOST_BYTES) or b""
        pages = len(_PAGE.findall(data)) or max(map(int, _PAGES.findall(data)), default=0)
        if pages:
            return pages * self.page
        return max(self.file, math.ceil(len(data) / _BYTES_PER_PAGE) * self.page)


def inline_content(block: Mapping[str, Any]) -> Any:
    """Returns the text or the content blocks that a file carries, None where its provider must open it."""
    if media_kind(block) != "file":
        return None
    source = block.get("source")
    if not isinstance(source, Mapping):
        source = block
    found = source.get("content")
    if isinstance(found, (str, list, tuple)):
        return found
    if source.get("type") == "text" and isinstance(source.get("data"), str):
        return source["data"]
    if isinstance(source.get("text"), str):
        return source["text"]
    data = _embedded_bytes(block, most=_MOST_BYTES)
    if not data or data.startswith(b"%PDF") or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


_TABLES = {
    "gpt-5 mini": MediaTable(formula="patches", factor=1.62),
    "gpt-5 nano": MediaTable(formula="patches", factor=2.46),
    "gpt-4.1-mini": MediaTable(formula="patches", factor=1.62),
    "gpt-4.1-nano": MediaTable(formula="patches", factor=2.46),
    "gpt-4o-mini": MediaTable(base=2_833, per_tile=5_667),
    "o4-mini": MediaTable(formula="patches", factor=1.72),
    "claude": MediaTable(formula="pixels", page=3_000),
    "gemini": MediaTable(formula="squares", audio_per_second=32.0, audio=1_920, page=258),
    "gpt-5": MediaTable(base=70, per_tile=140),
    "o1": MediaTable(base=75, per_tile=150),
    "o3": MediaTable(base=75, per_tile=150),
}
"""By the words in a model's name; the first match is taken."""


def media_for(model: str) -> MediaTable:
    """Returns the table of a model's provider; unknown models are counted as gpt-4o."""
    plain = plain_name(model)
    found = (table for words, table in _TABLES.items() if all(word in plain for word in words.split()))
    return next(found, MediaTable())


def _units(formula: str, width: float, height: float) -> int:
    """Returns how many tokens of pixels, squares, patches or tiles an image has."""
    longer, shorter = max(width, height), min(width, height)
    if formula == "pixels":
        shrink = min(1.0, 1_568 / longer)
        return min(_MOST_PIXEL_TOKENS, math.ceil(width * shrink * height * shrink / 750))
    if formula == "squares":
        side = longer if longer <= _ONE_SQUARE else min(max(math.floor(shorter / 1.5), 256), 768)
        return min(_MOST_SQUARES, math.ceil(width / side) * math.ceil(height / side))
    if formula == "patches":
        patches = math.ceil(width / 32) * math.ceil(height / 32)
        if patches <= _MOST_PATCHES:
            return patches
        shrink = math.sqrt(32 * 32 * _MOST_PATCHES / (width * height))
        wide, high = width * shrink / 32, height * shrink / 32
        shrink = min(max(1, math.floor(wide)) / wide, max(1, math.floor(high)) / high)
        return min(_MOST_PATCHES, math.ceil(round(wide * shrink, 6)) * math.ceil(round(high * shrink, 6)))
    shrink = min(1.0, 2_048 / longer)
    shrink *= min(1.0, 768 / (shorter * shrink))
    wide, high = round(width * shrink, 6), round(height * shrink, 6)
    return max(1, math.ceil(wide / 512) * math.ceil(high / 512))


def _bytes_per_second(data: bytes) -> int:
    """Returns how many bytes a second of audio has: what a WAV header says, where it agrees with itself."""
    parts = (data[22:24], data[24:28], data[28:32])
    channels, samples, said = [int.from_bytes(part, "little") for part in parts]
    if data[:4] != b"RIFF" or said > channels * samples * 4:
        return _AUDIO_BYTES_PER_SECOND
    return min(max(said, _AUDIO_BYTES_PER_SECOND), _MOST_BYTES_PER_SECOND)


def image_size(block: Mapping[str, Any]) -> Size | None:
    """Returns the width and height of an image block in pixels, None when they are unknown."""
    head = _embedded_bytes(block, most=_HEAD)
    if head:
        size = _jpeg_size(head) if head.startswith(b"\xff\xd8") else _size(head)
        return size if size and min(size) > 0 else None
    for part in media_parts(block):
        width, height = part.get("width"), part.get("height")
        if isinstance(width, (int, float)) and isinstance(height, (int, float)) and min(width, height) >= 1:
            return int(width), int(height)
    return None


def _embedded_bytes(block: Mapping[str, Any], *, most: int) -> bytes | None:
    """Returns the first bytes of the data a block embeds as base64, None when it only refers to them."""
    found: Any
    for key, found in ((key, part.get(key)) for part in media_parts(block) for key in (*DATA, *ADDRESSES)):
        if isinstance(found, (bytes, bytearray)):
            return bytes(found[:most])
        inline = data_url(found)
        is_plain = isinstance(found, str) and key not in ADDRESSES and _BASE64.match(found[:200])
        if not inline and not is_plain:
            continue
        start = inline.end() if inline else 0
        raw = found[start : start + -(-most // 3) * 4]
        try:
            return base64.b64decode(raw[: len(raw) // 4 * 4], validate=False)[:most]
        except (binascii.Error, ValueError):
            return None
    return None


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
