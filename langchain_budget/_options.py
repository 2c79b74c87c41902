"""Options of every class and function, checked in one place: a wrong name or value raises a BudgetConfigError."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.language_models import BaseLanguageModel
from langchain_core.messages import BaseMessage
from langchain_core.prompts import BasePromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable

from rankbudget import BudgetSession, TokenBudget
from rankbudget.adapters import check_options
from rankbudget.errors import BudgetConfigError, shown

__all__ = ["check_given", "check_values", "checked"]

F = TypeVar("F", bound=Callable[..., Any])
Rule = tuple[Callable[[Any], bool], str]


def check_given(owner: str, given: Mapping[str, Any], allowed: Iterable[str]) -> None:
    """Checks the names of options, then their values; names that start with `_` are the host's."""
    check_options(owner, [name for name in given if not name.startswith("_")], allowed)
    check_values(given)


def check_values(given: Mapping[str, Any]) -> None:
    """Raises one BudgetConfigError for all options whose values are wrong."""
    problems = []
    for name, value in given.items():
        rule = _RULES.get(name)
        if rule is not None and not rule[0](value):
            problems.append(f"{name} must be {rule[1]} (got {shown(value)})")
    if problems:
        raise BudgetConfigError.of(problems)


def checked(function: F) -> F:
    """Decorates a function or a constructor whose options are checked before it runs."""
    owner = function.__qualname__.removesuffix(".__init__")
    signature = inspect.signature(function)
    allowed = [name for name in signature.parameters if name != "self"]

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        check_options(owner, kwargs, allowed)
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            msg = f"{owner} was called wrongly: {error}"
            raise BudgetConfigError(msg) from error
        check_values(given)
        return function(*args, **kwargs)

    return cast("F", run)


def _whole(low: int, *, none: bool = True) -> Rule:
    def fits(value: Any) -> bool:
        if value is None:
            return none
        return isinstance(value, int) and not isinstance(value, bool) and value >= low

    return fits, f"a whole number from {low}" + (", or None" if none else "")


def _one_of(*words: str) -> Rule:
    return lambda value: isinstance(value, str) and value in words, f"one of {', '.join(map(repr, words))}"


def _of_kind(kinds: Any, words: str) -> Rule:
    return lambda value: isinstance(value, kinds), words


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _seconds(value: Any) -> bool:
    return value is None or (_number(value) and value > 0)


def _share(value: Any) -> bool:
    return _number(value) and 0 <= value <= 1


def _is_scorer(value: Any) -> bool:
    return value is None or callable(getattr(value, "score", None))


def _writes_examples(value: Any) -> bool:
    return value is None or (hasattr(value, "format") and not isinstance(value, str))


def _are(kind: Any, *, none: bool) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        if value is None or isinstance(value, str):
            return none and value is None
        return isinstance(value, Sequence) and all(isinstance(item, kind) for item in value)

    return fits


def _splits(value: Any) -> bool:
    return value is None or callable(value) or hasattr(value, "split_text")


def _names_kinds(value: Any) -> bool:
    """Tells whether a value names types of messages, by name or as classes."""
    listed = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    return value is None or all(
        kind in _MESSAGE_TYPES if isinstance(kind, str) else _is_message_class(kind) for kind in listed
    )


def _is_message_class(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseMessage)


_MESSAGE_TYPES = ("human", "ai", "system", "tool", "function", "chat", "developer", "remove")
_NOTHING = type(None)
_SWITCHES = (
    "allow_partial",
    "compress",
    "dedup",
    "double_braces",
    "include_system",
    "persist",
    "retry",
    "return_docs",
    "return_messages",
    "strict",
)
_KEYS = ("history_key", "documents_key", "examples_key", "memory_key", "question_key")
_KINDS: Rule = _names_kinds, "message types, as 'human' or HumanMessage, or None"
_BUDGET = _of_kind(
    (TokenBudget, Mapping, _NOTHING), "a TokenBudget or its fields. Pass a number as max_tokens"
)
_TEXT = _of_kind(str, "a text")
_RULES: dict[str, Rule] = {
    **dict.fromkeys(("max_tokens", "context_window", "k", "tool_result_tokens"), _whole(1)),
    **dict.fromkeys(("trigger", "keep"), _whole(1, none=False)),
    "min_exchanges": _whole(0),
    "extra_tokens": _whole(0, none=False),
    **dict.fromkeys(_SWITCHES, _of_kind(bool, "True or False")),
    **dict.fromkeys(_KEYS, (lambda value: isinstance(value, str) and bool(value), "a name")),
    **dict.fromkeys(("separator", "human_prefix", "ai_prefix"), _TEXT),
    "cut": _one_of("fill", "stable"),
    "order": _one_of("original", "edges", "score"),
    "into": _one_of("llm_input_messages", "messages"),
    "diversity": (_share, "a number from 0 to 1"),
    "summary_timeout": (_seconds, "seconds above 0, or None for no timeout"),
    "budget": _BUDGET,
    "budget_or_session": (lambda value: isinstance(value, BudgetSession) or _BUDGET[0](value), _BUDGET[1]),
    "session": _of_kind((BudgetSession, _NOTHING), "a BudgetSession"),
    "model": _of_kind((str, BaseLanguageModel, Runnable, _NOTHING), "a language model or a model's name"),
    "retriever": _of_kind((BaseRetriever, _NOTHING), "a BaseRetriever"),
    "history": _of_kind((BaseChatMessageHistory, _NOTHING), "a BaseChatMessageHistory"),
    "document_prompt": _of_kind((BasePromptTemplate, _NOTHING), "a prompt template, as PromptTemplate"),
    "example_prompt": (_writes_examples, "a prompt template, as PromptTemplate"),
    "scorer": (_is_scorer, "an object with score(query, segments)"),
    "examples": (_are(Mapping, none=False), "a list of dicts"),
    "input_keys": (_are(str, none=True), "a list of names, or None for all"),
    "embeddings": (lambda value: not isinstance(value, str), "an embedding model or a callable"),
    "on_report": (lambda value: value is None or callable(value), "a callable that takes a report"),
    "text_splitter": (_splits, "a text splitter or a callable"),
    "start_on": _KINDS,
    "end_on": _KINDS,
}
"""What each option may hold, in all classes and functions alike."""
