"""What LangChain users count with, as the core counts: names, models, and callables over a text, a message or a list of messages."""

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

from rankbudget import counter_for
from rankbudget.counting.protocol import TokenCounter, Tool
from rankbudget.errors import BudgetConfigError
from rankbudget.messages.measure import ListMeasure, Measure

from .models import model_name

__all__ = ["HostCounter", "MessageMeasure", "counter_kind", "counts_itself", "host_counter"]

CounterKind = Literal["messages", "message", "text"]
_SHORT = [HumanMessage("a")]
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
        """Returns the counter for requests that also carry `tools`; callables over messages cannot see them."""
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
        return sum(int(self._count(message)) for message in messages)

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


def host_counter(
    counter: Any, *, default: str = "o200k_base", prefer: CounterKind | None = None
) -> HostCounter:
    """Returns how to count for anything a LangChain user may pass as a counter.

    Args:
        counter: None, a name ("gpt-4o", "o200k_base", "approximate"), a TokenCounter, a tokenizer, a model, or a callable.
        default: the name used for None.
        prefer: what an unannotated callable takes; None finds out by trying it.
    """
    if counter is None:
        return HostCounter(counter_for(default))
    if counter == "approximate":
        counter = count_tokens_approximately
    if (
        counter is count_tokens_approximately
    ):  # every message is rounded up by itself, so its counts may be added
        return HostCounter(
            counter_for(_text_by_messages(counter)), MessageMeasure(lambda m: count_tokens_approximately([m]))
        )
    if isinstance(counter, BaseLanguageModel) and not counts_itself(
        counter
    ):  # its fallback guesses, and needs a network
        counter = model_name(counter) or default
    if isinstance(counter, BaseLanguageModel):
        return HostCounter(
            counter_for(counter.get_num_tokens), ListMeasure(counter.get_num_tokens_from_messages)
        )
    if isinstance(counter, (str, TokenCounter)) or not callable(counter):
        return HostCounter(counter_for(counter))
    if _is_tokenizer(counter):
        return HostCounter(counter_for(counter))
    if inspect.iscoroutinefunction(counter) or inspect.iscoroutinefunction(
        getattr(counter, "__call__", None)
    ):
        msg = f"the counter {_name(counter)!r} is async; allowed: a blocking callable. Counting is pure work: give a plain function."
        raise BudgetConfigError(msg)
    kind = counter_kind(counter, prefer=prefer)
    if kind == "text":
        return HostCounter(counter_for(counter))
    if kind == "message":
        return HostCounter(
            counter_for(lambda text: counter(HumanMessage(text)) if text else 0), MessageMeasure(counter)
        )
    return HostCounter(counter_for(_text_by_messages(counter)), ListMeasure(counter))


def counts_itself(model: Any) -> bool:
    """Returns whether a model has a tokenizer of its own; LangChain's fallback for the others is another model's, from a hub."""
    if not isinstance(model, BaseLanguageModel):
        return False
    own = type(model)
    overridden = ("get_num_tokens_from_messages", "get_num_tokens", "get_token_ids")
    return model.custom_get_token_ids is not None or any(
        getattr(own, n) is not getattr(BaseLanguageModel, n) for n in overridden
    )


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
        except Exception:  # noqa: BLE001, S112 - a counter that cannot take this form is what the trial is for
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
            "or does not return a number; annotate its first argument with list[BaseMessage], BaseMessage or str"
        )
        raise BudgetConfigError(msg)
    return works[0]


def _annotated(counter: Callable[..., Any]) -> CounterKind | None:
    """Reads the annotation of the first argument; one written as a string counts too."""
    target = (
        counter.__call__ if not isinstance(counter, (types.FunctionType, types.MethodType, type)) else counter
    )  # type: ignore[operator]  # whatever it is, it was found callable
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
    return lambda text: int(counter([HumanMessage(text)])) if text else 0


def _is_tokenizer(counter: Any) -> bool:
    return hasattr(counter, "encode") and not isinstance(counter, types.FunctionType)


def _name(counter: Any) -> str:
    return getattr(counter, "__name__", type(counter).__name__)
