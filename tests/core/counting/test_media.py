"""What images, audio, files and videos cost, from what a message carries and nothing else."""

from __future__ import annotations

import base64
import builtins
import struct
import zlib
from typing import Any

import pytest

from rankbudget import counter_for
from rankbudget.counting import MediaTable
from rankbudget.counting.media import image_size, media_for


def png(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I", 13)
        + b"IHDR"
        + header
        + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    )


def jpeg(width: int, height: int) -> bytes:
    preview = b"\xff\xe1" + struct.pack(">H", 30_002) + b"x" * 30_000
    return (
        b"\xff\xd8"
        + preview
        + b"\xff\xdb\x00\x04xx"
        + b"\xff\xc2"
        + struct.pack(">HBHH", 17, 8, height, width)
        + b"\x03" * 12
    )


def webp(kind: bytes, width: int, height: int) -> bytes:
    if kind == b"VP8 ":
        body = b"\x00\x00\x00\x9d\x01\x2a" + struct.pack("<HH", width, height)
    elif kind == b"VP8L":
        body = b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14)
    else:
        body = b"\x00\x00\x00\x00" + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF\x00\x00\x00\x00WEBP" + kind + struct.pack("<I", len(body)) + body


IMAGES = {
    "png": png(1024, 600),
    "jpeg": jpeg(1024, 600),
    "gif": b"GIF89a" + struct.pack("<HH", 1024, 600) + b"\x00" * 10,
    "webp": webp(b"VP8 ", 1024, 600),
    "webp lossless": webp(b"VP8L", 1024, 600),
    "webp extended": webp(b"VP8X", 1024, 600),
}


@pytest.mark.parametrize("label", IMAGES)
def test_sizes_are_read_from_embedded_data(label: str) -> None:
    """The first bytes of an embedded image tell its size, in every shape hosts embed it in."""
    data = base64.b64encode(IMAGES[label]).decode()
    assert image_size({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}) == (
        1024,
        600,
    )
    assert image_size({"type": "input_image", "image_url": f"data:image/x;name=a;base64,{data}"}) == (
        1024,
        600,
    )
    assert image_size(
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    ) == (1024, 600)
    assert image_size({"type": "image", "base64": data, "mime_type": "image/png"}) == (1024, 600)


@pytest.mark.parametrize(
    "block",
    [
        {},
        {"image_url": None},
        {"url": "data:image/png;base64,!!!!"},
        {"base64": "AAAA"},
        {"width": 0, "height": 5},
        {"base64": "/9j/"},
    ],
)
def test_what_tells_nothing_has_no_size(block: dict[str, Any]) -> None:
    """Missing, broken and foreign data have no size, and raise nothing."""
    assert image_size({"type": "image", **block}) is None


@pytest.mark.parametrize(
    ("model", "width", "height", "tokens"),
    [
        ("gpt-4o", 1024, 1024, 765),
        ("gpt-4o", 2048, 4096, 1105),
        ("gpt-4o", 4096, 8192, 1105),
        ("gpt-4o", 512, 512, 255),
        ("gpt-4o-mini", 1024, 1024, 2_833 + 4 * 5_667),
        ("gpt-5", 1024, 1024, 70 + 4 * 140),
        ("o3", 512, 512, 225),
        ("gpt-4.1-mini", 1024, 1024, 1_659),
        ("gpt-4.1-mini", 1800, 2400, 2_353),
        ("gpt-4.1-nano", 320, 320, 246),
        ("claude-sonnet-4-5", 200, 200, 54),
        ("claude-sonnet-4-5", 1000, 1000, 1_334),
        ("claude-sonnet-4-5", 8000, 8000, 1_600),
        ("gemini-2.5-pro", 384, 384, 258),
        ("gemini-2.5-pro", 960, 540, 1_548),
    ],
)
def test_images_cost_what_their_provider_publishes(model: str, width: int, height: int, tokens: int) -> None:
    """The providers' own examples come out."""
    assert media_for(model).tokens({"type": "image", "width": width, "height": height}) == tokens


def test_an_image_of_unknown_size_costs_the_most_it_can() -> None:
    """No image of any size costs more than one whose size is unknown; detail "low" is known to be cheap."""
    for model in ("gpt-4o", "gpt-4.1-mini", "claude-3", "gemini-2.5-pro", "gpt-5.1-mini"):
        table = media_for(model)
        unknown = table.tokens({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}})
        sizes = [
            (w, h) for w in (1, 100, 512, 768, 1568, 2048, 10_000) for h in (1, 33, 700, 769, 2048, 9_000)
        ]
        assert unknown is not None
        assert unknown >= max(table.tokens({"type": "image", "width": w, "height": h}) or 0 for w, h in sizes)
    low = {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}}
    assert media_for("gpt-4o").tokens(low) == 85


def test_audio_is_counted_by_its_length() -> None:
    """Embedded audio is taken as the densest speech; unknown audio costs the table's figure."""
    mp3 = base64.b64encode(b"ID3" + b"\x01" * 39_997).decode()
    assert MediaTable().tokens({"type": "input_audio", "input_audio": {"data": mp3, "format": "mp3"}}) == 100
    assert MediaTable().tokens({"type": "audio", "id": "x"}) == 600


def test_the_table_can_be_replaced() -> None:
    """A table of one's own goes with the counter, and leaves the shared counter of that name alone."""
    own = counter_for("gpt-4o", media=MediaTable(formula="fixed", image=11, file=22, video=33, audio=44))
    blocks = [{"type": kind} for kind in ("image_url", "file", "video", "audio")]
    base = own.count_message({"role": "user", "content": []})
    assert [own.count_message({"role": "user", "content": [b]}) - base for b in blocks] == [11, 22, 33, 44]
    shared = counter_for("gpt-4o")
    assert [shared.count_message({"role": "user", "content": [b]}) - base for b in blocks] == [
        1_445,
        3_000,
        18_000,
        600,
    ]


@pytest.mark.parametrize(
    "document",
    [
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "word " * 100}},
        {"type": "file", "source_type": "text", "text": "word " * 100, "mime_type": "text/plain"},
        {"type": "text-plain", "text": "word " * 100, "mime_type": "text/plain"},
        {"type": "text-plain", "base64": base64.b64encode(b"word " * 100).decode()},
    ],
)
def test_a_text_document_costs_its_text(document: dict[str, Any]) -> None:
    """A document that carries its text is counted by it, in the forms of all providers."""
    assert MediaTable().tokens(document) == 250
    counter = counter_for("gpt-4o")
    empty = counter.count_message({"role": "user", "content": []})
    assert 95 <= counter.count_message({"role": "user", "content": [document]}) - empty <= 105


def test_nothing_is_opened_or_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting media touches neither files nor the network."""

    def refuse(*_args: Any, **_kwargs: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(builtins, "open", refuse)
    monkeypatch.setattr("socket.socket", refuse)
    for url in ("https://example.org/a.png", "file:///etc/hostname", "/etc/hostname"):
        for kind in ("image_url", "input_image", "image", "audio", "file", "video"):
            assert (MediaTable().tokens({"type": kind, "url": url, "image_url": {"url": url}}) or 0) > 0
