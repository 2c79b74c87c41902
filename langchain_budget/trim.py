"""langchain-core's `trim_messages` that only ever returns valid conversations within the limit.

What differs, on purpose (docs/langchain.md has the list with reasons): calls and results stay together, the
result opens on the user's message, all system messages count as such, "approximate" counts exactly, a counter
only ever sees valid lists in order, and what must stay but cannot is an error instead of a longer or an empty
result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import dropwhile
from typing import Any, Literal

from langchain_core.language_models import BaseLanguageModel
from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.runnables import RunnableLambda

from rankbudget import TokenBudget, counter_for, fit_messages
from rankbudget.adapters import CodecMeasure, ListMeasure, Measure
from rankbudget.errors import BudgetConfigError, BudgetExceededError, CounterUnavailableError

from ._codec import CODEC
from ._convert import as_messages
from ._counters import HostCounter, host_counter
from ._options import checked
from ._partial import Partial, keep_first, matches, may_end

__all__ = ["trim_messages"]

Fit = Callable[[list[BaseMessage]], list[BaseMessage]]
Kinds = str | type[BaseMessage] | Sequence[str | type[BaseMessage]] | None
_RESULT_CAP = 1000
"""Most tokens a result of the newest tool call keeps where they cannot all stay whole."""
_ENCODINGS = ("o200k_base", "cl100k_base", "o200k_harmony", "p50k_base", "r50k_base")


@checked
def trim_messages(
    messages: Any = None,
    *,
    max_tokens: int,
    token_counter: Callable[[list[BaseMessage]], int]
    | Callable[[BaseMessage], int]
    | BaseLanguageModel[Any]
    | str,
    strategy: Literal["first", "last"] = "last",
    allow_partial: bool = False,
    end_on: Kinds = None,
    start_on: Kinds = None,
    include_system: bool = False,
    text_splitter: Any = None,
) -> Any:
    """Returns the newest (or first) messages within `max_tokens`, always a valid conversation.

    Args:
        messages: a list of messages, tuples, dicts or strings, or a PromptValue; None returns a Runnable.
        max_tokens: most tokens of the result, from 1.
        token_counter: a callable over a list of messages or over one message, a model, "approximate" (counts
            exactly with o200k_base), or the name of an encoding or a known model; `len` counts messages.
        strategy: "last" keeps the newest, "first" the oldest.
        allow_partial: cuts the text of the message at the edge instead of dropping it; thinking, calls and
            media are never cut.
        end_on: drops what follows the last message of these types.
        start_on: drops what precedes the first message of these types, system messages apart; only with
            "last".
        include_system: keeps the system messages; only with "last". Without it they are dropped first.
        text_splitter: splits a text into parts that join to it again; None splits after newlines.

    Returns:
        The same message objects. Copies are a message cut under `allow_partial`, and unanswered tool results,
        shortened where they cannot stay whole.

    Raises:
        BudgetError: a ValueError, for wrong options, or a limit that cannot hold the system messages, the
            current question and unanswered tool results with their call.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
        >>> thread = [SystemMessage("Be kind."), HumanMessage("one"), AIMessage("two"), HumanMessage("three")]
        >>> [m.content for m in trim_messages(thread, max_tokens=2, token_counter=len, include_system=True)]
        ['Be kind.', 'three']
    """
    options = dict(locals())
    del options["messages"]
    for name, value in (("start_on", start_on), ("include_system", include_system)):
        if value and strategy == "first":
            msg = f"{name} parameter is only valid with strategy='last'"
            raise BudgetConfigError(msg)
    if messages is None:
        return RunnableLambda(partial(trim_messages, **options), name="trim_messages")
    host = _counter(token_counter)
    measure = host.measure or CodecMeasure(CODEC, host.counter)
    given = as_messages(messages)
    cut = Partial(measure, max_tokens, text_splitter) if allow_partial else None
    if strategy == "first":
        return keep_first(given, measure, max_tokens, cut=cut, end_on=end_on)
    while end_on and given and not may_end(given[-1], end_on):
        given.pop()
    if not include_system and measure.total(given) > max_tokens:
        given = list(dropwhile(lambda m: isinstance(m, SystemMessage), given))
    kept = _newest(given, cut, partial(_fitted, host=host, measure=measure, max_tokens=max_tokens))
    return _started(kept, start_on, include_system=include_system) if start_on else kept


def _newest(given: list[BaseMessage], cut: Partial | None, fit: Fit) -> list[BaseMessage]:
    if not given:
        return []
    return fit(given) if cut is None else cut.newest(given, fit)


def _fitted(
    given: list[BaseMessage], *, host: HostCounter, measure: Measure, max_tokens: int
) -> list[BaseMessage]:
    """Returns the newest messages that fit; unanswered results are shortened before they are refused."""
    options: dict[str, Any] = {
        "counter": host.counter,
        "codec": CODEC,
        "measure": measure,
        "min_exchanges": 1,
    }
    try:
        return list(fit_messages(given, max_tokens=max_tokens, message_cap=None, **options).messages)
    except BudgetExceededError:
        if CODEC.role(given[-1]) != "tool":
            raise
        # Without its newest results an agent would ask for them again.
        fitted = fit_messages(given, max_tokens=max_tokens, message_cap=_RESULT_CAP, **options)
        whole = {id(message) for message in given}
        if any(id(message) not in whole and CODEC.role(message) != "tool" for message in fitted.messages):
            raise
        return list(fitted.messages)


def _started(kept: list[BaseMessage], start_on: Kinds, *, include_system: bool) -> list[BaseMessage]:
    """Drops what precedes the first message of the wanted types; a result never opens."""

    def stays(message: BaseMessage) -> bool:
        return include_system and isinstance(message, SystemMessage)

    def opens(message: BaseMessage) -> bool:
        return not stays(message) and CODEC.role(message) != "tool" and matches(message, start_on)

    first = next((i for i, message in enumerate(kept) if opens(message)), len(kept))
    return [message for i, message in enumerate(kept) if i >= first or stays(message)]


def _counter(given: Any) -> HostCounter:
    if isinstance(given, str):
        if given == "approximate" and not counter_for("o200k_base").exact:
            return _counter(count_tokens_approximately)
        return host_counter("o200k_base" if given == "approximate" else _known(given))
    if given is count_tokens_approximately or isinstance(given, BaseLanguageModel):
        return host_counter(given)
    counts = getattr(given, "get_num_tokens_from_messages", None)
    if counts is not None:  # a model with bound arguments
        return HostCounter(host_counter(counts, prefer="messages").counter, ListMeasure(counts))
    if not callable(given) and not hasattr(given, "count_messages"):
        msg = (
            "'token_counter' expected to be a model that implements 'get_num_tokens_from_messages()' "
            f"or a function. Received object of type {type(given)}."
        )
        raise BudgetConfigError(msg)
    return host_counter(given, prefer="messages")


def _known(name: str) -> str:
    if name not in _ENCODINGS:
        try:
            TokenBudget.for_model(name)
        except CounterUnavailableError as error:
            msg = (
                f"Invalid token_counter shortcut '{name}'. Available shortcuts: 'approximate', "
                f"encodings ({', '.join(_ENCODINGS)}) and names of known models."
            )
            raise BudgetConfigError(msg) from error
    return name
