"""The budget as a hook of a graph: `create_react_agent(pre_model_hook=..)`, or any node before a model.

graph = create_react_agent(model, tools, pre_model_hook=pre_model_hook(model="gpt-4o", tools=tools))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from langchain_core.messages import BaseMessage, RemoveMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from rankbudget import TokenBudget
from rankbudget._drivers import Steps, adrive, drive
from rankbudget.errors import BudgetConfigError

from ._agent import AgentBudget
from ._limits import tool_schemas

__all__ = ["pre_model_hook"]

_REMOVE_ALL = "__remove_all__"
"""What langgraph calls REMOVE_ALL_MESSAGES; langchain-core alone must be enough to import this file."""


def pre_model_hook(
    budget: TokenBudget | None = None,
    *,
    model: Any = None,
    max_tokens: int | None = None,
    counter: Any = None,
    prompt: str | BaseMessage | None = None,
    tools: Sequence[Any] | None = None,
    summarizer: Any = None,
    into: Literal["llm_input_messages", "messages"] = "llm_input_messages",
) -> Runnable[Mapping[str, Any], dict[str, Any]]:
    """Returns a node that fits the state's messages.

    Args:
        budget: the limits.
        model: a chat model or a model's name; gives window and tokenizer.
        max_tokens: tokens a prompt may have; beside a budget the smaller wins.
        counter: counts instead of the model's tokenizer.
        prompt: the system prompt the agent adds later; it is counted.
        tools: what is bound to the model; it is counted. None takes what `model` itself has bound, an empty list says nothing is.
        summarizer: keeps a running summary of what is cut.
        into: "llm_input_messages" leaves the state whole; "messages" replaces the state's messages.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> hook = pre_model_hook(max_tokens=2, counter=len)
        >>> state = {"messages": [HumanMessage("one"), AIMessage("two"), HumanMessage("three")]}
        >>> [m.content for m in hook.invoke(state)["llm_input_messages"]]
        ['three']
    """
    if into not in {"llm_input_messages", "messages"}:
        msg = f"into is {into!r}, allowed: 'llm_input_messages' or 'messages'"
        raise BudgetConfigError(msg)
    agent = AgentBudget(
        budget=budget, model=model, max_tokens=max_tokens, counter=counter, summarizer=summarizer
    )
    tool_schemas(tools)  # says at once what is no tool
    system = SystemMessage(prompt) if isinstance(prompt, str) else prompt

    def steps(state: Any, config: RunnableConfig) -> Steps[dict[str, Any]]:
        messages = state["messages"] if isinstance(state, Mapping) else state.messages
        thread = (config.get("configurable") or {}).get("thread_id")
        fitted = yield from agent.steps(messages, system=system, tools=tools, thread=thread)
        if into == "messages":
            return {"messages": [RemoveMessage(id=_REMOVE_ALL), *fitted.messages]}
        return {"llm_input_messages": fitted.messages}

    def hook(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return drive(steps(state, config))

    async def ahook(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return await adrive(steps(state, config))

    return RunnableLambda(hook, ahook, name="pre_model_hook")
