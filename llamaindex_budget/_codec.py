"""LlamaIndex's chat messages as the core reads them; no file or URL is opened."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from llama_index.core.base.llms.types import (
    AudioBlock,
    BaseContentBlock,
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

from rankbudget.adapters import (
    ROLES,
    arguments_of,
    call_reference,
    finished,
    function_of,
    in_turn,
    spread_text,
)
from rankbudget.errors import MessageError, shown

from ._unsent import sent_blocks

MARK = "rankbudget"
"""The `additional_kwargs` key under which edited and inserted messages say so."""
PINNED = (MessageRole.SYSTEM, MessageRole.DEVELOPER)
_ROLES = {id(role): ROLES[role.value] for role in MessageRole}
"""By identity, which is several times faster than an enum's value or hash."""
_SLOT = re.compile(r"\{(?=(?:context_str|query_str|existing_answer|context_msg)\})")


class ChatCodec:
    """Reads LlamaIndex's `ChatMessage`; `stored` ones as a memory returns them, without template slots.

    Content blocks that a `client` leaves out are not read; a message that is kept keeps them.
    """

    def __init__(self, *, stored: bool = False, client: str | None = None) -> None:
        self._read: Callable[[str], str] = defused if stored else str
        self._client = client

    def role(self, message: Any) -> str:
        found = getattr(message, "role", None)
        role = _ROLES.get(id(found)) or ROLES.get(str(getattr(found, "value", found)))
        if role is None:
            allowed = ", ".join(r.value for r in MessageRole)
            msg = f"a {type(message).__name__} has the role {found!r}; allowed: {allowed}"
            raise MessageError(msg)
        return role

    def roles(self, messages: Sequence[Any]) -> list[str]:
        try:
            return [_ROLES[id(m.role)] for m in messages]
        except (AttributeError, KeyError):
            return [self.role(m) for m in messages]

    def to_dict(self, message: Any) -> Mapping[str, Any]:
        blocks, extra = message.blocks, message.additional_kwargs
        if not extra and len(blocks) == 1 and type(blocks[0]) is TextBlock:
            text = blocks[0].text
            return {"role": self.role(message), "content": self._read(text) if "{" in text else text}
        neutral: dict[str, Any] = {"role": self.role(message), "content": self._content(message)}
        for key in ("tool_call_id", "name"):
            if isinstance(extra.get(key), str):
                neutral[key] = extra[key]
        calls = _calls(message)
        return {**neutral, "tool_calls": calls} if calls else neutral

    def _content(self, message: Any) -> Any:
        return _content(sent_blocks(message, self._client), self._read)

    def call_ids(self, message: Any) -> tuple[str, ...]:
        blocks = message.blocks
        if not message.additional_kwargs and len(blocks) == 1 and type(blocks[0]) is TextBlock:
            return ()  # most messages
        return tuple(map(call_reference, _calls(message)))

    def result_id(self, message: Any) -> str | None:
        extra = message.additional_kwargs
        found = extra.get("tool_call_id") or extra.get("call_id")
        return str(found) if found else call_reference({"name": extra.get("name")})

    answers = staticmethod(lambda _: ())  # the host has no results among other blocks

    def message_id(self, message: Any) -> str | None:
        found = message.additional_kwargs.get("id")
        return found if isinstance(found, str) else None

    def fingerprints(self, messages: Sequence[Any]) -> list[Hashable]:
        return [
            (fields["role"], blocks[0].__dict__["text"])
            if not fields["additional_kwargs"]
            and len(blocks := fields["blocks"]) == 1
            and type(blocks[0]) is TextBlock
            else _fingerprint(message)
            for message in messages
            if (fields := message.__dict__) is not None
        ]

    def with_text(self, message: Any, text: str | Sequence[str]) -> Any:
        edited = copy_message(message)
        texts = iter(spread_text([b.text for b in edited.blocks if isinstance(b, TextBlock)], text))
        blocks: list[Any] = [
            TextBlock(text=next(texts)) if isinstance(block, TextBlock) else block for block in edited.blocks
        ]
        blocks += [TextBlock(text=rest) for rest in texts]
        edited.blocks = [block for block in blocks if not isinstance(block, TextBlock) or block.text]
        # Beside older tool calls the host sends every extra key to the provider, so there it stays away.
        if not edited.additional_kwargs.keys() & {"tool_calls", "function_call"}:
            edited.additional_kwargs[MARK] = "edited"
        return edited

    def with_ids(self, message: Any, old: Sequence[str], new: Sequence[str]) -> Any:
        """Returns a copy of `message` with the ids `new` for the calls of the references `old`, in order."""
        made = copy_message(message)
        if self.role(message) == "tool":
            made.additional_kwargs["tool_call_id"] = new[0]
            return made
        field = in_turn(old, new)
        for block in made.blocks:
            if isinstance(block, ToolCallBlock):
                own = field({"id": block.tool_call_id, "name": block.tool_name})
                block.tool_call_id = own.get("id", block.tool_call_id)
        field, older = in_turn(old, new), made.additional_kwargs.get("tool_calls")
        if older:
            plain = map(as_mapping, older)
            made.additional_kwargs["tool_calls"] = [{**call, **field(call)} for call in plain]
        return made

    def make(self, role: str, text: str, *, origin: str) -> Any:
        return ChatMessage(role=MessageRole(role), content=text, additional_kwargs={MARK: origin})

    def copy(self, message: Any) -> Any:
        return copy_message(message)


