"""What LangChain users count with: names, models, callables over a text, a message or a list of messages."""

from __future__ import annotations

import contextlib
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from langchain_core.language_models import BaseLanguageModel
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.messages.utils import count_tokens_approximately

from rankbudget import TokenCounter, counter_for
from rankbudget.adapters import ListMeasure, Measure, Tool, whole_tokens
from rankbudget.errors import BudgetConfigError

__all__ = ["HostCounter", "MessageMeasure", "counter_kind", "counts_itself", "host_counter", "model_name"]

CounterKind = Literal["messages", "message", "text"]
_MODEL_NAMES = ("model_name", "model", "model_id", "deployment_name", "azure_deployment")
_SHORT: list[BaseMessage] = [HumanMessage("a")]
_LONG = [HumanMessage("a word and another " * 50)]


@dataclass(frozen=True)
class HostCounter:
    """A text counter, and a measure where whole messages are counted by the host's own means.

    Args:
        counter: counts texts and tools; a name goes through `counter_for`.
        measure: counts host messages; None counts them by `counter`.
    """

    counter: TokenCounter
    measure: Measure | None = None

    def with_tools(self, tools: Sequence[Tool] | None) -> HostCounter:
        """Returns the counter for requests that also carry `tools`, which callables cannot see."""
        if self.measure is None or not tools:
            return self
        extra = self.counter.overhead(tools) - self.counter.overhead(None)
        return replace(self, measure=_WithOverhead(self.measure, extra))


class MessageMeasure:
    """Counts with a callable over one host message; a list costs the sum."""

    additive = True
    overhead = 0

    def __init__(self, count: Callable[[Any], int]) -> None:
        self._count = count

    def group(self, messages: Sequence[Any]) -> int:
        return sum([whole_tokens(self._count(message), _name(self._count)) for message in messages])

    def total(self, messages: Sequence[Any]) -> int:
        return self.group(messages)


class _WithOverhead:
    """A measure of messages plus what else a request carries."""

    def __init__(self, measure: Measure, extra: int) -> None:
        self.additive = measure.additive
        self.overhead = measure.overhead + extra
        self.group = measure.group
        self._total = measure.total
        self._extra = extra

    def total(self, messages: Sequence[Any]) -> int:
        return self._total(messages) + self._extra


def host_counter(counter: Any, *, prefer: CounterKind | None = None) -> HostCounter:
    """Returns how to count for anything a LangChain user may pass as a counter.

    Args:
        counter: a name ("gpt-4o", "o200k_base", "approximate"), a TokenCounter, a tokenizer, a model, or a
            callable.
        prefer: what an unannotated callable takes; None finds out by trying it.
    """
    if counter == "approximate" or counter is count_tokens_approximately:
        # Every message is rounded up by itself, so its counts may be added.
        return HostCounter(
            counter_for(_text_by_messages(count_tokens_approximately)),
            MessageMeasure(lambda m: count_tokens_approximately([m])),
        )
    if isinstance(counter, BaseLanguageModel):
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
    if kind == "message":
        by_message = counter_for(lambda text: counter(HumanMessage(text)) if text else 0)
        return HostCounter(by_message, MessageMeasure(counter))
    return HostCounter(counter_for(_text_by_messages(counter)), ListMeasure(counter))


def _model_counter(model: BaseLanguageModel[Any]) -> HostCounter:
    """Returns a model's own counts; those of its name where these are exact, or its own would be guesses."""
    name = model_name(model)
    named = counter_for(name or "o200k_base")
    if not counts_itself(model) or (name is not None and named.exact and model.custom_get_token_ids is None):
        return HostCounter(named)
    try:
        model.get_num_tokens_from_messages(_SHORT)
    except (NotImplementedError, AttributeError, ImportError):  # as for fine-tuned models and deployments
        return HostCounter(named)
    return HostCounter(counter_for(model.get_num_tokens), ListMeasure(model.get_num_tokens_from_messages))


