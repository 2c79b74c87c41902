"""LlamaIndex's chat messages as the core reads them.

Nothing here opens a file or a URL: a picture on a path is counted and handed on, never read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from llama_index.core.base.llms.types import (
    AudioBlock,
    CachePoint,
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

from rankbudget.adapters import ROLES, call_reference, finished, spread_text
from rankbudget.errors import MessageError

__all__ = [
    "CODEC",
    "MARK",
    "PINNED",
    "STORED",
    "ChatCodec",
    "copy_message",
    "defused",
    "pending",
    "shallow_copy",
]

MARK = "rankbudget"
"""The `additional_kwargs` key under which edited and inserted messages say so."""
_USER, _ASSISTANT, _TOOL, _SYSTEM = (
    MessageRole.USER,
    MessageRole.ASSISTANT,
    MessageRole.TOOL,
    MessageRole.SYSTEM,
)
PINNED = (MessageRole.SYSTEM, MessageRole.DEVELOPER)
_CALL_KEYS = ("tool_calls", "function_call")
_SLOT = re.compile(r"\{(?=(?:context_str|query_str|existing_answer|context_msg)\})")


class ChatCodec:
    """Reads LlamaIndex's `ChatMessage`.

    Example:
        >>> codec = ChatCodec()
        >>> codec.roles([ChatMessage(role=role, content="yes") for role in ("model", "function")])
        ['assistant', 'tool']
        >>> codec.to_dict(ChatMessage(role="user", content="hi"))
        {'role': 'user', 'content': 'hi'}
    """

    def role(self, message: Any) -> str:
        found = getattr(message, "role", None)
        role = ROLES.get(str(getattr(found, "value", found)))
        if role is None:
            allowed = ", ".join(r.value for r in MessageRole)
            msg = f"a {type(message).__name__} has the role {found!r}; allowed: {allowed}"
            raise MessageError(msg)
        return role

    def roles(self, messages: Sequence[Any]) -> list[str]:
        try:
            return [  # identity is several times faster than an enum's value or hash
                "user" if (role := m.role) is _USER
                else "assistant" if role is _ASSISTANT
                else "tool" if role is _TOOL
                else "system" if role is _SYSTEM
                else self.role(m)
                for m in messages
            ]  # fmt: skip
        except AttributeError:
            return [self.role(m) for m in messages]

    def to_dict(self, message: Any) -> Mapping[str, Any]:
        blocks, extra = message.blocks, message.additional_kwargs
        if not extra and len(blocks) == 1 and type(blocks[0]) is TextBlock:
            return {"role": self.role(message), "content": blocks[0].text}
        neutral: dict[str, Any] = {"role": self.role(message), "content": _content(blocks)}
        if extra:
            for key in ("tool_call_id", "name"):
                if isinstance(extra.get(key), str):
                    neutral[key] = extra[key]
        calls = _calls(message)
        if calls:
            neutral["tool_calls"] = calls
        return neutral

    def call_ids(self, message: Any) -> tuple[str, ...]:
        return tuple([call["id"] for call in _calls(message)])

    def result_id(self, message: Any) -> str | None:
        extra = message.additional_kwargs
        found = extra.get("tool_call_id") or extra.get("call_id")
        return str(found) if found else call_reference({"name": extra.get("name")})

    def answers(self, message: Any) -> tuple[str, ...]:  # noqa: ARG002 - the host has no such blocks
        return ()

    def message_id(self, message: Any) -> str | None:
        found = message.additional_kwargs.get("id")
        return found if isinstance(found, str) else None

    def fingerprints(self, messages: Sequence[Any]) -> list[Hashable]:
        try:
            return [
                (fields["role"], blocks[0].__dict__["text"])
                if not fields["additional_kwargs"]
                and len(blocks := fields["blocks"]) == 1
                and type(blocks[0]) is TextBlock
                else _fingerprint(message)
                for message in messages
                if (fields := message.__dict__) is not None
            ]
        except (AttributeError, KeyError):
            return [_fingerprint(message) for message in messages]

    def with_text(self, message: Any, text: str) -> Any:
        edited = copy_message(message)
        texts = iter(spread_text([b.text for b in edited.blocks if isinstance(b, TextBlock)], text))
        blocks: list[Any] = [
            TextBlock(text=next(texts)) if isinstance(block, TextBlock) else block for block in edited.blocks
        ]
        blocks += [TextBlock(text=rest) for rest in texts]
        edited.blocks = [block for block in blocks if not isinstance(block, TextBlock) or block.text]
        _mark(edited, "edited")
        return edited

    def make(self, role: str, text: str, *, origin: str) -> Any:
        return ChatMessage(role=MessageRole(role), content=text, additional_kwargs={MARK: origin})

    def copy(self, message: Any) -> Any:
        return copy_message(message)


class StoredCodec(ChatCodec):
    """Reads stored messages as a memory returns them: no text is a slot of an engine's template."""

    def to_dict(self, message: Any) -> Mapping[str, Any]:
        neutral = super().to_dict(message)
        content = neutral["content"]
        if isinstance(content, str):
            return {**neutral, "content": defused(content)} if "{" in content else neutral
        if not isinstance(content, list) or not any("{" in str(part.get("text", "")) for part in content):
            return neutral
        parts = [{**p, "text": defused(p["text"])} if p["type"] == "text" else p for p in content]
        return {**neutral, "content": parts}


