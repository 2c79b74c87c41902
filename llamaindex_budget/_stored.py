"""LlamaIndex's messages as plain data and back, and made of another host's; no file or URL is opened."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from llama_index.core.base.llms.types import (
    AudioBlock,
    BaseContentBlock,
    ChatMessage,
    CitableBlock,
    CitationBlock,
    DocumentBlock,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    VideoBlock,
)
from llama_index.core.bridge.pydantic import AnyUrl, BaseModel

from rankbudget.adapters import Measure, as_block, block_text, media_of
from rankbudget.memory import HostForm

from ._codec import CODEC, STORED, ChatCodec
from ._serialize import class_named

_BLOCK, _URL, _PATH = "rankbudget:block", "rankbudget:url", "rankbudget:path"
_INLINE = "data:"
_WEB = ("http://", "https://")
_GENERATED = ("image_generation_call", "computer_screenshot")
"""Pictures that OpenAI keeps among a model's own items: as blocks of an answer they would be refused."""
_DATA: dict[type[Any], str] = {
    ImageBlock: "image",
    AudioBlock: "audio",
    VideoBlock: "video",
    DocumentBlock: "data",
}
_MADE: dict[str, tuple[type[Any], str]] = {
    "image": (ImageBlock, "image_mimetype"),
    "audio": (AudioBlock, "format"),
    "video": (VideoBlock, "video_mimetype"),
    "file": (DocumentBlock, "document_mimetype"),
}
"""The block of each kind of media, and its field for the media type."""


# ---- as it was -------------------------------------------------------------------------------------------
def plain_message(message: ChatMessage) -> dict[str, Any]:
    """Returns a message as plain data, with bytes and addresses as they are."""
    fields = {name: _plain(value) for name, value in message.__dict__.items() if name != "role"}
    return {"role": message.role.value, **fields}


def restored(data: Mapping[str, Any]) -> ChatMessage:
    """Returns the message that `plain_message` wrote."""
    fields = {name: _restored(value) for name, value in data.items() if name != "role"}
    return ChatMessage.model_construct(role=MessageRole(data["role"]), **fields)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseContentBlock):
        fields = {name: _plain(held) for name, held in value.__dict__.items()}
        return {_BLOCK: type(value).__name__, "fields": fields}
    if isinstance(value, BaseModel):  # a call as a provider's library gave it
        return value.model_dump(mode="json")
    if isinstance(value, AnyUrl):
        return {_URL: str(value)}
    if isinstance(value, PurePath):
        return {_PATH: str(value)}
    if isinstance(value, dict):
        return {key: _plain(held) for key, held in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(held) for held in value]
    return value


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return [_restored(held) for held in value]
    if not isinstance(value, dict):
        return value
    if _BLOCK in value:
        kind = class_named(value[_BLOCK], BaseContentBlock, "blocks")
        return kind.model_construct(**{name: _restored(held) for name, held in value["fields"].items()})
    if _URL in value:
        return AnyUrl(value[_URL])
    if _PATH in value:
        return Path(value[_PATH])
    return {key: _restored(held) for key, held in value.items()}


# ---- for another host ------------------------------------------------------------------------------------
class _ForOthers(ChatCodec):
    """Writes what only LlamaIndex's clients send as parts that every provider takes.

    A file of this machine, which no other can read by its path, is a text with its name; sound and files on
    an address, where the others send data, are a text with it; a source, or a citation of it, is what it
    says.
    """

    def to_dict(self, message: Any) -> Mapping[str, Any]:
        blocks = [made for block in message.blocks for made in _movable(block)]
        return super().to_dict(message.model_copy(update={"blocks": blocks}))


def _movable(block: Any) -> list[Any]:
    if isinstance(block, (CitableBlock, CitationBlock)):
        parts = block.content if isinstance(block, CitableBlock) else [block.cited_content]
        title = [TextBlock(text=block.title)] if block.title else []
        return [*title, *[made for part in parts for made in _movable(part)]]
    held = next((field for kind, field in _DATA.items() if isinstance(block, kind)), None)
    if held is None or isinstance(getattr(block, held), bytes):
        return [block]
    address = "" if block.url is None else str(block.url)
    if address.startswith(_INLINE) or (address and isinstance(block, (ImageBlock, VideoBlock))):
        return [block]
    name = re.split(r"[\\/]", str(block.path or ""))[-1]  # without its folder
    told = f": {address}" if address else f"{name and ' '}{name}: only on the machine that sent it"
    return [TextBlock(text=f"[{block.block_type}{told}]")]


