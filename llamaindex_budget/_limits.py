"""What an LLM says about itself, and the limit of one of its requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, LLMMetadata
from llama_index.core.constants import DEFAULT_NUM_OUTPUTS
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]  # public
from llama_index.core.llms.llm import LLM

from rankbudget import (
    Block,
    BudgetReport,
    BudgetSession,
    TokenBudget,
    TokenCounter,
    counter_for,
)
from rankbudget.adapters import (
    CodecMeasure,
    Plan,
    PromptRequest,
    Steps,
    adrive,
    drive,
    plain_budget,
    plan_steps,
)
from rankbudget.errors import BudgetExceededError

from ._counters import counter_for_llm
from ._events import BudgetEvent
from ._request import StepCodec, schemas_in
from ._sharing import budget_for

__all__ = ["RequestBudget", "as_text"]

dispatcher = get_dispatcher(__name__)

_HELPER_SPARE = 2048
"""More than LlamaIndex's synthesizers keep free beside nodes."""
_TEMPLATE_SPARE = 32
"""Tokens of framing that LlamaIndex's `PromptHelper` does not count."""
_ROUNDS = 4


@dataclass(frozen=True, kw_only=True)
class RequestBudget:
    """The limits of every request of an LLM; its copies share them.

    Args:
        budget: None takes the window and the answer of the LLM.
        max_tokens: most tokens of a request.
        counter: anything `counter_for` takes; None takes the LLM's tokenizer.
        on_report: is called with the report of every fit.
        session: learns what the host adds around its plans.
        inner: the limits of an LLM that was bounded before; the smaller limit wins.
    """

    budget: TokenBudget | None
    max_tokens: int | None
    counter: Any
    on_report: Callable[[BudgetReport], Any] | None
    session: BudgetSession | None = None
    inner: RequestBudget | None = None

    def __deepcopy__(self, memo: Any) -> RequestBudget:
        return self

    def counter_of(self, llm: LLM) -> TokenCounter:
        if self.counter is not None:
            return counter_for(self.counter)
        if self.budget is not None and self.budget.model is not None:
            return counter_for(self.budget.model)
        return counter_for_llm(llm)

    def limit(self, llm: LLM, arguments: Mapping[str, Any]) -> int:
        """Returns the most tokens of a request; a longer answer that the call asks for is kept free."""
        own = self._own_limit(llm, arguments)
        return own if self.inner is None else min(own, self.inner.limit(llm, arguments))

    def _own_limit(self, llm: LLM, arguments: Mapping[str, Any]) -> int:
        if self.budget is None and self.max_tokens is not None:
            return self.max_tokens
        budget = self.budget or budget_for(llm)
        most = budget.limit(band=self.counter_of(llm).band)
        answer = arguments.get("max_tokens")
        if isinstance(answer, int):
            most -= max(0, answer - budget.reserve_tokens())
        return most if self.max_tokens is None else min(most, self.max_tokens)

    def metadata(self, llm: LLM) -> LLMMetadata:
        """Returns the LLM's metadata with the window that leaves the limit once the answer is taken off."""
        own: LLMMetadata = llm.metadata
        answer = own.num_output if own.num_output > 0 else DEFAULT_NUM_OUTPUTS
        # Where a session plans history and nodes, the host's own helper must neither split nor refuse them.
        spare = -_TEMPLATE_SPARE if self.session is None else _HELPER_SPARE
        window = max(1, self.limit(llm, {}) + spare) + answer
        return own.model_copy(update={"context_window": window})

    def fit(
        self, llm: LLM, messages: Sequence[ChatMessage], arguments: Mapping[str, Any]
    ) -> Sequence[ChatMessage]:
        """Returns what of a request may be sent; the very same sequence when it fits.

        Args:
            llm: the LLM without its limits.
            messages: the request.
            arguments: keyword arguments of the call; tools, schemas and the answer's length are read.

        Raises:
            BudgetExceededError: system messages, tools and the current question alone exceed the limit.
        """
        return self._sent(messages, drive(self._steps(llm, messages, arguments)))

    async def afit(
        self, llm: LLM, messages: Sequence[ChatMessage], arguments: Mapping[str, Any]
    ) -> Sequence[ChatMessage]:
        """Returns what `fit` returns, without blocking the event loop."""
        return self._sent(messages, await adrive(self._steps(llm, messages, arguments)))

    def _steps(self, llm: LLM, messages: Sequence[ChatMessage], arguments: Mapping[str, Any]) -> Steps[Plan]:
        """Plans a request until the result fits in the form the model reads."""
        limit, budget = self.limit(llm, arguments), self.budget or TokenBudget()
        tools = schemas_in(llm, arguments) or None
        is_chat = llm.metadata.is_chat_model
        spare = needed = 0
        codec = StepCodec(messages)
        for _ in range(_ROUNDS):
            request = PromptRequest(
                budget=plain_budget(limit - spare),
                counter=self.counter_of(llm),
                codec=codec,
                tools=tools,
                history=Block(name="history", messages=messages),
                sources=frozenset({"history"}),
                cut="stable",
                min_exchanges=budget.min_exchanges,
                message_cap=budget.message_cap,
                shorten_question=budget.shorten_question,
            )
            plan = yield from plan_steps(request)
            needed = 0 if is_chat else self._text_tokens(llm, _written(llm, plan.messages), tools)
            if needed <= limit:
                self._teach(codec, messages, tools)
                return plan
            spare += needed - limit
        msg = (
            f"The request must have at most {limit} tokens (got {needed} as one text). "
            "Shorten the system prompt or the question."
        )
        raise BudgetExceededError(msg, limit=limit, needed=needed)

    def _teach(self, codec: StepCodec, messages: Sequence[ChatMessage], tools: list[Any] | None) -> None:
        """Tells the session the tokens of a turn's first request; later ones hold an agent's steps, too."""
        session = self.session
        if session is not None and messages and codec.role(messages[-1]) == "user":
            session.learn(CodecMeasure(codec, session.counter, tools).total(messages))

    def _sent(self, messages: Sequence[ChatMessage], plan: Plan) -> Sequence[ChatMessage]:
        dispatcher.event(BudgetEvent(report=plan.report))
        if self.on_report is not None:
            self.on_report(plan.report)
        kept = plan.messages
        if len(kept) == len(messages) and all(a is b for a, b in zip(kept, messages, strict=True)):
            return messages
        return list(kept)

    def check_text(self, llm: LLM, prompt: str, arguments: Mapping[str, Any], *, formatted: bool) -> None:
        """Raises BudgetExceededError for a prompt that is too long; only its author knows what may be cut."""
        tools = schemas_in(llm, arguments) or None
        limit = self.limit(llm, arguments)
        needed = self._text_tokens(llm, as_text(llm, prompt, formatted=formatted), tools)
        if needed > limit:
            msg = f"The prompt must have at most {limit} tokens (got {needed}). Fit its parts first."
            raise BudgetExceededError(msg, limit=limit, needed=needed, blocks={"prompt": needed})

    def _text_tokens(self, llm: LLM, text: str, tools: list[Any] | None) -> int:
        counter = self.counter_of(llm)
        return counter.count(text) + (counter.count_messages([], tools) if tools else 0)


def as_text(llm: LLM, prompt: str, *, formatted: bool) -> str:
    """Returns a prompt as the LLM writes it around."""
    to_prompt: Any = llm.completion_to_prompt
    return prompt if formatted or to_prompt is None else str(to_prompt(prompt))


def _written(llm: LLM, messages: Sequence[ChatMessage]) -> str:
    to_prompt: Any = llm.messages_to_prompt
    return str(to_prompt(messages))