CODEC = ChatCodec()
STORED = StoredCodec()


def defused(text: str) -> str:
    """Returns a text that a context engine, which takes past messages for templates, will not fill in.

    Example:
        >>> defused("echo {context_str} {other}")
        'echo { context_str} {other}'
    """
    return _SLOT.sub("{ ", text) if "{" in text else text


def pending(question: Any, stored: Sequence[ChatMessage]) -> str | None:
    """Returns a question that is not stored yet: agents store it first, context engines afterwards.

    The text of an answered question asked again is a new question.
    """
    text = question.content if isinstance(question, ChatMessage) else question
    if not text or not isinstance(text, str):
        return None
    if finished(CODEC, stored):
        return text
    asked = next((m for m in reversed(stored) if CODEC.role(m) == "user"), None)
    return None if asked is not None and asked.content == text else text


def copy_message(message: ChatMessage) -> ChatMessage:
    """Returns a copy that can be edited freely; bytes and open files inside its blocks are shared.

    Example:
        >>> original = ChatMessage(role="user", content="hi")
        >>> copy_message(original).blocks[0].text = "changed"
        >>> original.content
        'hi'
    """
    fresh: ChatMessage = shallow_copy(message)
    blocks = [shallow_copy(b) if type(b) is TextBlock else _copy_block(b) for b in message.blocks]
    fresh.__dict__["blocks"] = blocks[:]  # a list of its very size: one that was grown keeps room for more
    extra = message.additional_kwargs
    fresh.__dict__["additional_kwargs"] = _copy_plain(extra) if extra else {}
    return fresh


def _content(blocks: Sequence[Any]) -> Any:
    neutral = [found for block in blocks if (found := _neutral_block(block)) is not None]
    if not neutral:
        return None
    if all(block["type"] == "text" for block in neutral):
        return "\n".join(block["text"] for block in neutral)  # as `ChatMessage.content` joins them
    return neutral


def _neutral_block(block: Any) -> dict[str, Any] | None:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if isinstance(block, (ToolCallBlock, CachePoint)):
        return None  # a call stands beside the content; a cache point is a flag of the request, not text
    if isinstance(block, ThinkingBlock):
        return {"type": "thinking", "thinking": block.content or "", **_signature(block)}
    if isinstance(block, (ImageBlock, AudioBlock, VideoBlock, DocumentBlock)):
        return _neutral_media(block)
    if isinstance(block, (CitableBlock, CitationBlock)):
        parts = block.content if isinstance(block, CitableBlock) else [block.cited_content]
        inner = [neutral for part in parts if (neutral := _neutral_block(part)) is not None]
        return {"type": "document", "title": block.title, "source": block.source, "content": inner}
    kind = str(getattr(block, "block_type", type(block).__name__))
    return {"type": kind, **block.model_dump(mode="json", exclude={"block_type"})}


def _neutral_media(block: Any) -> dict[str, Any]:
    if isinstance(block, ImageBlock):
        image = {"url": _where(block, block.image, block.image_mimetype or "image/png")}
        detail = {"detail": block.detail} if block.detail else {}
        return {"type": "image_url", "image_url": image | detail}
    if isinstance(block, AudioBlock):
        audio = {"data": _where(block, block.audio, None), "format": block.format or ""}
        return {"type": "input_audio", "input_audio": audio}
    if isinstance(block, VideoBlock):
        video = {"url": _where(block, block.video, block.video_mimetype or "video/mp4")}
        return {"type": "video", "video": video}
    data = _where(block, block.data, block.document_mimetype or "application/octet-stream")
    return {"type": "file", "file": {"filename": block.title or "", "file_data": data}}


