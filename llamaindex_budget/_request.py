"""What a final request holds beside its messages, and which user messages are results of an agent's step."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock
from llama_index.core.llms.structured_llm import StructuredLLM
from llama_index.core.output_parsers import PydanticOutputParser
from llama_index.core.program.function_program import get_function_tool
from llama_index.core.prompts import ChatPromptTemplate
from llama_index.core.tools import BaseTool
from llama_index.core.types import PydanticProgramMode

from rankbudget.adapters import sent_beside

from ._codec import PINNED, ChatCodec

_TOOL_KEYS = ("tools", "functions", "built_in_tools")
_STEP_RESULTS = ("Observation: ", "Result of executing the code given:")
"""How `ReActAgent` and `CodeActAgent` begin the user message that holds a tool's result."""
_FLAT_START, _FLAT_END = "<current_conversation>\n", "</current_conversation>\n\n"
_FLAT_ROLE = re.compile(r"\t<(\w+)>\n")
_FLAT_MESSAGE = re.compile(r"\t\t<message>(.*)</message>\n", re.DOTALL)


def schemas_in(llm: Any, arguments: Mapping[str, Any]) -> list[Any]:
    """Returns tools, schemas and texts of a request: of the call, and what the LLM sends with every call."""
    found: list[Any] = []
    for name, value in sent_beside(llm, arguments):
        several = name in _TOOL_KEYS and isinstance(value, (list, tuple))
        found += value if several else [value]
    return [_plain(schema) for schema in found]


def forms_of(output_cls: Any, llm: Any) -> tuple[dict[str, Any], ...]:
    """Returns how the LLM may be told an output class: as a format, and as a tool or an instruction."""
    told: dict[str, Any] = {"tools": [get_function_tool(output_cls)]}
    if not llm.metadata.is_function_calling_model or llm.pydantic_program_mode == PydanticProgramMode.LLM:
        told = {"instructions": PydanticOutputParser(output_cls).format("")}
    return {"response_format": output_cls}, told


def forms_beside(llm: Any) -> tuple[dict[str, Any], ...]:
    """Returns what a `StructuredLLM` adds to its LLM's requests, in each form; nothing of any other LLM."""
    if not isinstance(llm, StructuredLLM):
        return ({},)
    own = {"own_prompt": llm.system_prompt}  # the LLM inside adds its own, too
    return tuple({**form, **own} for form in forms_of(llm.output_cls, llm.llm))


def _plain(schema: Any) -> Any:
    if isinstance(schema, Mapping) and "properties" in schema:  # what Ollama is sent as `format`
        inner = {"name": str(schema.get("title") or ""), "schema": schema}
        return {"type": "json_schema", "json_schema": inner}
    if isinstance(schema, BaseTool):
        return schema.metadata.to_openai_tool(skip_length_check=True)
    dump = getattr(schema, "model_dump", None)
    return dump(mode="json") if callable(dump) else schema


class StepCodec(ChatCodec):
    """Reads one request; an agent's step and its results that are written as text are a call and its answers.

    Read as a question, a result would take the user's place. A `flat` conversation has lost its calls' ids.
    """

    def __init__(self, messages: Sequence[ChatMessage], *, flat: bool = False) -> None:
        super().__init__()
        self._calls: dict[int, tuple[str, ...]] = {}
        self._results: dict[int, str] = {}
        step: ChatMessage | None = None
        for number, message in enumerate(messages):
            if message.role == MessageRole.ASSISTANT:
                step = message
            elif step is not None and (message.role == MessageRole.TOOL if flat else _is_result(message)):
                call = f"step-{number}"
                self._calls[id(step)] = (*self._calls.get(id(step), ()), call)
                self._results[id(message)] = call
            if not flat and message is not step:
                step = None  # a step written as text has one result

    def role(self, message: Any) -> str:
        return "tool" if id(message) in self._results else super().role(message)

    def roles(self, messages: Sequence[Any]) -> list[str]:
        return [self.role(m) for m in messages] if self._results else super().roles(messages)

    def call_ids(self, message: Any) -> tuple[str, ...]:
        return self._calls.get(id(message)) or super().call_ids(message)

    def result_id(self, message: Any) -> str | None:
        return self._results.get(id(message)) or super().result_id(message)


def _is_result(message: ChatMessage) -> bool:
    return (
        message.role in (MessageRole.USER, MessageRole.TOOL)
        and not message.additional_kwargs
        and (message.content or "").startswith(_STEP_RESULTS)
    )


class FlatConversation:
    """A conversation that `messages_to_xml_format` wrote as one user message, read back.

    Agents with an `output_cls` ask for their structured answer so; cut as one text, it loses the question.
    `messages` begins with the system messages that are sent before it.
    """

    def __init__(self, front: Sequence[ChatMessage], said: Sequence[str], tail: Sequence[str]) -> None:
        self._front = len(front)
        self._tail = [TextBlock(text=text) for text in tail]
        self.messages = list(front)
        for text in said:
            opened, message = _FLAT_ROLE.fullmatch(text), _FLAT_MESSAGE.fullmatch(text)
            if opened:
                self.messages.append(ChatMessage(role=opened[1], blocks=[]))
            elif message and len(self.messages) > self._front:
                self.messages[-1].blocks.append(TextBlock(text=message[1]))

    @classmethod
    def read(cls, request: Sequence[ChatMessage]) -> FlatConversation | None:
        """Returns the conversation in the last message of a request; None where that is an ordinary one."""
        blocks = request[-1].blocks if request else []
        texts = [block.text for block in blocks if isinstance(block, TextBlock)]
        if texts[:1] != [_FLAT_START] or _FLAT_END not in texts or len(texts) != len(blocks):
            return None
        if any(message.role not in PINNED for message in request[:-1]):
            return None
        end = texts.index(_FLAT_END)
        return cls(request[:-1], texts[1:end], texts[end + 1 :])

    def render(self, _: Mapping[str, Any], history: list[Any]) -> list[ChatMessage]:
        """Returns the request with what is kept of the conversation."""
        front = [message for message in history[: self._front] if message.role in PINNED]
        from llama_index.core.agent.utils import messages_to_xml_format  # loaded only where an agent asks

        blocks = [*messages_to_xml_format(history[len(front) :])[-1].blocks[:-1], *self._tail]
        return [*front, ChatMessage(role=MessageRole.USER, blocks=blocks)]

    def once(self) -> list[ChatMessage] | None:
        """Returns the request without the system messages that the conversation repeats; None if none is."""
        front, said = self.messages[: self._front], self.messages[self._front :]
        known = [(message.role, message.content) for message in front]
        others = [message for message in said if (message.role, message.content) not in known]
        return self.render({}, [*front, *others]) if len(others) < len(said) else None


class FixedPrompt(ChatPromptTemplate):  # type: ignore[no-redef]  # pydantic's plugin stumbles over `kwargs`
    """A prompt that is already messages; its texts are no templates any more."""

    def __init__(self, messages: Sequence[ChatMessage]) -> None:
        super().__init__(message_templates=[])
        self.message_templates = list(messages)

    def format_messages(self, llm: Any = None, **kwargs: Any) -> list[ChatMessage]:  # noqa: ARG002
        return list(self.message_templates)
