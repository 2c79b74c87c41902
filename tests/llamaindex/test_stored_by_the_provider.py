"""A request that goes on from a response that OpenAI stores."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.llms.openai import OpenAIResponses

from llamaindex_budget import budget_model
from rankbudget import BudgetExceededError
from rankbudget.errors import MessageError

WARNING = "the provider adds what it stores of this conversation, which is not counted"
ANSWER = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "gpt-4o",
    "status": "completed",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 2,
    },
}


def bounded(sent: list[Any], reports: list[Any], limit: int = 200, **options: Any) -> Any:
    """Returns the real client, whose requests end up in a list, within a limit."""

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        return httpx.Response(200, json=ANSWER)

    client = httpx.Client(transport=httpx.MockTransport(answer))
    llm = OpenAIResponses(model="gpt-4o", api_key="none", http_client=client, **options)
    return budget_model(llm, max_tokens=limit, counter="gpt-4o", on_report=reports.append)


def results(size: int) -> list[ChatMessage]:
    """The results of two calls that are not among the messages."""
    calls = [{"tool_call_id": name} for name in ("c0", "c1")]
    return [ChatMessage(role="tool", content="word " * size, additional_kwargs=call) for call in calls]


@pytest.mark.parametrize(
    ("options", "arguments"),
    [({"previous_response_id": "resp_0"}, {}), ({}, {"previous_response_id": "resp_0"})],
    ids=["of the model", "of the call"],
)
def test_results_of_stored_calls_are_all_sent_or_nothing_is(
    options: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """The provider refuses a request without the results of the calls it stores."""
    sent: list[Any] = []
    reports: list[Any] = []
    llm = bounded(sent, reports, **options)
    for messages in (results(20), [*results(20), ChatMessage(role="user", content="And now?")]):
        llm.chat(messages, **arguments)
        outputs = [one["call_id"] for one in sent[-1]["input"] if one.get("type") == "function_call_output"]
        assert outputs == ["c0", "c1"]
        assert WARNING in reports[-1].warnings
    with pytest.raises(BudgetExceededError):
        llm.chat(results(300), **arguments)
    assert len(sent) == 2


def test_results_without_their_calls_are_refused() -> None:
    """Without a stored response nothing valid is left: the error says so before a request is made."""
    sent: list[Any] = []
    with pytest.raises(MessageError, match="previous_response_id"):
        bounded(sent, []).chat(results(20))
    assert sent == []


def test_a_model_that_keeps_track_holds_from_its_second_request_on() -> None:
    """`track_previous_responses` sets the id of the answer; the first request has none."""
    sent: list[Any] = []
    reports: list[Any] = []
    llm = bounded(sent, reports, track_previous_responses=True)
    llm.chat([ChatMessage(role="user", content="hi")])
    assert WARNING not in reports[-1].warnings
    llm.chat(results(20))
    assert len(sent[-1]["input"]) == 2
    assert WARNING in reports[-1].warnings
