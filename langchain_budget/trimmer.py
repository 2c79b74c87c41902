"""The budget as a step of a chain: messages in, messages that fit out; or all slots of a prompt at once.

chain = BudgetTrimmer(model="gpt-4o") | model                                             # a list of messages
chain = {"history": .., "documents": .., "question": ..} | BudgetTrimmer(budget, prompt=prompt) | prompt | model
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from langchain_core.callbacks import AsyncCallbackManagerForChainRun, CallbackManagerForChainRun
from langchain_core.messages import AnyMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable, RunnableConfig, RunnableSerializable
from pydantic import ConfigDict, Field, PrivateAttr
from typing_extensions import override

from rankbudget import BudgetSession, TokenBudget
from rankbudget._drivers import Steps, adrive, drive
from rankbudget.errors import BudgetConfigError

from ._limits import Limits, limits_of
from ._settings import Settings
from ._slots import Slots, Trimmed, fit_list_steps, fit_slots_steps
from ._wire import asend_report, plain_fields, send_report, travels
from .models import as_summarizer

__all__ = ["BudgetTrimmer", "Trimmed"]


class BudgetTrimmer(Settings, RunnableSerializable[Any, Any]):
    """Makes what a chain is about to send fit: always a valid conversation, never over the limit, with a reason for every piece.

    Takes a list of messages (or tuples, dicts, a prompt value) and returns messages; or takes a dict and fits its `history`, `documents`,
    `examples`, `memory` and `question` together, returning them under the same keys, beside all other keys.

    Usage:
        ==========================================================  ============================================================
        BudgetTrimmer(max_tokens=4000)                              at most 4,000 tokens in the prompt
        BudgetTrimmer(model="gpt-4o")                               the model's window less 30 % for the answer, its own tokenizer
        BudgetTrimmer(model=ChatOpenAI(..))                         the same from a model's profile
        BudgetTrimmer(budget=TokenBudget(reserve=2000))             any budget
        BudgetTrimmer(.., prompt=prompt, tools=tools)               counts what the chain adds later: the prompt is rendered and counted
        BudgetTrimmer(.., report_key="report")                      puts the report into the returned dict
        BudgetTrimmer(.., cut="stable")                             moves the start of the history rarely, for prompt caches
        trimmer.with_config(..), .batch, .ainvoke, .stream          as every Runnable
        trimmer.configurable_fields(max_tokens=ConfigurableField(id="max_tokens"))     a budget for each call
        ==========================================================  ============================================================

    Args:
        budget: the limits; a dict of its fields will do.
        model: a chat model or a model's name; gives window and tokenizer.
        max_tokens: tokens the prompt may have; beside a budget the smaller wins.
        counter: counts instead of the model's tokenizer: a name, a TokenCounter, a model, or a callable over messages or text.
        prompt: what renders the prompt later in the chain: a prompt template, or a chain that ends in one.
        tools: what is bound to the model later in the chain.
        report_key: key under which the report is returned.
        cut: "fill" keeps as much as fits; "stable" keeps a prefix that rarely changes.
        summarizer: a model, or a callable `(text, max_tokens) -> str`, that writes a summary of dropped history.
        scorer: ranks documents, examples and memories; None takes the core's default.
        strict: refuses a broken history instead of repairing it.
        session: a BudgetSession of one conversation: its cut and its summary are remembered between calls, and only what is new is read.
        history_key: the key of the messages. The next four name the other slots.
        min_exchanges: question-and-answer pairs of a message list that stay if that can be; None asks the budget.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> thread = [HumanMessage("one two three"), AIMessage("four"), HumanMessage("five")]
        >>> trimmer = BudgetTrimmer(max_tokens=10, counter=lambda message: len(message.content.split()) * 4)
        >>> [m.content for m in trimmer.invoke(thread)]
        ['five']
    """

    budget: TokenBudget | None = None
    model: Any = None
    max_tokens: int | None = None
    counter: Any = None
    prompt: Any = None
    tools: Any = None
    report_key: str | None = None
    cut: Literal["fill", "stable"] = "fill"
    summarizer: Any = None
    scorer: Any = None
    strict: bool = False
    session: Any = Field(default=None, exclude=True)
    min_exchanges: int | None = None
    history_key: str = "history"
    documents_key: str = "documents"
    examples_key: str = "examples"
    memory_key: str = "memory"
    question_key: str = "question"
    document_prompt: Any = Field(
        default=None, description="renders one document; what a document costs is what this makes of it"
    )
    example_prompt: Any = Field(
        default=None, description="renders one example; what an example costs is what this makes of it"
    )

    _limits: Limits = PrivateAttr()
    _slots: Slots = PrivateAttr()

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    @override
    def _settle(self) -> None:
        self._limits = limits_of(
            budget=self.budget,
            model=self.model,
            max_tokens=self.max_tokens,
            counter=self.counter,
            tools=self.tools,
        )
        keys = {
            "history": self.history_key,
            "knowledge": self.documents_key,
            "examples": self.examples_key,
            "memory": self.memory_key,
        }
        if len({*keys.values(), self.question_key}) != len(keys) + 1:
            msg = f"two slots have the same key: {', '.join([*keys.values(), self.question_key])}; give each its own"
            raise BudgetConfigError(msg)
        if self.report_key in (*keys.values(), self.question_key):
            msg = f"report_key is {self.report_key!r}, the key of a slot, which the report would overwrite; give it a key of its own"
            raise BudgetConfigError(msg)
        if self.prompt is not None and not isinstance(self.prompt, Runnable):
            msg = f"prompt is a {type(self.prompt).__name__}, allowed: a prompt template, or a Runnable that ends in one"
            raise BudgetConfigError(msg)
        if self.session is not None and not isinstance(self.session, BudgetSession):
            msg = f"session is a {type(self.session).__name__}, allowed: a BudgetSession"
            raise BudgetConfigError(msg)
        self._slots = Slots(
            keys=keys,
            question=self.question_key,
            prompt=self.prompt,
            document_prompt=self.document_prompt,
            example_prompt=self.example_prompt,
            cut=self.cut,
            strict=self.strict,
            summarizer=as_summarizer(self.summarizer),
            scorer=self.scorer,
            min_exchanges=self.min_exchanges,
            session=self.session,
        )

    # ---- as a Runnable ----------------------------------------------------------------------------------------------------------
    @property
    @override
    def InputType(self) -> Any:
        return list[AnyMessage] | dict[str, Any]

    @property
    @override
    def OutputType(self) -> Any:
        return list[AnyMessage] | dict[str, Any]

    @override
    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return self._call_with_config(self._run, input, config, **kwargs)

    @override
    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return await self._acall_with_config(self._arun, input, config, **kwargs)

    def fit(self, value: Any) -> Trimmed:
        """Returns what `invoke` returns as `.value`, with the report that says why."""
        return drive(self._steps(value))

    async def afit(self, value: Any) -> Trimmed:
        """Returns what `fit` returns, without blocking the event loop while a summary is written."""
        return await adrive(self._steps(value))

    # ---- on the wire ------------------------------------------------------------------------------------------------------------
    @classmethod
    @override
    def is_lc_serializable(cls) -> bool:
        return True

    @property
    @override
    def lc_attributes(self) -> dict[str, Any]:
        """A budget is plain data on the wire; a model is its window and its name."""
        return plain_fields(self, self._limits)

    @override
    def to_json(self) -> Any:
        """Says "not implemented" where a callable would have to travel: a trimmer that counts otherwise is another trimmer."""
        return super().to_json() if self.session is None and travels(self) else self.to_json_not_implemented()

    # ---- the work ---------------------------------------------------------------------------------------------------------------
    def _run(self, value: Any, run_manager: CallbackManagerForChainRun) -> Any:
        done = self.fit(value)
        send_report(done, run_manager)
        return done.value

    async def _arun(self, value: Any, run_manager: AsyncCallbackManagerForChainRun) -> Any:
        done = await self.afit(value)
        await asend_report(done, run_manager)
        return done.value

    def _steps(self, value: Any) -> Steps[Trimmed]:
        if isinstance(value, (list, PromptValue)) or not isinstance(value, Mapping):
            return fit_list_steps(value, self._slots, self._limits, self.report_key)
        return fit_slots_steps(value, self._slots, self._limits, self.report_key)
