"""The budget as a step of a chain: messages that fit, or all slots of a prompt at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForChainRun, CallbackManagerForChainRun
from langchain_core.messages import AnyMessage, BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableSerializable
from typing_extensions import override

from rankbudget.adapters import PromptRequest, Steps, adrive, drive
from rankbudget.errors import BudgetConfigError

from ._convert import as_messages, last_question
from ._limits import planned
from ._slots import SlotSettings, Trimmed, names_in, readable_twice, render_prompt, reported


class BudgetTrimmer(SlotSettings, RunnableSerializable[Any, Any]):
    """Makes what a chain is about to send fit: valid, never over the limit, a reason for every piece.

    Takes a list of messages (or tuples, dicts, a prompt value) and returns messages; or takes a dict and fits
    its `history`, `documents`, `examples`, `memory` and `question` together, returning them under the same
    keys, beside all other keys. `chat_history`, `context` and `input` are read, too, and a report warns of
    documents and messages under other keys. The event `context_budget` carries the report.

    Args:
        budget: the limits; a dict of its fields will do. A smaller window of the model counts.
        model: a chat model or a model's name; gives window, answer and tokenizer.
        max_tokens: most tokens of the prompt, from 1; beside a budget the smaller wins.
        context_window: the window in tokens, where the model does not state it; it comes before what is
            known of the model's name.
        counter: counts instead of the model's tokenizer: a name, a TokenCounter, a model, or a callable.
        prompt: what renders the prompt later in the chain: a prompt template, or a chain that ends in one.
        tools: what is bound to the model later in the chain; None takes what `model` itself has bound.
        report_key: key under which the report is returned.
        cut: "fill" keeps as much as fits; "stable" moves the start rarely, for prompt caches.
        by_question: older messages are chosen by what the question asks, and shortened around it, instead of
            by age; for cut="fill" without a session.
        summarizer: summarizes dropped history: a model, a chain, or a callable `(text, max_tokens) -> str`.
        summary_timeout: seconds one summary may take; None for no timeout.
        scorer: ranks documents, examples and memories; None takes the core's default.
        strict: refuses a broken history instead of repairing it.
        session: a BudgetSession of one conversation: its cut and its summary are remembered between calls.
        min_exchanges: question-and-answer pairs that stay if that can be; None asks the budget.
        last_turns: the newest turns that may stay, from 1; None asks the budget.
        history_key: the key of the messages; documents_key, examples_key, memory_key and question_key name
            the other slots.
        document_prompt: renders one document, as it is counted; example_prompt one example.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> thread = [HumanMessage("one two three"), AIMessage("four"), HumanMessage("five")]
        >>> trimmer = BudgetTrimmer(max_tokens=10, counter=lambda message: len(message.content.split()) * 4)
        >>> [m.content for m in trimmer.invoke(thread)]
        ['five']
    """

    prompt: Any = None
    report_key: str | None = None

    @override
    def _prepare(self) -> None:
        super()._prepare()
        if self.report_key in self._keys.values():
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
        """Returns as `.value` what `invoke` returns for `value`, with the report that says why."""
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
        steps = self._steps(value)
        return drive(reported(steps, run_manager) if run_manager.handlers else steps).value

    async def _arun(self, value: Any, run_manager: AsyncCallbackManagerForChainRun) -> Any:
        steps = self._steps(value)
        return (await adrive(reported(steps, run_manager) if run_manager.handlers else steps)).value

    def _steps(self, value: Any) -> Steps[Trimmed]:
        key, prompt = self.report_key, self.prompt
        if isinstance(value, Mapping):
            show = None if prompt is None else partial(render_prompt, prompt)
            rendered = names_in(prompt)
            if prompt is None or rendered:
                self._check_spelling(value, rendered)
            if prompt is None and all(value.get(name) is None for name in self._keys_in(value).values()):
                allowed = ", ".join(self._keys.values())
                given = ", ".join(f"{k}=None" if v is None else str(k) for k, v in value.items())
                msg = (
                    f"the input must have a value for {allowed} (got {given or 'none'}). "
                    "Name yours with history_key= etc."
                )
                raise BudgetConfigError(msg)
            done = yield from self._slots_steps(
                readable_twice(value), rendered if prompt is not None else [*value], show
            )
            return done if key is None else replace(done, value={**done.value, key: done.report})
        messages = value if isinstance(value, list) else as_messages(value)
        if prompt is None:
            sources = getattr(self.session, "sources", frozenset[str]()) | {"history"}
            query = last_question(messages) if self.by_question else None
            request = PromptRequest(
                **self._fields, history=messages, query=query, sources=sources, covers="history"
            )
            plan = yield from planned(request, self.session)
            kept = list(plan.history)
            text = "\n".join([m.text for m in kept])
            done = Trimmed(value={self.history_key: kept}, messages=kept, text=text, report=plan.report)
        else:
            name = self.history_key
            done = yield from self._slots_steps({name: messages}, [name], self._show_history)
            kept = done.value[name]
        return replace(done, messages=kept, value=kept if key is None else {**done.value, key: done.report})

    def _show_history(self, slots: Mapping[str, Any]) -> list[BaseMessage]:
        return render_prompt(self.prompt, slots[self.history_key])
