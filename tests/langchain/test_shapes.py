"""LangChain's messages as each integration makes them: pairs stay, empty answers go, all is counted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, FunctionMessage, HumanMessage, ToolMessage

from langchain_budget import BudgetTrimmer
from langchain_budget._codec import CODEC
from rankbudget import BudgetExceededError, counter_for, fit_messages
from rankbudget.testing.shapes import Shape
from rankbudget.testing.strategies import shaped_turns
from tests.drawing import draws

COUNTER = counter_for(lambda text: len(text.split()))
Calls = Sequence[tuple[str, dict[str, Any]]]


class OpenAI(Shape):
    """`ChatOpenAI` and `AzureChatOpenAI`."""

    def say(self, role: str, content: Any, **fields: Any) -> None:
        kind = HumanMessage if role == "user" else AIMessage
        self.messages.append(kind(content or "", **fields))

    def reference(self, name: str) -> str:
        return f"call_{self.fresh()}_{name}"

    def call(self, calls: Calls, thought: str) -> None:
        self.ids = [self.reference(name) for name, _ in calls]
        made = [{"name": n, "args": a, "id": i} for i, (n, a) in zip(self.ids, calls, strict=True)]
        self.say("assistant", self.content(made, thought), tool_calls=made)

    def content(self, calls: list[dict[str, Any]], thought: str) -> Any:
        return thought

    def results(self, results: Sequence[tuple[str, str]]) -> None:
        for one, (name, text) in zip(self.ids, results, strict=True):
            self.messages.append(ToolMessage(text, tool_call_id=one, name=name))


class Vertex(OpenAI):
    """The call's id is the tool's name."""

    def reference(self, name: str) -> str:
        return name


class Ollama(OpenAI):
    """Calls without ids, results that name their tool."""

    def call(self, calls: Calls, thought: str) -> None:
        super().call(calls, thought)
        self.messages[-1].tool_calls = [{**call, "id": None} for call in self.messages[-1].tool_calls]
        self.ids = ["" for _ in calls]


class Anthropic(OpenAI):
    """Calls in both places, thinking before them, tools of the server among the blocks."""

    def content(self, calls: list[dict[str, Any]], thought: str) -> Any:
        blocks = [{"type": "tool_use", "id": c["id"], "name": c["name"], "input": c["args"]} for c in calls]
        return [{"type": "thinking", "thinking": thought, "signature": "c2ln"}, *blocks]

    def hosted(self, text: str) -> None:
        called = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": text}}
        result = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"title": text}]}
        self.say("assistant", [called])
        self.say("assistant", [result, {"type": "text", "text": text}])


class Standard(OpenAI):
    """LangChain's own blocks, as `output_version="v1"` writes them: the provider's tools with their results."""

    def hosted(self, text: str) -> None:
        called = {"type": "server_tool_call", "id": "s1", "name": "web_search", "args": {"query": text}}
        result = {"type": "server_tool_result", "tool_call_id": "s1", "status": "success", "output": text}
        self.say("assistant", [called, result, {"type": "text", "text": text}])


class Responses(OpenAI):
    """Calls and reasoning among the blocks; the provider's tools answered in messages of their own."""

    def content(self, calls: list[dict[str, Any]], thought: str) -> Any:
        blocks = [
            {
                "type": "function_call",
                "call_id": c["id"],
                "name": c["name"],
                "arguments": json.dumps(c["args"]),
            }
            for c in calls
        ]
        return [{"type": "reasoning", "summary": [{"type": "summary_text", "text": thought}]}, *blocks]

    def hosted(self, text: str) -> None:
        self.say("assistant", [{"type": "computer_call", "call_id": "c1", "action": {"text": text}}])
        done = ToolMessage([{"type": "text", "text": text}], tool_call_id="c1")
        done.additional_kwargs["type"] = "computer_call_output"
        self.messages.append(done)
        self.say("assistant", [{"type": "mcp_approval_request", "id": "m1", "name": "f", "arguments": text}])
        self.say("user", [{"type": "mcp_approval_response", "approval_request_id": "m1", "approve": True}])


class OlderResponses(Responses):
    """The provider's tools beside the content, as `output_version="v0"` writes them."""

    def say(self, role: str, content: Any, **fields: Any) -> None:
        listed = content if role == "assistant" and isinstance(content, list) else []
        beside = [block for block in listed if block["type"] in {"computer_call", "mcp_approval_request"}]
        if beside:
            fields["additional_kwargs"] = {"tool_outputs": beside}
            content = [block for block in content if block not in beside]
        super().say(role, content, **fields)


class Legacy(OpenAI):
    """Functions, older than tools."""

    def call(self, calls: Calls, thought: str) -> None:
        self.calls, self.thought = list(calls), thought

    def results(self, results: Sequence[tuple[str, str]]) -> None:
        for (name, arguments), (_, text) in zip(self.calls, results, strict=True):
            asked = {"name": name, "arguments": json.dumps(arguments)}
            self.say("assistant", self.thought, additional_kwargs={"function_call": asked})
            self.messages.append(FunctionMessage(text, name=name))


SHAPES = [OpenAI, Vertex, Ollama, Anthropic, Standard, Responses, OlderResponses, Legacy]


