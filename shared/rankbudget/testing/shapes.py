"""One conversation in the shapes of OpenAI's, Azure's, Anthropic's, Gemini's and Ollama's messages."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

__all__ = ["SHAPES", "STEPS", "Shape"]

STEPS = ("chat", "chat", "call", "twice", "parallel", "hosted", "picture", "silent", "thought")
"""What may happen in a turn: an answer, calls of one tool or two, a provider's own tool, nothing said."""
_PNG = "iVBORw0KGgoAAAANSUhEUgAAAoAAAAHgCAIAAAA="


class Shape(ABC):
    """Writes turns as one provider's messages; a host's own message classes subclass it."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.number = 0

    def write(self, step: str, word: str, size: int) -> None:
        """Appends one turn: a question, what the model does about it, and mostly an answer."""
        text = f"{self.fresh()} " + f"{word} " * (1 + size)
        if step == "picture":
            self.picture(text)
        else:
            self.ask(text)
        names = {"call": ["find"], "twice": ["find", "find"], "parallel": ["find", "sort"]}.get(step, [])
        if names:
            self.call([(name, {"query": f"{self.fresh()} {word}"}) for name in names], f"thought {word}")
            self.results([(name, f"{self.fresh()} " + f"{word} " * (1 + size * size)) for name in names])
        elif step == "hosted":
            self.hosted(f"{self.fresh()} {word}")
        if step in ("silent", "thought"):
            self.nothing(("", None, "  ")[size % 3], f"thought {word}" if step == "thought" else "")
        else:
            self.answer(f"{self.fresh()} {word}")

    def fresh(self) -> str:
        """Returns a word that was not used yet."""
        self.number += 1
        return f"n{self.number}"

    def say(self, role: str, content: Any, **fields: Any) -> None:
        """Appends a message of the usual form."""
        self.messages.append({"role": role, "content": content, **fields})

    def ask(self, text: str) -> None:
        """Appends a question."""
        self.say("user", text)

    def answer(self, text: str) -> None:
        """Appends an answer."""
        self.say("assistant", text)

    def picture(self, text: str) -> None:
        """Appends a question with an image."""
        self.say("user", [{"type": "text", "text": text}, _image_url()])

    def nothing(self, blank: str | None, thought: str) -> None:
        """Appends an assistant message without anything to say, but perhaps with thinking."""
        self.say("assistant", [{"type": "reasoning", "reasoning": thought}] if thought else blank)

    def hosted(self, text: str) -> None:
        """Appends what a tool of the provider's own leaves, where it has one."""
        self.answer(text)

    @abstractmethod
    def call(self, calls: Sequence[tuple[str, dict[str, Any]]], thought: str) -> None:
        """Appends calls of tools by name and arguments."""

    @abstractmethod
    def results(self, results: Sequence[tuple[str, str]]) -> None:
        """Appends the results of the last calls, by name of the tool."""


