"""The content blocks of all providers, read one way: texts, calls, answers to calls, thinking."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

ROLES = {
    **{role: role for role in ("assistant", "developer", "system", "tool", "user")},
    "function": "tool",
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "chatbot": "assistant",
}
"""The role that each word for one means."""
CONTENTS = ("parts", "output", "content")
"""Under which keys a message may keep its content: Gemini's, the Responses API's, all others'."""
TEXTS = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text", "thinking_text"})
THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning"})
CALLS = frozenset(
    {
        "tool_use", "tool_call", "function_call", "custom_tool_call", "server_tool_use",
        "server_tool_call", "mcp_tool_use",
        "computer_call", "apply_patch_call", "shell_call", "local_shell_call", "mcp_approval_request",
    }
)  # fmt: skip
"""Blocks that another block answers; those that hold their own result, as `web_search_call`, are left out."""
ARGUMENTS = ("arguments", "args", "input", "parameters")
"""Under which key a call may have its arguments."""
ANSWERED_BY = ("tool_use_id", "call_id", "approval_request_id", "tool_call_id", "id")
"""Under which key a result has the id of its call."""
_PARTS = {
    "functionCall": "tool_use",
    "function_call": "tool_use",
    "functionResponse": "tool_result",
    "function_response": "tool_result",
    "inlineData": "media",
    "inline_data": "media",
    "fileData": "media",
    "file_data": "media",
}
_NAMED = "function:"
"""How a call or a result without an id of its own refers to its function."""
_APPROVAL = "approval:"
"""How a request for approval is referred to: providers accept one without its answer."""


def as_block(value: Any) -> Any:
    """Returns a content block as a mapping with a type, anything else as it is."""
    if not isinstance(value, Mapping):
        dump = getattr(value, "model_dump", None)
        if not callable(dump) or isinstance(value, type):
            return value
        value = dump(exclude_none=True)
    if "type" in value:
        return value
    for key, kind in _PARTS.items():
        if isinstance(value.get(key), Mapping):
            return {"type": kind, **value[key]}
    if isinstance(value.get("text"), str):
        kind = "thinking" if value.get("thought") is True else "text"
        return {**value, "type": kind, kind: value["text"]}
    return value


def content_key(message: Mapping[str, Any]) -> str:
    """Returns under which key a message keeps its content."""
    return next((key for key in CONTENTS if message.get(key) is not None), "content")


def blocks_of(content: Any) -> Sequence[Any]:
    """Returns the blocks of a content; a single block or text is one."""
    if content is None:
        return ()
    return content if isinstance(content, (list, tuple)) else (content,)


def kind_of(block: Any) -> str:
    """Returns the type of a block, "" where it has none."""
    kind = block.get("type") if isinstance(block, Mapping) else ""
    return kind if isinstance(kind, str) else ""


def block_text(block: Any) -> str | None:
    """Returns the text of a text block, None for every other block."""
    if isinstance(block, str):
        return block
    block = as_block(block)
    text = block.get("text") if kind_of(block) in ("text", "input_text", "output_text") else None
    return text if isinstance(text, str) else None


def is_result(kind: str) -> bool:
    """Returns whether blocks of a type answer a call."""
    return kind.endswith(("tool_result", "_call_output")) or kind == "mcp_approval_response"