def defused(text: str) -> str:
    """Returns a text that a context engine, which takes past messages for templates, will not fill in."""
    return _SLOT.sub("{ ", text) if "{" in text else text


def pending(question: Any, stored: Sequence[ChatMessage]) -> tuple[str | None, bool]:
    """Returns a question that is not stored yet, and whether a question follows what is stored.

    The text of an answered question that is asked again is a new one.
    """
    # Agents store a question first, context engines afterwards.
    text = question.content if isinstance(question, ChatMessage) else question
    ended = bool(stored) and finished(CODEC, stored)
    if not text or not isinstance(text, str):
        return None, ended
    asked = None if ended else next((m for m in reversed(stored) if CODEC.role(m) == "user"), None)
    return (None, False) if asked is not None and asked.content == text else (text, True)


def check_messages(messages: Any) -> None:
    """Raises MessageError for what is no list of LlamaIndex's messages."""
    readable = isinstance(messages, Sequence) and not isinstance(messages, str)
    for message in messages if readable else [messages]:
        if not isinstance(message, ChatMessage):
            hint = 'Give ChatMessage(role="user", content="...")'
            msg = f"messages must be a list of LlamaIndex's ChatMessage (got {shown(message)}). {hint}."
            raise MessageError(msg)


def copy_message(message: ChatMessage) -> ChatMessage:
    """Returns a copy that can be edited freely; bytes and open files inside its blocks are shared."""
    fresh: ChatMessage = shallow_copy(message)
    blocks = [shallow_copy(b) if type(b) is TextBlock else _copied(b) for b in message.blocks]
    fresh.__dict__["blocks"] = blocks[:]  # a list of its very size: one that was grown keeps room for more
    extra = message.additional_kwargs
    fresh.__dict__["additional_kwargs"] = _copied(extra) if extra else {}
    return fresh


def shallow_copy(model: Any, kind: type[Any] | None = None, **attributes: Any) -> Any:
    """Copies a pydantic model's own fields, as another `kind` if asked; much faster than `model_copy`."""
    made: Any = kind or model.__class__
    fresh = made.__new__(made)
    set_slot = object.__setattr__
    set_slot(fresh, "__dict__", dict(model.__dict__))
    set_slot(fresh, "__pydantic_fields_set__", set(model.__pydantic_fields_set__))
    extra, private = model.__pydantic_extra__, model.__pydantic_private__
    set_slot(fresh, "__pydantic_extra__", extra if extra is None else dict(extra))
    private = {**(private or {}), **attributes} if private or attributes else private
    set_slot(fresh, "__pydantic_private__", private)
    return fresh


