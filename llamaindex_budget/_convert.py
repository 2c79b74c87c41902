"""LlamaIndex's objects in the core's words and back: chat messages, tokenizers.

Nothing here opens a file or a URL: a picture on a path is counted and handed on, never read.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
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

from rankbudget import TokenCounter, counter_for
from rankbudget.errors import MessageError

__all__ = [
    "CODEC",
    "MARK",
    "ChatCodec",
    "copy_message",
    "counter_of",
    "defused",
    "settings_counter",
    "shallow_copy",
    "tiktoken_name",
]

MARK = "rankbudget"
"""The `additional_kwargs` key under which edited and inserted messages say so."""
_ROLES = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
    "model": "assistant",
    "chatbot": "assistant",
}
_USER, _ASSISTANT, _TOOL, _SYSTEM = (
    MessageRole.USER,
    MessageRole.ASSISTANT,
    MessageRole.TOOL,
    MessageRole.SYSTEM,
)
_CALL_KEYS = ("tool_calls", "function_call")
_SLOT = re.compile(r"\{(?=(?:context_str|query_str|existing_answer|context_msg)\})")


class ChatCodec:
    """Reads LlamaIndex's `ChatMessage`.

    Example:
        >>> codec = ChatCodec()
        >>> codec.roles([ChatMessage(role="model", content="yes"), ChatMessage(role="function", content="42")])
        ['assistant', 'tool']
        >>> codec.to_dict(ChatMessage(role="user", content="hi"))
        {'role': 'user', 'content': 'hi'}
    """

    def role(self, message: Any) -> str:
        found = getattr(message, "role", None)
        role = _ROLES.get(str(getattr(found, "value", found)))
        if role is None:
            msg = f"a {type(message).__name__} has the role {found!r}; allowed: {', '.join(r.value for r in MessageRole)}"
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
        extra = message.additional_kwargs
        if extra and any(key in extra for key in _CALL_KEYS):
            return tuple(dict.fromkeys(call["id"] for call in _calls(message)))
        return tuple(
            dict.fromkeys(b.tool_call_id or "" for b in message.blocks if isinstance(b, ToolCallBlock))
        )

    def result_id(self, message: Any) -> str | None:
        extra = message.additional_kwargs
        for key in ("tool_call_id", "call_id"):
            if extra.get(key) is not None:
                return str(extra[key])
        return _function_id(extra["name"]) if extra.get("name") else None

    def answers(self, message: Any) -> tuple[str, ...]:  # noqa: ARG002 - no content block of the host's is a tool result
        return ()

    def message_id(self, message: Any) -> str | None:
        found = message.additional_kwargs.get("id")
        return found if isinstance(found, str) else None

    def fingerprint(self, message: Any) -> object:
        blocks, extra = message.blocks, message.additional_kwargs
        if not extra and len(blocks) == 1 and type(blocks[0]) is TextBlock:
            return (message.role, blocks[0].text)
        return (message.role, *map(_block_print, blocks), repr(extra) if extra else "")

    def fingerprints(self, messages: Sequence[Any]) -> list[object]:
        try:
            return [
                (fields["role"], blocks[0].__dict__["text"])
                if not fields["additional_kwargs"]
                and len(blocks := fields["blocks"]) == 1
                and type(blocks[0]) is TextBlock
                else self.fingerprint(message)
                for message in messages
                if (fields := message.__dict__) is not None
            ]
        except (AttributeError, KeyError):
            return [self.fingerprint(message) for message in messages]

    def with_text(self, message: Any, text: str) -> Any:
        edited = copy_message(message)
        blocks: list[Any] = []
        placed = False
        for block in edited.blocks:
            if not isinstance(block, TextBlock):
                blocks.append(block)
            elif not placed:
                blocks.append(TextBlock(text=text))
                placed = True
        edited.blocks = blocks if placed else [*blocks, TextBlock(text=text)]
        _mark(edited, "edited")
        return edited

    def make(self, role: str, text: str, *, origin: str) -> Any:
        return ChatMessage(role=MessageRole(role), content=text, additional_kwargs={MARK: origin})

    def copy(self, message: Any) -> Any:
        return copy_message(message)


CODEC = ChatCodec()


def defused(text: str) -> str:
    """Returns a text that a context engine, which takes past messages for templates, will not fill in.

    Example:
        >>> defused("echo {context_str} {other}")
        'echo { context_str} {other}'
    """
    return _SLOT.sub("{ ", text) if "{" in text else text


def copy_message(message: ChatMessage) -> ChatMessage:
    """Returns a copy that can be edited freely; raw bytes and open files inside its blocks are shared, never read.

    Example:
        >>> original = ChatMessage(role="user", content="hi")
        >>> copy_message(original).blocks[0].text = "changed"
        >>> original.content
        'hi'
    """
    fresh: ChatMessage = shallow_copy(message)
    blocks = [shallow_copy(b) if type(b) is TextBlock else _copy_block(b) for b in message.blocks]
    fresh.__dict__["blocks"] = blocks[
        :
    ]  # a list of its very size: one that was grown keeps room for more in every stored message
    extra = message.additional_kwargs
    fresh.__dict__["additional_kwargs"] = _copy_plain(extra) if extra else {}
    return fresh


def counter_of(tokenizer_fn: Callable[[str], list[Any]] | None, counter: Any = None) -> TokenCounter:
    """Returns the core's counter for a LlamaIndex tokenizer; `counter` (anything `counter_for` takes) goes first.

    A tokenizer that is tiktoken's own is counted by tiktoken directly: without building lists, and without its error on text
    that looks like a special token.
    """
    if counter is not None:
        return counter_for(counter)
    if tokenizer_fn is None:
        return settings_counter()
    encoding = tiktoken_name(tokenizer_fn)
    return counter_for(encoding) if encoding else counter_for(_TokenizerLength(tokenizer_fn))


def settings_counter() -> TokenCounter:
    """Returns the counter of LlamaIndex's global tokenizer, its own cl100k_base when none was set."""
    from llama_index.core.utils import get_tokenizer

    return counter_of(get_tokenizer())


