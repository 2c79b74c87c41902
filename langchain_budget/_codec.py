"""LangChain messages in the core's neutral form, wherever integrations keep calls and reasoning."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Hashable, Mapping, Sequence
from itertools import islice
from typing import Any, cast

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from rankbudget.adapters import (
    PINNED_ROLES,
    ROLES,
    Client,
    call_reference,
    called_in,
    in_turn,
    replace_text,
    results_in,
    sends_thought,
    with_results,
    without_answered,
)
from rankbudget.errors import MessageError

MARK = "lc_source"
"""LangChain's own key in `additional_kwargs` for messages that no user typed; no integration sends it."""
EDITED = "rankbudget"

_ROLE_CLASSES: tuple[tuple[type[BaseMessage], str], ...] = (
    (HumanMessage, "user"),
    (AIMessage, "assistant"),
    (ToolMessage, "tool"),
    (FunctionMessage, "tool"),
)
_CALL_BLOCKS = frozenset(
    {
        "tool_use", "tool_call", "tool_call_chunk", "invalid_tool_call", "function_call", "custom_tool_call",
        "input_json_delta",
    }
)  # fmt: skip
"""Blocks that integrations also read from, or write to, `.tool_calls`."""
_SENT = ("content", "name", "role", "tool_call_id", "tool_calls", "invalid_tool_calls", "additional_kwargs")
_USAGE_KEYS = ("token_usage", "usage", "usage_metadata")


class NeedsConversionError(MessageError):
    """Says that a list holds what is no message yet; entry points try it as it is and convert only then."""


