"""Tool calls of another host's conversation as an LLM's own client can send them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock, ToolCallBlock
from llama_index.core.llms.llm import LLM

from rankbudget.adapters import with_clear_ids

from ._codec import CODEC, as_mapping, copy_message
from ._unsent import client_of, is_client_of, sent_blocks

_OPENAI = ("llama_index.llms.openai",)
GOOGLE = tuple(f"llama_index.llms.{name}" for name in ("google_genai", "gemini", "vertex"))
_OLDER_TOO = (
    "llama_index.llms.openai.responses",
    *(f"llama_index.llms.{name}" for name in ("ollama", "anthropic", "bedrock_converse")),
    *GOOGLE,
)
"""Clients that send calls of the older place beside blocks, or instead of them."""


def with_clear_calls(
    llm: LLM, messages: Sequence[ChatMessage], arguments: Mapping[str, Any] | None = None
) -> Sequence[ChatMessage]:
    """Returns messages whose calls have ids of their own, and arguments in the form that the client sends.

    Only messages that need it are copies. Google's clients send the id of a result as the name of its
    function, so there ids stay. OpenAI's take arguments that are a text. What the client leaves out of a call
    with these `arguments` is left out here, too, so that it is not counted. Calls that older versions keep
    beside the blocks are left out where the client would send them, too: they are copies, or calls without an
    answer. Those that only another client can send become blocks: each sends what is in that place as it is.
    """
    keeps = partial(_keeps_older, beside=is_client_of(llm, _OLDER_TOO))
    if any(map(keeps, messages)):
        messages = [_in_blocks(message) if keeps(message) else message for message in messages]
    if not is_client_of(llm, GOOGLE):
        messages = with_clear_ids(CODEC, messages)
    client = client_of(llm, arguments)
    if client is not None and any(len(sent_blocks(m, client)) < len(m.blocks) for m in messages):
        messages = [_as_sent(message, client) for message in messages]
    if is_client_of(llm, _OPENAI) or not any(map(_is_written, messages)):
        return messages
    return [_read(message) if _is_written(message) else message for message in messages]


def _keeps_older(message: ChatMessage, *, beside: bool) -> bool:
    """Returns whether the older place holds calls that a client must not send; some send it `beside` blocks.

    Calls of OpenAI's chat have a `function`, those of its responses a `call_id`.
    """
    older = message.additional_kwargs.get("tool_calls")
    if older and _has_call(message):
        return beside
    calls = [as_mapping(call) for call in older or ()]
    return any(call.get("call_id") or (beside and call.get("function")) for call in calls)


def _has_call(message: ChatMessage) -> bool:
    return any(isinstance(block, ToolCallBlock) for block in message.blocks)


def _in_blocks(message: ChatMessage) -> ChatMessage:
    made = copy_message(message)
    for call in () if _has_call(made) else CODEC.to_dict(made)["tool_calls"]:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        made.blocks.append(ToolCallBlock(tool_call_id=call.get("id"), tool_name=name, tool_kwargs=arguments))
    del made.additional_kwargs["tool_calls"]
    return made


def _as_sent(message: ChatMessage, client: str) -> ChatMessage:
    if len(sent_blocks(message, client)) == len(message.blocks):
        return message
    made = copy_message(message)
    made.blocks = list(sent_blocks(made, client))
    if message.role == MessageRole.TOOL and not made.blocks:
        made.blocks = [TextBlock(text="")]  # as it is sent: the result of a call is always there
    return made


def _is_written(message: ChatMessage) -> bool:
    """Returns whether the arguments of a call are a text, as OpenAI gives them."""
    return any(isinstance(b, ToolCallBlock) and isinstance(b.tool_kwargs, str) for b in message.blocks)


def _read(message: ChatMessage) -> ChatMessage:
    made = copy_message(message)
    for block in made.blocks:
        if isinstance(block, ToolCallBlock) and isinstance(block.tool_kwargs, str):
            block.tool_kwargs = _arguments(block.tool_kwargs)
    return made


def _arguments(text: str) -> dict[str, Any]:
    """Returns arguments that are a text as an object; a text that is none stays readable in one."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        found = text
    return found if isinstance(found, dict) else {} if found is None else {"arguments": text}
