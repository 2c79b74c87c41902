"""LlamaIndex's messages as each integration makes them: pairs stay, empty answers go, all is counted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.llms.types import (
    ChatMessage,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)

from llamaindex_budget import BudgetChatMemoryBuffer
from llamaindex_budget._codec import CODEC
from rankbudget import BudgetExceededError, counter_for, fit_messages
from rankbudget.testing.shapes import Shape
from rankbudget.testing.strategies import shaped_turns
from tests.drawing import draws

COUNTER = counter_for(lambda text: len(text.split()))
Calls = Sequence[tuple[str, dict[str, Any]]]


class OpenAI(Shape):
    """Calls as blocks, with ids."""

    def say(self, role: str, content: Any, **fields: Any) -> None:
        if isinstance(content, list):
            content = [ThinkingBlock(content=block["reasoning"]) for block in content]
        self.messages.append(ChatMessage(role=role, content=content, additional_kwargs=fields))

    def picture(self, text: str) -> None:
        blocks = [TextBlock(text=text), ImageBlock(url="https://example.org/a.png")]
        self.messages.append(ChatMessage(role="user", blocks=blocks))

    def reference(self, name: str) -> str | None:
        return f"call_{self.fresh()}_{name}"

    def call(self, calls: Calls, thought: str) -> None:
        self.ids = [self.reference(name) for name, _ in calls]
        made = [
            ToolCallBlock(tool_call_id=one, tool_name=name, tool_kwargs=arguments)
            for one, (name, arguments) in zip(self.ids, calls, strict=True)
        ]
        self.messages.append(ChatMessage(role="assistant", blocks=[ThinkingBlock(content=thought), *made]))

    def results(self, results: Sequence[tuple[str, str]]) -> None:
        for one, (name, text) in zip(self.ids, results, strict=True):
            self.say("tool", text, tool_call_id=one or name)


class Ollama(OpenAI):
    """Calls without ids; agents answer with the tool's name as the id."""

    def reference(self, name: str) -> str | None:
        return None


class Gemini(OpenAI):
    """The call's id is the tool's name."""

    def reference(self, name: str) -> str | None:
        return name


class Older(OpenAI):
    """Calls beside the message, as objects of the provider's library."""

    def call(self, calls: Calls, thought: str) -> None:
        self.ids = [self.reference(name) for name, _ in calls]
        made = [
            SimpleNamespace(id=one, function=SimpleNamespace(name=name, arguments=json.dumps(arguments)))
            for one, (name, arguments) in zip(self.ids, calls, strict=True)
        ]
        self.say("assistant", thought, tool_calls=made)


class Oldest(OpenAI):
    """Functions, older than tools."""

    def call(self, calls: Calls, thought: str) -> None:
        self.calls, self.thought = list(calls), thought

    def results(self, results: Sequence[tuple[str, str]]) -> None:
        for (name, arguments), (_, text) in zip(self.calls, results, strict=True):
            asked = {"name": name, "arguments": json.dumps(arguments)}
            self.say("assistant", self.thought, function_call=asked)
            self.say("function", text, name=name)


SHAPES = [OpenAI, Ollama, Gemini, Older, Oldest]


def written(shape: type[Shape], turns: Sequence[tuple[str, str, int]]) -> list[ChatMessage]:
    made = shape()
    for turn in turns:
        made.write(*turn)
    made.ask("Which is it?")
    return made.messages


def pairs(messages: Sequence[ChatMessage]) -> tuple[int, int]:
    """Counts calls and results as integrations send them."""
    calls = results = 0
    for message in messages:
        calls += sum(isinstance(block, ToolCallBlock) for block in message.blocks)
        calls += len(message.additional_kwargs.get("tool_calls", ()))
        calls += "function_call" in message.additional_kwargs
        results += message.role.value in ("tool", "function")
    return calls, results


def silent(message: ChatMessage) -> bool:
    """Says whether an integration would send an assistant message with nothing in it."""
    own = [b for b in message.blocks if not isinstance(b, ThinkingBlock)]
    said = any(not isinstance(b, TextBlock) or b.text.strip() for b in own)
    return message.role.value == "assistant" and not said and pairs([message]) == (0, 0)


@draws()
@given(st.sampled_from(SHAPES), shaped_turns(), st.integers(1, 8))
def test_pairs_of_every_integration_stay_pairs(shape: type[Shape], turns: Any, eighths: int) -> None:
    """At any limit there are as many results as calls, nothing empty, a question first; all where it fits."""
    messages = written(shape, turns)
    kept = [m for m in messages if not silent(m)]
    found = fit_messages(messages, max_tokens=1_000_000, counter=COUNTER, codec=CODEC).messages
    assert [id(m) for m in found] == [id(m) for m in kept]
    limit = max(1, COUNTER.count_messages([CODEC.to_dict(m) for m in kept]) * eighths // 8)
    try:
        found = fit_messages(messages, max_tokens=limit, counter=COUNTER, codec=CODEC).messages
    except BudgetExceededError:  # the laws say when it may be raised
        return
    assert COUNTER.count_messages([CODEC.to_dict(m) for m in found]) <= limit
    calls, results = pairs(found)
    assert calls == results
    assert not any(map(silent, found))
    assert found[0].role.value == "user"


@pytest.mark.parametrize("shape", SHAPES)
def test_two_calls_of_one_tool_keep_both_results(shape: type[Shape]) -> None:
    """Where calls share an id, or have none, the second result is no orphan; a memory returns both."""
    messages = written(shape, [("twice", "w", 1)])
    found = fit_messages(messages, max_tokens=1_000, counter=COUNTER, codec=CODEC, strict=True)
    assert found.messages == messages
    assert pairs(messages) == (2, 2)
    memory = BudgetChatMemoryBuffer.from_defaults(token_limit=3_000, chat_history=messages)
    assert pairs(memory.get()) == (2, 2)


def test_every_text_of_a_message_is_counted() -> None:
    """Fifty words more in any place of a message cost tokens."""
    for message in written(OpenAI, [("parallel", "one", 1), ("picture", "one", 1)]):
        before = COUNTER.count_message(CODEC.to_dict(message))
        grown = ChatMessage.model_validate_json(
            message.model_dump_json()
            .replace("one", "one" + " more" * 50)
            .replace("thought", "thought" + " m" * 50)
        )
        assert COUNTER.count_message(CODEC.to_dict(grown)) >= before + (50 if "one" in str(message) else 0)