def counts_itself(model: Any) -> bool:
    """Returns whether a model has a tokenizer of its own; LangChain's fallback is another model's."""
    if not isinstance(model, BaseLanguageModel):
        return False
    own = type(model)
    overridden = ("get_num_tokens_from_messages", "get_num_tokens", "get_token_ids")
    return model.custom_get_token_ids is not None or any(
        getattr(own, n) is not getattr(BaseLanguageModel, n) for n in overridden
    )


def model_name(model: Any) -> str | None:
    """Returns the name a model calls itself by; a name is its own."""
    if isinstance(model, str):
        return model
    found = (getattr(model, key, None) for key in _MODEL_NAMES)
    return next((name for name in found if isinstance(name, str) and name), None)


def counter_kind(counter: Callable[..., Any], *, prefer: CounterKind | None = None) -> CounterKind:
    """Returns what a callable counts: its annotation says so, else `prefer`, else a trial.

    Example:
        >>> def count(message: BaseMessage) -> int:
        ...     return len(message.content)
        >>> counter_kind(count), counter_kind(lambda text: len(text.split())), counter_kind(len)
        ('message', 'text', 'messages')
    """
    noted = _annotated(counter)
    if noted is not None:
        return noted
    if counter is len:  # LangChain's own idiom for "count the messages"
        return "messages"
    if prefer is not None:
        return prefer
    works: list[CounterKind] = []
    trials: tuple[tuple[CounterKind, Any, Any], ...] = (
        ("messages", _SHORT, _LONG),
        ("message", _SHORT[0], _LONG[0]),
        ("text", _SHORT[0].content, _LONG[0].content),
    )
    for kind, short, long in trials:
        try:
            less, more = counter(short), counter(long)
        except Exception:  # noqa: BLE001, S112 - the trial is for that
            continue
        if inspect.iscoroutine(less):
            continue
        if isinstance(less, (int, float)) and isinstance(more, (int, float)):
            works.append(kind)
            if more > less:  # it looks at the content
                return kind
    if not works:
        msg = (
            f"the counter {_name(counter)!r} takes neither a list of messages, nor a message, nor a text, "
            "or returns no number; annotate its first argument with list[BaseMessage], BaseMessage or str"
        )
        raise BudgetConfigError(msg)
    return works[0]


def _annotated(counter: Callable[..., Any]) -> CounterKind | None:
    """Reads the annotation of the first argument; one written as a string counts too."""
    target = (
        counter
        if isinstance(counter, (types.FunctionType, types.MethodType, type))
        else type(counter).__call__
    )
    try:
        parameters = list(inspect.signature(counter).parameters.values())
    except (TypeError, ValueError):
        return None
    if not parameters or parameters[0].annotation is inspect.Parameter.empty:
        return None
    noted: Any = parameters[0].annotation
    if isinstance(noted, str):
        with contextlib.suppress(Exception):  # names that cannot be resolved are read as written
            noted = typing.get_type_hints(target).get(parameters[0].name, noted)
    return _kind_of(noted)


def _kind_of(noted: Any) -> CounterKind | None:
    if isinstance(noted, str):
        word = noted.replace("typing.", "")
        if "Message" in word:
            return "messages" if "[" in word and not word.startswith(("Union", "Optional")) else "message"
        return "text" if word == "str" else None
    if noted is str:
        return "text"
    if inspect.isclass(noted) and issubclass(noted, BaseMessage):
        return "message"
    origin = typing.get_origin(noted)
    if inspect.isclass(origin) and issubclass(origin, (Sequence, typing.Iterable)):
        return "messages"
    return "messages" if noted in (list, tuple) else None


def _text_by_messages(counter: Callable[[list[Any]], Any]) -> Callable[[str], int]:
    return lambda text: counter([HumanMessage(text)]) if text else 0


def _name(counter: Any) -> str:
    return getattr(counter, "__name__", type(counter).__name__)