# ---- from another host -----------------------------------------------------------------------------------
def made(neutral: Mapping[str, Any], name: str | None) -> ChatMessage:
    """Returns a message from the neutral form that another host's codec wrote."""
    said = neutral.get("content")
    content: Any = said or neutral.get("refusal") or said
    calls = neutral.get("tool_calls") or ()
    if not isinstance(content, list):
        content = [content] if content or not (calls or content is None) else []
    blocks = [*map(_block, map(as_block, content)), *map(_call, calls)]
    extra = {key: neutral[key] for key in ("tool_call_id", "name") if neutral.get(key)}
    if name is not None:
        extra["id"] = name
    return ChatMessage.model_construct(
        role=MessageRole(neutral["role"]), blocks=blocks, additional_kwargs=extra
    )


def _call(call: Mapping[str, Any]) -> ToolCallBlock:
    function, arguments = call["function"], call["function"].get("arguments") or "{}"
    try:
        parsed = json.loads(arguments)
    except ValueError:
        parsed = arguments
    given = parsed if isinstance(parsed, dict) else arguments
    return ToolCallBlock(tool_call_id=call.get("id"), tool_name=function["name"], tool_kwargs=given)


def _block(part: Any) -> Any:
    """Returns a content block; what LlamaIndex has no block for is the text of its JSON."""
    if isinstance(part, str):
        return TextBlock(text=part)
    kind = part.get("type")
    if kind in ("thinking", "reasoning", "redacted_thinking"):
        return _thinking(part)
    media = _media(part)
    if media is not None:
        return media
    text = part.get("refusal") if kind == "refusal" else block_text(part)
    return TextBlock(text=text if isinstance(text, str) else _shown(part))


def _shown(part: Mapping[str, Any]) -> str:
    return json.dumps(part, ensure_ascii=False, default=lambda held: f"{len(held)} bytes")


def _thinking(part: Mapping[str, Any]) -> ThinkingBlock:
    said = part.get("thinking") or part.get("reasoning") or None
    sealed = part.get("signature") or part.get("data")
    return ThinkingBlock(content=said, additional_information={"signature": sealed} if sealed else {})


def _media(part: Mapping[str, Any]) -> Any:
    """Returns the block of an image, sound, film or file; a text where no client of LlamaIndex opens it."""
    media = media_of(part)
    if media is None:
        return None
    if media.text is not None:
        return TextBlock(text=media.written_text())
    if part.get("type") in _GENERATED or not (media.data or media.url.startswith(_WEB)):
        return TextBlock(text=media.told())
    kind, typed = _MADE[media.kind]
    said = media.mime.rpartition("/")[2] if kind is AudioBlock else media.mime
    beside: dict[str, Any] = {
        "image": {"detail": media.detail or None},
        "file": {"title": media.name or DocumentBlock().title},
    }.get(media.kind, {})
    url = AnyUrl(media.url) if media.url and kind is not DocumentBlock else media.url
    own = {_DATA[kind]: media.data.encode() or None, typed: said or None, "url": url or None, "path": None}
    return kind.model_construct(**own, **beside)


class _Form(HostForm):
    """Sends each call with the id that every other host reads; LlamaIndex's clients may have stored none."""

    def sent(self, row: Any) -> ChatMessage:
        message: ChatMessage = self.message(row)
        if row.form != self.name or not ('"tool_calls"' in row.neutral or message.role == MessageRole.TOOL):
            return message
        neutral = json.loads(row.neutral)
        calls = neutral.get("tool_calls") or ()
        old = CODEC.call_ids(message) if calls else (CODEC.result_id(message) or "",)
        new = [call.get("id") for call in calls] or [neutral.get("tool_call_id")]
        same = list(old) == new or len(old) != len(new) or not all(new)
        return message if same else CODEC.with_ids(message, old, new)


class _ByName(HostForm):
    """Sends calls as they were stored; the tokens that are stored count those of `_Form`."""

    def counted_by(self, measure: Measure) -> bool:  # noqa: ARG002 - as the base
        return False


FORM = _Form(
    name="llamaindex", codec=_ForOthers(), plain=plain_message, restore=restored, make=made, reader=STORED
)
"""LlamaIndex's messages in a `HistoryStore`."""
BY_NAME = _ByName(**{field.name: getattr(FORM, field.name) for field in dataclasses.fields(FORM)})
"""The same for clients that send the id of a result as the name of its function."""
