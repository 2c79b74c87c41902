"""Whole requests, fitted: the limits of the model that is called, and one remembered cut for each thread.

Used by the middleware, by the hook for graphs and by the bounded model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig, ensure_config

from rankbudget import Block, BudgetConfigError, TokenBudget, TokenCounter, counter_for
from rankbudget.adapters import Plan, PromptRequest, SessionPool, Steps

from ._limits import HostLimits, bound_tools, limits_for, tool_schemas
from ._serialize import SharedCopy
from ._slots import planned

__all__ = ["AgentBudget", "thread_id"]

_TIGHTER = 0.75


class AgentBudget(SharedCopy):
    """Fits the requests of agents; one object serves all threads."""

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
        """Returns the given counter, or that of the given model, or of the one that was called last."""
        if self._options.get("counter") is not None or self.model is not None:
            return self.limits_for(self.model).counter
        return self._latest if self._latest is not None else counter_for("o200k_base")

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
        refused: Plan | None = None,
    ) -> Steps[tuple[list[Any], Plan]]:
        """Returns the messages to send for one request, without its system message, and the plan.

        `refused` is what the model refused as too long: the next one has three quarters of its tokens.
        """
        own = self.model if self.model is not None else model
        limits = self.limits_for(own).with_tools(bound_tools(own) if tools is None else tool_schemas(tools))
        self._latest = limits.counter
        whole = [*messages] if system is None else [system, *messages]
        plan = yield from self.plan(whole, limits, thread=thread, refused=refused)
        kept = list(plan.history)
        return kept[1:] if system is not None and kept and kept[0] is system else kept, plan

    def plan(
        self, messages: Sequence[Any], limits: HostLimits, *, thread: Any = None, refused: Plan | None = None
    ) -> Steps[Plan]:
        """Plans a whole request; a thread's cut and summary are remembered."""
        if limits.summarizer is not None and thread is None:
            msg = (
                "thread_id must be given beside a summarizer (got None): a summary belongs to a thread. "
                'Pass config={"configurable": {"thread_id": ..}} to invoke.'
            )
            raise BudgetConfigError(msg)
        fields = limits.fields()
        if refused is not None:  # three quarters of what was sent: else the same prompt may be sent again
            fields["ceiling"] = max(1, int(min(limits.most, refused.report.total_tokens) * _TIGHTER))
        request = PromptRequest(
            **fields,
            history=Block(name="history", messages=messages),
            sources=frozenset({"history"}),
            sent=True,
            cut="stable" if thread is None else "fill",  # a session moves its cut rarely by itself
        )
        session = None if thread is None else self._sessions.get(thread, limits.session)
        return (yield from planned(request, session))


def thread_id(config: RunnableConfig | None = None) -> Any:
    """Returns what the host calls the conversation that is running; None where it has no name."""
    return (ensure_config(config).get("configurable") or {}).get("thread_id")
