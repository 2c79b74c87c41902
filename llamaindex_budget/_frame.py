"""What an engine itself adds to a request: its system prompt, its templates, the question.

A memory and a postprocessor are called without any of it. LlamaIndex's instrumentation, however, announces every engine call together with
the engine, so a span handler can note which engine is at work in the current context; nothing is stored beyond the call's own context
and nothing of the engine is changed. Outside an engine there is no frame, and `None` says so.
"""

from __future__ import annotations

import inspect
import threading
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.chat_engine.types import BaseChatEngine
from llama_index.core.constants import DEFAULT_NUM_OUTPUTS
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]  # public, not re-exported by name
from llama_index.core.instrumentation.span_handlers import BaseSpanHandler
from llama_index.core.response_synthesizers.refine import DEFAULT_RESPONSE_PADDING_SIZE
from llama_index.core.settings import Settings

from .prompt_helper import SPARE, BudgetPromptHelper

__all__ = ["CALLER_KEYS", "Frame", "current_frame", "watch_engines"]

CALLER_KEYS = ("context_str", "query_str", "existing_answer", "context_msg")
"""Template variables of the host's engines; a past message that contains one in braces would be filled in again."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The engine's own part of one request.

    Args:
        engine: the engine at work.
        variants: what stands around history, nodes and question, with empty slots, one per template the engine may use.
        question: what the user asks now; "" where it stands in `variants`, None where the engine stores it in the memory before reading it.
        retrieves: the engine puts nodes into the same request.
        formats_history: the engine treats history as a template.
        writes_history: the engine writes history out as one text, to have the question rewritten.
        window: the model's context window.
        num_output: tokens the host keeps for the answer.
        padding: tokens the host's response synthesizer keeps free beside the nodes; more nodes than that become more calls.
        host_counts: the host's own prompt helper sizes the request, with figures of its own for media.
    """

    engine: Any
    variants: tuple[tuple[ChatMessage, ...], ...]
    question: str | None
    retrieves: bool
    formats_history: bool
    writes_history: bool
    window: int
    num_output: int
    padding: int
    host_counts: bool


@dataclass(frozen=True, slots=True)
class _Call:
    engine: Any
    question: str | None
    outer: _Call | None


_current: ContextVar[_Call | None] = ContextVar("rankbudget_engine", default=None)
_DEPTH = 40
"""Calls looked back for an engine that is not announced; the host has about ten between the two."""
_once = threading.Lock()
_watching: list[_EngineNotes] = []


def watch_engines() -> None:
    """Starts noting engines; called by the first memory or postprocessor that is made, any number of times."""
    with _once:
        if not _watching:
            _watching.append(_EngineNotes())
            get_dispatcher().add_span_handler(_watching[0])


def current_frame(part: Any) -> Frame | None:
    """Returns the frame of the engine call going on in this context, when `part` is that engine's memory or postprocessor."""
    call = _current.get()
    if call is not None and _works_for(part, call.engine):
        return _frame_of(call.engine, call.question)
    retrieving = _retrieving(part)
    return None if retrieving is None else _frame_of(retrieving.engine, retrieving.question)


def _works_for(part: Any, engine: Any) -> bool:
    return part is getattr(engine, "_memory", None) or any(
        part is p for p in getattr(engine, "_node_postprocessors", ())
    )


def _retrieving(part: Any) -> _Call | None:
    """Returns the query engine whose `retrieve` calls its postprocessor: the one call that the host's instrumentation does not announce."""
    at = inspect.currentframe()
    for _ in range(_DEPTH):
        if at is None:
            return None
        if at.f_code.co_name in ("retrieve", "aretrieve"):
            engine, asked = at.f_locals.get("self"), at.f_locals.get("query_bundle")
            if isinstance(engine, BaseQueryEngine) and _works_for(part, engine):
                return _Call(engine, getattr(asked, "query_str", None), None)
        at = at.f_back
    return None