def _signature(block: ThinkingBlock) -> dict[str, str]:
    found = block.additional_information.get("signature")
    return {"signature": found} if isinstance(found, str) else {}


def _where(block: Any, data: Any, mimetype: str | None) -> str:
    """Returns inline data, or the place of the data as a plain string; nothing is opened."""
    if isinstance(data, bytes):
        text = data.decode("ascii", "replace")  # the host's blocks keep their bytes as base64
        return text if mimetype is None else f"data:{mimetype};base64,{text}"
    if block.url is not None:
        return str(block.url)
    return "" if block.path is None else str(block.path)


def _calls(message: Any) -> list[dict[str, Any]]:
    """Returns all tool calls in the neutral form, from blocks and from both older places, each once."""
    calls = [
        _call({"id": b.tool_call_id, "name": b.tool_name}, b.tool_kwargs)
        for b in message.blocks
        if isinstance(b, ToolCallBlock)
    ]
    extra = message.additional_kwargs
    if not extra:
        return calls
    unmatched = [call["id"] for call in calls]
    for legacy in [*(extra.get("tool_calls") or ()), extra.get("function_call")]:
        if not legacy:
            continue
        data = _plain(legacy)
        function = _plain(data.get("function") or data)
        call = _call({**function, "id": data.get("id") or data.get("call_id")}, function.get("arguments"))
        if call["id"] in unmatched:
            unmatched.remove(call["id"])
        else:
            calls.append(call)
    return calls


def _call(call: Mapping[str, Any], arguments: Any) -> dict[str, Any]:
    written = {} if arguments is None else arguments
    text = written if isinstance(written, str) else json.dumps(written, default=str)
    function = {"name": str(call.get("name") or ""), "arguments": text}
    return {"id": call_reference(call), "type": "function", "function": function}


def _plain(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    found = dump() if callable(dump) else getattr(value, "__dict__", {})
    return found if isinstance(found, Mapping) else {}


def _fingerprint(message: ChatMessage) -> Hashable:
    blocks, extra = message.blocks, message.additional_kwargs
    if not extra and len(blocks) == 1 and type(blocks[0]) is TextBlock:
        return (message.role, blocks[0].text)
    parts = [repr(_block_print(block)) for block in blocks]
    return "\x1f".join([message.role.value, *parts, repr(extra) if extra else ""])


def _block_print(block: Any) -> object:
    if isinstance(block, TextBlock):
        return block.text
    # Bytes compare by identity first; dicts and nested blocks may change in place, so their text is taken.
    return (
        block.__class__,
        *(v if isinstance(v, (str, bytes, int, type(None))) else repr(v) for v in block.__dict__.values()),
    )


def _mark(message: ChatMessage, origin: str) -> None:
    # Beside older tool calls the host sends every extra key to the provider, so there the mark stays away.
    if not any(key in message.additional_kwargs for key in _CALL_KEYS):
        message.additional_kwargs[MARK] = origin


def shallow_copy(model: Any, kind: type[Any] | None = None, **attributes: Any) -> Any:
    """Copies a pydantic model's own fields, as another `kind` if asked; much faster than `model_copy`."""
    made: Any = kind or model.__class__
    fresh = made.__new__(made)
    set_slot = object.__setattr__
    set_slot(fresh, "__dict__", dict(model.__dict__))
    set_slot(fresh, "__pydantic_fields_set__", set(model.__pydantic_fields_set__))
    extra, private = model.__pydantic_extra__, model.__pydantic_private__
    set_slot(fresh, "__pydantic_extra__", extra if extra is None else dict(extra))
    set_slot(
        fresh, "__pydantic_private__", {**(private or {}), **attributes} if private or attributes else private
    )
    return fresh


def _copy_block(block: Any) -> Any:
    fresh = shallow_copy(block)
    for key, value in fresh.__dict__.items():
        if isinstance(value, (dict, list)):
            fresh.__dict__[key] = _copy_plain(value)
        elif isinstance(value, (TextBlock, ImageBlock)):
            fresh.__dict__[key] = shallow_copy(value)
    return fresh


def _copy_plain(value: Any) -> Any:
    """Copies dicts and lists all the way down and content blocks once; everything else is shared."""
    if isinstance(value, dict):
        return {key: _copy_plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy_plain(item) for item in value]
    return _copy_block(value) if isinstance(value, (TextBlock, ImageBlock, DocumentBlock)) else value
