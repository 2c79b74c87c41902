"""The context edit for the stock middleware and the hook for graphs: what they send is judged by the same strict server."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ContextEditingMiddleware
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_budget import BudgetContextEdit, BudgetMiddleware, pre_model_hook
from rankbudget import TokenBudget
from rankbudget.errors import BudgetConfigError
from rankbudget.testing.server import StrictModelServer
from tests.langchain.test_middleware import chat, look, model, server
from tests.memory.test_stored_threads import Scripted

__all__ = ["server"]


def test_the_edit_works_in_the_stock_middleware(server: StrictModelServer) -> None:
    """ContextEditingMiddleware with our edit sends what fits, and never more than its own counter allows."""
    agent = create_agent(
        model(server, 400),
        [],
        middleware=[ContextEditingMiddleware(edits=[BudgetContextEdit(trigger=380, counter="o200k_base")])],
    )
    agent.invoke({"messages": [*chat(60), HumanMessage("and now?")]})
    assert [r.problems for r in server.requests] == [()]
    messages: list[Any] = chat(60)
    BudgetContextEdit(trigger=20).apply(messages, count_tokens=len)
    assert len(messages) <= 20
    with pytest.raises(BudgetConfigError, match=r"trigger must be .*0"):
        BudgetContextEdit(trigger=0)


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
def test_the_hook_fits_a_graphs_prompt(server: StrictModelServer) -> None:
    """As pre_model_hook of a prebuilt agent it leaves the state whole, or cuts it when told to."""
    from langgraph.prebuilt import create_react_agent

    for into, expected in (("llm_input_messages", 122), ("messages", 60)):
        hook = pre_model_hook(max_tokens=400, counter="o200k_base", tools=[look], into=into)
        agent = create_react_agent(model(server, 400), [look], pre_model_hook=hook)
        state = agent.invoke({"messages": [*chat(60), HumanMessage("and now?")]})
        assert state["messages"][-1].content == "ok"
        assert len(state["messages"]) <= expected
        assert (len(state["messages"]) == 122) == (into == "llm_input_messages")
    assert [r.problems for r in server.refused] == []


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
@pytest.mark.parametrize("into", ["llm_input_messages", "messages"])
@pytest.mark.parametrize("options", [{}, {"summarizer": lambda text, most: "Short."}], ids=["cut", "summary"])
def test_each_question_of_a_thread_is_sent(into: Any, options: dict[str, Any]) -> None:
    """Whatever the hook wrote before, also after a long result was shortened, a request ends on what is asked now."""
    from langgraph.prebuilt import create_react_agent

    @tool
    def read(name: str) -> str:
        """Reads a page."""
        return "\n".join(f"row {n} of {name} is {7 * n}" for n in range(200))

    hook = pre_model_hook(max_tokens=600, counter="o200k_base", tools=[read], into=into, **options)
    made = Scripted(script=[], seen=[])
    agent = create_react_agent(made, [read], pre_model_hook=hook, checkpointer=InMemorySaver())
    for turn in range(8):
        call = {"name": "read", "args": {"name": "x"}, "id": f"c{turn}"}
        steps = [AIMessage("", tool_calls=[call])] if turn % 3 == 1 else []
        made.script[:] = [*steps, AIMessage(f"answer {turn}")]
        asked: Any = {"messages": [HumanMessage(f"question {turn}")]}
        agent.invoke(asked, {"configurable": {"thread_id": "t"}})
        for request in made.seen:
            assert [m.text for m in request if m.type == "human"][-1] == f"question {turn}"
        made.seen.clear()


LATE: list[Any] = [
    SystemMessage("Be brief."),
    HumanMessage("hi"),
    AIMessage("hello"),
    SystemMessage("The user is Ann."),
    ("human", "Who am I?"),
]


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
@pytest.mark.parametrize("into", ["llm_input_messages", "messages"])
@pytest.mark.parametrize("known", ["model", "bound model", "name", "budget", "middleware"])
def test_late_system_messages_are_sent_to_claude(
    server: StrictModelServer, known: str, into: Literal["llm_input_messages", "messages"]
) -> None:
    """Its client refuses them where they are: they go to the front, as `budget_model` puts them."""
    from langgraph.prebuilt import create_react_agent

    claude = ChatAnthropic(
        model="claude-haiku-4-5", base_url=server.root_url, api_key="none", max_retries=0, max_tokens=100
    )
    options: dict[str, Any] = {
        "bound model": {"model": claude.bind_tools([look])},
        "name": {"model": "claude-haiku-4-5"},
        "budget": {"budget": TokenBudget.for_model("claude-haiku-4-5")},
    }.get(known, {"model": claude})
    if known == "middleware":
        agent: Any = create_agent(claude, [look], middleware=[BudgetMiddleware()])
    else:
        agent = create_react_agent(claude, [look], pre_model_hook=pre_model_hook(into=into, **options))
    server.forget()
    agent.invoke({"messages": LATE})
    assert [r.problems for r in server.requests] == [()]
    body = server.requests[0].body
    assert "Be brief." in str(body["system"])
    assert "Ann" in str(body["system"])
    assert [m["role"] for m in body["messages"]] == ["user", "assistant", "user"]


def test_late_system_messages_stay_for_other_models() -> None:
    """Only Anthropic's client refuses them."""
    kept = pre_model_hook(model="gpt-4o").invoke({"messages": LATE})["llm_input_messages"]
    assert [m.type for m in kept] == ["system", "human", "ai", "system", "human"]