class _TokenizerLength:
    """Makes a counting callable of a list-returning tokenizer; equal for equal tokenizers."""

    def __init__(self, tokenizer_fn: Callable[[str], list[Any]]) -> None:
        self.tokenizer_fn = tokenizer_fn
        self.__name__ = getattr(tokenizer_fn, "__qualname__", type(tokenizer_fn).__name__)

    def __call__(self, text: str) -> int:
        return len(self.tokenizer_fn(text))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _TokenizerLength) and other.tokenizer_fn is self.tokenizer_fn

    def __hash__(self) -> int:
        return hash(id(self.tokenizer_fn))


def tiktoken_name(tokenizer_fn: Any) -> str | None:
    """Returns the encoding whose `encode` a tokenizer is, None for any other."""
    while isinstance(tokenizer_fn, functools.partial):
        tokenizer_fn = tokenizer_fn.func
    owner = getattr(tokenizer_fn, "__self__", None)
    if (
        owner is not None
        and type(owner).__module__.split(".")[0] == "tiktoken"
        and getattr(tokenizer_fn, "__name__", "").startswith("encode")
    ):
        return str(owner.name)
    return None


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
    if isinstance(block, ImageBlock):
        image = {"url": _where(block, block.image, block.image_mimetype or "image/png")}
        return {
            "type": "image_url",
            "image_url": {**image, "detail": block.detail} if block.detail else image,
        }
    if isinstance(block, AudioBlock):
        return {
            "type": "input_audio",
            "input_audio": {"data": _where(block, block.audio, None), "format": block.format or ""},
        }
    if isinstance(block, VideoBlock):
        return {
            "type": "video",
            "video": {"url": _where(block, block.video, block.video_mimetype or "video/mp4")},
        }
    if isinstance(block, DocumentBlock):
        data = _where(block, block.data, block.document_mimetype or "application/octet-stream")
        return {"type": "file", "file": {"filename": block.title or "", "file_data": data}}
    if isinstance(block, (CitableBlock, CitationBlock)):
        parts = block.content if isinstance(block, CitableBlock) else [block.cited_content]
        inner = [neutral for part in parts if (neutral := _neutral_block(part)) is not None]
        return {"type": "document", "title": block.title, "source": block.source, "content": inner}
    return {
        "type": str(getattr(block, "block_type", type(block).__name__)),
        **block.model_dump(mode="json", exclude={"block_type"}),
    }


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
    """Returns all tool calls in the neutral form, from blocks and from both older places, each id once."""
    calls = [
        _call(b.tool_call_id or "", b.tool_name, b.tool_kwargs)
        for b in message.blocks
        if isinstance(b, ToolCallBlock)
    ]
    extra = message.additional_kwargs
    if not extra:
        return calls
    seen = {call["id"] for call in calls}
    for legacy in extra.get("tool_calls") or ():
        data = legacy if isinstance(legacy, Mapping) else _plain(legacy)
        function = data.get("function") or data
        function = function if isinstance(function, Mapping) else _plain(function)
        call = _call(
            str(data.get("id") or data.get("call_id") or ""), function.get("name"), function.get("arguments")
        )
        if call["id"] not in seen or not call["id"]:
            calls.append(call)
    oldest = extra.get("function_call")
    if oldest:
        data = oldest if isinstance(oldest, Mapping) else _plain(oldest)
        calls.append(_call(_function_id(data.get("name")), data.get("name"), data.get("arguments")))
    return calls


def _call(call_id: str, name: Any, arguments: Any) -> dict[str, Any]:
    text = (
        arguments
        if isinstance(arguments, str)
        else json.dumps(arguments if arguments is not None else {}, default=str)
    )
    return {"id": call_id, "type": "function", "function": {"name": str(name or ""), "arguments": text}}


def _function_id(name: Any) -> str:
    return f"function:{name}"  # the oldest protocol has no ids: a result answers the call of its name


def _plain(value: Any) -> Mapping[str, Any]:
    dump = getattr(value, "model_dump", None)
    found = dump() if callable(dump) else getattr(value, "__dict__", {})
    return found if isinstance(found, Mapping) else {}


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
    """Copies a pydantic model's own fields, as another `kind` with its private attributes if asked; many times faster than `model_copy`."""
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
