"""Which media a content block holds, and where each provider and host keeps its data, address and type."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import unquote_to_bytes

from .blocks import as_block

PDF = "application/pdf"
"""The one type that every provider takes as a file."""
ADDRESSES = ("url", "image_url", "video_url", "audio_url", "file_url", "file_uri", "fileUri")
DATA = ("data", "base64", "file_data", "result", "image", "audio", "video")
_TYPES = ("media_type", "mime_type", "mimeType", "mimetype")
_NAMES = ("filename", "title", "name")
_PLACES = (
    "image_url", "video_url", "audio_url", "file_url", "image", "audio", "video", "source", "inlineData",
    "inline_data", "input_audio", "file", "metadata", "extras",
)  # fmt: skip
_KINDS = {
    "image": "image_url input_image image image_file computer_screenshot image_generation_call",
    "audio": "input_audio audio audio_url",
    "file": "file document input_file file_url container_upload text-plain",
    "video": "video video_url input_video",
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names.split()}
_USUAL = {"image": "image/png", "audio": "audio/mp3", "video": "video/mp4"}
_SAME_TYPE = {
    "audio/mpeg": "audio/mp3",  # OpenAI's format is the second word
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "image/jpg": "image/jpeg",
    "application/x-pdf": PDF,
    "application/octet-stream": "",
}
_DATA_URL = re.compile(r"^data:([^,;]{0,100})(?:;[^,]{0,99})?,", re.IGNORECASE)
_BARE = re.compile(r"[A-Za-z0-9+/]{64,}={0,2}")
"""Data where an address is expected, as Ollama's clients take it."""
_BASE64_URL = re.compile(r"^data:([^,;]{0,100})(?:;[^,]{0,99})?;base64,", re.IGNORECASE)
_PDF_START = "JVBERi0"  # "%PDF-" in base64
_TYPE_OF_NAME = cache(mimetypes.MimeTypes)  # without this machine's own list
_MARKS = (b"\xff\xfe", b"\xfe\xff")  # begin a text in UTF-16


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """An image, sound, film or file in a message, whoever wrote it; "" is what its block does not say.

    Args:
        kind: "image", "audio", "video" or "file".
        mime: its media type.
        data: its bytes, as base64.
        url: its address.
        file_id: its name at the provider that has it.
        name: its file's name or title.
        detail: how closely OpenAI looks at an image.
        text: what a file says that is given as text; None for bytes.
    """

    kind: str
    mime: str = ""
    data: str = ""
    url: str = ""
    file_id: str = ""
    name: str = ""
    detail: str = ""
    text: str | None = None

    def source(self) -> dict[str, str]:
        """Returns where the media are, under the name that LangChain's standard block has for it."""
        places = ("base64", self.data), ("url", self.url), ("file_id", self.file_id)
        return dict([place for place in places if place[1]][:1])

    def address(self) -> str:
        """Returns an address that holds the data, or else that of another place."""
        return f"data:{self.mime};base64,{self.data}" if self.data else self.url

    def written_text(self) -> str | None:
        """Returns what a file says, with its name and type; None where it is no text.

        Providers differ in which types of text they take as a file; all of them take a text.
        """
        said = self.text if self.text is not None else self._decoded()
        return None if said is None else f"{self.told(self.mime or 'text/plain')}\n{said}"

    def told(self, note: str = "") -> str:
        """Returns a text in the place of media that cannot be sent: a `note`, or else where they are."""
        kind = "document" if self.kind == "file" else self.kind
        where = note or self.url or self.file_id or "no data"
        return f"[{' '.join(filter(None, (kind, self.name)))}: {where}]"

    def _decoded(self) -> str | None:
        if self.kind != "file" or not self.data or self.mime == PDF:
            return None
        try:
            raw = base64.b64decode(self.data)
        except (binascii.Error, ValueError):
            return None
        utf_16 = raw.startswith(_MARKS) and self.mime.startswith("text/")
        for encoding in ["utf-16"] if utf_16 else ["utf-8-sig", *["cp1252"] * self.mime.startswith("text/")]:
            try:
                said = raw.decode(encoding)
            except UnicodeDecodeError:
                continue
            return None if "\0" in said else said
        return None


