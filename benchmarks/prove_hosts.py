"""OpenAI-style dicts as each host's own messages."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any


def to_langchain(messages: Sequence[dict[str, Any]]) -> list[Any]:
    """Returns LangChain messages with the ids m0, m1, ..."""
    from langchain_core.messages import convert_to_messages

    known = [
        {**m, "content": _without_redacted(m["content"])} for m in messages
    ]  # its OpenAI client would send that block as it is
    made = convert_to_messages(
        [{k: v for k, v in m.items() if v is not None or k == "content"} for m in known]
    )
    for i, message in enumerate(made):
        message.id = f"m{i}"
    return made


def _without_redacted(content: Any) -> Any:
    return [b for b in content if b["type"] != "redacted_thinking"] if isinstance(content, list) else content


def to_llamaindex(messages: Sequence[dict[str, Any]]) -> list[Any]:
    """Returns LlamaIndex chat messages."""
    from llama_index.core.llms import ChatMessage

    made = []
    for message in messages:
        extra = {key: message[key] for key in ("tool_call_id", "name") if message.get(key)}
        made.append(ChatMessage(role=message["role"], blocks=list(_blocks(message)), additional_kwargs=extra))
    return made


def _blocks(message: dict[str, Any]) -> Any:
    from llama_index.core.base.llms.types import (
        AudioBlock,
        DocumentBlock,
        ImageBlock,
        TextBlock,
        ThinkingBlock,
        ToolCallBlock,
    )

    content = message.get("content")
    if isinstance(content, str) and (content or not message.get("tool_calls")):
        yield TextBlock(text=content)
    for block in content if isinstance(content, list) else ():
        kind = block["type"]
        if kind == "text":
            yield TextBlock(text=block["text"])
        elif kind == "image_url":
            yield ImageBlock(url=block["image_url"]["url"])
        elif kind == "input_audio":
            yield AudioBlock(audio=block["input_audio"]["data"].encode(), format="wav")
        elif kind == "file":
            yield DocumentBlock(
                data=base64.b64encode(b"%PDF-1" * 9), title="a.pdf", document_mimetype="application/pdf"
            )
        elif kind == "thinking":
            yield ThinkingBlock(
                content=block["thinking"], additional_information={"signature": block["signature"]}
            )
        elif kind == "redacted_thinking":
            yield ThinkingBlock(content=None, additional_information={"data": block["data"]})
    for call in message.get("tool_calls") or ():
        function = call["function"]
        yield ToolCallBlock(
            tool_call_id=call["id"], tool_name=function["name"], tool_kwargs=json.loads(function["arguments"])
        )
