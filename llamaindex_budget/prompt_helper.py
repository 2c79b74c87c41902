"""A prompt helper that makes fewer, better chunks for one call, where the stock one makes more calls."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from llama_index.core import Settings
from llama_index.core.base.llms.types import ChatMessage, LLMMetadata, MessageRole
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.constants import DEFAULT_NUM_OUTPUTS
from llama_index.core.indices.document_summary.base import DEFAULT_SUMMARY_QUERY
from llama_index.core.indices.prompt_helper import DEFAULT_PADDING as PAD
from llama_index.core.indices.prompt_helper import PromptHelper
from llama_index.core.llms.structured_llm import StructuredLLM
from llama_index.core.node_parser import TokenTextSplitter
from llama_index.core.output_parsers import PydanticOutputParser
from llama_index.core.program.function_program import get_function_tool
from llama_index.core.prompts import BasePromptTemplate, ChatPromptTemplate, SelectorPromptTemplate
from llama_index.core.prompts.prompt_utils import get_empty_prompt_messages, get_empty_prompt_txt
from llama_index.core.response_synthesizers import Refine
from llama_index.core.response_synthesizers.refine import (
    DEFAULT_RESPONSE_PADDING_SIZE,
    StructuredRefineResponse,
)

from rankbudget import TokenBudget, TokenCounter
from rankbudget.adapters import JOINT, plain_budget, typed_errors
from rankbudget.errors import BudgetConfigError, BudgetExceededError

from ._clear_calls import with_clear_calls
from ._codec import CODEC
from ._counters import counter_named, counter_of, known_window, request_counter_of
from ._events import send_report
from ._options import check_part, check_values, named
from ._render import QUESTIONS
from ._request import forms_beside, schemas_in
from ._sharing import budget_for, shared_budget
from ._texts import fit_texts, room_for_texts

_JOINTS = 2
"""Tokens that a chunk may cost more between the texts of a template than alone."""
_SPARE = 64
"""Least tokens kept free for a question that is in no template and no calling function."""
_TEMPLATE_TOKENS = 160
"""More than LlamaIndex's own templates have."""

_OWN_OPTIONS = ("budget", "session", "counter", "scorer")
_NEEDED = ("text_chunks", "num_chunks", "prompt", "padding")


