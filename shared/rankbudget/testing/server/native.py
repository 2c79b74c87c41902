"""The protocols of Anthropic, Gemini and Ollama.

Each one has what a request says, what the provider refuses and how it answers.
Every function takes the JSON of a request as the provider's own client sends it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .replies import Reply

__all__ = ["DIALECTS", "Dialect", "dialect_of"]

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One provider's protocol.

    Args:
        name: what it is called.
        path: end of the request's path; what stands before it may name the model.
    """

    name: str
    path: str

    def problems(self, body: Body) -> list[str]:
        """Returns everything the provider would refuse."""
        return list(_JUDGES[self.name](body))

    def texts(self, body: Body) -> str:
        """Returns all that the model reads, one piece a line; images and other media left out."""
        read = (body.get(name) for name in ("system", "systemInstruction", "messages", "contents", "tools"))
        return "\n".join(piece for part in read for piece in _leaves(part))

    def room(self, body: Body) -> int:
        """Returns the tokens asked for in the answer."""
        config = body.get("generationConfig") or body.get("options") or {}
        return int(body.get("max_tokens") or config.get("maxOutputTokens") or config.get("num_predict") or 0)

    def answer(self, reply: Reply, body: Body, number: int, tokens: int) -> dict[str, Any]:
        """Returns the JSON of an answer."""
        return _ANSWERS[self.name](reply, body, number, tokens)

    def refusal(self, message: str) -> dict[str, Any]:
        """Returns the JSON of a refusal."""
        if self.name == "anthropic":
            return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
        if self.name == "gemini":
            return {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}
        return {"error": message}


def dialect_of(path: str) -> Dialect | None:
    """Returns the protocol that a path belongs to, None for OpenAI's."""
    return next((d for d in DIALECTS if path.partition("?")[0].rstrip("/").endswith(d.path)), None)


DIALECTS = (
    Dialect("anthropic", "/v1/messages"),
    Dialect("gemini", ":generateContent"),
    Dialect("ollama", "/api/chat"),
)

_UNREAD = {"signature", "data", "id", "tool_use_id", "type", "role", "thoughtSignature", "cache_control"}


def _leaves(value: Any, name: str = "") -> Iterator[str]:
    """Yields the texts of a value, names of fields included where the model reads them."""
    if isinstance(value, str):
        if name not in _UNREAD:
            yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, key)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _leaves(item, name)
    elif value is not None:
        yield str(value)


# ---- Anthropic ---------------------------------------------------------------------------------------------


def _anthropic(body: Body) -> Iterator[str]:
    messages = body.get("messages") or []
    if not messages:
        yield "messages: at least one message is required"
        return
    if messages[0].get("role") != "user":
        yield "messages.0: first message must use the 'user' role"
    system = body.get("system")
    if isinstance(system, list):
        yield from (
            f"system.{i}: text content blocks must be non-empty"
            for i, block in enumerate(system)
            if not str(block.get("text", "")).strip()
        )
    asked: list[str] = []
    for i, message in enumerate(messages):
        if message.get("role") not in ("user", "assistant"):
            yield f"messages.{i}: unexpected role {message.get('role')!r}"
        blocks = _blocks(message)
        if not blocks:
            yield f"messages.{i}: all messages must have non-empty content"
        answered = [b.get("tool_use_id") for b in blocks if b.get("type") == "tool_result"]
        missing = [call for call in asked if call not in answered]
        if missing:
            yield (
                f"messages.{i}: tool_use ids {missing} were found"
                " without tool_result blocks immediately after"
            )
        yield from (
            f"messages.{i}: unexpected tool_use_id {found!r} found in tool_result blocks"
            for found in answered
            if found not in asked
        )
        asked = [b["id"] for b in blocks if b.get("type") == "tool_use"]
        if len(set(asked)) < len(asked):
            yield f"messages.{i}: tool_use ids must be unique"
        yield from _anthropic_blocks(i, message, blocks)
    if asked:
        yield f"messages: tool_use ids {asked} were found without tool_result blocks at the end"


def _anthropic_blocks(i: int, message: Body, blocks: Sequence[Body]) -> Iterator[str]:
    kinds = [block.get("type") for block in blocks]
    results = [at for at, kind in enumerate(kinds) if kind == "tool_result"]
    if results != list(range(len(results))):
        yield f"messages.{i}: tool_result blocks must come first in the content"
    used = {block.get("id") for block in blocks if block.get("type") == "server_tool_use"}
    for at, block in enumerate(blocks):
        kind = str(block.get("type"))
        if kind == "text" and not str(block.get("text", "")).strip():
            yield f"messages.{i}.content.{at}: text content blocks must contain non-whitespace text"
        if kind == "thinking" and not block.get("signature"):
            yield f"messages.{i}.content.{at}: thinking blocks must have a signature"
        if kind.endswith("_tool_result") and block.get("tool_use_id") not in used:
            yield f"messages.{i}.content.{at}: {kind} has no server_tool_use before it"
    if message.get("role") == "assistant" and kinds and kinds[-1] in ("thinking", "redacted_thinking"):
        yield f"messages.{i}: the final block in an assistant message cannot be thinking"


