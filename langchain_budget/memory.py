"""The budget as a memory of LangChain's chains and conversations (needs the extra `classic`, the only home of `BaseMemory`).

chain = ConversationChain(llm=llm, memory=BudgetMemory(model="gpt-4o", prompt=prompt), prompt=prompt)
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.prompts import BasePromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import run_in_executor
from pydantic import ConfigDict, Field, PrivateAttr
from typing_extensions import Self, override

from rankbudget import TokenBudget
from rankbudget.errors import BudgetConfigError
from rankbudget.report.report import BudgetReport
from rankbudget.report.result import FitResult

from ._codec import CODEC
from ._convert import as_messages, from_segment, to_segments
from ._limits import limits_of
from ._settings import Settings
from ._slots import render_prompt
from ._supported import require
from ._threads import Store, ThreadReader, buffer_text
from .models import as_summarizer

require("langchain_classic.base_memory", needed_by="BudgetMemory")
from langchain_classic.base_memory import BaseMemory  # noqa: E402 - the line above names the extra where it is missing
from langchain_classic.memory.utils import get_prompt_input_key  # noqa: E402 - the same

__all__ = ["BudgetMemory"]


class BudgetMemory(Settings, BaseMemory):
    """Remembers all of a conversation and loads what fits: trimmed on load, never on save, always a valid conversation.

    The cut is remembered between turns: over the limit it moves once, down to half of it, so that prompt caches stay warm. A setting that is
    changed counts from the next load on; a copy has a store of its own and starts from the same cut.

    Args:
        budget: the limits; the conversation gets its share of them, retrieved documents what it leaves.
        model: a chat model or a model's name; gives window and tokenizer.
        max_tokens: tokens that conversation and documents may have together; beside a budget the smaller wins.
        counter: counts instead of the model's tokenizer.
        prompt: the chain's prompt; what it costs beside the memory is then counted exactly.
        tools: what is bound to the model; it is counted. None takes what `model` itself has bound, an empty list says nothing is.
        summarizer: a model, a chain as `prompt | model`, or a callable `(text, max_tokens) -> str`, that keeps a running summary of what is cut.
        retriever: finds documents for the input; they are trimmed to what the conversation leaves.
        scorer: ranks the documents; None takes the core's default.
        chat_memory: where the messages are stored.
        memory_key: the variable that holds the conversation.
        documents_key: the variable that holds the documents, when there is a retriever.
        input_key: which input is the user's; None takes the only one.
        output_key: which output is the model's; None takes the only one, or "output".
        return_messages: messages instead of one text.
        return_docs: documents instead of one text.
        human_prefix: who the user is in the text.
        ai_prefix: who the model is in the text.

    Example:
        >>> memory = BudgetMemory(max_tokens=12, counter=lambda text: len(text.split()))
        >>> for turn in ("one", "two", "three", "four"):
        ...     memory.save_context({"input": turn}, {"output": turn.upper()})
        >>> print(memory.load_memory_variables({})["history"])
        Human: two
        AI: TWO
        Human: three
        AI: THREE
        Human: four
        AI: FOUR
        >>> len(memory.chat_memory.messages)
        8
    """

    budget: TokenBudget | None = None
    model: Any = None
    max_tokens: int | None = None
    counter: Any = None
    prompt: Any = None
    tools: Any = None
    summarizer: Any = None
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

    _reader: ThreadReader = PrivateAttr()
    _made_of: tuple[Any, ...] = PrivateAttr(default=())

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=(), extra="forbid")

    @override
    def _settle(self) -> None:
        """Makes the reader anew when something it depends on was changed; else the remembered cut stays."""
        if self.prompt is not None and not isinstance(self.prompt, BasePromptTemplate):
            msg = f"prompt is a {type(self.prompt).__name__}, allowed: a prompt template"
            raise BudgetConfigError(msg)
        counted = (self.budget, self.model, self.max_tokens, self.counter, self.tools, self.summarizer)
        made_of = (*counted, self.return_messages, self.human_prefix, self.ai_prefix, self.chat_memory)
        if len(self._made_of) == len(made_of) and all(map(_same, made_of, self._made_of)):
            return
        limits = limits_of(
            budget=self.budget,
            model=self.model,
            max_tokens=self.max_tokens,
            counter=self.counter,
            tools=self.tools,
        )
        as_text = (
            None if self.return_messages else partial(buffer_text, human=self.human_prefix, ai=self.ai_prefix)
        )
        self._reader = ThreadReader(limits, summarizer=as_summarizer(self.summarizer), as_text=as_text)
        self._made_of = made_of

    @override
    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        memo = {} if memo is None else memo
        twin = memo[id(self)] = self.__copy__()
        twin.__dict__["chat_memory"] = copy.deepcopy(
            self.chat_memory, memo
        )  # models, retriever and prompt are shared
        twin._reader = copy.deepcopy(self._reader, memo)  # noqa: SLF001 - its own kind
        twin._made_of = (*self._made_of[:-1], twin.chat_memory)  # noqa: SLF001 - the same
        return twin

    @property
    @override
    def memory_variables(self) -> list[str]:
        return [self.memory_key] if self.retriever is None else [self.memory_key, self.documents_key]

    # ---- load: fitted -----------------------------------------------------------------------------------------------------------
    @override
    def load_memory_variables(self, inputs: dict[str, Any]) -> dict[str, Any]:
        history, extra = self._fit_history(self.chat_memory.messages, inputs)
        values: dict[str, Any] = {self.memory_key: self._shown(history)}
        question = self._question(inputs)
        if self.retriever is not None:
            found = self.retriever.invoke(question) if question else []
            values[self.documents_key] = self._documents(found, question, history, extra)
        return values

    @override
    async def aload_memory_variables(self, inputs: dict[str, Any]) -> dict[str, Any]:
        history, extra = await self._afit_history(await self.chat_memory.aget_messages(), inputs)
        values: dict[str, Any] = {self.memory_key: self._shown(history)}
        question = self._question(inputs)
        if self.retriever is not None:
            found = await self.retriever.ainvoke(question) if question else []
            values[self.documents_key] = await run_in_executor(
                None, self._documents, found, question, history, extra
            )
        return values

    def fit(self, inputs: dict[str, Any] | None = None) -> FitResult:
        """Returns the conversation that a load would return as messages, with the report that says why."""
        return self._fit_history(self.chat_memory.messages, inputs or {})[0]

    @property
    def report(self) -> BudgetReport:
        """The report of what a load returns now."""
        return self.fit().report

    @property
    def buffer(self) -> list[BaseMessage] | str:
        """What a load returns for the conversation, under the name LangChain's own memories give it."""
        return self.buffer_as_messages if self.return_messages else self.buffer_as_str

    @property
    def buffer_as_messages(self) -> list[BaseMessage]:
        """The conversation that fits, as messages, whatever a load returns."""
        return [CODEC.copy(message) for message in self.fit().messages]

    @property
    def buffer_as_str(self) -> str:
        """The conversation that fits, as one text, whatever a load returns."""
        return self._text(self.fit().messages)

    # ---- save: whole ------------------------------------------------------------------------------------------------------------
    @override
    def save_context(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        self.chat_memory.add_messages(self._turn(inputs, outputs))

    @override
    async def asave_context(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        await self.chat_memory.aadd_messages(self._turn(inputs, outputs))

    @override
    def clear(self) -> None:
        self.chat_memory.clear()
        self._reader.session.reset()

    @override
    async def aclear(self) -> None:
        await self.chat_memory.aclear()
        self._reader.session.reset()

    # ---- translation ------------------------------------------------------------------------------------------------------------
    def _fit_history(self, messages: Sequence[BaseMessage], inputs: dict[str, Any]) -> tuple[FitResult, int]:
        extra = self._extra(inputs)
        return self._reader.fit(messages, extra_tokens=extra, asked=bool(self._question(inputs))), extra

    async def _afit_history(
        self, messages: Sequence[BaseMessage], inputs: dict[str, Any]
    ) -> tuple[FitResult, int]:
        extra = self._extra(inputs)
        return await self._reader.afit(
            messages, extra_tokens=extra, asked=bool(self._question(inputs))
        ), extra

    def _extra(self, inputs: dict[str, Any]) -> int:
        """Counts the prompt without the memory; inputs that are not known yet count as nothing."""
        if self.prompt is None:
            return 0
        known = {**dict.fromkeys(self.prompt.input_variables, ""), **inputs}
        known |= {
            self.memory_key: [] if self.return_messages else "",
            self.documents_key: [] if self.return_docs else "",
        }
        return self._reader.extra_tokens(render_prompt(self.prompt, known))

    def _shown(self, history: FitResult) -> list[BaseMessage] | str:
        if not self.return_messages:
            return self._text(history.messages)
        return [
            CODEC.copy(message) for message in history.messages
        ]  # what a caller changes does not reach the store

    def _text(self, messages: Sequence[BaseMessage]) -> str:
        return buffer_text(messages, human=self.human_prefix, ai=self.ai_prefix)

    def _documents(
        self, found: list[Document], question: str, history: FitResult, extra: int
    ) -> list[Document] | str:
        used = history.report.total_tokens - history.report.overhead
        room = self._reader.room_for_documents(used, extra_tokens=extra)
        if not found or room < 1:
            return [] if self.return_docs else ""
        from rankbudget import fit_documents  # ranking is only loaded where documents are

        fit = partial(
            fit_documents,
            max_tokens=room,
            query=question,
            counter=self._reader.limits.counter,
            scorer=self.scorer,
        )
        result = fit(to_segments(found))
        if not self.return_docs:
            return result.text
        by_id = {segment.id: segment for segment in to_segments(found)}
        return [from_segment(s, None if s.text == by_id[s.id].text else s.text) for s in result.segments]

    def _question(self, inputs: dict[str, Any]) -> str:
        try:
            given = (
                inputs[self.input_key]
                if self.input_key is not None
                else inputs[get_prompt_input_key(inputs, self.memory_variables)]
            )
        except (KeyError, ValueError):
            return ""
        return given if isinstance(given, str) else "\n".join(m.text for m in as_messages(given))

    def _turn(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> list[BaseMessage]:
        asked = inputs[
            self.input_key
            if self.input_key is not None
            else get_prompt_input_key(inputs, self.memory_variables)
        ]
        return [*_messages(asked, HumanMessage), *_messages(outputs[self._output_key(outputs)], AIMessage)]

    def _output_key(self, outputs: dict[str, Any]) -> str:
        if self.output_key is not None:
            return self.output_key
        if len(outputs) == 1:
            return next(iter(outputs))
        if "output" in outputs:
            msg = f"BudgetMemory got the output keys {list(outputs)} and stores 'output'; set output_key to choose another"
            warnings.warn(msg, stacklevel=4)
            return "output"
        msg = f"Got multiple output keys: {list(outputs)}, or none; set output_key to the one that is the model's answer"
        raise ValueError(msg)


def _same(new: Any, old: Any) -> bool:
    """Says whether a setting is what it was; objects are when they are the same object, however alike two may be."""
    return new is old or (isinstance(new, (int, str)) and type(new) is type(old) and bool(new == old))


def _messages(given: Any, kind: type[HumanMessage | AIMessage]) -> list[BaseMessage]:
    """Returns what a chain was given or answered as messages: a text, a message, or all messages of an agent's turn."""
    if isinstance(given, BaseMessage):
        return [given]
    if isinstance(given, list) and given and all(isinstance(m, BaseMessage) for m in given):
        return list(given)
    return [kind(content=given if isinstance(given, (str, list)) else str(given))]
