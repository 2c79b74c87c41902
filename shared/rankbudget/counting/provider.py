"""Counts by asking the provider through the user's client, and remembers what it said."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import BudgetConfigError
from .blocks import arguments_of, function_of
from .messages import as_text
from .profiles import PROFILES, apply_profile, as_blocks
from .protocol import Message, TokenCounter, Tool

_log = logging.getLogger("rankbudget.counting")
_REMEMBERED = 256
_SYSTEM = frozenset({"system", "developer"})
_SYNC_ONLY = "client must be blocking (got an async one). Give anthropic.Anthropic() or genai.Client()."


class ProviderCounter:
    """Counts requests with an Anthropic-style or Google-style client, and all else with `local`."""

    additive = False
    exact = False

    def __init__(self, client: Any, model: str, *, local: TokenCounter) -> None:
        places = [getattr(client, name, None) for name in ("messages", "models")]
        anthropic, google = [getattr(place, "count_tokens", None) for place in places]
        self._anthropic = callable(anthropic)
        self._ask: Any = anthropic if self._anthropic else google
        if not callable(self._ask):
            msg = (
                "client must have messages.count_tokens (Anthropic) or models.count_tokens (Google) "
                f"(got {type(client).__name__}). Give such a client, or the model's name alone."
            )
            raise BudgetConfigError(msg)
        self._local = local
        self._answers: dict[bytes, int] = {}
        self.name = model
        self.band = local.band
        kind = "Anthropic" if self._anthropic else "Google"
        self.why = f"requests are counted by {kind} for {model!r}; single texts: {local.why}"
        self.count, self.count_many, self.truncate = local.count, local.count_many, local.truncate
        self.count_message, self.overhead = local.count_message, local.overhead

    def count_messages(self, messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> int:
        """Returns what the provider counts for the request, or the local count when it does not answer."""
        said = json.dumps([list(messages), list(tools or ())], ensure_ascii=True, default=repr, skipkeys=True)
        key = hashlib.blake2b(said.encode(), digest_size=16).digest()
        if key in self._answers:
            return self._answers[key]
        if all(m.get("role") in _SYSTEM for m in messages):  # providers refuse such requests
            return self._local.count_messages(messages, tools)
        make, field = (_anthropic, "input_tokens") if self._anthropic else (_google, "total_tokens")
        try:
            answer = self._ask(model=self.name, **make(messages, tools))
            if is_late := hasattr(answer, "__await__"):
                getattr(answer, "close", lambda: None)()
            held: Any = answer if isinstance(answer, Mapping) else {field: getattr(answer, field, None)}
            reported = 0 if is_late else int(held[field])
        except Exception as error:  # noqa: BLE001 - whatever the client raises, this can count
            why = f"{type(error).__name__}: {str(error)[:200]}"
            _log.warning("%s did not count a request (%s); counted here instead", self.name, why)
            return self._local.count_messages(messages, tools)
        if is_late:
            raise BudgetConfigError(_SYNC_ONLY)
        self._answers[key] = reported
        if len(self._answers) > _REMEMBERED:
            self._answers.pop(next(iter(self._answers)), None)
        return reported


def _anthropic(messages: Sequence[Message], tools: Sequence[Tool] | None) -> dict[str, Any]:
    """Returns a request as Anthropic's endpoint takes it."""
    system, rest = _split_system(messages)
    request: dict[str, Any] = {"messages": [_anthropic_message(message) for message in rest]}
    if system:
        request["system"] = system
    if tools:
        request["tools"] = [_anthropic_tool(tool) for tool in tools]
    return request


def _google(messages: Sequence[Message], tools: Sequence[Tool] | None) -> dict[str, Any]:
    """Returns contents alone: not every endpoint takes system text and tools, so they are sent as text."""
    system, rest = _split_system(messages)
    before = [text for text in (system, as_text(list(tools)) if tools else "") if text]
    contents = [{"role": "user", "parts": [{"text": text}]} for text in before]
    for message in rest:
        role = "model" if message.get("role") == "assistant" else "user"
        texts = _texts(message.get("content")) + [as_text(call) for call in message.get("tool_calls") or ()]
        contents.append({"role": role, "parts": [{"text": text} for text in texts or [" "]]})
    return {"contents": contents}


def _split_system(messages: Sequence[Message]) -> tuple[str, list[Message]]:
    """Returns the system text and the other messages, in the order that providers accept."""
    accepted = apply_profile(messages, PROFILES["anthropic"])
    texts = [text for m in accepted if m.get("role") in _SYSTEM for text in _texts(m.get("content"))]
    return "\n\n".join(texts), [m for m in accepted if m.get("role") not in _SYSTEM]


def _texts(content: Any) -> list[str]:
    """Returns the text of each block of a content; a block without one counts as JSON."""
    if not content:
        return []
    blocks = [content] if isinstance(content, str) else content
    found = [block.get("text") if isinstance(block, Mapping) else block for block in blocks]
    return [one if isinstance(one, str) else as_text(block) for one, block in zip(found, blocks, strict=True)]


def _anthropic_message(message: Message) -> dict[str, Any]:
    content = message.get("content")
    if message.get("role") in {"tool", "function"}:
        called = str(message.get("tool_call_id") or "")
        result = {"type": "tool_result", "tool_use_id": called, "content": content or ""}
        return {"role": "user", "content": [result]}
    blocks = [*(as_blocks(content) if content else ()), *map(_tool_use, message.get("tool_calls") or ())]
    return {"role": "assistant" if message.get("role") == "assistant" else "user", "content": blocks or " "}


def _tool_use(call: Mapping[str, Any]) -> dict[str, Any]:
    function = function_of(call)
    given = arguments_of(function)
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            given = {"arguments": given}
    name, called = str(function.get("name") or ""), str(call.get("id") or "")
    return {"type": "tool_use", "id": called, "name": name, "input": given if isinstance(given, dict) else {}}


def _anthropic_tool(tool: Tool) -> dict[str, Any]:
    function = function_of(tool)
    given = (function.get(key) for key in ("parameters", "input_schema", "schema"))
    schema = next(filter(None, given), {"type": "object"})
    words = {"name": function.get("name", ""), "description": function.get("description") or ""}
    return {**words, "input_schema": schema}