def _blocks(message: Body) -> list[Body]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content or ())


def _anthropic_answer(reply: Reply, body: Body, number: int, tokens: int) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": reply.text}] if reply.text else []
    content += [
        {"type": "tool_use", "id": f"toolu_{number}_{i}", "name": name, "input": dict(arguments)}
        for i, (name, arguments) in enumerate(reply.tool_calls)
    ]
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": content,
        "stop_reason": "tool_use" if reply.tool_calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": tokens, "output_tokens": 1},
    }


# ---- Gemini ------------------------------------------------------------------------------------------------


def _gemini(body: Body) -> Iterator[str]:
    contents = body.get("contents") or []
    if not contents:
        yield "contents is not specified"
        return
    before: tuple[str, int] = ("start", 0)
    for i, content in enumerate(contents):
        parts = content.get("parts") or []
        if not parts:
            yield f"contents[{i}].parts must not be empty"
        if any(not set(part) - {"thought", "thoughtSignature"} or part.get("text") == "" for part in parts):
            yield f"contents[{i}].parts: required oneof field 'data' must have one initialized field"
        calls = sum("functionCall" in part for part in parts)
        results = sum("functionResponse" in part for part in parts)
        kind = "call" if calls else "response" if results else str(content.get("role"))
        if kind == "call" and before[0] == "start":
            yield f"contents[{i}]: function call turn must not come first"
        if kind == "response" and before[0] != "call":
            yield f"contents[{i}]: function response turn must come immediately after a function call turn"
        if kind == "response" and before[0] == "call" and results != before[1]:
            yield (
                f"contents[{i}]: the number of function response parts"
                " must equal that of the function call turn"
            )
        if before[0] == "call" and kind != "response":
            yield f"contents[{i}]: a function call turn must be followed by its function responses"
        if i == 0 and kind != "user":
            yield "contents[0]: the first turn must be the user's"
        before = (kind, calls)
    if before[0] not in ("user", "response"):
        yield "contents: a multiturn request must end with a user role or a function response"


def _gemini_answer(reply: Reply, body: Body, number: int, tokens: int) -> dict[str, Any]:
    del body, number
    parts: list[dict[str, Any]] = [{"text": reply.text}] if reply.text else []
    parts += [{"functionCall": {"name": name, "args": dict(args)}} for name, args in reply.tool_calls]
    return {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {
            "promptTokenCount": tokens,
            "candidatesTokenCount": 1,
            "totalTokenCount": tokens + 1,
        },
        "modelVersion": "strict",
    }


# ---- Ollama ------------------------------------------------------------------------------------------------


def _ollama(body: Body) -> Iterator[str]:
    """Checks the order of calls and results.

    Ollama accepts nearly everything and pairs by order. Here a result needs a call before it, and a call
    needs its results.
    """
    messages = body.get("messages") or []
    if not messages:
        yield "messages: at least one message is required"
    waiting = 0
    for i, message in enumerate(messages):
        if message.get("role") == "tool":
            if not waiting:
                yield f"messages[{i}]: a tool result without a call before it"
            waiting = max(0, waiting - 1)
            continue
        if waiting:
            yield f"messages[{i}]: {waiting} tool calls have no result"
        waiting = len(message.get("tool_calls") or ())
    if waiting:
        yield f"messages: {waiting} tool calls have no result"


def _ollama_answer(reply: Reply, body: Body, number: int, tokens: int) -> dict[str, Any]:
    del number
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.tool_calls:
        message["tool_calls"] = [
            {"function": {"name": name, "arguments": json.loads(json.dumps(dict(args)))}}
            for name, args in reply.tool_calls
        ]
    return {
        "model": body.get("model"),
        "created_at": "2026-01-01T00:00:00Z",
        "message": message,
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": tokens,
        "eval_count": 1,
    }


_JUDGES = {"anthropic": _anthropic, "gemini": _gemini, "ollama": _ollama}
_ANSWERS = {"anthropic": _anthropic_answer, "gemini": _gemini_answer, "ollama": _ollama_answer}