class LangChainCodec:
    """Reads and copies `BaseMessage` objects.

    Reasoning that a `client` leaves out is not read; a message that is kept keeps it.
    """

    def __init__(self, client: str | None = None) -> None:
        self._client = client
        # Filled as classes are met; SystemMessage and ChatMessage say more than their class.
        self._roles: dict[type, str] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        # The classes it has met stay here: one made inside a function cannot be pickled.
        return codec_for, (self._client,)

    def role(self, message: Any) -> str:
        known = self._roles.get(type(message))
        if known is not None:
            return known
        for base, role in _ROLE_CLASSES:
            if isinstance(message, base):
                self._roles[type(message)] = role
                return role
        if isinstance(message, SystemMessage):
            developer = message.additional_kwargs.get("__openai_role__") == "developer"
            return "developer" if developer else "system"
        if isinstance(message, ChatMessage) and message.role in ROLES:
            return ROLES[message.role]
        _fields(message)
        seen = getattr(message, "role", message.type)
        msg = (
            f"the role must be one of {', '.join(sorted(set(ROLES)))} (got {seen!r}). "
            "Or take one of LangChain's own message classes."
        )
        raise MessageError(msg)

    def roles(self, messages: Sequence[Any]) -> list[str]:
        found: list[Any] = list(map(self._roles.get, map(type, messages)))
        if None not in set(found):  # a set of a few words: faster than looking through the list
            return found
        return [self.role(m) if known is None else known for known, m in zip(found, messages, strict=True)]

    def kinds(self, messages: Sequence[Any], start: int) -> set[str]:
        """Returns which roles there are from a position on, from the classes alone where these say it."""
        found = {self._roles.get(kind) for kind in set(map(type, islice(messages, start, None)))}
        return set(self.roles(messages[start:])) if None in found else cast("set[str]", found)

    def to_dict(self, message: Any) -> Mapping[str, Any]:
        fields = _fields(message)
        role = self.role(message)
        content: Any = fields["content"]
        neutral: dict[str, Any] = {"role": role, "content": content}
        if fields["name"]:
            neutral["name"] = fields["name"]
        if role == "tool":
            neutral["tool_call_id"] = self.result_id(message)
        elif role == "assistant" and not _is_plain(fields):
            calls, rest = _calls_and_rest(fields)
            neutral["content"] = _with_extras(rest, fields, self._client)
            if calls:
                neutral["tool_calls"] = calls
        return neutral

    def call_ids(self, message: Any) -> tuple[str, ...]:
        fields = _fields(message)
        if _is_plain(fields) or self.role(message) != "assistant":
            return ()
        if type(fields["content"]) is str and not fields["additional_kwargs"]:
            listed = [*(fields.get("tool_calls") or ()), *(fields.get("invalid_tool_calls") or ())]
            ids = [call.get("id") for call in listed]
            if all(ids):
                return tuple(map(str, ids))  # nearly always
        calls, rest = _calls_and_rest(fields)
        found = list(map(call_reference, calls))
        return (*found, *without_answered(called_in(rest), found))

    def result_id(self, message: Any) -> str | None:
        fields = _fields(message)
        found = fields.get("tool_call_id")  # the oldest form answers a function by its name
        return str(found) if found else call_reference({"name": fields["name"]})

    def answers(self, message: Any) -> tuple[str, ...]:
        """Returns the calls that a message answers in its content, as Anthropic writes them."""
        fields = _fields(message)
        content = fields["content"]
        return () if content.__class__ is str or "tool_call_id" in fields else results_in(content)

    def message_id(self, message: Any) -> str | None:
        found = _fields(message)["id"]
        return found if isinstance(found, str) else None

    def fingerprints(self, messages: Sequence[Any]) -> list[Hashable]:
        """Reads straight from the models, without a call: a thread is checked at every turn of a session."""
        found: list[Hashable] = []
        for message in messages:
            kind = message.__class__
            fields = message.__dict__ if kind in self._roles else _fields(message)
            content = fields["content"]
            plain = content.__class__ is str and not fields["additional_kwargs"]
            called = kind is AIMessage and (fields["tool_calls"] or fields["invalid_tool_calls"])
            if plain and (kind is HumanMessage or kind is AIMessage) and not called:
                found.append((content, kind, fields["name"]))
            elif plain and kind is ToolMessage:
                found.append((content, kind, fields["name"], fields["tool_call_id"]))
            else:
                found.append("\x1f".join([kind.__name__, *(repr(fields.get(key)) for key in _SENT)]))
        return found

    def with_text(self, message: Any, text: str | Sequence[str]) -> Any:
        fields = _fields(message)
        return self._with_content(message, replace_text(fields["content"], text))

    def with_results(self, message: Any, belong: Sequence[bool]) -> Any:
        """Returns a copy of `message` without those of the results in its content that do not `belong`."""
        return self._with_content(message, with_results(_fields(message)["content"], belong))

    def _with_content(self, message: Any, content: Any) -> Any:
        fields = _fields(message)
        update: dict[str, Any] = {
            "content": content,
            "additional_kwargs": {**fields["additional_kwargs"], MARK: EDITED},
        }
        if fields.get("usage_metadata"):
            update["usage_metadata"] = None
        stale = fields["response_metadata"]
        if any(key in stale for key in _USAGE_KEYS):
            update["response_metadata"] = {k: v for k, v in stale.items() if k not in _USAGE_KEYS}
        return message.model_copy(update=update)

    def with_ids(self, message: Any, old: Sequence[str], new: Sequence[str]) -> Any:
        """Returns a copy of `message` with the ids `new` for the calls of the references `old`, in order."""
        fields = _fields(message)
        if "tool_call_id" in fields:
            return message.model_copy(update={"tool_call_id": new[0]})
        field, extra = in_turn(old, new), fields["additional_kwargs"]
        update: dict[str, Any] = {
            name: [{**call, **field(call)} for call in fields[name]]
            for name in ("tool_calls", "invalid_tool_calls")
            if fields.get(name)
        }
        if isinstance(fields["content"], list):
            field = in_turn(old, new)
            update["content"] = [{**b, **field(b)} if _is_call(b) else b for b in fields["content"]]
        if extra.get("tool_calls"):
            field = in_turn(old, new)
            older = [{**call, **field(call)} for call in extra["tool_calls"]]
            update["additional_kwargs"] = {**extra, "tool_calls": older}
        return message.model_copy(update=update)

    def make(self, role: str, text: str, *, origin: str) -> Any:
        kind = AIMessage if role == "assistant" else SystemMessage if role in PINNED_ROLES else HumanMessage
        marks = {MARK: origin, **({"__openai_role__": role} if role == "developer" else {})}
        return kind(text, additional_kwargs=marks)

    def copy(self, message: Any) -> Any:
        """Copies what can be changed in place; ten times faster than a deep copy of the model."""
        _fields(message)
        made = message.model_copy()
        fields = made.__dict__
        for key, value in fields.items():
            if value and not isinstance(value, (str, int, float, bool)) and key != "artifact":
                fields[key] = copy.deepcopy(value)
        return made


