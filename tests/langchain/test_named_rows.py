"""A row of an earlier result comes with the question that names it, with and without a thread."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import Field

from langchain_budget import BudgetMiddleware, budget_model

ROW = "Order O1061: sent in week 9."


class Noting(FakeMessagesListChatModel):
    """Notes what it is sent."""

    seen: list[str] = Field(default_factory=list)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.seen.append("\n".join(str(message.content) for message in messages))
        return super()._generate(messages, *args, **kwargs)


def step(name: str, result: str) -> list[BaseMessage]:
    call = {"name": "orders", "args": {}, "id": name}
    return [AIMessage("", tool_calls=[call]), ToolMessage(result, tool_call_id=name)]


def thread() -> list[BaseMessage]:
    found: list[BaseMessage] = []
    for name in "OB":
        rows = "\n".join(f"Order {name}{1000 + i}: sent in week {i % 52}." for i in range(200))
        found += [HumanMessage(f"Load the orders of {name}"), *step(name, rows), AIMessage("I have it.")]
    return [*found, HumanMessage("When was order O1061 sent?")]


@pytest.mark.parametrize("saver", [None, InMemorySaver()])
def test_the_middleware_keeps_the_row_that_the_question_names(saver: Any) -> None:
    """A thread that is fitted for the first time is cut for its question."""
    model = Noting(responses=[AIMessage("In week 9.")])
    middleware = BudgetMiddleware(max_tokens=2500, counter="gpt-4o")
    agent: Any = create_agent(model, [], middleware=[middleware], checkpointer=saver)
    agent.invoke({"messages": thread()}, {"configurable": {"thread_id": "1"}})
    assert ROW in model.seen[-1]


def test_the_row_stays_while_tools_are_called_for_the_question() -> None:
    """The second request of a turn holds what the first one held."""
    model = Noting(responses=[AIMessage("In week 9.")])
    bounded = budget_model(model, max_tokens=2500, counter="gpt-4o")
    bounded.invoke(thread())
    bounded.invoke([*thread(), *step("clock", "It is nine.")])
    assert [ROW in sent for sent in model.seen] == [True, True]
