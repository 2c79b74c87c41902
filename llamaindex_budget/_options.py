"""The options of all parts, checked in one place: unknown names and wrong values are one typed error."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.base.llms.types import ChatMessage, LLMMetadata
from llama_index.core.memory import BaseMemoryBlock
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.schema import NodeWithScore, QueryBundle

from rankbudget import BudgetSession, Scope, Scorer, TokenBudget, counter_for
from rankbudget.adapters import check_options, is_blocking
from rankbudget.errors import BudgetConfigError, check_count, check_number, refuse, shown

F = TypeVar("F", bound=Callable[..., None])

_KINDS: dict[str, tuple[Any, str]] = {
    "budget": ((TokenBudget, Mapping), "a TokenBudget; give a number of tokens as the limit option"),
    "session": (BudgetSession, "a BudgetSession"),
    "llm": (BaseLLM, "a LlamaIndex LLM"),
    "llm_metadata": (LLMMetadata, "an LLMMetadata, as llm.metadata is"),
    "memory": (object, "a BudgetChatMemoryBuffer or a BudgetMemory"),
    "embed_model": (BaseEmbedding, "a LlamaIndex embedding"),
    "prompt": ((BasePromptTemplate, str, list, tuple), "a prompt template, a text or a list of messages"),
    "retriever": (object, "a LlamaIndex retriever"),
    "scope": (object, "a Scope, or a function of a session id that gives one"),
    "scorer": (Scorer, "an object with score(query, segments)"),
    "store": (object, "a MemoryStore"),
    "memory_blocks": (object, "a list of LlamaIndex memory blocks"),
    "nodes": (object, "a list of NodeWithScore"),
    "question": ((str, ChatMessage), "a text or a ChatMessage"),
    "query_bundle": (QueryBundle, "a QueryBundle; give a text as query_str"),
    "text_chunks": (object, "a list of texts"),
    "data": (Mapping, "a mapping that to_dict wrote"),
    "on_report": (object, "a blocking callable that takes a report, or None"),
}
_COUNTS = {"max_tokens": 1, "token_limit": 1, "context_window": 1, "chunk_size_limit": 1, "padding": 0}
_COUNTS |= {"token_flush_size": 0, "num_chunks": 1}
_APART = (("summarizer", "session"), ("budget", "session"), ("token_limit", "max_tokens"))


def _is_list_of(kind: type) -> Callable[[Any], bool]:
    return lambda given: isinstance(given, (list, tuple)) and all(isinstance(item, kind) for item in given)


_CHECKS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("tokenizer_fn", "tokenizer", "read", "render"), callable),
    "on_report": is_blocking,
    "memory": lambda given: hasattr(given, "turn_steps"),
    "retriever": lambda given: hasattr(given, "aretrieve"),
    "scope": lambda given: isinstance(given, Scope) or callable(given),
    "store": lambda given: hasattr(given, "acompeting"),
    "memory_blocks": _is_list_of(BaseMemoryBlock),
    "nodes": _is_list_of(NodeWithScore),
    "text_chunks": _is_list_of(str),
}


def _counter_problems(given: Any) -> list[str]:
    try:
        counter_for(given)
    except BudgetConfigError as error:
        return [str(error)]
    return []


def check_part(owner: type, given: Mapping[str, Any], *, beside: Iterable[str] = ()) -> None:
    """Raises BudgetConfigError for options that are neither fields nor `beside`, and for wrong values."""
    fields = [name for name in getattr(owner, "model_fields", ()) if not name.startswith("_")]
    check_options(owner.__name__, given, sorted({*fields, *beside}))
    check_values(given)


def by_name(init: F) -> F:
    """Makes options given by position a BudgetConfigError."""

    @functools.wraps(init)
    def call(self: Any, *args: Any, **options: Any) -> None:
        if args:
            name, known = type(self).__name__, ", ".join(sorted(type(self).model_fields))
            msg = f"{name} must be given its options by name (got {shown(args[0])}). Its options: {known}."
            raise BudgetConfigError(msg)
        init(self, **options)

    return cast("F", call)


def named(function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options with those that were given by position, as LlamaIndex's own function names them."""
    signature = inspect.signature(function)
    known = {name: value for name, value in options.items() if name in signature.parameters}
    try:
        return {**options, **signature.bind_partial(*args, **known).arguments}
    except TypeError as error:
        names = ", ".join(signature.parameters)
        msg = f"options must be given once, at most these by position: {names} (got {error})."
        msg = f"{msg} Give them by name."
        raise BudgetConfigError(msg) from error


def check_values(given: Mapping[str, Any], *required: str) -> None:
    """Raises one BudgetConfigError for all values of a wrong kind; None passes where it is not `required`."""
    problems: list[str] = []
    for name, value in given.items():
        kind, description = _KINDS.get(name, (object, ""))
        if value is None and name not in required:
            continue
        if name in _COUNTS:
            check_count(name, value, problems, low=_COUNTS[name])
        elif name == "chat_history_token_ratio":
            check_number(name, value, problems, allowed="a number from 0 to 1", high=1)
        elif name == "counter":
            problems += _counter_problems(value)
        elif not isinstance(value, kind) or (name in _CHECKS and not _CHECKS[name](value)):
            problems.append(f"{name} must be {description or 'a function'} (got {shown(value)})")
    for name, other in _APART:
        if given.get(name) is not None and given.get(other) is not None:
            problems.append(f"{name} must be None beside {other}= (got both). Give one of them")
    refuse(problems)