def _fields(message: Any) -> dict[str, Any]:
    """Returns the fields of a message; raises NeedsConversionError for what is none."""
    fields: dict[str, Any] = getattr(message, "__dict__", {})
    # LlamaIndex's messages have the one, and no type.
    if not fields.keys() >= {"additional_kwargs", "type"} or message.__class__ is RemoveMessage:
        msg = f"{type(message).__name__} must be converted to a BaseMessage first."
        raise NeedsConversionError(msg)
    return fields


def _is_plain(fields: Mapping[str, Any]) -> bool:
    """Returns whether a message holds nothing but a text."""
    return (
        type(fields["content"]) is str
        and not fields["additional_kwargs"]
        and not fields.get("tool_calls")
        and not fields.get("invalid_tool_calls")
    )


def _calls_and_rest(fields: Mapping[str, Any]) -> tuple[list[dict[str, Any]], Any]:
    """Returns each tool call once, the longer form of those that are kept twice, and the other content."""
    content = _content_of(fields)
    listed = content if isinstance(content, list) else []
    rest = [b for b in content if not _is_call(b)] if isinstance(content, list) else content
    calls = [_call(c) for c in fields.get("tool_calls") or ()]
    calls += [_call({**c, "args": c.get("args") or ""}) for c in fields.get("invalid_tool_calls") or ()]
    unmatched = list(calls)
    for other in [_call(b) for b in listed if _is_call(b) and b["type"] != "input_json_delta"]:
        twin = next((call for call in unmatched if call_reference(call) == call_reference(other)), None)
        if twin is None:
            calls.append(other)
        else:
            unmatched.remove(twin)
            forms = (twin["function"], other["function"])
            twin["function"] = max(forms, key=lambda form: len(form["arguments"]))
    return calls or _older_calls(fields["additional_kwargs"]), rest


def _content_of(fields: Mapping[str, Any]) -> Any:
    """Returns the content, with OpenAI's own calls, which LangChain's older form keeps beside it."""
    content, beside = fields["content"], fields["additional_kwargs"].get("tool_outputs")
    if not isinstance(beside, list):
        return content
    return [*(content if isinstance(content, list) else [content] if content else ()), *beside]


def _older_calls(extra: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the calls that integrations keep beside the message."""
    older = extra.get("tool_calls") or [extra.get("function_call")]
    return [
        _call({**(c.get("function") or c), "id": c.get("id")}) for c in older if isinstance(c, dict) and c
    ]


def _is_call(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in _CALL_BLOCKS


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    given = block.get("input", block.get("args", block.get("arguments")))
    text = given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False, default=str)
    function = {"name": str(block.get("name") or ""), "arguments": text}
    called = block.get("call_id") or block.get("id")
    return {**({"id": str(called)} if called else {}), "type": "function", "function": function}


def _beside(extra: Mapping[str, Any]) -> list[Any]:
    """Returns as blocks what integrations keep beside the content: OpenAI's reasoning, refusals and audio."""
    found: list[Any] = []
    if isinstance(extra.get("reasoning"), dict):
        found.append({**extra["reasoning"], "type": "reasoning"})
    if isinstance(extra.get("refusal"), str):
        found.append({"type": "refusal", "refusal": extra["refusal"]})
    if isinstance(extra.get("audio"), dict):
        found.append({**extra["audio"], "type": "audio"})
    return found


def _with_extras(content: Any, fields: Mapping[str, Any], client: str | None) -> Any:
    """Returns the content with what is beside it, without the thinking that a client leaves out."""
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    extra, author = fields["additional_kwargs"], fields["response_metadata"].get("model_provider")
    sent = [block for block in (*_beside(extra), *blocks) if sends_thought(client, block, author)]
    # Models of Ollama and DeepSeek think here; of the known clients Ollama's alone sends it.
    if client in (None, Client.OLLAMA) and isinstance(extra.get("reasoning_content"), str):
        sent.insert(0, {"type": "reasoning", "reasoning": extra["reasoning_content"]})
    sealed = [b for b in sent if isinstance(b, dict) and b.get("encrypted_content")]
    if sealed and (fields.get("usage_metadata") or {}).get("output_token_details"):
        reported = {"tokens": fields["usage_metadata"]["output_token_details"].get("reasoning")}
        return [{**block, **reported} if block is sealed[0] else block for block in sent]
    return content if sent == blocks else sent


@functools.cache
def codec_for(client: str | None) -> LangChainCodec:
    """Returns what reads messages for a client, as `client_of` names it."""
    return LangChainCodec(client)


CODEC = codec_for(None)
