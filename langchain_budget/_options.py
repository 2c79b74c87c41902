"""Options of every class and function, checked in one place: a wrong one raises a BudgetConfigError."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ClassVar, SupportsIndex, TypedDict, TypeVar, cast

from langchain_core.messages import BaseMessage
from pydantic import BaseModel
from typing_extensions import Self, override

import rankbudget
from rankbudget.adapters import check_options, is_blocking, typed_errors
from rankbudget.errors import BudgetConfigError, refuse, shown

from ._supported import is_kind

F = TypeVar("F", bound=Callable[..., Any])


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


def check_values(given: Mapping[str, Any], required: Collection[str] = ()) -> None:
    """Raises one BudgetConfigError for all options whose values are wrong; required ones may not be None."""
    problems = []
    for name, value in given.items():
        fits, words = _RULES.get(name, (object, ""))
        if name in required:
            words = words.removesuffix(", or None")
        elif value is None and words.endswith("or None"):
            continue
        if not (isinstance(value, fits) if isinstance(fits, (type, tuple)) else fits(value)):
            problems.append(f"{name} must be {words} (got {shown(value)})")
    refuse(problems)


def checked(function: F) -> F:
    """Decorates a function or a constructor whose options are checked before it runs."""
    owner = function.__qualname__.removesuffix(".__init__")
    signature = inspect.signature(function)
    allowed = [name for name in signature.parameters if name not in {"self", "limits"}]
    required = [name for name, taken in signature.parameters.items() if taken.annotation in ("int", int)]
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
        check_values({**given, **kwargs}, required)
        return function(*args, **kwargs)

    return cast("F", run)


class Settings(BaseModel):
    """A model whose unknown fields are errors and whose changed fields count; the first base.

    Pydantic ignores a name it does not know and keeps what was worked out from an old value. For a limit both
    mean a prompt that is too large.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        check_given(type(self).__name__, kwargs, type(self).model_fields)
        with typed_errors():
            super().__init__(*args, **kwargs)

    @override
    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._prepare()

    def _prepare(self) -> None:
        """Checks the fields and works out what they mean together; called again after each change."""

    @override
    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            self.model_copy(update={name: value})  # raises for what cannot work, and changes nothing
        super().__setattr__(name, value)
        if not name.startswith("_"):
            self._prepare()

    @override
    def __getstate__(self) -> dict[Any, Any]:
        """Returns the fields; what is worked out from them is worked out again after unpickling."""
        return {**super().__getstate__(), "__pydantic_private__": None}

    @override
    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__({**state, "__pydantic_private__": {}})
        self._prepare()

    @override
    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        check_given(type(self).__name__, update or {}, type(self).model_fields)
        copied = super().model_copy(update=update, deep=deep)
        if update:
            copied._prepare()  # noqa: SLF001 - its own kind
        return copied


class SharedCopy:
    """Deep copies share models and callbacks; only what `_own` names is copied."""

    _own: ClassVar[tuple[str, ...]]

    def __copy__(self) -> Self:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = memo[id(self)] = copy.copy(self)
        for name in self._own:
            twin.__dict__[name] = copy.deepcopy(self.__dict__[name], memo)
        return twin


# ---- what each option may hold, in all classes and functions alike ---------------------------------------
def _number(low: float, high: float = 1e18, kinds: Any = SupportsIndex) -> Any:
    return lambda v: isinstance(v, kinds) and not isinstance(v, (bool, type)) and low <= v <= high


def _list_of(fits: Callable[[Any], bool]) -> Any:
    return lambda value: isinstance(value, (list, tuple)) and all(map(fits, value))


def _kind(*names: str, also: type | tuple[()] = ()) -> Any:
    return lambda value: isinstance(value, also) or is_kind(value, *names)


def _ours(*names: str, also: type | tuple[()] = ()) -> Any:
    """Returns the test for the core's classes, which load with the first value that is tested."""
    return lambda value: isinstance(value, (also, *(getattr(rankbudget, name) for name in names)))


def _scoped(value: Any) -> bool:
    return callable(value) or isinstance(value, rankbudget.Scope)


