"""Counting by a provider's client: what it is asked, what is remembered, and what happens when it does not answer."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from rankbudget import counter_for
from rankbudget.errors import BudgetConfigError

CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is the weather in Rome?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    {"role": "system", "content": "Answer in Italian."},
    {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells it.",
        "parameters": {"type": "object", "properties": {}},
    },
}


class Anthropic:
    """A client that counts characters, as Anthropic's counts tokens."""

    def __init__(self, *, fails: bool = False) -> None:
        self.asked: list[dict[str, Any]] = []
        self.fails = fails
        self.messages = self

    def count_tokens(self, **request: Any) -> Any:
        self.asked.append(request)
        if self.fails:
            msg = "rate limit"
            raise RuntimeError(msg)
        return SimpleNamespace(input_tokens=1_000 + len(self.asked))


def test_anthropic_is_asked_in_its_own_format() -> None:
    """System text, tool calls, tool results and tools go where Anthropic's format has them."""
    client = Anthropic()
    counter = counter_for(client, model="claude-sonnet-4-5")
    assert counter.count_messages(CONVERSATION, [TOOL]) == 1_001
    assert client.asked == [
        {
            "model": "claude-sonnet-4-5",
            "system": "Be brief.\n\nAnswer in Italian.",
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "What is the weather in Rome?"}]},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Rome"}}
                    ],
                },
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sunny"}],
                },
                {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
            ],
            "tools": [
                {
                    "name": "weather",
                    "description": "Tells it.",
                    "input_schema": {"type": "object", "properties": {}},
                }
            ],
        }
    ]


def test_anthropic_counts_the_form_of_the_answer_as_a_tool() -> None:
    """The endpoint has no other place for the schema of a response format."""
    client, schema = Anthropic(), {"type": "object", "properties": {"city": {"type": "string"}}}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    counter_for(client, model="claude-sonnet-4-5").count_messages(CONVERSATION, [form])
    [asked] = client.asked
    assert asked["tools"] == [{"name": "answer", "description": "", "input_schema": schema}]


def test_google_is_asked_in_its_own_format() -> None:
    """Google's endpoint gets contents with parts, the system text and the tools among them."""
    asked: list[dict[str, Any]] = []

    def count_tokens(**request: Any) -> Any:
        asked.append(request)
        return {"total_tokens": 77}

    client = SimpleNamespace(models=SimpleNamespace(count_tokens=count_tokens))
    assert counter_for(client, model="gemini-2.5-pro").count_messages(CONVERSATION[:2]) == 77
    assert asked == [
        {
            "model": "gemini-2.5-pro",
            "contents": [
                {"role": "user", "parts": [{"text": "Be brief."}]},
                {"role": "user", "parts": [{"text": "What is the weather in Rome?"}]},
            ],
        }
    ]


def test_answers_are_remembered_and_texts_need_none() -> None:
    """The same request is asked once; texts, messages and cuts are counted here and ask nothing."""
    client = Anthropic()
    counter = counter_for(client, model="claude-sonnet-4-5")
    assert (
        counter.count_messages(CONVERSATION)
        == counter.count_messages([dict(m) for m in CONVERSATION])
        == 1_001
    )
    assert counter.count_messages(CONVERSATION[:2]) == 1_002
    assert counter.count("Hello") > 0
    assert counter.count_many(["Hello", ""]) == [counter.count("Hello"), 0]
    assert counter.count_message(CONVERSATION[1]) > 0
    assert counter.count(counter.truncate("word " * 100, 10)) <= 10
    assert counter.count_messages([]) == counter.overhead()
    assert len(client.asked) == 2
    assert (counter.additive, counter.exact) == (False, False)
    assert "Anthropic" in counter.why


def test_a_provider_that_fails_is_replaced_and_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """An endpoint that raises costs nothing but exactness: the local count is given and the log says why; the next call asks again."""
    client = Anthropic(fails=True)
    counter = counter_for(client, model="claude-sonnet-4-5")
    with caplog.at_level(logging.WARNING, logger="rankbudget.counting"):
        assert counter.count_messages(CONVERSATION) == counter_for("claude-sonnet-4-5").count_messages(
            CONVERSATION
        )
    assert "rate limit" in caplog.text
    client.fails = False
    assert counter.count_messages(CONVERSATION) == 1_002


def test_clients_that_cannot_count_are_refused() -> None:
    """A client without an endpoint and a client that answers later are typed errors that say what to give."""
    with pytest.raises(BudgetConfigError, match="count_tokens"):
        counter_for(SimpleNamespace(), model="claude-sonnet-4-5")

    class Later:
        messages: Any

        async def count_tokens(self, **_request: Any) -> Any:
            return None

    later = Later()
    later.messages = later
    with pytest.raises(BudgetConfigError, match="async"):
        counter_for(later, model="claude-sonnet-4-5").count_messages(CONVERSATION)


def test_an_answer_that_cannot_be_closed_is_refused_as_well() -> None:
    """A future has no `close`; a client that returns one is an async client, too."""

    class Future:
        def __await__(self) -> Any:
            yield

    later: Any = SimpleNamespace(count_tokens=lambda **_: Future())
    with pytest.raises(BudgetConfigError, match="async"):
        counter_for(SimpleNamespace(messages=later), model="claude-sonnet-4-5").count_messages(CONVERSATION)


def test_remembered_requests_hold_no_text() -> None:
    """A count that is remembered holds a digest of its request; the same request is not asked again."""
    asked: list[Any] = []
    place = SimpleNamespace(count_tokens=lambda **request: asked.append(request) or {"input_tokens": 7})
    counter: Any = counter_for(SimpleNamespace(messages=place), model="claude-sonnet-4-5")
    secret = [{"role": "user", "content": "the secret word"}]
    assert [counter.count_messages(secret), counter.count_messages(secret)] == [7, 7]
    assert len(asked) == 1
    assert "secret" not in repr(vars(counter)["_answers"])