class _EngineNotes(BaseSpanHandler[Any]):
    """Keeps the engine of the current context; opens no spans of its own."""

    @classmethod
    def class_name(cls) -> str:
        return "RankbudgetEngineNotes"

    def span_enter(
        self, id_: str, bound_args: inspect.BoundArguments, instance: Any = None, *_: Any, **__: Any
    ) -> None:
        if isinstance(instance, (BaseChatEngine, BaseQueryEngine)) and _is_call(id_):
            given = bound_args.arguments
            asked = next(
                (given[key] for key in ("message", "str_or_query_bundle", "query_bundle") if key in given),
                None,
            )
            asked = getattr(asked, "query_str", asked)
            _current.set(_Call(instance, asked if isinstance(asked, str) else None, _current.get()))

    def span_exit(
        self, id_: str, bound_args: inspect.BoundArguments, instance: Any = None, *_: Any, **__: Any
    ) -> None:
        call = _current.get()
        if call is not None and call.engine is instance and _is_call(id_):
            _current.set(call.outer)

    def span_drop(
        self, id_: str, bound_args: inspect.BoundArguments, instance: Any = None, *_: Any, **__: Any
    ) -> None:
        self.span_exit(id_, bound_args, instance)

    def new_span(self, *_: Any, **__: Any) -> None:
        return None

    def prepare_to_exit_span(self, *_: Any, **__: Any) -> None:
        return None

    def prepare_to_drop_span(self, *_: Any, **__: Any) -> None:
        return None


def _is_call(span_id: str) -> bool:
    name = span_id.partition(".")[2].partition("-")[0]
    return name in ("chat", "achat", "stream_chat", "astream_chat", "query", "aquery")


def _frame_of(engine: Any, question: str | None) -> Frame | None:
    synthesizer = getattr(engine, "_response_synthesizer", None)
    llm: Any = getattr(engine, "_llm", None) or getattr(synthesizer, "_llm", None)
    metadata = getattr(llm, "metadata", None)
    if metadata is None:
        return None
    retrieves, pending = True, question
    condense = getattr(engine, "_condense_question_prompt", None) or getattr(
        engine, "_condense_prompt_template", None
    )
    if getattr(engine, "_skip_condense", False):
        condense = None
    templates: list[Any] = [
        t for pair in _TEMPLATES for name in pair if (t := getattr(engine, name, None)) is not None
    ]
    if templates:  # one of the two context engines
        prefix = list(getattr(engine, "_prefix_messages", None) or ())
        system = getattr(engine, "_system_prompt", None) or ""
        if prefix and prefix[0].role == MessageRole.SYSTEM:
            system = str(prefix.pop(0).content)
        variants = [
            (ChatMessage(role=metadata.system_role, content=_emptied(t.template) + system.strip()), *prefix)
            for t in templates
        ]
        if condense is not None:
            variants.append(_rendered(condense, "", llm))
    elif (
        condense is not None
    ):  # the history goes into a prompt that holds the question; the answer is the query engine's, with its own frame
        variants, retrieves, pending = [_rendered(condense, question or "", llm)], False, ""
    elif isinstance(engine, BaseQueryEngine):
        variants = [
            _rendered(getattr(synthesizer, name, None), question or "", llm)
            for name in ("_text_qa_template", "_refine_template")
        ]
        pending = ""  # the template holds it
    else:
        variants, retrieves, pending = (
            [tuple(getattr(engine, "_prefix_messages", None) or ())],
            False,
            None,
        )  # stored before it is read
    own = (
        (ChatMessage(role=MessageRole.SYSTEM, content=llm.system_prompt),)
        if getattr(llm, "system_prompt", None)
        else ()
    )
    num_output = metadata.num_output if metadata.num_output > 0 else DEFAULT_NUM_OUTPUTS
    ours = isinstance(
        _helper(synthesizer), BudgetPromptHelper
    )  # it makes one call and needs no room for a second
    padding = (
        SPARE if ours else int(getattr(synthesizer, "_response_padding_size", DEFAULT_RESPONSE_PADDING_SIZE))
    )
    return Frame(
        engine=engine,
        variants=tuple(own + v for v in variants),
        question=pending,
        retrieves=retrieves,
        formats_history=bool(templates),
        writes_history=condense is not None,
        window=metadata.context_window,
        num_output=num_output,
        padding=padding if retrieves else 0,
        host_counts=retrieves and not ours,
    )


_TEMPLATES = (
    ("_context_template", "_context_refine_template"),
    ("_context_prompt_template", "_context_refine_prompt_template"),
)


def _helper(synthesizer: Any) -> Any:
    """Returns the prompt helper at work, as far as one was set."""
    return (
        getattr(synthesizer, "_prompt_helper", None) if synthesizer is not None else Settings._prompt_helper
    )


def _emptied(template: str) -> str:
    for key in CALLER_KEYS:
        template = template.replace("{" + key + "}", "")
    return template


def _rendered(template: Any, question: str, llm: Any) -> tuple[ChatMessage, ...]:
    if template is None:
        return (ChatMessage(role=MessageRole.USER, content=question),)
    blank = dict.fromkeys(template.template_vars, "")
    return tuple(template.format_messages(llm=llm, **{**blank, "query_str": question, "question": question}))