class BudgetPromptHelper(PromptHelper):
    """A `PromptHelper` that fits all chunks into one prompt, exactly counted.

    The stock helper never drops a chunk; what does not fit becomes more model calls. This one keeps the
    best chunks, shortens where whole ones do not fit, and makes one call. As `Settings.prompt_helper`
    it also reaches the engines that take no helper of their own. Where a prompt asks no question, as when
    a tree index or a document summary is built, it does as the stock helper: nothing may be left out.

    Args:
        context_window: tokens the model can read and write together, from 1.
        num_output: tokens kept for the answer, from 0, less than the window.
        tokenizer: a LlamaIndex tokenizer; used for chat templates too. Without one, without a counter and a
            budget with a model, the LLM that is asked counts, or the model of `from_llm_metadata`.
        budget: limits to take instead of window and num_output.
        session: a session whose budget and counter are shared.
        counter: a model or encoding name, or what else `counter_for` takes.
        scorer: rates chunks against the query; None takes the core's default.

    Raises:
        BudgetConfigError: an option is wrong.

    Example:
        >>> from llama_index.core.prompts import PromptTemplate
        >>> helper = BudgetPromptHelper(context_window=60, num_output=20)
        >>> facts = [f"Fact {i} is short." for i in range(99)]
        >>> prompt = PromptTemplate("Use {context_str}. {query_str}").partial_format(query_str="What is 7?")
        >>> [chunk] = helper.repack(prompt, facts)
        >>> "Fact 7 is short." in chunk
        True
    """

    _counter: TokenCounter = PrivateAttr()
    _chosen: bool = PrivateAttr()  # else an LLM that is given counts
    _scorer: Any = PrivateAttr(default=None)
    _budget: TokenBudget | None = PrivateAttr(default=None)

    def __init__(self, *args: Any, **options: Any) -> None:
        options = named(PromptHelper, args, options)
        check_part(type(self), options, beside=("tokenizer", *_OWN_OPTIONS))
        budget, session, counter, scorer = [options.pop(name, None) for name in _OWN_OPTIONS]
        budget = shared_budget(budget, session)
        if budget is not None:
            options |= {"context_window": budget.context_window, "num_output": budget.reserve_tokens()}
        with typed_errors():
            super().__init__(**options)
        if not 0 <= self.num_output < self.context_window:
            msg = (
                f"num_output must be a number of tokens below context_window={self.context_window} (got "
                f"{self.num_output}). The prompt gets what the answer leaves of the window."
            )
            raise BudgetConfigError(msg)
        if counter is None and session is not None:
            counter = session.counter
        counter = counter or (budget and budget.model)
        self._counter = counter_of(options.get("tokenizer"), counter)
        self._chosen = counter is not None or options.get("tokenizer") is not None
        self._scorer, self._budget = scorer, budget

    @classmethod
    def from_llm_metadata(cls, llm_metadata: LLMMetadata, *args: Any, **options: Any) -> BudgetPromptHelper:
        """Returns a helper with the window, the answer and the tokenizer of a model."""
        check_values({"llm_metadata": llm_metadata}, "llm_metadata")
        num_output = DEFAULT_NUM_OUTPUTS if llm_metadata.num_output == -1 else llm_metadata.num_output
        made = cls(llm_metadata.context_window, num_output, *args, **options)
        if not made._chosen:
            made._counter = counter_named(llm_metadata.model_name)
        return made

    @classmethod
    def class_name(cls) -> str:
        return "BudgetPromptHelper"

    def repack(
        self, prompt: Any, text_chunks: Sequence[str], padding: int = PAD, llm: Any = None, tools: Any = None
    ) -> list[str]:
        """Returns one chunk that fits the prompt: the best of `text_chunks` in their order."""
        check_values({"text_chunks": text_chunks, "prompt": prompt, "padding": padding, "llm": llm}, *_NEEDED)
        sent, beside = _first_asked(prompt, llm)
        if _builds_an_index(sent):
            return super().repack(prompt, text_chunks, padding, llm, tools)
        if not _asks(prompt) and len(text_chunks) == 1 and isinstance(text_chunks[0], _Fitted):
            return list(text_chunks)
        if not text_chunks:
            return []
        chunks = [chunk.strip() for chunk in text_chunks if chunk.strip()]
        # Of a program's finished messages, with a schema beside or inside, a bounded model shortens none.
        finished = beside or sent.output_parser or isinstance(llm, StructuredLLM)
        door = None if finished else self._door_of(llm)
        tools = [*(tools or ()), *beside]
        room = self._room_of_one(sent, chunks, padding, llm=llm, tools=tools, door=door)
        kept = self._kept(sent, chunks, room, llm) if chunks else {}
        return [_Fitted(JOINT.join(kept.values()))]

    def truncate(
        self, prompt: Any, text_chunks: Sequence[str], padding: int = PAD, llm: Any = None, tools: Any = None
    ) -> list[str]:
        """Returns the chunks with as much of their text as fits all together; one that is dropped is ""."""
        check_values({"text_chunks": text_chunks, "prompt": prompt, "padding": padding, "llm": llm}, *_NEEDED)
        if not text_chunks or _builds_an_index(prompt):
            return super().truncate(prompt, text_chunks, padding, llm, tools)
        room = self._get_available_chunk_size(prompt, 1, padding, llm, tools)
        room -= self._counter_for(llm).count(JOINT * len(text_chunks))  # hosts join what is empty, too
        kept = self._kept(prompt, text_chunks, max(1, room), llm)
        return [_Fitted(kept.get(i, "")) for i in range(len(text_chunks))]

    def get_text_splitter_given_prompt(
        self, prompt: Any, num_chunks: int = 1, padding: int = PAD, llm: Any = None, tools: Any = None
    ) -> TokenTextSplitter:
        """Returns a splitter into chunks that fit the prompt, counted as the model counts them."""
        check_values({"num_chunks": num_chunks, "prompt": prompt, "padding": padding, "llm": llm}, *_NEEDED)
        size = self._get_available_chunk_size(prompt, num_chunks, padding, llm, tools)
        counter = self._counter_for(llm)
        return TokenTextSplitter(
            separator=self.separator,
            chunk_size=size,
            chunk_overlap=int(self.chunk_overlap_ratio * size),
            tokenizer=lambda text: [0] * counter.count(text),  # it asks for the length alone
        )

    def _room_of_one(
        self, prompt: Any, chunks: Sequence[str], padding: int, *, llm: Any, tools: Any, door: Any
    ) -> int:
        """Returns the tokens that one chunk made of all of these may have."""
        room = self._get_available_chunk_size(prompt, 1, 0, llm, tools)
        if door:
            return room  # a plan of the turn has fitted them, or the model has the last word
        if not _asks(prompt):
            return self._get_available_chunk_size(prompt, 1, max(_SPARE, min(padding, room // 2)), llm, tools)
        if self._counter_for(llm).count(JOINT.join(chunks)) <= room - _JOINTS:
            return room
        return max(1, room - min(padding, PAD))

    def _kept(self, prompt: BasePromptTemplate, chunks: Sequence[str], room: int, llm: Any) -> dict[int, str]:
        query = str(prompt.kwargs.get("query_str") or "")
        kept, report = fit_texts(chunks, room, query, self._counter_for(llm), self._scorer)
        send_report(report, getattr(_model(llm), "request_on_report", None))
        return kept

    def _counter_for(self, llm: Any) -> TokenCounter:
        return self._counter if self._chosen or llm is None else request_counter_of(llm)

    def _door_of(self, llm: Any) -> Any:
        """Returns the `budget_model` whose limit is the helper's too; None where there is none."""
        model = _model(llm)
        if not hasattr(model, "request_limit"):
            return None
        # For stock helpers its metadata state some tokens more or less than its limit.
        window = min(model.metadata.context_window, budget_for(model).context_window)
        return model if window <= self.context_window else None

    def _window_and_safety(self, llm: Any) -> tuple[int, int]:
        """Returns the smaller window of helper and LLM, and what an estimate may be too low by."""
        if door := self._door_of(llm):
            return budget_for(door).context_window, 0  # its limit leaves an estimate's error out
        known = None if llm is None else known_window(_model(llm))
        window = self.context_window if known is None else min(known, self.context_window)
        budget = self._budget or plain_budget(max(1, window - self.num_output))
        return window, budget.safety_tokens(band=self._counter_for(llm).band)

    def _get_available_chunk_size(
        self, prompt: Any, num_chunks: int = 1, padding: int = PAD, llm: Any = None, tools: Any = None
    ) -> int:
        window, safety = self._window_and_safety(llm)
        limit = window - self.num_output - safety
        room = self._room_beside(prompt, limit, llm, tools)
        fixed, size = limit - room, room // num_chunks - padding
        if size < 1:
            msg = (
                f"The prompt without its chunks must leave 1 token for each (got {fixed} tokens, {size} "
                f"left of window {window}, answer {self.num_output}, safety {safety}, "
                f"padding {padding}). Shorten the template, system prompt, history or tools."
            )
            raise BudgetExceededError(
                msg, limit=limit, needed=fixed + (padding + 1) * num_chunks, blocks={"template": fixed}
            )
        return size if self.chunk_size_limit is None else min(size, self.chunk_size_limit)

    def _room_beside(self, prompt: Any, limit: int, llm: Any, tools: Any) -> int:
        """Returns the tokens that the prompt as it is sent, with its chunk still empty, leaves for chunks."""
        counter, door, messages = self._counter_for(llm), self._door_of(llm), _as_sent(prompt, llm)
        sent = [CODEC.to_dict(m) for m in messages]
        left = limit
        for form in forms_beside(llm):
            told = {**form, "tools": [*(tools or ()), *form.get("tools", ())]}
            left = min(left, limit - counter.count_messages(sent, schemas_in(_model(llm), told) or None))
        chat = door is not None and door.metadata.is_chat_model
        return room_for_texts(left, messages, counter) if chat else left


class _Fitted(str):
    """A chunk made for its prompt: shown again in a template without the question it stays."""

    __slots__ = ()

    def __repr__(self) -> str:
        # `SimpleSummarize` sends a list, in which quotes and escaped line breaks would take more room.
        return str(self)


def asks_once() -> bool:
    """Returns whether engines have a helper that makes one call of any nodes."""
    # `Settings.prompt_helper` makes a stock helper where there is none, which all engines would then use.
    return isinstance(Settings._prompt_helper, BudgetPromptHelper)  # noqa: SLF001


def for_one_call(limit: int | None, *, told: bool) -> int | None:
    """Returns the most tokens that a turn plans of a prompt of `limit`, so that the LLM is asked once.

    The rest is for the engine's own template, unless the turn is `told` what that is, and for what the stock
    helper keeps free: an answer to refine, beside the larger of its two templates.
    """
    if limit is None or (asks_once() and told):
        return None
    return beside_template(limit, 0 if asks_once() else DEFAULT_RESPONSE_PADDING_SIZE)


def beside_template(limit: int, free: int = 0) -> int:
    """Returns what an engine's own template leaves of a prompt of `limit`, with `free` tokens kept empty."""
    return max(limit - _TEMPLATE_TOKENS - free, limit // 2)


def _first_asked(prompt: Any, llm: Any) -> tuple[Any, list[Any]]:
    """Returns the template in which a synthesizer first sends the one chunk, and a schema beside it.

    A `Refine` shows the longer of its two templates, by characters of their plain texts, and often without
    the question. Its calling function has both; a chunk that refines an answer is packed again.
    """
    frame: Any = sys._getframe(2)  # noqa: SLF001 - the caller of `repack`
    while frame.f_code.co_name == "<listcomp>":
        frame = frame.f_back
    refine, query = frame.f_locals.get("self"), frame.f_locals.get("query_str")
    if not isinstance(refine, Refine) or query is None:
        return prompt, []
    if "existing_answer" not in prompt.kwargs:
        prompt = refine.get_prompts().get("text_qa_template", prompt).partial_format(query_str=query)
    if not refine._structured_answer_filtering:  # noqa: SLF001 - stated nowhere else
        return prompt, []
    if llm.metadata.is_function_calling_model:
        return prompt, [get_function_tool(StructuredRefineResponse)]
    prompt = prompt.partial_format()
    prompt.output_parser = PydanticOutputParser(StructuredRefineResponse)  # writes the schema into the prompt
    return prompt, []


def _as_sent(prompt: BasePromptTemplate, llm: Any) -> list[ChatMessage]:
    """Returns the messages of a template that is sent without chunks."""
    if isinstance(prompt, SelectorPromptTemplate):
        prompt = prompt.select(llm=llm)
    if isinstance(prompt, ChatPromptTemplate):
        messages = get_empty_prompt_messages(prompt)
    else:
        messages = [ChatMessage(role=MessageRole.USER, content=get_empty_prompt_txt(prompt))]
    if llm is not None and _model(llm).system_prompt:
        messages = [ChatMessage(role=MessageRole.SYSTEM, content=_model(llm).system_prompt), *messages]
    return list(messages if llm is None else with_clear_calls(_model(llm), messages))


def _model(llm: Any) -> Any:
    return llm.llm if isinstance(llm, StructuredLLM) else llm


def _asks(prompt: BasePromptTemplate) -> bool:
    """Returns whether all questions of a template are filled in."""
    return all(name in prompt.kwargs for name in QUESTIONS if name in prompt.template_vars)


def _builds_an_index(prompt: BasePromptTemplate) -> bool:
    """Returns whether a prompt asks no question of a user's: all of its chunks belong into what is built."""
    asks = [name for name in QUESTIONS if name in prompt.template_vars or name in prompt.kwargs]
    return not asks or any(prompt.kwargs.get(name) == DEFAULT_SUMMARY_QUERY for name in asks)