def function_of(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns what an OpenAI-style tool, call or response format holds, or what is given if that is all."""
    inner = ("function", "custom", "json_schema", "toolUse", "functionCall")
    return next((call[key] for key in inner if isinstance(call.get(key), Mapping)), call)


def arguments_of(function: Mapping[str, Any]) -> Any:
    """Returns the arguments of a call under any of their names; None where it has none."""
    return next((function[key] for key in ARGUMENTS if function.get(key) is not None), None)


def call_reference(call: Mapping[str, Any]) -> str:
    """Returns the id of a call, or the name of its function where it has none, as in Ollama and Gemini."""
    return _reference(call, call.get("call_id") or call.get("id"), function_of(call).get("name"))


def called_in(content: Any) -> tuple[str, ...]:
    """Returns the references of the calls among content blocks, those answered in the same content apart."""
    return tuple(_pairs_in(content)[0])


def results_in(content: Any) -> tuple[str, ...]:
    """Returns the references of the calls that results among content blocks answer, those in it apart."""
    return tuple(_pairs_in(content)[1])


def without_answered(calls: Sequence[str], answers: Iterable[str]) -> list[str]:
    """Returns the calls that none of the answers belongs to; answers without a call are ignored."""
    return paired(calls, answers)[0]


def must_be_answered(calls: Iterable[str]) -> bool:
    """Returns whether a provider refuses a conversation in which these calls have no result."""
    return any(not call.startswith(_APPROVAL) for call in calls)


def has_no_id(reference: str) -> bool:
    """Returns whether a reference to a call is no id but the name of its function."""
    return reference.startswith(_NAMED)


def in_turn(old: Sequence[str], new: Sequence[str]) -> Callable[[Mapping[str, Any]], dict[str, str]]:
    """Returns what gives each call that is shown to it, in order, the field with its new id."""
    left = list(zip(old, new, strict=True))

    def field(call: Mapping[str, Any]) -> dict[str, str]:
        found = next((pair for pair in left if pair[0] == call_reference(call)), None)
        if found is None:
            return {}
        left.remove(found)
        return {"call_id" if call.get("call_id") else "id": found[1]}

    return field


def _pairs_in(content: Any) -> tuple[list[str], list[str]]:
    """Returns the calls of a content without an answer in it, and the answers without a call in it."""
    calls: list[str] = []
    answers: list[str] = []
    for block in () if isinstance(content, str) else map(as_block, blocks_of(content)):
        kind = kind_of(block)
        if kind in CALLS:
            calls.append(call_reference(block))
        elif is_result(kind):
            answer = _answer_of(block)
            calls, [inside] = paired(calls, [answer])
            answers += [] if inside else [answer]
    return calls, answers


def _answer_of(block: Mapping[str, Any]) -> str:
    answered = next((block[key] for key in ANSWERED_BY if block.get(key)), None)
    return _reference(block, answered, block.get("name"))


def with_results(content: Any, belong: Sequence[bool]) -> list[Any]:
    """Returns the blocks of a content without those results of `results_in` that do not belong."""
    calls: list[str] = []
    left: list[Any] = []
    kept = iter(belong)
    for block in blocks_of(content):
        read = as_block(block)
        if kind_of(read) in CALLS:
            calls.append(call_reference(read))
        elif is_result(kind_of(read)):
            calls, [inside] = paired(calls, [_answer_of(read)])
            if not inside and not next(kept):
                continue
        left.append(block)
    return left


def _reference(block: Mapping[str, Any], own: Any, name: Any) -> str:
    if not own:
        return f"{_NAMED}{name or ''}"
    return f"{_APPROVAL}{own}" if kind_of(block).startswith("mcp_approval_") else str(own)


def paired(calls: Sequence[str], answers: Iterable[str | None]) -> tuple[list[str], list[bool]]:
    """Returns the calls that are still open after some answers, and which answers belong to one of them.

    An answer belongs to the call with its id, else to the first one whose function it names. Where one of
    both has no id, and no name says otherwise, answers belong to calls in order. An answer with neither id
    nor name belongs to no call with an id: providers refuse it.
    """
    left, belong = list(calls), list[bool]()
    for answer in answers:
        call = answered_call(left, answer or "")
        belong.append(call is not None)
        if call is not None:
            left.remove(call)
    return left, belong


def answered_call(calls: Sequence[str], answer: str) -> str | None:
    """Returns which of some open calls an answer belongs to, as `paired` says; None where to none."""
    if answer in calls:
        return answer
    if answer.startswith(_APPROVAL):
        return None
    name = answer.removeprefix(_NAMED)
    named = [call for call in calls if name and call.removeprefix(_NAMED) == name]
    # An unknown id, or a name, may answer the other kind of reference; two ids or two names may not.
    others = [
        call
        for call in calls
        if not call.startswith(_APPROVAL)
        and (call == _NAMED or call.startswith(_NAMED) != (bool(name) and answer.startswith(_NAMED)))
    ]
    return next(iter(named + others), None)
