"""Whole requests, fitted: the limits of the model that is called, and one remembered cut for each thread.

Used by the middleware, by the hook for graphs and by the bounded model; they only hand over what LangChain
gives them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig, ensure_config

from rankbudget import Block, BudgetConfigError, BudgetReport, TokenBudget, TokenCounter, counter_for
from rankbudget.adapters import Limits, Plan, PromptRequest, SessionPool, Steps

from ._codec import CODEC
from ._counters import HostCounter
from ._limits import bound_tools, limits_for, tool_schemas
from ._slots import plan_of
from .message_history import session_of
from .models import as_summarizer

__all__ = ["AgentBudget", "Prompt", "thread_id", "with_tools"]

_TIGHTER = 0.75


@dataclass(frozen=True, slots=True)
class Prompt:
    """A fitted request.

    Args:
        messages: what is sent, the system message apart.
        report: why it looks as it does.
    """

    messages: list[Any]
    report: BudgetReport


class AgentBudget:
    """Fits the requests of agents; one object serves all threads.

    Args:
        budget: the limits; without any, each model's own profile or name says its window.
        model: gives window and tokenizer instead of the model that is called.
        max_tokens: tokens a prompt may have; beside a budget the smaller wins.
        context_window: the window in tokens, where the model does not say it.
        counter: counts instead of the model's tokenizer.
        summarizer: keeps a running summary of what is cut.
        keep: for how many threads the cut is remembered; the one not used for longest is forgotten.
    """

    def __init__(
        self,
        *,
        budget: TokenBudget | None = None,
        model: Any = None,
        max_tokens: int | None = None,
        context_window: int | None = None,
        counter: Any = None,
        summarizer: Any = None,
        keep: int = 1000,
    ) -> None:
        self._given: dict[str, Any] = {
            "budget": budget,
            "max_tokens": max_tokens,
            "context_window": context_window,
            "counter": counter,
        }
        self._stated = any(value is not None for value in (budget, max_tokens, context_window))
        self._model = model
        self._summarizer = as_summarizer(summarizer)
        self._sessions = SessionPool(keep)
        self._latest: TokenCounter | None = None
        if self._stated or model is not None:
            self.limits_for(model)  # says at once what cannot work

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_latest": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> AgentBudget:
        """Returns one of its own that starts from the cuts this one remembers; models are shared."""
        twin = memo[id(self)] = copy.copy(self)
        twin._sessions = copy.deepcopy(self._sessions, memo)  # noqa: SLF001 - its own kind
        return twin

    def forget(self, thread: Any) -> bool:
        """Forgets the cut and the summary of a thread; returns whether it was known."""
        return self._sessions.forget(thread)

    def text_counter(self) -> TokenCounter:
        """Returns the given counter, or that of the given model, or of the one that was called last."""
        budget = self._given["budget"]
        named = budget is not None and budget.model is not None
        if self._given["counter"] is not None or self._model is not None or named:
            return self.limits_for(self._model).counter
        return self._latest if self._latest is not None else counter_for("o200k_base")

    def limits_for(self, own: Any) -> Limits:
        """Returns the limits of a model without its tools; given limits leave it only its tokenizer."""
        given = dict(self._given)
        budget = given["budget"]
        if budget is not None and budget.model is not None and given["counter"] is None:
            given["counter"] = budget.model
        return limits_for(**given, model=own, tools=[])

    def steps(
        self,
        messages: Sequence[BaseMessage],
        *,
        model: Any = None,
        system: BaseMessage | None = None,
        tools: Sequence[Any] | None = None,
        thread: Any = None,
        refused: Prompt | None = None,
    ) -> Steps[Prompt]:
        """Fits one request.

        Args:
            messages: the conversation, without `system`.
            model: the model that will be called.
            system: the system message that will be sent before it.
            tools: what is bound to the model; None takes what the model itself has bound.
            thread: what the conversation is known by; None fits it without a memory of its own.
            refused: what the model said was too much; the next one has at most three quarters of its tokens.

        Raises:
            BudgetConfigError: there is a summarizer, and nothing says whose summary it would be.
        """
        own = self._model if self._model is not None else model
        schemas = bound_tools(own) if tools is None else tool_schemas(tools)
        limits = with_tools(self.limits_for(own), schemas)
        self._latest = limits.counter
        whole = [system, *messages] if system is not None else list(messages)
        plan = yield from self.plan(whole, limits, thread=thread, refused=refused)
        kept = list(plan.history)
        if system is not None and kept and kept[0] is system:
            kept = kept[1:]
        return Prompt(messages=kept, report=plan.report)

    def plan(
        self, messages: Sequence[Any], limits: Limits, *, thread: Any = None, refused: Prompt | None = None
    ) -> Steps[Plan]:
        """Plans a whole request; a thread's cut and summary are remembered, without one nothing is."""
        if self._summarizer is not None and thread is None:
            msg = (
                "thread_id must be given beside a summarizer (got None): a summary belongs to a thread. "
                'Pass config={"configurable": {"thread_id": ..}} to invoke.'
            )
            raise BudgetConfigError(msg)
        ceiling = limits.ceiling
        if (
            refused is not None
        ):  # of what was sent, not of what might have been: else the same prompt may go out again
            tighter = max(1, int(min(limits.most, refused.report.total_tokens) * _TIGHTER))
            ceiling = tighter if ceiling is None else min(ceiling, tighter)
        request = PromptRequest(
            **{**limits.fields(), "ceiling": ceiling},
            codec=CODEC,
            history=Block(name="history", messages=messages),
            sources=frozenset({"history"}),
            cut="stable" if thread is None else "fill",  # a session moves its cut rarely by itself
            summarizer=self._summarizer,
        )
        if thread is None:
            return (yield from plan_of(request, None))
        session = self._sessions.get(thread, lambda: session_of(limits, self._summarizer))
        return (yield from plan_of(request, session))


def thread_id(config: RunnableConfig | None = None) -> Any:
    """Returns what the host calls the conversation that is running; None where it does not say."""
    return (ensure_config(config).get("configurable") or {}).get("thread_id")


def with_tools(limits: Limits, schemas: Sequence[Any] | None) -> Limits:
    """Returns the limits for requests that also carry tools."""
    if not schemas:
        return limits
    measure = limits.measure
    if measure is not None:
        measure = HostCounter(limits.counter, measure).with_tools(schemas).measure
    return replace(limits, tools=schemas, measure=measure)