def written(shape: type[Shape], turns: Sequence[tuple[str, str, int]]) -> list[Any]:
    made = shape()
    for turn in turns:
        made.write(*turn)
    made.ask("Which is it?")
    return made.messages


def silent(message: Any) -> bool:
    """Says whether an integration would send an assistant message with nothing in it."""
    if message.type != "ai" or message.tool_calls or message.additional_kwargs:
        return False
    blocks = message.content if isinstance(message.content, list) else [message.content]
    return not any(b.strip() if isinstance(b, str) else b["type"] != "reasoning" for b in blocks)


def pairs(messages: Sequence[Any]) -> tuple[int, int]:
    """Counts calls and results as integrations send them."""
    calls = results = 0
    for message in messages:
        blocks = message.content if isinstance(message.content, list) else []
        beside = message.additional_kwargs.get("tool_outputs", [])
        kinds = [block["type"] for block in (*blocks, *beside)]
        calls += len(getattr(message, "tool_calls", ())) + ("function_call" in message.additional_kwargs)
        hosted = ("server_tool_use", "server_tool_call", "computer_call", "mcp_approval_request")
        calls += sum(map(kinds.count, hosted))
        results += isinstance(message, (ToolMessage, FunctionMessage))
        answers = ("web_search_tool_result", "server_tool_result", "mcp_approval_response")
        results += sum(map(kinds.count, answers))
    return calls, results


@draws()
@given(st.sampled_from(SHAPES), shaped_turns(), st.integers(1, 8))
def test_pairs_of_every_integration_stay_pairs(shape: type[Shape], turns: Any, eighths: int) -> None:
    """At any limit there are as many results as calls, nothing empty, a question first; all where it fits."""
    messages = written(shape, turns)
    kept = [m for m in messages if not silent(m)]
    assert fit_messages(messages, max_tokens=1_000_000, counter=COUNTER, codec=CODEC).messages == kept
    assert BudgetTrimmer(max_tokens=1_000_000, counter=COUNTER).invoke(messages) == kept
    limit = max(1, COUNTER.count_messages([CODEC.to_dict(m) for m in kept]) * eighths // 8)
    try:
        found = fit_messages(messages, max_tokens=limit, counter=COUNTER, codec=CODEC).messages
    except BudgetExceededError:  # the laws say when it may be raised
        return
    assert COUNTER.count_messages([CODEC.to_dict(m) for m in found]) <= limit
    calls, results = pairs(found)
    assert calls == results
    assert not any(map(silent, found))
    assert found[0].type == "human"
    assert not CODEC.answers(found[0])


@pytest.mark.parametrize("shape", SHAPES)
def test_two_calls_of_one_tool_keep_both_results(shape: type[Shape]) -> None:
    """Where calls share an id, or have none, the second result is no orphan."""
    messages = written(shape, [("twice", "w", 1)])
    found = fit_messages(messages, max_tokens=1_000, counter=COUNTER, codec=CODEC, strict=True)
    assert found.messages == messages
    assert pairs(messages) == (2, 2)


@pytest.mark.parametrize(
    "message",
    [
        AIMessage("", tool_calls=[{"name": "f", "args": {"q": "one"}, "id": "a"}]),
        AIMessage([{"type": "custom_tool_call", "call_id": "a", "name": "f", "input": "one"}]),
        AIMessage([{"type": "apply_patch_call", "call_id": "a", "operation": {"diff": "one"}}]),
        AIMessage("", additional_kwargs={"refusal": "one"}),
        AIMessage("", additional_kwargs={"reasoning_content": "one"}),
        ToolMessage([{"type": "custom_tool_call_output", "output": "one"}], tool_call_id="a"),
        HumanMessage([{"type": "document", "source": {"type": "content", "content": "one"}}]),
    ],
)
def test_every_text_of_a_message_is_counted(message: Any) -> None:
    """Fifty words more in any place of a message cost tokens."""
    more = type(message).model_validate_json(message.model_dump_json().replace("one", "one" + " more" * 50))
    before, after = [COUNTER.count_message(CODEC.to_dict(m)) for m in (message, more)]
    assert after >= before + 50


def test_sealed_reasoning_costs_what_the_provider_reported() -> None:
    """Encrypted reasoning cannot be read; the usage of its own turn says how much it is."""
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": "x" * 40}
    usage = {
        "input_tokens": 1,
        "output_tokens": 9,
        "total_tokens": 10,
        "output_token_details": {"reasoning": 90_000},
    }
    said = AIMessage([sealed, {"type": "text", "text": "so"}], usage_metadata=usage)
    assert COUNTER.count_message(CODEC.to_dict(said)) >= 90_000


def test_spoken_answers_are_counted() -> None:
    """Audio that is sent back by its id costs tokens, and its message is not empty."""
    said = AIMessage("", additional_kwargs={"audio": {"id": "audio_1"}})
    assert COUNTER.count_message(CODEC.to_dict(said)) >= 600
    chat = [HumanMessage("q"), said, HumanMessage("q2")]
    assert fit_messages(chat, max_tokens=1_000, counter=COUNTER, codec=CODEC).messages == chat