def media_of(given: Any) -> Media | None:
    """Returns the media that a content block of any provider holds, None for a block of another kind."""
    block = as_block(given)
    kind = media_kind(block) if isinstance(block, Mapping) else None
    if kind is None:
        return None
    parts = media_parts(block)
    data, url, said = _source(parts)
    name = _first(parts, _NAMES)
    form = _first(parts, ("format",))
    told = (_first(parts, _TYPES), said, form and f"audio/{form}")
    mime = next(filter(None, map(_plain_type, told)), "")
    mime = mime or (PDF if data.startswith(_PDF_START) else _guessed(url) or _guessed(name))
    if kind == "file" and mime.split("/")[0] in _USUAL:
        kind = mime.split("/")[0]
    text = _text(parts) if kind == "file" else None
    return Media(
        kind=kind,
        mime=mime or _USUAL.get(kind, ""),
        data=data if text is None else "",
        url=url,
        file_id=_first(parts, ("file_id",) if block.get("source_type") != "id" else ("id",)),
        name=name,
        detail=_first(parts, ("detail",)),
        text=text,
    )


def media_kind(block: Mapping[str, Any]) -> str | None:
    """Returns which kind of media a block holds, None where it holds none."""
    kind = block.get("type")
    if kind == "media":  # LangChain's and Gemini's own: the media type says which
        major = media_type(block).split("/")[0].lower()
        return major if major in _KINDS else "file"
    return _KIND_OF.get(kind) if isinstance(kind, str) else None


def media_type(block: Mapping[str, Any]) -> str:
    """Returns the media type that a block says its data has, "" where it says none."""
    for part in media_parts(block):
        said = [part[key] for key in _TYPES if isinstance(part.get(key), str)]
        said += [url[1] for key in (*ADDRESSES, *DATA) if (url := data_url(part.get(key)))]
        if said:
            return str(said[0])
    return ""


def media_parts(block: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns a block and what it holds in the places where providers keep data and what is said of it."""
    return [block, *(block[place] for place in _PLACES if isinstance(block.get(place), Mapping))]


def data_url(value: Any) -> re.Match[str] | None:
    """Returns the start of an address that holds its data as base64, with the media type as its group."""
    return _BASE64_URL.match(value[:400]) if isinstance(value, str) else None


def _source(parts: Sequence[Mapping[str, Any]]) -> tuple[str, str, str]:
    """Returns data in base64 or else an address, and the media type that the address says."""
    for part in parts:
        for key in (*DATA, *ADDRESSES):
            held = part.get(key)
            if isinstance(held, (bytes, bytearray)):
                return base64.b64encode(held).decode(), "", ""
            if not isinstance(held, str) or not held:
                continue
            if inline := data_url(held):
                return held[inline.end() :], "", inline[1]
            if inline := _DATA_URL.match(held[:400]):
                raw = unquote_to_bytes(held[inline.end() :])
                return base64.b64encode(raw).decode(), "", inline[1] or "text/plain"
            is_address = (key in ADDRESSES and not _BARE.fullmatch(held)) or "://" in held[:20]
            return ("", held, "") if is_address else (held, "", "")
    return "", "", ""


def _text(parts: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns the text that a document is given as, None where it has bytes or an address."""
    for part in parts:
        if isinstance(part.get("text"), str):
            return str(part["text"])
        if part.get("type") == "text" and isinstance(part.get("data"), str):
            return str(part["data"])
        content = part.get("content")
        if isinstance(content, str):
            return content
        if isinstance(content, (list, tuple)):
            texts = [as_block(one).get("text") for one in content if isinstance(as_block(one), Mapping)]
            if len(texts) == len(content) and all(isinstance(text, str) for text in texts):
                return "\n".join(map(str, texts))
    return None


def _first(parts: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> str:
    found = (part[key] for part in parts for key in keys if isinstance(part.get(key), str))
    return next(filter(None, found), "")


def _plain_type(said: str) -> str:
    plain = said.partition(";")[0].strip().lower()
    return _SAME_TYPE.get(plain, plain)


def _guessed(name: str) -> str:
    return _plain_type(_TYPE_OF_NAME().guess_type(name.partition("?")[0])[0] or "")
