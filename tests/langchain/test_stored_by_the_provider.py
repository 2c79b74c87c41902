"""A request that goes on from a response that the provider stores."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI

from langchain_budget import BudgetMiddleware, BudgetTrimmer, budget_model
from rankbudget.errors import BudgetExceededError, MessageError
from tests.drawing import draws

WARNING = "the provider adds what it stores of this conversation, which is not counted"
STORED = {"previous_response_id": "resp_0"}
ANSWER = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "gpt-5",
    "status": "completed",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def client(sent: list[Any], **options: Any) -> ChatOpenAI:
    """Returns the real client, whose requests end up in a list."""

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content)["input"])
        return httpx.Response(200, json=ANSWER)

    transport = httpx.MockTransport(answer)
    return ChatOpenAI(
        model="gpt-5",
        api_key="none",
        use_responses_api=True,
        http_client=httpx.Client(transport=transport),
        http_async_client=httpx.AsyncClient(transport=transport),
        **options,
    )


def _asked(model: Any, reports: list[Any], limit: int) -> Any:
    return budget_model(model, max_tokens=limit, counter="gpt-4o", on_report=reports.append)


def _agent(model: Any, reports: list[Any], limit: int) -> Any:
    ours = BudgetMiddleware(max_tokens=limit, counter="gpt-4o", on_report=reports.append)
    agent = create_agent(model, middleware=[ours])
    return lambda messages: agent.invoke({"messages": messages})


DOORS: dict[str, Any] = {
    "argument": lambda sent, reports, limit: (
        lambda messages: _asked(client(sent), reports, limit).invoke(messages, **STORED)
    ),
    "async argument": lambda sent, reports, limit: (
        lambda messages: asyncio.run(_asked(client(sent), reports, limit).ainvoke(messages, **STORED))
    ),
    "bound": lambda sent, reports, limit: _asked(client(sent).bind(**STORED), reports, limit).invoke,
    "field": lambda sent, reports, limit: _asked(client(sent, model_kwargs=STORED), reports, limit).invoke,
    "agent": lambda sent, reports, limit: _agent(client(sent, model_kwargs=STORED), reports, limit),
}


@draws(asynchronous=True)
@given(
    door=st.sampled_from(sorted(DOORS)),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    systems=st.integers(0, 1),
    after=st.integers(0, 6),
    limit=st.integers(60, 400),
)
def test_results_of_stored_calls_are_all_sent_or_nothing_is(
    door: str, sizes: list[int], systems: int, after: int, limit: int
) -> None:
    """The provider refuses a request without the results of the calls it stores; the report says what it does not count."""
    thread: list[BaseMessage] = [SystemMessage("Be brief.")] * systems
    thread += [ToolMessage("word " * n, tool_call_id=f"c{i}") for i, n in enumerate(sizes)]
    thread += [(AIMessage if i % 2 else HumanMessage)("word " * 30) for i in range(after)]
    if after and isinstance(thread[-1], AIMessage):
        thread.append(HumanMessage("And now?"))
    sent: list[Any] = []
    reports: list[Any] = []
    try:
        DOORS[door](sent, reports, limit)(thread)
    except BudgetExceededError:
        assert sent == []
        assert sum(sizes) + 10 * len(thread) > limit / 2
        return
    outputs = [item["output"] for item in sent[0] if item.get("type") == "function_call_output"]
    assert outputs == ["word " * n for n in sizes]
    for report in reports:
        assert WARNING in report.warnings
        assert report.total_tokens <= limit


@pytest.mark.parametrize(
    "model",
    [
        client([], use_previous_response_id=True),
        client([]).bind(conversation="conv_1"),
        ChatGoogleGenerativeAI(model="gemini-2.5-flash", api_key="none", cached_content="cachedContents/1"),
    ],
    ids=["field", "conversation", "cache"],
)
def test_a_trimmer_warns_too(model: Any) -> None:
    """Whatever the provider calls what it stores; other models bring no warning."""
    assert WARNING in BudgetTrimmer(model=model, max_tokens=300).fit([HumanMessage("hi")]).report.warnings
    plain = BudgetTrimmer(model=client([]), max_tokens=300).fit([HumanMessage("hi")])
    assert WARNING not in plain.report.warnings


def test_a_trimmer_keeps_the_results_of_stored_calls() -> None:
    """In front of a model that goes on from a stored response all results stay, or the trimmer raises."""
    results = [ToolMessage("word " * 20, tool_call_id=f"c{i}") for i in range(2)]
    trimmer = BudgetTrimmer(model=client([], model_kwargs=STORED), max_tokens=200, counter="gpt-4o")
    assert trimmer.invoke([*results, HumanMessage("And now?")])[:2] == results
    assert trimmer.invoke(results) == results
    with pytest.raises(BudgetExceededError):
        trimmer.invoke([ToolMessage("word " * 300, tool_call_id="c0")])
    with pytest.raises(MessageError, match="previous_response_id"):
        BudgetTrimmer(model=client([]), max_tokens=200, counter="gpt-4o").invoke(results)


@pytest.mark.parametrize("door", sorted(DOORS))
@pytest.mark.parametrize("first", [[], [SystemMessage("Be brief.")]], ids=["alone", "system"])
@pytest.mark.parametrize("last", [[], [HumanMessage("Go on.")]], ids=["results", "question"])
def test_a_result_that_is_too_long_is_named_with_what_helps(
    door: str, first: list[Any], last: list[Any]
) -> None:
    """The error says that the results take the room, and that the tools must return less; capped, it is sent."""
    sent: list[Any] = []
    stays = [*first, ToolMessage("word " * 900, tool_call_id="c")]
    with pytest.raises(BudgetExceededError, match=r"stores 9\d\d.*shorten.*what your tools return") as caught:
        DOORS[door](sent, [], 300)([*stays, *last])
    assert caught.value.blocks["system"] == 7 * len(first)
    assert sent == []
    capped = BudgetMiddleware(max_tokens=300, tool_result_tokens=100, counter="gpt-4o")
    stays[-1] = capped.wrap_tool_call(None, lambda _: stays[-1])
    DOORS[door](sent, [], 300)([*stays, *last])
    assert len(sent) == 1
