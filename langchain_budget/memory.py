"""The budget as a memory of LangChain's chains (needs the extra `classic`, the only home of `BaseMemory`)."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, get_buffer_string
from langchain_core.prompts import BasePromptTemplate
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict, Field, PrivateAttr
from typing_extensions import override

from rankbudget import Block, BudgetReport, BudgetSession, FitResult
from rankbudget.adapters import (
    SUMMARY_TIMEOUT,
    Call,
    CodecMeasure,
    Fit,
    Limits,
    Measure,
    Plan,
    Steps,
    adrive,
    drive,
)
from rankbudget.errors import BudgetConfigError

from ._codec import CODEC
from ._convert import as_messages, to_segments
from ._items import KeptItems
from ._limits import LimitSettings, planned
from ._options import check_values
from ._placeholders import placeholders_in
from ._slots import names_in, not_shown, render_prompt, system_of
from ._supported import require
from .message_history import Store

require("langchain_classic.base_memory", needed_by="BudgetMemory")
from langchain_classic.base_memory import BaseMemory  # noqa: E402 - needs the line above
from langchain_classic.memory.utils import get_prompt_input_key  # noqa: E402 - the same


class BudgetMemory(LimitSettings, BaseMemory):
    """Remembers all of a conversation and loads what fits, always a valid conversation.

    The cut is remembered between turns: over the limit it moves once, down to half of it, so that prompt
    caches stay warm. A setting that is changed counts from the next load on, which cuts again; a changed
    name, prompt or scorer keeps the cut.

    Args:
        budget: the limits; the conversation gets its share of them, retrieved documents what it leaves.
            model, context_window, counter, tools, summarizer and summary_timeout are as in `BudgetTrimmer`.
        max_tokens: most tokens of conversation, documents and question together, from 1; beside a budget the
            smaller wins.
        prompt: the chain's prompt; the finished prompt is then counted.
        retriever: finds documents for the input; they are trimmed to what the conversation leaves. It is not
            asked where `prompt` does not show them.
        scorer: ranks the documents; None takes the core's default.
        chat_memory: where the messages are stored; None stores them in this process.
        memory_key: the variable that holds the conversation; documents_key that of the documents.
        input_key: which input is the user's; None takes the only one.
        output_key: which output is the model's; None takes the only one, or "output".
        return_messages: messages instead of one text; return_docs the same for documents.
        human_prefix: who the user is in the text; ai_prefix who the model is.

    Example:
        >>> memory = BudgetMemory(max_tokens=12, counter=lambda text: len(text.split()))
        >>> for turn in ("one", "two", "three", "four"):
        ...     memory.save_context({"input": turn}, {"output": turn.upper()})
        >>> memory.load_memory_variables({})["history"].split()[:2], len(memory.chat_memory.messages)
        (['Human:', 'two'], 8)
    """

    prompt: Any = None
    tools: Any = None
    summarizer: Any = None
    summary_timeout: float | None = SUMMARY_TIMEOUT
    retriever: BaseRetriever | None = None
    scorer: Any = None
    chat_memory: BaseChatMessageHistory = Field(default_factory=Store)
    memory_key: str = "history"
    documents_key: str = "documents"
    input_key: str | None = None
    output_key: str | None = None
    return_messages: bool = False
    return_docs: bool = False
    human_prefix: str = "Human"
    ai_prefix: str = "AI"

    _session: BudgetSession = PrivateAttr()
    _loaded: BudgetReport | None = PrivateAttr()  # of the last load with a retriever

    model_config = ConfigDict(extra="forbid")

    @override
    def _prepare(self) -> None:
        if self.prompt is not None and not isinstance(self.prompt, BasePromptTemplate):
            msg = f"prompt must be a prompt template (got a {type(self.prompt).__name__})"
            raise BudgetConfigError(msg)
        if not self.return_messages and self.memory_key in placeholders_in(self.prompt):
            msg = (
                f"return_messages must be True where prompt has a MessagesPlaceholder for "
                f"{self.memory_key!r} (got False). Pass return_messages=True."
            )
            raise BudgetConfigError(msg)
        if self.documents_key == self.memory_key:
            msg = f"documents_key must differ from memory_key (got {self.memory_key!r})"
            raise BudgetConfigError(msg)
        super()._prepare()
        limits = self._limits
        measure = limits.measure or CodecMeasure(limits.codec, limits.counter, limits.tools)
        if not self.return_messages:
            measure = _TextMeasure(measure, limits, self._writer())
        self._session = limits.session(measure=measure)
        self._loaded = None

    @override
    def __setattr__(self, name: str, value: Any) -> None:
        kept = self._session if name in _BESIDE_SESSION else None
        super().__setattr__(name, value)
        if kept is not None:
            self._session = kept

    @override
    def __getstate__(self) -> dict[Any, Any]:
        return {**super().__getstate__(), "session": self._session.learned()}

    @override
    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__(state)
        self._session.learn_again(state["session"])

    @property
    @override
    def memory_variables(self) -> list[str]:
        return [self.memory_key] if self.retriever is None else [self.memory_key, self.documents_key]

    # ---- load: fitted ------------------------------------------------------------------------------------
    @override
    def load_memory_variables(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return drive(self._load_steps(inputs))

    @override
    async def aload_memory_variables(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return await adrive(self._load_steps(inputs))

    def fit(self, inputs: dict[str, Any] | None = None) -> FitResult:
        """Returns the conversation that a load of `inputs` returns; the documents' share stays free."""
        plan = drive(self._steps({} if inputs is None else inputs, retrieve=False))
        return FitResult(messages=plan.history, report=plan.report)

    @property
    def report(self) -> BudgetReport:
        """The report of the last load with a retriever; otherwise of what a load returns now."""
        return self._loaded or self._look().report

    @property
    def buffer(self) -> list[BaseMessage] | str:
        """What a load returns for the conversation, under the name LangChain's own memories give it."""
        return self.buffer_as_messages if self.return_messages else self.buffer_as_str

    @property
    def buffer_as_messages(self) -> list[BaseMessage]:
        """The conversation that fits, as messages, whatever a load returns."""
        return list(map(CODEC.copy, self._look().history))

    @property
    def buffer_as_str(self) -> str:
        """The conversation that fits, as one text, whatever a load returns."""
        return self._writer()(self._look().history)

    def _look(self) -> Plan:
        """Returns what a load returns, without a search; no later load knows of it, but of a new summary."""
        session = self._session if self._session.summarizer else copy.deepcopy(self._session)
        return drive(self._steps({}, retrieve=False, session=session))

    # ---- save: whole -------------------------------------------------------------------------------------
    @override
    def save_context(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        self.chat_memory.add_messages(self._turn(inputs, outputs))

    @override
    async def asave_context(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        await self.chat_memory.aadd_messages(self._turn(inputs, outputs))

    @override
    def clear(self) -> None:
        self.chat_memory.clear()
        self._session.forget()
        self._loaded = None

    @override
    async def aclear(self) -> None:
        await self.chat_memory.aclear()
        self._session.forget()
        self._loaded = None

    # ---- one load ----------------------------------------------------------------------------------------
    def _load_steps(self, inputs: Mapping[str, Any]) -> Steps[dict[str, Any]]:
        plan = yield from self._steps(inputs)
        if self.retriever is not None:
            self._loaded = plan.report
        return self._variables(plan.history, plan.kept)

    def _steps(
        self, inputs: Mapping[str, Any], *, retrieve: bool = True, session: BudgetSession | None = None
    ) -> Steps[Plan]:
        """Plans conversation and documents together; without a search the documents' share stays free."""
        check_values({"inputs": inputs})
        question, sources, session = self._question(inputs), {"history"}, session or self._session
        fields: dict[str, Any] = {"ceiling": self._limits.ceiling, "scorer": self.scorer, "covers": "history"}
        names = names_in(self.prompt)
        hidden = self.retriever is not None and bool(names) and self.documents_key not in names
        if self.retriever is not None and not hidden:
            sources.add("knowledge")
            if question and retrieve:
                found = yield Call(self.retriever.invoke, (question,), self.retriever.ainvoke)
                fields["blocks"] = (Block(name="knowledge", segments=tuple(to_segments(found))),)
        if self.prompt is not None:

            def render(kept: Mapping[str, Fit], history: Sequence[BaseMessage]) -> list[Any]:
                made = self._prompt_of(self._variables(history, kept), inputs)
                return made if self.return_messages else [_Finished(made)]

            system = system_of(self._prompt_of(self._variables([], {}), inputs))
            whole = "blocks" in fields or sources == {"history"}
            fields |= {"render": render, "system": system, "covers": "prompt" if whole else "history"}
        stored = yield Call(lambda: self.chat_memory.messages, (), self.chat_memory.aget_messages)
        request = session.request(
            list(stored), question=question or None, sources=frozenset(sources), **fields
        )
        plan = yield from planned(request, session, results_next=False)
        return replace(plan, report=plan.report.noting(not_shown(self.documents_key))) if hidden else plan

    def _variables(self, history: Sequence[BaseMessage], kept: Mapping[str, Fit]) -> dict[str, Any]:
        if self.retriever is None:
            return {self.memory_key: self._shown(history)}
        pieces = kept["knowledge"].pieces if "knowledge" in kept else ()
        documents: Any = list(KeptItems(pieces))
        if not self.return_docs:
            documents = "\n".join([piece.rendition.text for piece in pieces])
        return {self.memory_key: self._shown(history), self.documents_key: documents}

    def _shown(self, history: Sequence[BaseMessage]) -> Any:
        """Returns the conversation as a load does; messages are copies, so the store stays as it is."""
        return list(map(CODEC.copy, history)) if self.return_messages else self._writer()(history)

    def _prompt_of(self, variables: Mapping[str, Any], inputs: Mapping[str, Any]) -> list[BaseMessage]:
        """Returns the chain's prompt; inputs that are not known yet, as an agent's scratchpad, are empty."""
        unknown: dict[str, Any] = dict.fromkeys(self.prompt.input_variables, "")
        unknown |= {name: [] for name in placeholders_in(self.prompt)}
        return render_prompt(self.prompt, {**unknown, **inputs, **variables})

    def _writer(self) -> Callable[[Sequence[BaseMessage]], str]:
        return partial(get_buffer_string, human_prefix=self.human_prefix, ai_prefix=self.ai_prefix)

    def _asked(self, inputs: Mapping[str, Any]) -> Any:
        """Returns the user's input; raises KeyError or ValueError where it is not clear which one that is."""
        key = self.input_key
        return inputs[get_prompt_input_key(dict(inputs), self.memory_variables) if key is None else key]

    def _question(self, inputs: Mapping[str, Any]) -> str:
        try:
            given = self._asked(inputs)
        except (KeyError, ValueError):
            return ""
        return given if isinstance(given, str) else "\n".join(m.text for m in as_messages(given))

    def _turn(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> list[BaseMessage]:
        check_values({"inputs": inputs, "outputs": outputs})
        try:
            asked = self._asked(inputs)
        except (KeyError, ValueError) as error:
            why = error if isinstance(error, ValueError) else f"the inputs are {list(inputs)}"
            msg = f"input_key must name the user's input (got {self.input_key!r}; {why}). Name one input."
            raise BudgetConfigError(msg) from error
        return [*_messages(asked, HumanMessage), *_messages(outputs[self._output_key(outputs)], AIMessage)]

    def _output_key(self, outputs: dict[str, Any]) -> str:
        if self.output_key is not None:
            if self.output_key in outputs:
                return self.output_key
            msg = (
                f"output_key must name an output (got {self.output_key!r}; the outputs are {list(outputs)})."
            )
            raise BudgetConfigError(msg)
        if len(outputs) == 1:
            return next(iter(outputs))
        if "output" in outputs:
            msg = f"output_key must name the output to store (got {list(outputs)}). 'output' is stored."
            warnings.warn(msg, stacklevel=4)
            return "output"
        msg = f"Got multiple output keys: {list(outputs)}, or none; name the model's answer with output_key="
        raise BudgetConfigError(msg)


_BESIDE_SESSION = (
    *("prompt", "scorer", "memory_key", "documents_key", "input_key", "output_key", "return_docs"),
)
"""Settings that a session does not depend on: a change of them keeps the cut and the summary."""


@dataclass(frozen=True)
class _Finished:
    """A finished prompt, in whose text the conversation is."""

    messages: list[BaseMessage]


class _TextMeasure:
    """Counts a conversation as the one text it becomes, and a finished prompt as its messages."""

    additive = False

    def __init__(self, whole: Measure, limits: Limits, text: Any) -> None:
        self.overhead = limits.counter.overhead(limits.tools) - limits.counter.overhead(None)
        self._whole = whole
        self._count = limits.counter.count
        self._text = text

    def group(self, messages: Sequence[Any]) -> int:
        return self._count(self._text(messages) + "\n")

    def total(self, messages: Sequence[Any]) -> int:
        if messages and isinstance(messages[0], _Finished):
            return self._whole.total(messages[0].messages)
        return self.overhead + self._count(self._text(messages))


def _messages(given: Any, kind: type[HumanMessage | AIMessage]) -> list[BaseMessage]:
    """Returns what a chain was given or answered as messages."""
    if isinstance(given, BaseMessage):
        return [given]
    if isinstance(given, list) and given and all(isinstance(m, BaseMessage) for m in given):
        return list(given)
    return [kind(content=given if isinstance(given, (str, list)) else str(given))]
