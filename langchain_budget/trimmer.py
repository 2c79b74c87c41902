"""The budget as a step of a chain: messages in, messages that fit out; or all slots of a prompt at once.

chain = BudgetTrimmer(model="gpt-4o") | model                                             # a list of messages
chain = {"history": .., "documents": .., "question": ..} | BudgetTrimmer(budget, prompt=prompt) | prompt |
model
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForChainRun, CallbackManagerForChainRun
from langchain_core.messages import AnyMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable, RunnableConfig, RunnableSerializable
from pydantic import ConfigDict
from typing_extensions import override

from rankbudget.adapters import Steps, adrive, drive
from rankbudget.errors import BudgetConfigError

from ._slots import SlotSettings, Trimmed, asend_report, render_prompt, send_report, trimmed

__all__ = ["BudgetTrimmer", "Trimmed"]


class BudgetTrimmer(SlotSettings, RunnableSerializable[Any, Any]):
    """Makes what a chain is about to send fit: valid, never over the limit, a reason for every piece.

    Takes a list of messages (or tuples, dicts, a prompt value) and returns messages; or takes a dict and fits
    its `history`, `documents`, `examples`, `memory` and `question` together, returning them under the same
    keys, beside all other keys.

    Usage:
        BudgetTrimmer(max_tokens=4000)                   at most 4,000 tokens in the prompt
        BudgetTrimmer(model=ChatOpenAI(..))              the model's window less 30 % for the answer
        BudgetTrimmer(budget=TokenBudget(reserve=2000))  any budget
        BudgetTrimmer(.., prompt=prompt, tools=tools)    counts what the chain adds later
        BudgetTrimmer(.., report_key="report")           puts the report into the returned dict
        BudgetTrimmer(.., cut="stable")                  moves the start rarely, for prompt caches
        trimmer.configurable_fields(max_tokens=..)       a budget for each call

    Args:
        budget: the limits; a dict of its fields will do.
        model: a chat model or a model's name; gives window and tokenizer.
        max_tokens: tokens the prompt may have; beside a budget the smaller wins.
        counter: counts instead of the model's tokenizer: a name, a TokenCounter, a model, or a callable over
            messages or text.
        prompt: what renders the prompt later in the chain: a prompt template, or a chain that ends in one.
        tools: what is bound to the model later in the chain.
        report_key: key under which the report is returned.
        cut: "fill" keeps as much as fits; "stable" keeps a prefix that rarely changes.
        summarizer: a model, or a callable `(text, max_tokens) -> str`, that writes a summary of dropped
            history.
        scorer: ranks documents, examples and memories; None takes the core's default.
        strict: refuses a broken history instead of repairing it.
        session: a BudgetSession of one conversation: its cut and its summary are remembered between calls,
            and only what is new is read.
        history_key: the key of the messages. The next four name the other slots.
        min_exchanges: question-and-answer pairs of a message list that stay if that can be; None asks the
            budget.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> thread = [HumanMessage("one two three"), AIMessage("four"), HumanMessage("five")]
        >>> trimmer = BudgetTrimmer(max_tokens=10, counter=lambda message: len(message.content.split()) * 4)
        >>> [m.content for m in trimmer.invoke(thread)]
        ['five']
    """

    prompt: Any = None
    report_key: str | None = None

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    @override
    def _prepare(self) -> None:
        super()._prepare()
        if self.report_key in (*self._keys().values(), self.question_key):
            msg = f"report_key must be a key of its own (got {self.report_key!r}, the key of a slot)"
            raise BudgetConfigError(msg)
        if self.prompt is not None and not isinstance(self.prompt, Runnable):
            msg = f"prompt must be a template or end in one (got a {type(self.prompt).__name__})"
            raise BudgetConfigError(msg)

    # ---- as a Runnable -----------------------------------------------------------------------------------
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

    @classmethod
    @override
    def is_lc_serializable(cls) -> bool:
        return True

    # ---- the work ----------------------------------------------------------------------------------------
    def _run(self, value: Any, run_manager: CallbackManagerForChainRun) -> Any:
        done = self.fit(value)
        send_report(done, run_manager)
        return done.value

    async def _arun(self, value: Any, run_manager: AsyncCallbackManagerForChainRun) -> Any:
        done = await self.afit(value)
        await asend_report(done, run_manager)
        return done.value

    def _steps(self, value: Any) -> Steps[Trimmed]:
        key = self.report_key
        if isinstance(value, (list, PromptValue)) or not isinstance(value, Mapping):
            plan = yield from self._list_steps(value, self.prompt)
            kept = list(plan.history)
            done = trimmed(plan, kept if key is None else {self.history_key: kept, key: plan.report})
            return replace(done, messages=kept)
        show = None if self.prompt is None else partial(render_prompt, self.prompt)
        names = getattr(self.prompt, "input_variables", ())
        done = yield from self._slots_steps(value, names, show)
        return done if key is None else replace(done, value={**done.value, key: done.report})