class OpenAI(Shape):
    """Chat completions: calls beside the content, a message for each result."""

    def call(self, calls: Sequence[tuple[str, dict[str, Any]]], thought: str) -> None:
        self.ids = [f"call_{self.fresh()}" for _ in calls]
        made = [
            {"id": one, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for one, (name, arguments) in zip(self.ids, calls, strict=True)
        ]
        self.say("assistant", thought, tool_calls=made)

    def results(self, results: Sequence[tuple[str, str]]) -> None:
        for one, (_, text) in zip(self.ids, results, strict=True):
            self.say("tool", text, tool_call_id=one)

    def hosted(self, text: str) -> None:
        custom = {"id": f"call_{text}", "type": "custom", "custom": {"name": "shell", "input": text}}
        self.say("assistant", None, tool_calls=[custom])
        self.say("tool", text, tool_call_id=f"call_{text}")


class Azure(OpenAI):
    """As OpenAI, with the empty fields that its client library leaves."""

    def say(self, role: str, content: Any, **fields: Any) -> None:
        extra: dict[str, Any] = {"refusal": None, "annotations": []} if role == "assistant" else {}
        super().say(role, content, **extra, **fields)


class Legacy(Shape):
    """OpenAI's functions, older than tools: a call at a time, answered by name."""

    def call(self, calls: Sequence[tuple[str, dict[str, Any]]], thought: str) -> None:
        self.calls, self.thought = list(calls), thought

    def results(self, results: Sequence[tuple[str, str]]) -> None:
        for (name, arguments), (_, text) in zip(self.calls, results, strict=True):
            asked = {"name": name, "arguments": json.dumps(arguments)}
            self.say("assistant", self.thought, function_call=asked)
            self.say("function", text, name=name)


class Responses(Shape):
    """Items of OpenAI's Responses API: reasoning, calls and outputs are messages of their own."""

    def item(self, kind: str, **fields: Any) -> None:
        self.messages.append({"type": kind, **fields})

    def ask(self, text: str) -> None:
        self.say("user", [{"type": "input_text", "text": text}])

    def answer(self, text: str) -> None:
        self.say("assistant", [{"type": "output_text", "text": text, "annotations": []}], type="message")

    def picture(self, text: str) -> None:
        image = {"type": "input_image", "image_url": f"data:image/png;base64,{_PNG}"}
        self.say("user", [{"type": "input_text", "text": text}, image])

    def call(self, calls: Sequence[tuple[str, dict[str, Any]]], thought: str) -> None:
        self.ids = [f"call_{self.fresh()}" for _ in calls]
        self.item("reasoning", id=f"rs_{self.fresh()}", summary=[{"type": "summary_text", "text": thought}])
        for one, (name, arguments) in zip(self.ids, calls, strict=True):
            self.item(
                "function_call", id=f"fc_{one}", call_id=one, name=name, arguments=json.dumps(arguments)
            )

    def results(self, results: Sequence[tuple[str, str]]) -> None:
        for one, (_, text) in zip(self.ids, results, strict=True):
            self.item("function_call_output", call_id=one, output=text)

    def hosted(self, text: str) -> None:
        kind = ("computer", "apply_patch")[self.number % 2]
        self.item(f"{kind}_call", call_id=f"c_{text}", action={"type": "type", "text": text})
        self.item(f"{kind}_call_output", call_id=f"c_{text}", output={"type": "input_text", "text": text})
        self.item("mcp_approval_request", id=f"m_{text}", name="send", arguments=json.dumps({"text": text}))
        self.item("mcp_approval_response", approval_request_id=f"m_{text}", approve=True, reason=text)

    def nothing(self, blank: str | None, thought: str) -> None:
        if thought:
            self.item(
                "reasoning", id=f"rs_{self.fresh()}", summary=[{"type": "summary_text", "text": thought}]
            )
        else:
            self.say("assistant", [{"type": "output_text", "text": blank or ""}], type="message")


class Anthropic(Shape):
    """Blocks: calls in the answer's content, results in a user message."""

    def call(self, calls: Sequence[tuple[str, dict[str, Any]]], thought: str) -> None:
        self.ids = [f"toolu_{self.fresh()}" for _ in calls]
        thinking = {"type": "thinking", "thinking": thought, "signature": "c2ln"}
        made = [
            {"type": "tool_use", "id": one, "name": name, "input": arguments}
            for one, (name, arguments) in zip(self.ids, calls, strict=True)
        ]
        self.say("assistant", [thinking, *made])

    def results(self, results: Sequence[tuple[str, str]]) -> None:
        blocks = [
            {"type": "tool_result", "tool_use_id": one, "content": [{"type": "text", "text": text}]}
            for one, (_, text) in zip(self.ids, results, strict=True)
        ]
        self.say("user", blocks)

    def hosted(self, text: str) -> None:
        one = f"srvtoolu_{text}"
        called = {"type": "server_tool_use", "id": one, "name": "code_execution", "input": {"code": text}}
        output = {"type": "code_execution_result", "stdout": text, "stderr": "", "return_code": 0}
        result = {"type": "code_execution_tool_result", "tool_use_id": one, "content": output}
        if self.number % 2:
            self.say("assistant", [called, result])
        else:  # a turn that was paused goes on in the next message
            self.say("assistant", [called])
            self.say("assistant", [result, {"type": "text", "text": text}])

    def picture(self, text: str) -> None:
        source = {"type": "base64", "media_type": "image/png", "data": _PNG}
        cited = {"type": "content", "content": [{"type": "text", "text": text}]}
        blocks: list[Any] = [{"type": "image", "source": source}, {"type": "document", "source": cited}]
        self.say("user", [*blocks, {"type": "text", "text": text}])

    def nothing(self, blank: str | None, thought: str) -> None:
        thinking = {"type": "thinking", "thinking": thought, "signature": "c2ln"}
        self.say("assistant", [thinking] if thought else [{"type": "text", "text": blank or ""}])


class Gemini(Shape):
    """Parts without types, calls without ids, results in a user message."""

    def say(self, role: str, content: Any, **fields: Any) -> None:
        parts = [{"text": content or ""}] if content is None or isinstance(content, str) else content
        self.messages.append({"role": "model" if role == "assistant" else role, "parts": parts, **fields})

    def call(self, calls: Sequence[tuple[str, dict[str, Any]]], thought: str) -> None:
        made = [{"functionCall": {"name": name, "args": arguments}} for name, arguments in calls]
        self.say("assistant", [{"text": thought, "thought": True}, *made])

    def results(self, results: Sequence[tuple[str, str]]) -> None:
        parts = [{"functionResponse": {"name": name, "response": {"result": text}}} for name, text in results]
        self.say("user", parts)

    def picture(self, text: str) -> None:
        self.say("user", [{"text": text}, {"inlineData": {"mimeType": "image/png", "data": _PNG}}])

    def nothing(self, blank: str | None, thought: str) -> None:
        self.say("assistant", [{"text": thought, "thought": True}] if thought else blank)


class Ollama(Shape):
    """Calls without ids, a message for each result that names its tool, images beside the text."""

    def call(self, calls: Sequence[tuple[str, dict[str, Any]]], thought: str) -> None:
        made = [{"function": {"name": name, "arguments": arguments}} for name, arguments in calls]
        self.say("assistant", "", tool_calls=made, thinking=thought)

    def results(self, results: Sequence[tuple[str, str]]) -> None:
        for name, text in results:
            self.say("tool", text, tool_name=name)

    def picture(self, text: str) -> None:
        self.say("user", text, images=[_PNG])

    def nothing(self, blank: str | None, thought: str) -> None:
        self.say("assistant", blank, **({"thinking": thought} if thought else {}))


def _image_url() -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PNG}"}}


SHAPES: dict[str, type[Shape]] = {
    "openai": OpenAI,
    "azure": Azure,
    "legacy": Legacy,
    "responses": Responses,
    "anthropic": Anthropic,
    "gemini": Gemini,
    "ollama": Ollama,
}
"""The shapes by name."""
