"""The budget as a hook of a graph: `create_react_agent(pre_model_hook=..)`, or any node before a model.

graph = create_react_agent(model, tools, pre_model_hook=pre_model_hook(model="gpt-4o", tools=tools))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from langchain_core.messages import BaseMessage, RemoveMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from typing_extensions import Unpack

from rankbudget import TokenBudget
from rankbudget.adapters import Steps, adrive, drive
from rankbudget.errors import BudgetConfigError, shown

from ._agent import AgentBudget, thread_id
from ._convert import as_messages, as_tools
from ._options import LimitOptions, checked

__all__ = ["pre_model_hook"]

_REMOVE_ALL = "__remove_all__"
"""What langgraph calls REMOVE_ALL_MESSAGES; langchain-core alone must be enough to import this file."""


@checked
def pre_model_hook(
    budget: TokenBudget | None = None,
    *,
    prompt: str | BaseMessage | None = None,
    tools: Sequence[Any] | None = None,
    into: Literal["llm_input_messages", "messages"] = "llm_input_messages",
    keep: int = 1000,
    **limits: Unpack[LimitOptions],
) -> Runnable[Mapping[str, Any], dict[str, Any]]:
    """Returns a node that fits the state's messages; `.forget(thread_id)` forgets a thread's cut.

    Args:
        budget: the limits.
        prompt: the system prompt the agent adds later; it is counted.
        tools: what is bound to the model; None takes what `model` itself has bound.
        into: "llm_input_messages" leaves the state whole; "messages" replaces the state's messages.
        keep: for how many threads the cut is remembered; the one not used for longest is forgotten.
        limits: model, max_tokens, context_window, counter, summarizer and summary_timeout, as in
            `BudgetTrimmer`; a summarizer needs a `thread_id` in the config.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> hook = pre_model_hook(max_tokens=2, counter=len)
        >>> state = {"messages": [HumanMessage("one"), AIMessage("two"), HumanMessage("three")]}
        >>> [m.content for m in hook.invoke(state)["llm_input_messages"]]
        ['three']
    """
    system: Any = SystemMessage(prompt) if isinstance(prompt, str) else prompt
    if system is not None and not isinstance(system, BaseMessage):
        msg = f"prompt must be the system prompt as a text or a message (got {shown(prompt)})"
        raise BudgetConfigError(msg)
    agent = AgentBudget(budget=budget, keep=keep, **limits)
    as_tools(tools)  # raises now for what is no tool

    def steps(state: Any, config: RunnableConfig) -> Steps[dict[str, Any]]:
        found = state.get("messages") if isinstance(state, Mapping) else getattr(state, "messages", None)
        messages = found if isinstance(found, list) else as_messages(found)
        kept, _ = yield from agent.steps(messages, system=system, tools=tools, thread=thread_id(config))
        return {into: kept if into == "llm_input_messages" else [RemoveMessage(id=_REMOVE_ALL), *kept]}

    def hook(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return drive(steps(state, config))

    async def ahook(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return await adrive(steps(state, config))

    made = RunnableLambda(hook, ahook, name="pre_model_hook")
    made.forget = agent.forget  # type: ignore[attr-defined]  # an object has attributes
    return made
