"""Tools that are bound after an agent's request was planned count as all others: in the limit and in the report."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, TodoListMiddleware
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

from langchain_budget import BudgetMiddleware, budget_model
from langchain_budget._codec import CODEC
from rankbudget import TokenBudget, counter_for
from rankbudget.errors import BudgetConfigError, BudgetExceededError, MessageError
from tests.drawing import draws
from tests.langchain.running import on_thread

EXACT = counter_for("gpt-4o")


@tool
def search(query: str, first: int = 1, last: int = 10) -> str:
    """Searches all orders, invoices, customers and complaints of the last ten years for a text and returns what it finds."""
    return query


class Model(FakeListChatModel):
    """Notes what is sent; `keeps` says that tools are kept in the model instead of being passed on with each request."""

    responses: list[str] = Field(default_factory=lambda: ["fine"])
    keeps: bool = False
    tools: list[Any] = Field(default_factory=list)
    requests: list[int] = Field(default_factory=list)

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        if not self.keeps:
            return self.bind(tools=[convert_to_openai_tool(t) for t in tools], **options)
        return self.model_copy(update={"tools": [convert_to_openai_tool(t) for t in tools]})

    def _call(self, messages: list[BaseMessage], *args: Any, **options: Any) -> str:
        tools = self.tools if self.keeps else options.get("tools")
        self.requests.append(EXACT.count_messages([CODEC.to_dict(m) for m in messages], tools=tools))
        return "fine"


class Adding(AgentMiddleware[Any, Any, Any]):
    """Adds tools to each request, and nothing to its messages."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.added = [search.model_copy(update={"name": f"search_{i}"}) for i in range(count)]

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(tools=[*request.tools, *self.added]))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(request.override(tools=[*request.tools, *self.added]))


@draws()
@given(
    limit=st.integers(700, 3000),
    turns=st.integers(0, 60),
    late=st.sampled_from([Adding(1), Adding(5), TodoListMiddleware()]),
    keeps=st.booleans(),
    asynchronous=st.booleans(),
)
def test_late_tools_are_within_the_limit_and_in_the_report(
    limit: int, turns: int, late: Any, keeps: bool, asynchronous: bool
) -> None:
    """The request as it was sent, tools included, is within the limit, and the report has its exact tokens."""
    thread = [kind("word " * 30) for _ in range(turns) for kind in (HumanMessage, AIMessage)]
    thread.append(HumanMessage("And now?"))
    reports: list[Any] = []
    model = Model(keeps=keeps, requests=[])
    ours = BudgetMiddleware(max_tokens=limit, counter="gpt-4o", on_report=reports.append)
    agent = create_agent(model, [], middleware=[ours, late])
    asked: Any = {"messages": thread}
    try:
        asyncio.run(agent.ainvoke(asked)) if asynchronous else agent.invoke(asked)
    except BudgetExceededError:
        assert limit < 1800, "prompt and tools that are added have about 1,700 tokens at most"
        assert model.requests == []
        return
    assert len(model.requests) == len(reports) == 1
    assert model.requests[0] == reports[0].total_tokens <= limit


@pytest.mark.parametrize("keeps", [False, True], ids=["passed on", "kept in the model"])
def test_a_bounded_model_counts_the_tools_bound_to_it(keeps: bool) -> None:
    """Whichever way its class binds tools."""
    thread = [kind("word " * 30) for _ in range(20) for kind in (HumanMessage, AIMessage)]
    reports: list[Any] = []
    model = Model(keeps=keeps, requests=[])
    bounded = budget_model(model, max_tokens=600, counter="gpt-4o", on_report=reports.append)
    bounded.bind_tools([search] * 3).invoke([*thread, HumanMessage("And now?")])
    assert model.requests[0] == reports[0].total_tokens <= 600


class ProviderTool:
    """A provider's own tool, as google-genai's: no schema, no mapping."""

    def __str__(self) -> str:
        return "search the web " * 50


@pytest.mark.parametrize("tools", [[ProviderTool()], (ProviderTool(),), ProviderTool()])
def test_a_bounded_model_counts_tools_of_a_provider_that_it_keeps(tools: Any) -> None:
    """They are counted as they print; a bounded class made without a limit binds them, too."""

    class Keeping(Model):
        def bind_tools(self, tools: Any, **options: Any) -> Any:
            return self.model_copy(update={"keeps": True})

    reports: list[Any] = []
    bounded = budget_model(Keeping(), max_tokens=600, counter="gpt-4o", on_report=reports.append)
    for model in (bounded, bounded.bind_tools(tools), bounded.bind_tools(tools).bind_tools([])):
        assert model.invoke("And now?").content == "fine"
    plain, counted, emptied = [report.total_tokens for report in reports]
    assert plain == emptied
    assert plain + 150 < counted < plain + 250
    unbounded: Any = type(bounded)()
    assert unbounded.bind_tools(tools).invoke("And now?").content == "fine"


