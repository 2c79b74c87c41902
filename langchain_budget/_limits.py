"""What an entry point was given as its limit, as the core takes it: a budget, a model or a number, and how to count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from rankbudget import TokenBudget
from rankbudget.prompt.assembler import plain_budget
from rankbudget.counting.protocol import TokenCounter, Tool
from rankbudget.errors import BudgetConfigError, BudgetError
from rankbudget.messages.measure import CodecMeasure, Measure

from ._asked import bound_tools, unwrapped
from ._codec import CODEC
from ._convert import as_tools
from ._counters import CounterKind, HostCounter, counts_itself, host_counter
from .models import budget_for, model_name

__all__ = ["Limits", "check_number", "limits_from", "limits_of", "tool_schemas", "typed_errors"]


@dataclass(frozen=True)
class Limits:
    """One limit and one way to count.

    Args:
        budget: the budget; None where only a number was given.
        max_tokens: a ceiling for the prompt; beside a budget the smaller wins.
        host: how to count.
        tools: tool schemas sent along; they are counted.
        made_of: what `limits_of` was given; a counter made from a callable does not travel, what it was made from may.
    """

    budget: TokenBudget | None
    max_tokens: int | None
    host: HostCounter
    tools: Sequence[Tool] | None = None
    made_of: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return limits_from, ({**self.made_of, "tools": self.tools or []},)

    def __deepcopy__(self, memo: dict[int, Any]) -> Limits:
        return self  # nothing in it changes

    @property
    def counter(self) -> TokenCounter:
        return self.host.counter

    def with_tools(self, tools: Sequence[Tool] | None) -> Limits:
        """Returns the same limits for requests that carry other tools."""
        return replace(self, tools=tools)

    def measure(self) -> Measure:
        """Returns what counts whole messages, tools included."""
        return self.host.with_tools(self.tools).measure or CodecMeasure(CODEC, self.counter, self.tools)

    def ceiling(self, messages: Sequence[Any], measure: Measure) -> int:
        """Returns the tokens a prompt of these messages may have: what the window leaves beside answer, safety and system prompt."""
        if self.budget is None:
            return self.max_tokens or 0
        system = sum(
            measure.group([m])
            for m, role in zip(messages, CODEC.roles(messages), strict=True)
            if role in {"system", "developer"}
        )
        self.budget.check_system(system)
        most = self.budget.limit(system_tokens=system, band=self.counter.band)
        return most if self.max_tokens is None else min(most, self.max_tokens)

    def whole(self) -> TokenBudget:
        """Returns the budget that shares a prompt among its blocks; a bare number is a window without a reserve."""
        if self.budget is None:
            return plain_budget(self.max_tokens)
        if self.max_tokens is None or self.max_tokens >= self.budget.context_window:
            return self.budget
        reserve, safety = self.budget.reserve_tokens(), self.budget.safety_tokens(band=self.counter.band)
        window = min(self.budget.context_window, self.max_tokens + reserve + safety)
        return self.budget.replace(
            context_window=window, reserve=reserve if reserve > 1 else 0, safety=safety if safety > 1 else 0
        )


def limits_of(
    *,
    budget: Any = None,
    model: Any = None,
    max_tokens: int | None = None,
    counter: Any = None,
    tools: Sequence[Any] | None = None,
    prefer: CounterKind | None = None,
) -> Limits:
    """Returns the limits of `budget=`, `model=` or `max_tokens=`; with none of them, of a window of 8,192 tokens.

    A model beside a budget only says how to count; `max_tokens` beside either is a ceiling. Without `tools` those bound to the model
    are counted; an empty list says that there are none.
    """
    made_of = {
        "budget": budget,
        "model": model,
        "max_tokens": max_tokens,
        "counter": counter,
        "prefer": prefer,
    }
    check_number("max_tokens", max_tokens, "give the tokens the prompt may have")
    if isinstance(budget, Mapping):
        budget = TokenBudget.from_dict(budget)
    if budget is not None and not isinstance(budget, TokenBudget):
        msg = f"budget is a {type(budget).__name__}, allowed: a TokenBudget, or its fields in a dict; a number goes to max_tokens="
        raise BudgetConfigError(msg)
    schemas = bound_tools(model) if tools is None else tool_schemas(tools)
    if budget is None and model is not None:
        budget = budget_for(model)
    model = unwrapped(model)[0]
    if budget is None and max_tokens is None:
        budget = TokenBudget()
    name = (model_name(model) if model is not None else None) or (
        budget.model if budget is not None else None
    )
    if counter is None and name is None and counts_itself(model):
        counter = model
    host = host_counter(counter, default=name or "o200k_base", prefer=prefer)
    return Limits(budget=budget, max_tokens=max_tokens, host=host, tools=schemas, made_of=made_of)


def limits_from(made_of: Mapping[str, Any]) -> Limits:
    """Returns the limits of what other limits were made of."""
    return limits_of(**made_of)


def tool_schemas(tools: Sequence[Any] | None) -> list[dict[str, Any]] | None:
    """Returns tools as the model will see them.

    Raises:
        BudgetConfigError: for what `bind_tools` does not take either.
    """
    if isinstance(tools, (str, Mapping)) or (tools is not None and not isinstance(tools, Iterable)):
        msg = f"tools is a {type(tools).__name__}, allowed: a list of tools, functions, models or schemas"
        raise BudgetConfigError(msg)
    try:
        return as_tools(None if tools is None else list(tools))
    except (TypeError, ValueError) as error:
        msg = f"tools hold what is no tool: {error}; allowed: whatever bind_tools takes"
        raise BudgetConfigError(msg) from error


def check_number(name: str, value: Any, advice: str) -> None:
    """Raises BudgetConfigError unless `value` is None or a whole number of at least 1."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        msg = f"{name} is {value!r}, allowed: 1 or more; {advice}"
        raise BudgetConfigError(msg)


@contextmanager
def typed_errors() -> Iterator[None]:
    """Lets no error of pydantic's out: a bad setting is a BudgetConfigError everywhere, and names the option that is wrong."""
    try:
        yield
    except ValidationError as error:
        found = error.errors()
        for problem in found:
            cause = problem.get("ctx", {}).get("error")
            if isinstance(cause, BudgetError):
                raise cause from None
        raise BudgetConfigError.of([_said(error.title, problem) for problem in found]) from error


def _said(title: str, problem: Any) -> str:
    where = ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        return f"{title} has no option {where!r}"
    if problem["type"] == "missing":
        return f"{title} needs {where}="
    seen = f"{where} is {problem['input']!r:.80}: " if where else ""
    return f"{title}: {seen}{problem['msg']}"
