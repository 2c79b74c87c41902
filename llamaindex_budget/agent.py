"""A function agent that stays in its window within a run, where no memory is asked any more."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from llama_index.core.agent.utils import generate_structured_response
from llama_index.core.agent.workflow import AgentOutput, FunctionAgent
from llama_index.core.agent.workflow.base_agent import WORKFLOW_KWARGS
from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.bridge.pydantic import Field, PrivateAttr

from rankbudget import BudgetSession, TokenBudget
from rankbudget.adapters import adrive, plan_steps, typed_errors, whole_request_budget

from ._clear_calls import with_clear_calls
from ._codec import CODEC, codec_for
from ._counters import counter_of, request_counter_of
from ._events import send_report
from ._inserted import system_texts, with_blocks
from ._options import by_name, check_part
from ._sharing import budget_for, budget_of
from ._unsent import client_of
from .model import budget_model
from .models import as_summarizer

_run: ContextVar[BudgetSession | None] = ContextVar("rankbudget_run", default=None)
"""The session of the run whose step is being taken."""
_stored: ContextVar[Sequence[ChatMessage]] = ContextVar("rankbudget_stored", default=())
"""The whole conversation of the run that has just ended."""


class BudgetFunctionAgent(FunctionAgent):
    """A `FunctionAgent` whose requests fit: system prompt, history, steps, tool schemas and answer.

    A memory limits what a run starts with; its steps are added to that. Here each request is fitted just
    before it is sent: long results of older steps are shortened, then old exchanges go, then old steps; calls
    and their results stay together. The memory keeps everything. What an `AgentWorkflow` asks itself is
    fitted where `llm` is a `budget_model`.

    Args:
        budget: limits of a request; None takes the window and the answer of the model.
        counter: a model or encoding name, or what else `counter_for` takes; None takes the LLM's tokenizer.
        summarizer: an LLM, or `(text, max_tokens) -> str`; keeps a summary of what of a run no longer fits.

    Raises:
        BudgetConfigError: an option is wrong.
    """

    budget: TokenBudget | None = None
    counter: Any = Field(default=None, exclude=True)
    summarizer: Any = Field(default=None, exclude=True)

    _structure: Any = PrivateAttr(default=None)
    _runs: Any = PrivateAttr(default_factory=WeakKeyDictionary)

    @by_name
    def __init__(self, **data: Any) -> None:
        check_part(type(self), data, beside=WORKFLOW_KWARGS)
        with typed_errors():
            super().__init__(**{**data, "summarizer": as_summarizer(data.get("summarizer"))})
        if self.output_cls is not None:
            # The host would send all of the memory; a function of our own sends what fits.
            self._structure, self.output_cls = self.output_cls, None
            self.structured_output_fn = self._structured  # type: ignore[assignment]  # the host awaits it

    async def fit(self, messages: Sequence[ChatMessage], tools: Sequence[Any] = ()) -> list[ChatMessage]:
        """Returns what of `messages` fits beside the schemas of `tools`; what is whole are the same objects.

        Calls are copied that the LLM's client sends in another form, or that need an id of their own.

        Raises:
            BudgetExceededError: system prompt, tools and the current question alone exceed the window.
        """
        run = _run.get()
        session, codec = run or self._session(), codec_for(client_of(self.llm))
        messages = with_clear_calls(self.llm, messages)
        request = session.request(
            messages,
            tools=[tool.metadata.to_openai_tool(skip_length_check=True) for tool in tools] or None,
            measure=None,
            sources=frozenset({"history"}),
            cut="fill" if run is not None else None,
            sent=True,
        )
        budget = request.budget
        limit = budget.limit(band=request.counter.band)
        request = with_blocks(request, lambda measure: measure.total(messages) <= limit, lambda _: codec)
        budget.check_system(sum(request.counter.count_many(system_texts(messages))))
        request = replace(request, budget=whole_request_budget(budget))
        plan = await adrive(plan_steps(request) if run is None else session.plan_steps(request))
        kept = plan.messages
        # Of a request that is cut here, a bounded LLM sees only what is left.
        told = None if list(map(id, kept)) == list(map(id, messages)) else self.llm
        send_report(plan.report, getattr(told, "request_on_report", None))
        return list(kept)

    def _session(self) -> BudgetSession:
        budget = budget_of(self.budget, self.llm, None) or budget_for(self.llm)
        return BudgetSession(
            budget,
            counter=counter_of(None, self.counter or budget.model or request_counter_of(self.llm)),
            codec=codec_for(client_of(self.llm)),
            summarizer=self.summarizer,
        )

    # ---- the host's steps ------------------------------------------------------------------------
    async def take_step(self, ctx: Any, llm_input: Any, tools: Any, memory: Any) -> AgentOutput:
        """Takes a step whose request is planned with what this run remembers."""
        if ctx.store not in self._runs:
            self._runs[ctx.store] = self._session()
        token = _run.set(self._runs[ctx.store])
        try:
            return await super().take_step(ctx, llm_input, tools, memory)
        finally:
            _run.reset(token)

    async def finalize(self, ctx: Any, output: AgentOutput, memory: Any) -> AgentOutput:
        """Ends a run; its structured answer is asked for with what of the whole conversation fits."""
        found = await super().finalize(ctx, output, memory)
        _stored.set(await memory.aget_all())
        return found

    async def _get_response(self, current_llm_input: Any, tools: Any) -> ChatResponse:
        return await super()._get_response(await self.fit(current_llm_input, tools), tools)

    async def _get_streaming_response(self, ctx: Any, current_llm_input: Any, tools: Any) -> ChatResponse:
        return await super()._get_streaming_response(ctx, await self.fit(current_llm_input, tools), tools)

    async def _get_llm_response(self, ctx: Any, llm_input: Any, llm: Any = None) -> ChatResponse:
        return await super()._get_llm_response(ctx, await self.fit(llm_input), llm)

    async def _structured(self, messages: list[ChatMessage]) -> dict[str, Any]:
        """Returns the run's answer as the class asked for, from what fits beside its schema."""
        prompt = [ChatMessage(role="system", content=self.system_prompt)] if self.system_prompt else []
        asked = any(CODEC.role(m) == "user" for m in messages)  # a stock memory may have dropped the question
        talk = messages if asked else list(_stored.get())
        told = getattr(self.llm, "request_on_report", None)
        llm = budget_model(self.llm, self.budget, counter=self.counter, on_report=told)
        return await generate_structured_response([*prompt, *talk], llm, self._structure)
