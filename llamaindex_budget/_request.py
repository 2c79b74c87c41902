"""What a final request holds beside its messages, and which user messages are results of an agent's step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.prompts import ChatPromptTemplate
from llama_index.core.tools import BaseTool

from ._codec import ChatCodec

__all__ = ["FixedPrompt", "StepCodec", "schema_of", "schemas_in"]

_TOOL_KEYS = ("tools", "functions", "built_in_tools")
_TEXT_KEYS = ("response_format", "text_format", "format", "instructions", "system_prompt")
_STEP_RESULTS = ("Observation: ", "Result of executing the code given:")
"""How `ReActAgent` and `CodeActAgent` begin the user message that holds a tool's result."""


def schemas_in(llm: Any, arguments: Mapping[str, Any]) -> list[Any]:
    """Returns all tools and schemas of a request, of the call and of the LLM itself.

    Args:
        llm: its `additional_kwargs`, `instructions` and `built_in_tools` are sent with every request.
        arguments: keyword arguments of the call.
    """
    fields = {key: getattr(llm, key, None) for key in ("instructions", "built_in_tools")}
    extra = getattr(llm, "additional_kwargs", None)
    asked = {**fields, **arguments, **(extra if isinstance(extra, Mapping) else {})}
    found: list[Any] = []
    for key in _TOOL_KEYS:
        tools = asked.get(key) or ()
        found += tools if isinstance(tools, (list, tuple)) else [tools]
    found += [asked[key] for key in _TEXT_KEYS if asked.get(key)]
    return [_plain(schema) for schema in found]


def schema_of(output_cls: Any) -> dict[str, Any]:
    """Returns the schema of an output class as a request holds it.

    Example:
        >>> from pydantic import BaseModel
        >>> class Room(BaseModel):
        ...     windows: int
        >>> schema_of(Room)["json_schema"]["name"]
        'Room'
    """
    return {
        "type": "json_schema",
        "json_schema": {"name": output_cls.__name__, "schema": output_cls.model_json_schema()},
    }


def _plain(schema: Any) -> Any:
    if isinstance(schema, type) and hasattr(schema, "model_json_schema"):
        return schema_of(schema)
    if isinstance(schema, BaseTool):
        return schema.metadata.to_openai_tool(skip_length_check=True)
    dump = getattr(schema, "model_dump", None)
    return dump(mode="json") if callable(dump) else schema


class StepCodec(ChatCodec):
    """Reads one request; an agent's step and its result that are written as text are a call and its answer.

    `ReActAgent` and `CodeActAgent` send a tool's result as a user message. Read as a question, it would take
    the place of the user's.

    Args:
        messages: the request.
    """

    def __init__(self, messages: Sequence[ChatMessage]) -> None:
        self._calls: dict[int, str] = {}
        self._results: dict[int, str] = {}
        for number, (step, result) in enumerate(pairwise(messages)):
            if _is_step(step, result):
                self._calls[id(step)] = self._results[id(result)] = f"step-{number}"

    def role(self, message: Any) -> str:
        return "tool" if id(message) in self._results else super().role(message)

    def roles(self, messages: Sequence[Any]) -> list[str]:
        return [self.role(m) for m in messages] if self._results else super().roles(messages)

    def call_ids(self, message: Any) -> tuple[str, ...]:
        call = self._calls.get(id(message))
        return super().call_ids(message) if call is None else (call,)

    def result_id(self, message: Any) -> str | None:
        return self._results.get(id(message)) or super().result_id(message)


def _is_step(step: ChatMessage, result: ChatMessage) -> bool:
    return (
        step.role == MessageRole.ASSISTANT
        and result.role in (MessageRole.USER, MessageRole.TOOL)
        and not result.additional_kwargs
        and (result.content or "").startswith(_STEP_RESULTS)
    )


class FixedPrompt(ChatPromptTemplate):  # type: ignore[no-redef]  # pydantic's plugin stumbles over `kwargs`
    """A prompt that is already messages; its texts are no templates any more."""

    def __init__(self, messages: Sequence[ChatMessage]) -> None:
        super().__init__(message_templates=[])
        self.message_templates = list(messages)

    def format_messages(self, llm: Any = None, **kwargs: Any) -> list[ChatMessage]:  # noqa: ARG002
        return list(self.message_templates)