def test_a_window_that_a_model_does_not_state_may_be_given() -> None:
    """Every request keeps to it; a fallback keeps to its own, or to this one where it has none; a budget has one itself."""
    thread = [kind("word " * 30) for _ in range(200) for kind in (HumanMessage, AIMessage)]
    reports: list[Any] = []
    options: Any = {"context_window": 2000, "counter": "gpt-4o", "on_report": reports.append}
    small = Model(profile={"max_input_tokens": 1000})
    for model in (Model(), Model().with_fallbacks([small]), Model().with_fallbacks([Model()])):
        bounded = budget_model(model, **options)
        for each in (bounded, *getattr(bounded, "fallbacks", ())):
            each.invoke([*thread, HumanMessage("And now?")])
    assert [report.limit for report in reports] == [1400, 1400, 700, 1400, 1400]
    assert all(report.limit / 3 < report.total_tokens <= report.limit for report in reports)
    with pytest.raises(BudgetConfigError, match="context_window"):
        budget_model(Model(), TokenBudget(context_window=1000), context_window=2000)
    with pytest.raises(BudgetConfigError, match="context_window"):
        budget_model(Model(), context_window=0)


def test_a_bounded_model_forgets_a_thread() -> None:
    """As the middleware does: the next request of the thread is fitted afresh; bound to tools, it is the same model."""
    thread = [kind("word " * 30) for _ in range(20) for kind in (HumanMessage, AIMessage)]
    bounded: Any = budget_model(Model(requests=[]), max_tokens=600, counter="gpt-4o")
    for name in ("a", "b"):
        with on_thread(name):
            bounded.invoke([*thread, HumanMessage("And now?")])
    assert bounded.forget("a")
    assert not bounded.forget("a")
    assert bounded.bind(stop=["x"]).forget("b")
    assert not bounded.forget("c")


async def test_a_refusal_names_the_bound_tools() -> None:
    """Their tokens are not put down to the conversation; what holds no message is refused before it is sent, too."""
    model = Model()
    bounded = budget_model(model, max_tokens=60, counter="gpt-4o").bind_tools([search] * 3)
    with pytest.raises(BudgetExceededError) as caught:
        bounded.invoke([SystemMessage("Be brief."), HumanMessage("Hello")])
    schemas = [convert_to_openai_tool(search)] * 3
    assert caught.value.blocks["tools and framing"] == EXACT.count_messages([], schemas)
    assert caught.value.blocks["system"] < 10
    with pytest.raises(MessageError, match="must hold a message"):
        budget_model(model, max_tokens=60).invoke([])
    with pytest.raises(MessageError, match="must hold a message"):
        await budget_model(model, max_tokens=60).ainvoke([])


# ---- what a counter may be too low by ------------------------------------------------------------
@draws(asynchronous=True)
@given(limit=st.integers(200, 3000), again=st.sampled_from([None, 200, 3000]), size=st.integers(1, 60))
def test_two_doors_of_one_limit_keep_the_band_free_once(limit: int, again: int | None, size: int) -> None:
    """A middleware before a bounded model has the smaller limit of both, not a smaller one, where tokens are estimated."""
    estimated = "a-model-of-no-list"
    thread = [kind("word " * size) for _ in range(30) for kind in (HumanMessage, AIMessage)]
    smaller = limit if again is None else min(limit, again)
    alone: list[Any] = []
    one: Any = budget_model(Model(requests=[]), max_tokens=smaller, counter=estimated, on_report=alone.append)
    one.invoke([*thread, HumanMessage("And now?")])
    both: list[Any] = []
    model = budget_model(Model(requests=[]), max_tokens=limit, counter=estimated)
    middleware = BudgetMiddleware(max_tokens=again or limit, counter=estimated, on_report=both.append)
    create_agent(model, [], middleware=[middleware]).invoke({"messages": [*thread, HumanMessage("And now?")]})
    assert alone[-1].limit < smaller
    assert both[-1].limit >= alone[-1].limit >= both[-1].total_tokens
