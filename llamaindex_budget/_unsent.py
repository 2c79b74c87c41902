"""What an LLM's own client leaves out of the messages that it is given: no part counts it for that LLM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.base.llms.types import (
    AudioBlock,
    ChatMessage,
    DocumentBlock,
    ImageBlock,
    MessageRole,
    ThinkingBlock,
)
from llama_index.core.llms.structured_llm import StructuredLLM

from rankbudget.adapters import Client, sends_thought

_MODULES = {
    Client.OPENAI_CHAT: "llama_index.llms.openai.base",
    Client.OPENAI_RESPONSES: "llama_index.llms.openai.responses",
}
_MEDIA = (AudioBlock, DocumentBlock, ImageBlock)
_AS_TEXT = (MessageRole.ASSISTANT, MessageRole.SYSTEM, MessageRole.TOOL)
"""Whose messages OpenAI's chat client sends as one text, without media."""


def client_of(llm: BaseLLM | None, arguments: Mapping[str, Any] | None = None) -> str | None:
    """Returns the name of an LLM's client that leaves blocks out of a request, None of any other.

    OpenAI's chat client is one, its responses client where the provider stores nothing: reasoning goes back
    only with `store=True`, of the LLM or of the `arguments` of a call.
    """
    given = llm.llm if isinstance(llm, StructuredLLM) else llm
    found = next((name for name, module in _MODULES.items() if is_client_of(given, (module,))), None)
    if found == Client.OPENAI_RESPONSES:
        own = {"store": getattr(given, "store", False), **(getattr(given, "additional_kwargs", None) or {})}
        if {**own, **(arguments or {})}.get("store"):
            return None
    return found


def is_client_of(llm: BaseLLM | None, modules: tuple[str, ...]) -> bool:
    """Returns whether an LLM is one of these packages, or made of one."""
    return any(kind.__module__.startswith(modules) for kind in type(llm).__mro__)


def is_sent(block: Any, role: Any, client: str | None) -> bool:
    """Returns whether a client sends a content block of a message of this role."""
    if isinstance(block, ThinkingBlock):
        return sends_thought(client, {"type": "thinking"})
    return client != Client.OPENAI_CHAT or role not in _AS_TEXT or not isinstance(block, _MEDIA)


def sent_blocks(message: ChatMessage, client: str | None) -> Sequence[Any]:
    """Returns the content blocks of a message that a client sends."""
    blocks: Sequence[Any] = message.blocks
    return blocks if client is None else [b for b in blocks if is_sent(b, message.role, client)]