def _copied(value: Any) -> Any:
    """Copies dicts, lists and content blocks all the way down; everything else is shared."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    if not isinstance(value, BaseContentBlock):
        return value
    fresh = shallow_copy(value)
    fresh.__dict__.update(_copied(fresh.__dict__))
    return fresh


def _content(blocks: Sequence[Any], read: Callable[[str], str]) -> Any:
    # A call is beside the content; a cache point is a flag of the request, not text.
    said = [block for block in blocks if not isinstance(block, (ToolCallBlock, CachePoint))]
    if not said:
        return None
    if all(isinstance(block, TextBlock) for block in said):
        return "\n".join([read(block.text) for block in said])  # as `ChatMessage.content` joins them
    return [_neutral_block(block, read) for block in said]


def _neutral_block(block: Any, read: Callable[[str], str] = str) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": read(block.text)}
    if isinstance(block, ThinkingBlock):
        signature = block.additional_information.get("signature")
        signed = {"signature": signature} if isinstance(signature, str) else {}
        return {"type": "thinking", "thinking": block.content or "", **signed}
    if isinstance(block, (ImageBlock, AudioBlock, VideoBlock, DocumentBlock)):
        return _neutral_media(block)
    if isinstance(block, (CitableBlock, CitationBlock)):
        parts = block.content if isinstance(block, CitableBlock) else [block.cited_content]
        inner = [_neutral_block(part) for part in parts]
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
        mime = block.video_mimetype or "video/mp4"
        return {"type": "video", "video": {"url": _where(block, block.video, mime), "mime_type": mime}}
    data = _where(block, block.data, block.document_mimetype or "application/octet-stream")
    return {"type": "file", "file": {"filename": block.title or "", "file_data": data}}


def _where(block: Any, data: Any, mimetype: str | None) -> str:
    """Returns inline data, or the place of the data as a plain string; nothing is opened."""
    if isinstance(data, bytes):
        text = data.decode("ascii", "replace")  # the host's blocks keep their bytes as base64
        return text if mimetype is None else f"data:{mimetype};base64,{text}"
    if block.url is not None:
        return str(block.url)
    return "" if block.path is None else str(block.path)


def _calls(message: Any) -> list[dict[str, Any]]:
    """Returns the tool calls in the neutral form: of blocks, else of both older places.

    OpenAI's client keeps every call of an answer in the older place, too, but sends it only where blocks hold
    none. With `allow_parallel_tool_calls=False` just the first call stays in a block, and is answered.
    """
    calls = [
        _call({"id": b.tool_call_id, "name": b.tool_name}, b.tool_kwargs)
        for b in message.blocks
        if isinstance(b, ToolCallBlock)
    ]
    if calls:
        return calls
    extra = message.additional_kwargs
    for data in map(as_mapping, [*(extra.get("tool_calls") or ()), extra.get("function_call")]):
        if data:
            function = as_mapping(data.get("function") or function_of(data))
            called = {**function, "id": data.get("call_id") or data.get("id") or function.get("toolUseId")}
            calls.append(_call(called, arguments_of(function)))
    return calls


def _call(call: Mapping[str, Any], arguments: Any) -> dict[str, Any]:
    written = {} if arguments is None else arguments
    text = written if isinstance(written, str) else json.dumps(written, default=str)
    function = {"name": str(call.get("name") or ""), "arguments": text}
    called = call.get("id")
    return {**({"id": str(called)} if called else {}), "type": "function", "function": function}


def as_mapping(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    found = dump() if callable(dump) else getattr(value, "__dict__", {})
    return found if isinstance(found, Mapping) else {}


def _fingerprint(message: ChatMessage) -> str:
    parts = [repr(block.__dict__) for block in message.blocks]
    return "\x1f".join([message.role.value, *parts, repr(message.additional_kwargs)])


@functools.cache
def codec_for(client: str | None, *, stored: bool = False) -> ChatCodec:
    """Returns what reads messages for a client, as `client_of` names it."""
    return ChatCodec(stored=stored, client=client)


CODEC = codec_for(None)
STORED = codec_for(None, stored=True)
