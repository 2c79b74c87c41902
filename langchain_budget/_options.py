"""Options of every class and function, checked in one place: wrong ones raise a BudgetConfigError."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, cast

from langchain_core.language_models import BaseLanguageModel
from langchain_core.messages import BaseMessage
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import Runnable

from rankbudget import BudgetSession, TokenBudget
from rankbudget.adapters import check_options
from rankbudget.errors import BudgetConfigError, shown

__all__ = ["LimitOptions", "check_given", "check_values", "checked"]

F = TypeVar("F", bound=Callable[..., Any])
Rule = tuple[Callable[[Any], bool], str]


class LimitOptions(TypedDict, total=False):
    """Options that classes and functions share; `BudgetTrimmer` describes them."""

    model: Any
    max_tokens: int | None
    context_window: int | None
    counter: Any
    summarizer: Any
    summary_timeout: float | None


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
    allowed = [name for name in signature.parameters if name not in {"self", "limits"}]
    if "limits" in signature.parameters:
        allowed += LimitOptions.__annotations__

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        check_options(owner, kwargs, allowed)
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            msg = f"{owner} was called wrongly: {error}"
            raise BudgetConfigError(msg) from error
        check_values({**given, **kwargs})
        return function(*args, **kwargs)

    return cast("F", run)


def _whole(low: int, *, none: bool = True) -> Rule:
    def fits(value: Any) -> bool:
        if value is None:
            return none
        return isinstance(value, int) and not isinstance(value, bool) and value >= low

    return fits, f"a whole number from {low}" + (", or None" if none else "")


def _number(low: float, high: float, words: str) -> Rule:
    def fits(value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high

    return fits, words


def _one_of(*words: str) -> Rule:
    return lambda value: isinstance(value, str) and value in words, f"one of {', '.join(map(repr, words))}"


def _of_kind(kinds: Any, words: str) -> Rule:
    return lambda value: isinstance(value, kinds), words


def _list_of(kind: Any, words: str) -> Rule:
    def fits(value: Any) -> bool:
        listed = isinstance(value, Sequence) and not isinstance(value, str)
        return listed and all(isinstance(item, kind) for item in value)

    return fits, words


def _with_one_of(names: Sequence[str], words: str) -> Rule:
    """Returns the rule for objects with one of these methods; texts have `format` but are none of them."""

    def fits(value: Any) -> bool:
        return not isinstance(value, str) and any(callable(getattr(value, name, None)) for name in names)

    return fits, words


def _or_none(rule: Rule) -> Rule:
    return lambda value: value is None or rule[0](value), f"{rule[1]}, or None"


def _names_kinds(value: Any) -> bool:
    """Tells whether a value names types of messages, by name or as classes."""
    listed = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    classes = [kind for kind in listed if isinstance(kind, type) and issubclass(kind, BaseMessage)]
    names = [kind for kind in listed if isinstance(kind, str) and kind in _MESSAGE_TYPES]
    return len(classes) + len(names) == len(listed)


_MESSAGE_TYPES = ("human", "ai", "system", "tool", "function", "chat", "developer", "remove")
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
_EMBEDS = ("embed_documents", "embed", "get_text_embedding_batch", "score", "__call__")
_KEYS = ("history_key", "documents_key", "examples_key", "memory_key", "question_key")
_KINDS = _or_none((_names_kinds, "message types, as 'human' or HumanMessage"))
_BUDGET = "a TokenBudget or its fields. Pass a number as max_tokens"
_RULES: dict[str, Rule] = {
    **dict.fromkeys(("max_tokens", "context_window", "k", "tool_result_tokens"), _whole(1)),
    **dict.fromkeys(("trigger", "keep"), _whole(1, none=False)),
    "min_exchanges": _whole(0),
    "extra_tokens": _whole(0, none=False),
    "diversity": _number(0, 1, "a number from 0 to 1"),
    "summary_timeout": _or_none(_number(1e-9, 1e9, "seconds above 0")),
    **dict.fromkeys(_SWITCHES, _of_kind(bool, "True or False")),
    **dict.fromkeys(_KEYS, (lambda value: isinstance(value, str) and value != "", "a name")),
    **dict.fromkeys(("separator", "human_prefix", "ai_prefix", "query"), _of_kind(str, "a text")),
    "cut": _one_of("fill", "stable"),
    "strategy": _one_of("first", "last"),
    "order": _one_of("original", "edges", "score"),
    "into": _one_of("llm_input_messages", "messages"),
    "budget": _or_none(_of_kind((TokenBudget, Mapping), _BUDGET)),
    "budget_or_session": _or_none(_of_kind((TokenBudget, Mapping, BudgetSession), _BUDGET)),
    "session": _or_none(_of_kind(BudgetSession, "a BudgetSession")),
    "model": _or_none(_of_kind((str, BaseLanguageModel, Runnable), "a language model or a model's name")),
    "history": _or_none(_with_one_of(("add_messages",), "a BaseChatMessageHistory")),
    "document_prompt": _or_none(_of_kind(BasePromptTemplate, "a prompt template")),
    "example_prompt": _or_none(_with_one_of(("format",), "a prompt template")),
    "scorer": _or_none(_with_one_of(("score",), "an object with score(query, segments)")),
    "text_splitter": _or_none(_with_one_of(("split_text", "__call__"), "a text splitter or a callable")),
    "embeddings": _or_none(_with_one_of(_EMBEDS, "an embedding model or a function from texts to vectors")),
    "on_report": _or_none((callable, "a callable that takes a report")),
    "get_session_history": (callable, "a callable that returns a BaseChatMessageHistory"),
    "example": _of_kind(Mapping, "a dict"),
    "examples": _list_of(Mapping, "a list of dicts"),
    "input_keys": _or_none(_list_of(str, "a list of names")),
    "start_on": _KINDS,
    "end_on": _KINDS,
}
"""What each option may hold, in all classes and functions alike."""
