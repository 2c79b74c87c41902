"""What images, audio, files and videos cost.

An image whose size is known costs what its provider publishes; an image of unknown size costs the most an
image can, so that a prompt is never larger than counted. Audio, files and videos cost what the table says.

    formula  tokens of an image
    tiles    base + per_tile for each 512 x 512, within 2048 x 2048, shorter side 768; base for detail "low"
    patches  patches of 32 x 32, at most 1,536, times a factor
    pixels   width x height / 750, longer side at most 1568, at most 1,600
    squares  258 up to 384 x 384, else 258 for each 768 x 768
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .image_size import embedded_bytes, image_size
from .models import plain_name

__all__ = ["MediaTable", "media_for"]

_IMAGES = frozenset({"image_url", "input_image", "image", "image_file"})
_AUDIO = frozenset({"input_audio", "audio", "audio_url"})
_FILES = frozenset({"file", "document", "input_file", "file_url", "container_upload"})
_VIDEOS = frozenset({"video", "video_url", "input_video"})
_MOST_PATCHES = 1_536
_ONE_SQUARE = 384
_AUDIO_BYTES_PER_SECOND = 4_000  # dense speech, 32 kbit/s: other formats have fewer seconds in as many bytes
_WAV_RATE_END = 32
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
        file: tokens of a file that only its provider opens, as of a PDF of two pages.
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
    video: int = 18_000

    def tokens(self, block: Mapping[str, Any]) -> int | None:
        """Returns the tokens of a media block, None for a block of another kind."""
        kind = block.get("type")
        if not isinstance(kind, str):
            return None
        if kind in _IMAGES:
            return self._image(block)
        if kind in _AUDIO:
            data = embedded_bytes(block, most=64_000_000) or b""
            seconds = len(data) / _bytes_per_second(data)
            return math.ceil(seconds * self.audio_per_second) if seconds else self.audio
        if kind in _FILES:
            return self._file(block)
        return self.video if kind in _VIDEOS else None

    def _image(self, block: Mapping[str, Any]) -> int:
        if self.formula == "tiles" and _detail(block) == "low":
            return self.base
        size = None if self.formula == "fixed" else image_size(block)
        if size is None and self.image is not None:
            return self.image
        if self.formula == "patches":
            return math.ceil((_MOST_PATCHES if size is None else _patches(*size)) * self.factor)
        if self.formula == "pixels":
            return 1_600 if size is None else _pixels(*size)
        if self.formula == "squares":
            return 258 * (4 if size is None else _squares(*size))
        return self.base + self.per_tile * (8 if size is None else _tiles(*size))

    def _file(self, block: Mapping[str, Any]) -> int:
        source = block.get("source")
        text = source.get("data") if isinstance(source, Mapping) and source.get("type") == "text" else None
        if isinstance(text, str):  # rather too many tokens for plain text
            return math.ceil(len(text.encode("utf-8", "surrogatepass")) / 2)
        return self.file


_BY_NAME = {
    "gpt-4o-mini": MediaTable(base=2_833, per_tile=5_667),
    "gpt-4.1-mini": MediaTable(formula="patches", factor=1.62),
    "gpt-4.1-nano": MediaTable(formula="patches", factor=2.46),
    "gpt-5": MediaTable(base=70, per_tile=140),
    "gpt-5-mini": MediaTable(formula="patches", factor=1.62),
    "gpt-5-nano": MediaTable(formula="patches", factor=2.46),
    "o1": MediaTable(base=75, per_tile=150),
    "o3": MediaTable(base=75, per_tile=150),
    "o4-mini": MediaTable(formula="patches", factor=1.72),
    "claude": MediaTable(formula="pixels"),
    "gemini": MediaTable(formula="squares", audio_per_second=32.0, audio=1_920),
}


def media_for(model: str) -> MediaTable:
    """Returns the table of a model's provider; unknown models are counted as gpt-4o."""
    plain = plain_name(model)
    found = [part for part in _BY_NAME if part in plain]
    return _BY_NAME[max(found, key=len)] if found else MediaTable()


def _tiles(width: float, height: float) -> int:
    shrink = min(1.0, 2_048 / max(width, height))
    width, height = width * shrink, height * shrink
    shrink = min(1.0, 768 / min(width, height))
    return max(1, math.ceil(round(width * shrink, 6) / 512) * math.ceil(round(height * shrink, 6) / 512))


def _patches(width: float, height: float) -> int:
    """Returns the patches of an image; a larger one is scaled down until they are at most 1,536."""
    patches = math.ceil(width / 32) * math.ceil(height / 32)
    if patches <= _MOST_PATCHES:
        return patches
    shrink = math.sqrt(32 * 32 * _MOST_PATCHES / (width * height))
    wide, high = width * shrink / 32, height * shrink / 32
    shrink *= min(max(1, math.floor(wide)) / wide, max(1, math.floor(high)) / high)
    scaled = math.ceil(round(width * shrink / 32, 6)) * math.ceil(round(height * shrink / 32, 6))
    return min(_MOST_PATCHES, scaled)


def _pixels(width: float, height: float) -> int:
    shrink = min(1.0, 1_568 / max(width, height))
    return min(1_600, math.ceil(width * shrink * height * shrink / 750))


def _squares(width: float, height: float) -> int:
    if max(width, height) <= _ONE_SQUARE:
        return 1
    return math.ceil(width / 768) * math.ceil(height / 768)


def _detail(block: Mapping[str, Any]) -> Any:
    inner = block.get("image_url")
    return (inner.get("detail") if isinstance(inner, Mapping) else None) or block.get("detail")


def _bytes_per_second(data: bytes) -> int:
    """Returns how many bytes a second of audio has: what a WAV header says, within bounds."""
    if data[:4] != b"RIFF" or len(data) < _WAV_RATE_END:
        return _AUDIO_BYTES_PER_SECOND
    said = int.from_bytes(data[_WAV_RATE_END - 4 : _WAV_RATE_END], "little")
    return min(max(said, _AUDIO_BYTES_PER_SECOND), _MOST_BYTES_PER_SECOND)