def _with_one_of(*names: str) -> Any:
    """Returns the test for objects with one of these methods; texts have `format` but are none of them."""
    return lambda value: not isinstance(value, str) and any(callable(getattr(value, n, None)) for n in names)


def _names_kinds(value: Any) -> bool:
    """Tells whether a value names types of messages, by name or as classes."""
    return all(
        issubclass(kind, BaseMessage) if isinstance(kind, type) else kind in _MESSAGE_TYPES
        for kind in (value if isinstance(value, (list, tuple)) else [value])
    )


_MESSAGE_TYPES = ("human", "ai", "system", "tool", "function", "chat", "developer", "remove")
_SWITCHES = (
    *("allow_partial", "by_question", "compress", "dedup", "double_braces", "include_system", "persist"),
    *("results_next", "retry", "return_docs", "return_messages", "strict"),
)
_KEYS = ("history_key", "documents_key", "examples_key", "memory_key", "question_key")
_EMBEDS = ("embed_documents", "embed", "get_text_embedding_batch", "score", "__call__")
_BUDGET = "a TokenBudget or its fields. Pass a number as max_tokens, or None"
_RULES: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(
        ("max_tokens", "context_window", "k", "tool_result_tokens", "last_turns"),
        (_number(1), "a whole number from 1, or None"),
    ),
    **dict.fromkeys(("trigger", "keep"), (_number(1), "a whole number from 1")),
    "min_exchanges": (_number(0), "a whole number from 0, or None"),
    "extra_tokens": (_number(0), "a whole number from 0"),
    "diversity": (_number(0, 1, (int, float)), "a number from 0 to 1"),
    "summary_timeout": (_number(1e-9, 1e9, (int, float)), "seconds above 0, or None"),
    **dict.fromkeys(_SWITCHES, (bool, "True or False")),
    **dict.fromkeys(_KEYS, (lambda value: isinstance(value, str) and value != "", "a name")),
    **dict.fromkeys(("separator", "human_prefix", "ai_prefix", "query"), (str, "a text")),
    "cut": (("fill", "stable").__contains__, "'fill' or 'stable'"),
    "strategy": (("first", "last").__contains__, "'first' or 'last'"),
    "order": (("original", "edges", "score").__contains__, "'original', 'edges' or 'score'"),
    "into": (("llm_input_messages", "messages").__contains__, "'llm_input_messages' or 'messages'"),
    "budget": (_ours("TokenBudget", also=Mapping), _BUDGET),
    "budget_or_session": (_ours("TokenBudget", "BudgetSession", also=Mapping), _BUDGET),
    "session": (_ours("BudgetSession"), "a BudgetSession, or None"),
    "scope": (_scoped, "a Scope, or a function of the run that returns one"),
    "model": (
        _kind("BaseLanguageModel", "Runnable", also=str),
        "a language model or a model's name, or None",
    ),
    "history": (_with_one_of("add_messages"), "a BaseChatMessageHistory, or None"),
    "document_prompt": (_kind("BasePromptTemplate"), "a prompt template, or None"),
    "example_prompt": (_with_one_of("format"), "a prompt template, or None"),
    "scorer": (_with_one_of("score"), "an object with score(query, segments), or None"),
    "text_splitter": (_with_one_of("split_text", "__call__"), "a text splitter or a callable, or None"),
    "embeddings": (_with_one_of(*_EMBEDS), "an embedding model, a function from texts to vectors, or None"),
    "on_report": (is_blocking, "a blocking callable that takes a report, or None"),
    "get_session_history": (callable, "a callable that returns a BaseChatMessageHistory"),
    "what get_session_history returns": (_with_one_of("add_messages"), "a BaseChatMessageHistory"),
    "documents": (_list_of(_kind("Document")), "a list of Documents"),
    **dict.fromkeys(("example", "inputs", "outputs"), (Mapping, "a dict")),
    "examples": (_list_of(_kind(also=Mapping)), "a list of dicts"),
    "input_keys": (_list_of(_kind(also=str)), "a list of names, or None"),
    **dict.fromkeys(("start_on", "end_on"), (_names_kinds, "types, as 'human' or HumanMessage, or None")),
}
