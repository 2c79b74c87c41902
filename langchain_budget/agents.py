"""Whole requests of agents, fitted: by a hook of a graph, or by an edit of LangChain's own middleware."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from langchain_core.messages import BaseMessage, RemoveMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, ensure_config
from typing_extensions import Unpack

from rankbudget import BudgetConfigError, BudgetReport, TokenBudget, TokenCounter
from rankbudget.adapters import (
    Plan,
    PromptRequest,
    SessionPool,
    Steps,
    awaiting,
    blocking,
    drive,
    plain_budget,
    plan_steps,
)
from rankbudget.errors import named_fields, shown

from ._codec import CODEC, codec_for
from ._convert import as_messages, as_tools
from ._counters import host_counter
from ._limits import HostLimits, bound_tools, limits_for, planned, with_texts
from ._options import LimitOptions, SharedCopy, check_values, checked
from ._placeholders import in_order
from .models import client_of

_TIGHTER = 0.75
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
        into: "llm_input_messages" leaves the state whole; "messages" replaces the state's messages, too.
        keep: for how many threads the cut is remembered; the one not used for longest is forgotten.
        limits: model, max_tokens, context_window, counter, summarizer and summary_timeout, as in
            `BudgetTrimmer`; a summarizer needs a `thread_id` in the config.

    Raises:
        BudgetConfigError: an option is wrong.

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

    @blocking
    def hook(state: Any, config: RunnableConfig) -> Steps[dict[str, Any]]:
        found = state.get("messages") if isinstance(state, Mapping) else getattr(state, "messages", None)
        messages = found if isinstance(found, list) else as_messages(found)
        kept, plan = yield from agent.steps(messages, system=system, tools=tools, thread=thread_id(config))
        # LangGraph's agent prefers this key, and keeps it: without it an older request would be sent again.
        sent: dict[str, Any] = {"llm_input_messages": kept}
        if into == "llm_input_messages" or plan.unsummarized:  # what is in no summary stays
            return sent
        return {**sent, into: [RemoveMessage(id=_REMOVE_ALL), *kept]}

    made = RunnableLambda(hook, awaiting(hook), name="pre_model_hook")
    made.forget = agent.forget  # type: ignore[attr-defined]  # an object has attributes
    return made


@named_fields
@dataclass(eq=False)
class BudgetContextEdit:
    """Fits the messages in place when they exceed `trigger` tokens.

    Args:
        trigger: most tokens of the messages, from 1.
        counter: counts instead of the middleware's own counter, which estimates unless it asks a model; the
            provider may then count more than `trigger`.
        cut: "stable" moves the start of what is kept rarely, for prompt caches; "fill" keeps as much as fits;
            None fills for a question, and is "stable" while its tools are called.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> messages = [HumanMessage("one"), AIMessage("two"), HumanMessage("three")]
        >>> BudgetContextEdit(trigger=2).apply(messages, count_tokens=len)
        >>> [m.content for m in messages]
        ['three']
    """

    trigger: int = 100_000
    counter: Any = None
    cut: Literal["fill", "stable"] | None = None

    def __post_init__(self) -> None:
        check_values(
            {name: value for name, value in vars(self).items() if name != "cut" or value is not None}
        )
        self._own = None if self.counter is None else host_counter(self.counter)

    def apply(self, messages: list[Any], *, count_tokens: Callable[[Sequence[BaseMessage]], int]) -> None:
        """Replaces what `messages` holds by what fits, by `count_tokens`; also repairs what is broken."""
        if not messages:
            return
        host = self._own or host_counter(count_tokens, prefer="messages")
        request = PromptRequest(
            budget=plain_budget(self.trigger),
            **host._asdict(),
            codec=CODEC,
            history=messages,
            sources=frozenset({"history"}),
            cut=self.cut,
            sent=True,
        )
        messages[:] = drive(plan_steps(request)).history


class AgentBudget(SharedCopy):
    """The limits of the model that is called, and one remembered cut for each thread."""

    _own = ("_sessions",)

    def __init__(self, *, budget: Any = None, model: Any = None, keep: int = 1000, **options: Any) -> None:
        budget = TokenBudget.from_dict(budget) if isinstance(budget, Mapping) else budget
        if budget is not None and options.get("counter") is None:
            options["counter"] = budget.model
        self._options: dict[str, Any] = {**options, "budget": budget, "tools": []}
        self.model = model
        self._sessions = SessionPool(keep)
        self._latest: TokenCounter | None = None
        self.limits_for(model)  # raises now what cannot work

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_latest": None}

    def forget(self, thread: Any) -> bool:
        """Forgets the cut and the summary of a thread; returns whether it was known."""
        return self._sessions.forget(thread)

    def text_counter(self) -> TokenCounter:
        """Returns the counter of the last request; before the first one, that of the limits."""
        return self._latest if self._latest is not None else self.limits_for(self.model).counter

    def limits_for(self, model: Any) -> HostLimits:
        """Returns the limits of a model without its tools; given limits leave it only its tokenizer."""
        return limits_for(**self._options, model=model)

    def steps(
        self,
        messages: Sequence[BaseMessage],
        *,
        model: Any = None,
        system: BaseMessage | None = None,
        tools: Sequence[Any] | None = None,
        thread: Any = None,
        refused: BudgetReport | None = None,
    ) -> Steps[tuple[list[Any], Plan]]:
        """Returns the messages to send, without `system`, and the plan; what `refused` was too long."""
        own = self.model if self.model is not None else model
        sender = own if model is None else model
        limits = self.limits_for(own).with_tools(
            bound_tools(own) if tools is None else with_texts(tools, sender)
        )
        limits = replace(limits, codec=codec_for(client_of(sender, tools=tools)))
        self._latest = limits.counter
        if refused is not None:  # three quarters of what was sent: else the same prompt may be sent again
            most = min(limits.most, refused.total_tokens)
            limits = limits.at_most(max(1, int(most * _TIGHTER)))
        named = getattr(self._options["budget"], "model", None) if sender is None else sender
        whole = in_order(named, [*messages] if system is None else [system, *messages])
        plan = yield from self.plan(whole, limits, thread=thread)
        kept = list(plan.messages)
        return kept[1:] if system is not None and kept and kept[0] is system else kept, plan

    def plan(self, messages: Sequence[Any], limits: HostLimits, *, thread: Any = None) -> Steps[Plan]:
        """Plans a whole request; a thread's cut and summary are remembered."""
        if limits.summarizer is not None and thread is None:
            msg = (
                "thread_id must be given beside a summarizer (got None): a summary belongs to a thread. "
                'Pass config={"configurable": {"thread_id": ..}} to invoke.'
            )
            raise BudgetConfigError(msg)
        request = PromptRequest(
            **limits.fields(),
            history=messages,
            sources=frozenset({"history"}),
            sent=True,
            cut=None if thread is None else "fill",  # a session moves its cut rarely by itself
        )
        session = None if thread is None else self._sessions.get(thread, limits.session)
        return (yield from planned(request, session))


def thread_id(config: RunnableConfig | None = None) -> Any:
    """Returns what the host calls the conversation that is running; None where it has no name."""
    return (ensure_config(config).get("configurable") or {}).get("thread_id")
