"""What the clients of models leave out of the messages that they are given, and no part counts for them."""

from __future__ import annotations

from typing import Any

from ..counting.blocks import kind_of

_THOUGHTS = frozenset({"thinking", "reasoning", "reasoning_content"})


class Client:
    """The names of clients; OpenAI's newer one is the last of three where it sends reasoning back."""

    OPENAI_CHAT, OPENAI_RESPONSES, OPENAI_REASONING = "openai-chat", "openai-responses", "openai-reasoning"
    ANTHROPIC, GOOGLE, OLLAMA = "anthropic", "google", "ollama"


def sends_thought(client: str | None, block: Any, author: str | None = None) -> bool:
    """Returns whether a client sends a block, which a model of the provider `author` may have thought.

    An unknown client may send all, as older versions of Google's do.
    """
    if client in (None, Client.GOOGLE) or (kind := kind_of(block)) not in _THOUGHTS:
        return True
    if client == Client.ANTHROPIC:
        return kind != "reasoning" or author == "anthropic"
    return client == Client.OPENAI_REASONING and kind == "reasoning"
