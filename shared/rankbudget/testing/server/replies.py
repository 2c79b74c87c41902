"""What the server answers: scripted texts and tool calls, and the faults a network and a provider have."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Fault", "Reply", "body_of", "chunks_of"]

Fault = Literal["rate_limit", "server_error", "timeout", "cut_stream", "wrong_usage", "not_json"]
"""How an answer fails.

In order: 429 with Retry-After, 500, an answer that comes too late, a stream that ends in the middle, token
counts that are wrong, a body that is no JSON.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One scripted answer.

    Args:
        text: what the model says.
        tool_calls: pairs of tool name and arguments the model asks for.
        fault: what goes wrong instead or besides.
        delay_seconds: how long the server waits first; "timeout" waits this long and then closes the
            connection.
    """

    text: str = "ok"
    tool_calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    fault: Fault | None = None
    delay_seconds: float = 0.0

    def message(self, number: int) -> dict[str, Any]:
        """Returns the assistant message; call ids are unique by the number of the request."""
        made: dict[str, Any] = {
            "role": "assistant",
            "content": self.text if not self.tool_calls else (self.text or None),
        }
        if self.tool_calls:
            made["tool_calls"] = [
                {
                    "id": f"call_{number}_{i}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for i, (name, arguments) in enumerate(self.tool_calls)
            ]
        return made


def body_of(
    reply: Reply, *, model: str, number: int, prompt_tokens: int, completion_tokens: int
) -> dict[str, Any]:
    """Returns the answer to a request without streaming."""
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [
            {"index": 0, "message": reply.message(number), "finish_reason": _finish(reply), "logprobs": None}
        ],
        "usage": usage(reply, prompt_tokens, completion_tokens),
    }


def chunks_of(
    reply: Reply, *, model: str, number: int, prompt_tokens: int, completion_tokens: int, include_usage: bool
) -> Iterator[dict[str, Any]]:
    """Yields the answer to a streaming request, piece by piece."""

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": dict(delta), "finish_reason": finish}
        return {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": model,
            "choices": [choice],
        }

    message = reply.message(number)
    yield chunk({"role": "assistant", "content": ""})
    words = (message["content"] or "").split(" ")
    for i, word in enumerate(words if message["content"] else ()):
        yield chunk({"content": word if i == 0 else f" {word}"})
    for i, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        yield chunk(
            {
                "tool_calls": [
                    {
                        "index": i,
                        "id": call["id"],
                        "type": "function",
                        "function": {"name": function["name"], "arguments": ""},
                    }
                ]
            }
        )
        half = len(function["arguments"]) // 2
        for piece in (function["arguments"][:half], function["arguments"][half:]):
            yield chunk({"tool_calls": [{"index": i, "function": {"arguments": piece}}]})
    yield chunk({}, _finish(reply))
    if include_usage:
        yield {**chunk({}), "choices": [], "usage": usage(reply, prompt_tokens, completion_tokens)}


def usage(reply: Reply, prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """Returns the token counts the server reports, true ones unless the reply's fault is to lie."""
    if reply.fault == "wrong_usage":
        prompt_tokens, completion_tokens = prompt_tokens * 10 + 7, 0
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def _finish(reply: Reply) -> str:
    return "tool_calls" if reply.tool_calls else "stop"
