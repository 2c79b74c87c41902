"""A function agent that stays in its window within a run, where no memory is asked any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.agent.utils import generate_structured_response, messages_to_xml_format
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.agent.workflow.agent_context import AgentContext
from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]  # public, not re-exported by name
from llama_index.core.llms.llm import LLM
from llama_index.core.program.function_program import get_function_tool
from llama_index.core.tools import AsyncBaseTool

from rankbudget import TokenBudget, TokenCounter, afit_messages, counter_for

from ._convert import CODEC, settings_counter
from ._events import BudgetEvent
from ._sharing import budget_for
from .models import as_summarizer

__all__ = ["BudgetFunctionAgent"]

dispatcher = get_dispatcher(__name__)


class BudgetFunctionAgent(FunctionAgent):
    """A `FunctionAgent` whose requests fit: system prompt, history, the steps of this run, tool schemas and the answer; structured output of `output_cls` too.

    An agent sends its memory and a growing scratchpad; a memory only limits the first. Here each request is fitted just before it is sent: old exchanges go
    first, then old steps, then long tool results are shortened; calls and their results stay together. Scratchpad and memory keep everything.

    Two requests are made past the agent, by an `AgentWorkflow` around it, and are not fitted: the answer of its `early_stopping_method="generate"`, and an
    `output_cls` given to the workflow itself. Give the memory of such a workflow a `token_limit`, and `output_cls` to the agent.

    Args:
        budget: limits of a request; None takes the window and the answer of the model.
        counter: a model or encoding name, or what else `counter_for` takes; None takes the budget's model or LlamaIndex's tokenizer.
        summarizer: an LLM, or `(text, max_tokens) -> str`; summarizes the steps that no longer fit.
    """

    budget: TokenBudget | None = Field(default=None, description="Limits of a request.")
    counter: Any = Field(default=None, description="What counts; see rankbudget.counter_for.", exclude=True)
    summarizer: Any = Field(
        default=None, description="Writes summaries of what no longer fits.", exclude=True
    )

    _structure: Any = PrivateAttr(default=None)

    def __init__(self, **data: Any) -> None:
        super().__init__(**data)
        if (
            self.output_cls is not None
        ):  # the host would send all of the memory; its other way asks a function
            self._structure, self.output_cls = self.output_cls, None
            self.structured_output_fn = self._structured  # type: ignore[assignment]  # the host awaits a coroutine function too

    async def _structured(self, messages: list[ChatMessage]) -> dict[str, Any]:
        """Returns the run's answer as the class asked for, from what of the conversation fits beside its schema."""
        prompt = [ChatMessage(role="system", content=self.system_prompt)] if self.system_prompt else []
        tool = get_function_tool(self._structure)
        budget, spare = self.budget or budget_for(self.llm), 0
        counter = self._counts(budget)
        limit, schemas = budget.limit(), [tool.metadata.to_openai_tool(skip_length_check=True)]
        while True:
            kept = await self.fit([*prompt, *messages], [tool], spare)
            written = counter.count_messages(
                [CODEC.to_dict(m) for m in messages_to_xml_format(kept)], schemas
            )
            if written <= limit:
                found: dict[str, Any] = await generate_structured_response(
                    messages=kept, llm=self.llm, output_cls=self._structure
                )
                return found
            spare += written - limit

    def _counts(self, budget: TokenBudget) -> TokenCounter:
        counter = self.counter or budget.model
        return counter_for(counter) if counter is not None else settings_counter()

    async def _get_response(
        self, current_llm_input: list[ChatMessage], tools: Sequence[AsyncBaseTool]
    ) -> ChatResponse:
        return await super()._get_response(await self.fit(current_llm_input, tools), tools)

    async def _get_streaming_response(
        self, ctx: AgentContext, current_llm_input: list[ChatMessage], tools: Sequence[AsyncBaseTool]
    ) -> ChatResponse:
        return await super()._get_streaming_response(ctx, await self.fit(current_llm_input, tools), tools)

    async def _get_llm_response(
        self, ctx: Any, llm_input: list[ChatMessage], llm: LLM | None = None
    ) -> ChatResponse:
        return await super()._get_llm_response(ctx, await self.fit(llm_input), llm)

    async def fit(
        self, messages: Sequence[ChatMessage], tools: Sequence[AsyncBaseTool] = (), spare: int = 0
    ) -> list[ChatMessage]:
        """Returns what of a request fits beside the tools' schemas and `spare` tokens; what is kept whole are the same objects.

        Raises:
            BudgetExceededError: system prompt, tools and the current question alone exceed the window.
        """
        budget = self.budget or budget_for(self.llm)
        counter = self._counts(budget)
        result = await afit_messages(
            list(messages),
            max_tokens=budget.limit() - spare,
            counter=counter,
            tools=[tool.metadata.to_openai_tool(skip_length_check=True) for tool in tools] or None,
            codec=CODEC,
            cut="stable",  # steps are only ever appended, and a cut that stays keeps the provider's prompt cache warm
            min_exchanges=budget.min_exchanges,
            message_cap=budget.message_cap,
            summarizer=as_summarizer(self.summarizer),
        )
        dispatcher.event(BudgetEvent(report=result.report))
        return list(result.messages)
