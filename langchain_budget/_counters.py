"""What LangChain users count with: names, models, callables over a text, a message or a list of messages."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from langchain_core.messages import HumanMessage
from langchain_core.messages.utils import count_tokens_approximately

from rankbudget import TokenCounter, counter_for
from rankbudget.adapters import ListMeasure
from rankbudget.errors import BudgetConfigError

from ._supported import is_kind

if TYPE_CHECKING:
    from langchain_core.language_models import BaseLanguageModel

CounterKind = Literal["messages", "message", "text"]
_FORMS: dict[CounterKind, Callable[[str], Any]] = {
    "messages": lambda text: [HumanMessage(text)],
    "message": HumanMessage,
    "text": str,
}
"""A text in the form that each kind of counter takes."""
_TRIALS = ("a", "a word and another " * 50)
_MODEL_NAMES = ("model_name", "model", "model_id", "deployment_name", "azure_deployment")


class HostCounter(NamedTuple):
    """A counter of texts and tools, and a measure where the host counts whole messages itself."""

    counter: TokenCounter
    measure: ListMeasure | None = None


def host_counter(counter: Any, *, prefer: CounterKind | None = None) -> HostCounter:
    """Returns how to count with a name, TokenCounter, tokenizer, model or callable.

    `prefer` is what an unannotated callable takes if it can; None finds out by trying it.
    """
    if counter == "approximate" or counter is count_tokens_approximately:
        # Every message is rounded up by itself, so its counts may be added.
        return host_counter(lambda message: count_tokens_approximately([message]), prefer="message")
    if is_kind(counter, "BaseLanguageModel"):
        return _model_counter(counter)
    tokenizer = hasattr(counter, "encode") and not isinstance(counter, types.FunctionType)
    if isinstance(counter, (str, TokenCounter)) or tokenizer or not callable(counter):
        return HostCounter(counter_for(counter))
    call = getattr(counter, "__call__", None)  # noqa: B004 - an object whose call is async counts as async
    if inspect.iscoroutinefunction(counter) or inspect.iscoroutinefunction(call):
        msg = f"counter must be a blocking callable (got the async {_name(counter)!r})"
        raise BudgetConfigError(msg)
    kind = counter_kind(counter, prefer=prefer)
    if kind == "text":
        return HostCounter(counter_for(counter))
    form = _FORMS[kind]
    by_text = counter_for(lambda text: counter(form(text)) if text else 0)
    return HostCounter(by_text, ListMeasure(counter, single=kind == "message"))


def _model_counter(model: BaseLanguageModel[Any]) -> HostCounter:
    """Returns a model's own counts; those of its name where these are exact, or its own would be guesses."""
    name = model_name(model)
    named = counter_for(name or "o200k_base")
    if not counts_itself(model) or (name is not None and named.exact and model.custom_get_token_ids is None):
        return HostCounter(named)
    client = _counting_client(model)
    if client is not None and name is not None and model.custom_get_token_ids is None:
        return HostCounter(counter_for(client, model=name))
    try:
        model.get_num_tokens_from_messages([HumanMessage("a")])
    except (NotImplementedError, AttributeError, ImportError):  # as for fine-tuned models and deployments
        return HostCounter(named)
    return HostCounter(counter_for(model.get_num_tokens), ListMeasure(model.get_num_tokens_from_messages))


def _counting_client(model: Any) -> Any:
    """Returns the client with which a model asks its provider for counts.

    Anthropic's integration holds it as `_client`, Google's as `client`.
    """
    clients = [getattr(model, name, None) for name in ("_client", "client")]
    places = [(client, getattr(client, name, None)) for client in clients for name in ("messages", "models")]
    return next((client for client, place in places if callable(getattr(place, "count_tokens", None))), None)


def counts_itself(model: Any) -> bool:
    """Returns whether a model has a tokenizer of its own; LangChain's fallback is another model's."""
    if not is_kind(model, "BaseLanguageModel"):
        return False
    from langchain_core.language_models import BaseLanguageModel

    overridden = ("get_num_tokens_from_messages", "get_num_tokens", "get_token_ids")
    return model.custom_get_token_ids is not None or any(
        getattr(type(model), n) is not getattr(BaseLanguageModel, n) for n in overridden
    )


def model_name(model: Any) -> str | None:
    """Returns the name a model calls itself by; a name is its own."""
    if isinstance(model, str):
        return model
    found = (getattr(model, key, None) for key in _MODEL_NAMES)
    return next((name for name in found if isinstance(name, str) and name), None)


def counter_kind(counter: Callable[..., Any], *, prefer: CounterKind | None = None) -> CounterKind:
    """Returns what a callable counts: by its annotation, else `prefer` where that works, else a trial."""
    noted = _annotated(counter)
    if noted is not None:
        return noted
    if counter is len:  # LangChain's own idiom for "count the messages"
        return "messages"
    if prefer is not None:
        with suppress(Exception):  # as below
            if isinstance(counter(_FORMS[prefer](_TRIALS[0])), (int, float)):
                return prefer
    works: list[CounterKind] = []
    for kind, form in _FORMS.items():
        with suppress(Exception):  # the trial is for that
            less, more = [counter(form(text)) for text in _TRIALS]
            if isinstance(less, (int, float)) and isinstance(more, (int, float)):
                if more > less:  # it looks at the content
                    return kind
                works.append(kind)
    if not works and prefer is not None:
        return prefer
    if not works:
        msg = (
            "counter must take a list of messages, a message or a text, and return a number (got "
            f"{_name(counter)!r}). Annotate its first argument with list[BaseMessage], BaseMessage or str."
        )
        raise BudgetConfigError(msg)
    return works[0]


def _annotated(counter: Callable[..., Any]) -> CounterKind | None:
    """Returns what the annotation of the first argument says, written as a string or not."""
    try:
        noted = next(iter(inspect.signature(counter).parameters.values())).annotation
    except (TypeError, ValueError, StopIteration):
        return None
    plain = isinstance(noted, str) or typing.get_origin(noted)
    word = str(noted if plain else getattr(noted, "__name__", noted))
    if word == "str":
        return "text"
    either = word.startswith(("typing.Union", "typing.Optional", "Union", "Optional"))
    if word in ("list", "tuple") or ("[" in word and "Message" in word and not either):
        return "messages"
    return "message" if "Message" in word else None


def _name(counter: Any) -> str:
    return getattr(counter, "__name__", type(counter).__name__)
