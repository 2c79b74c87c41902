"""Counts by asking the provider, when the user hands over its client: `client.messages.count_tokens` or `client.models.count_tokens`.

Whole requests are counted by the provider, and remembered; single texts and messages by a local counter, which learns from every answer how far
off it is. A provider that does not answer is no reason to stop: the local count is given instead, and the log says so.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import BudgetConfigError
from .messages import as_text
from .profiles import PROFILES, apply_profile
from .protocol import Message, Side, TokenCounter, Tool

__all__ = ["ProviderCounter"]

_log = logging.getLogger("rankbudget.counting")
_REMEMBERED = 256
_SYSTEM = frozenset({"system", "developer"})


class ProviderCounter:
    """Counts requests with a provider's own endpoint; it has no `import` of any provider.

    Args:
        client: an Anthropic-style or Google-style client that answers at once; async clients are refused.
        model: the model to count for.
        local: counts texts and messages, and requests the provider does not answer.

    Example:
        >>> from types import SimpleNamespace
        >>> from rankbudget import counter_for
        >>> def count_tokens(**request):
        ...     return SimpleNamespace(input_tokens=10 + len(request["messages"]))
        >>> client = SimpleNamespace(messages=SimpleNamespace(count_tokens=count_tokens))
        >>> counter_for(client, model="claude-sonnet-4-5").count_messages([{"role": "user", "content": "Hi"}])
        11
    """

    additive = False
    exact = False

    def __init__(self, client: Any, model: str, *, local: TokenCounter) -> None:
        ask, kind = _endpoint(client)
        self._ask: Callable[[Sequence[Message], Sequence[Tool] | None], int] = {
            "Anthropic": self._anthropic,
            "Google": self._google,
        }[kind]
        self._endpoint = ask
        self._model = model
        self._local = local
        self._answers: OrderedDict[str, int] = OrderedDict()
        self.why = f"requests are counted by {kind} for {model!r}; single texts: {local.why}"

    def __repr__(self) -> str:
        return f"ProviderCounter({self._model!r})"

    @property
    def name(self) -> str:
        return self._model

    @property
    def band(self) -> float:
        return self._local.band

    def count(self, text: str) -> int:
        """Returns the local counter's tokens of one text; no request is made."""
        return self._local.count(text)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Returns the local counter's tokens of each text, in order."""
        return self._local.count_many(texts)

    def truncate(self, text: str, max_tokens: int, *, side: Side = "right") -> str:
        """Returns the longest start or end that the local counter lets through."""
        return self._local.truncate(text, max_tokens, side=side)

    def count_message(self, message: Message) -> int:
        """Returns the local counter's tokens of one message."""
        return self._local.count_message(message)

    def overhead(self, tools: Sequence[Tool] | None = None) -> int:
        """Returns the local counter's tokens of what a request costs before any message."""
        return self._local.overhead(tools)

    def count_messages(self, messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> int:
        """Returns what the provider counts for the request; what the local counter gives when it does not answer."""
        key = json.dumps([list(messages), list(tools or ())], ensure_ascii=True, default=repr, skipkeys=True)
        found = self._answers.get(key)
        if found is not None:
            return found
        counted = self._local.count_messages(messages, tools)
        if all(m.get("role") in _SYSTEM for m in messages):
            return counted  # no provider counts a request in which nobody speaks
        try:
            reported = self._ask(messages, tools)
        except BudgetConfigError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the client raises, the request can still be counted here
            _log.warning(
                "%s did not count a request (%s: %s); counted here instead",
                self._model,
                type(error).__name__,
                str(error)[:200],
            )
            return counted
        self._answers[key] = reported
        if len(self._answers) > _REMEMBERED:
            self._answers.popitem(last=False)
        learn = getattr(self._local, "observe", None)
        if learn is not None:
            learn(counted, reported)
        return reported

    def _anthropic(self, messages: Sequence[Message], tools: Sequence[Tool] | None) -> int:
        system, rest = _split_system(messages)
        request: dict[str, Any] = {"model": self._model, "messages": [_anthropic_message(m) for m in rest]}
        if system:
            request["system"] = system
        if tools:
            request["tools"] = [_anthropic_tool(tool) for tool in tools]
        return _whole(self._endpoint(**request), "input_tokens")

    def _google(self, messages: Sequence[Message], tools: Sequence[Tool] | None) -> int:
        """Asks for the contents; the endpoint takes neither system text nor tools everywhere, so they go along as text."""
        system, rest = _split_system(messages)
        before = [text for text in (system, as_text(list(tools)) if tools else "") if text]
        contents = [{"role": "user", "parts": [{"text": text}]} for text in before]
        contents += [
            {"role": "model" if m.get("role") == "assistant" else "user", "parts": _google_parts(m)}
            for m in rest
        ]
        return _whole(self._endpoint(model=self._model, contents=contents), "total_tokens")


def _endpoint(client: Any) -> tuple[Callable[..., Any], str]:
    for holder, kind in (("messages", "Anthropic"), ("models", "Google")):
        ask = getattr(getattr(client, holder, None), "count_tokens", None)
        if callable(ask):
            return ask, kind
    msg = (
        f"a {type(client).__name__} counts no tokens: it has neither messages.count_tokens (Anthropic) nor models.count_tokens (Google). "
        "Give such a client, or the model's name alone."
    )
    raise BudgetConfigError(msg)


def _whole(answer: Any, field: str) -> int:
    if hasattr(answer, "__await__"):
        answer.close()
        msg = "the client answers later (it is async); allowed: a client that answers at once, such as anthropic.Anthropic() or genai.Client()"
        raise BudgetConfigError(msg)
    found = answer.get(field) if isinstance(answer, Mapping) else getattr(answer, field, None)
    if not isinstance(found, int):
        msg = f"the provider's answer has no {field}"
        raise TypeError(msg)
    return found


def _split_system(messages: Sequence[Message]) -> tuple[str, list[Message]]:
    """Returns the system text and the other messages, in the order a provider without late system messages takes them."""
    obedient = apply_profile(messages, PROFILES["anthropic"])
    system = [m.get("content") for m in obedient if m.get("role") in _SYSTEM]
    texts = [
        c if isinstance(c, str) else "\n\n".join(str(b.get("text", "")) for b in c if isinstance(b, Mapping))
        for c in system
        if c
    ]
    return "\n\n".join(texts), [m for m in obedient if m.get("role") not in _SYSTEM]


def _anthropic_message(message: Message) -> dict[str, Any]:
    content = message.get("content")
    blocks: list[Any] = (
        [{"type": "text", "text": content}]
        if isinstance(content, str) and content
        else list(content)
        if isinstance(content, (list, tuple))
        else []
    )
    if message.get("role") in {"tool", "function"}:
        return {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": str(message.get("tool_call_id") or ""),
                    "content": content or "",
                }
            ],
        }
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        arguments = function.get("arguments")
        try:
            given = json.loads(arguments) if isinstance(arguments, str) else arguments
        except ValueError:
            given = {"arguments": arguments}
        blocks.append(
            {
                "type": "tool_use",
                "id": str(call.get("id") or ""),
                "name": str(function.get("name") or ""),
                "input": given if isinstance(given, dict) else {},
            }
        )
    return {"role": "assistant" if message.get("role") == "assistant" else "user", "content": blocks or " "}


def _anthropic_tool(tool: Tool) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool.get("function"), Mapping) else tool
    assert function is not None
    schema = function.get("parameters") or function.get("input_schema") or {"type": "object"}
    return {
        "name": function.get("name", ""),
        "description": function.get("description") or "",
        "input_schema": schema,
    }


def _google_parts(message: Message) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        parts = [{"text": content}] if content else []
    else:
        parts = [
            {"text": b["text"] if isinstance(b, Mapping) and isinstance(b.get("text"), str) else as_text(b)}
            for b in content or ()
        ]
    parts += [{"text": as_text(call)} for call in message.get("tool_calls") or ()]
    return parts or [{"text": " "}]
