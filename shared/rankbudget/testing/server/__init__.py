"""A strict model server on this machine.

It speaks the OpenAI chat completions protocol and refuses what providers refuse:

    with StrictModelServer() as server:
        client = openai.OpenAI(base_url=server.base_url, api_key="none")
        client.chat.completions.create(model="openai@8192", messages=[...])

A model's name is a provider's rules and a window in tokens. The server counts every request in a way of its
own and answers 400 when it is too long.
"""

from __future__ import annotations

from .http_server import Received, StrictModelServer
from .providers import ALTERNATING, ANTHROPIC, OPENAI, PROVIDERS, Provider, problems_of
from .replies import Reply
from .request_tokens import request_tokens

__all__ = [
    "ALTERNATING",
    "ANTHROPIC",
    "OPENAI",
    "PROVIDERS",
    "Provider",
    "Received",
    "Reply",
    "StrictModelServer",
    "problems_of",
    "request_tokens",
]
