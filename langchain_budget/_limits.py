"""The limits of a class or function, from its options; and the tools and schemas that requests carry."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic import ConfigDict, PrivateAttr
from typing_extensions import override

from rankbudget import BudgetSession, TokenBudget
from rankbudget.adapters import (
    SUMMARY_TIMEOUT,
    Limits,
    ListMeasure,
    Measure,
    Plan,
    PromptRequest,
    Steps,
    Summarizer,
    holds,
    limits_of,
    plan_steps,
    sent_beside,
)

from ._codec import CODEC, LangChainCodec, NeedsConversionError, codec_for
from ._convert import as_messages, as_tools
from ._counters import host_counter
from ._options import Settings, check_values
from .models import as_summarizer, bound, client_of, facts_of, unwrapped

_TOOLS = ("tools", "functions")


@dataclass(frozen=True, kw_only=True)
class HostLimits(Limits):
    """Limits of LangChain's messages, with what summarizes those that are dropped."""

    summarizer: Summarizer | None = None
    summary_timeout: float | None = SUMMARY_TIMEOUT
    held: bool = False  # the provider adds older messages that it stores
    codec: LangChainCodec = CODEC  # reads of messages what the model's client sends

    def fields(self) -> dict[str, Any]:
        """Returns these limits as fields of a `PromptRequest`."""
        own = {name: getattr(self, name) for name in ("summarizer", "summary_timeout", "held", "codec")}
        return {**Limits.fields(self), **own}

    def session(self, *, measure: Measure | None = None, sources: Sequence[str] = ()) -> BudgetSession:
        """Returns a new session for one conversation."""
        own = {n: getattr(self, n) for n in ("counter", "summarizer", "summary_timeout", "tools")}
        measure = measure or self.measure
        return BudgetSession(self.budget, codec=self.codec, measure=measure, sources=sources, **own)

    def with_tools(self, schemas: Sequence[Any] | None) -> HostLimits:
        """Returns the limits for requests that also carry tools, which a host's own counter cannot see."""
        if not schemas:
            return self
        measure = self.measure
        if isinstance(measure, ListMeasure):
            extra = measure.overhead + self.counter.overhead(schemas) - self.counter.overhead(None)
            measure = ListMeasure(measure.count, single=measure.additive, extra=extra)
        return replace(self, tools=schemas, measure=measure)


def limits_for(
    *,
    budget: Any = None,
    model: Any = None,
    max_tokens: int | None = None,
    context_window: int | None = None,
    counter: Any = None,
    tools: Sequence[Any] | None = None,
    summarizer: Any = None,
    summary_timeout: float | None = SUMMARY_TIMEOUT,
    session: BudgetSession | None = None,
) -> HostLimits:
    """Returns the limits that options mean; a session gives those that are not given otherwise."""
    check_values({"budget": budget, "model": model, "session": session, "summary_timeout": summary_timeout})
    if session is not None:
        if budget is None:
            budget, max_tokens = limit_of(session, max_tokens)
        counter = session.counter if counter is None else counter
        tools = session.tools if tools is None else tools
        if summarizer is None:
            summarizer, summary_timeout = session.summarizer, session.summary_timeout
    facts = None if model is None else facts_of(model)
    if counter is None and facts is not None:
        counter = facts.counter
    host = None if counter is None else host_counter(counter)
    limits = limits_of(
        budget=budget,
        max_tokens=max_tokens,
        context_window=context_window,
        model=facts,
        counter=None if host is None else host.counter,
    )
    made = HostLimits(
        **{**vars(limits), "measure": None if host is None else host.measure},
        summarizer=as_summarizer(summarizer),
        summary_timeout=summary_timeout,
        held=holds(*unwrapped(model)),
        codec=codec_for(client_of(model, tools=tools)),
    )
    return made.with_tools(bound_tools(model) if tools is None else tools and with_texts(tools, model))


_OPTIONS = inspect.signature(limits_for).parameters.keys()


class LimitSettings(Settings):
    """Settings with the limits that all classes share."""

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    budget: TokenBudget | None = None
    model: Any = None
    max_tokens: int | None = None
    context_window: int | None = None
    counter: Any = None

    _limits: HostLimits = PrivateAttr()

    @override
    def _prepare(self) -> None:
        fields = type(self).model_fields
        self._limits = limits_for(**{name: getattr(self, name) for name in _OPTIONS if name in fields})


def limit_of(session: BudgetSession, max_tokens: int | None) -> tuple[TokenBudget | None, int | None]:
    """Returns a session's limit as `budget` and `max_tokens`."""
    if isinstance(session.budget, TokenBudget):
        return session.budget, max_tokens
    return None, min(session.budget, max_tokens or session.budget)


def bound_tools(model: Any) -> list[dict[str, Any]] | None:
    """Returns the tools, schemas and texts that a model sends with each request; None when there are none."""
    return schemas_in(*bound(model)) or None


def with_texts(tools: Sequence[Any], model: Any) -> list[dict[str, Any]] | None:
    """Returns chosen tools, with the schemas and texts that a model sends with each request."""
    own, arguments = bound(model)
    beside = {name: value for name, value in arguments.items() if name not in _TOOLS}
    return [*(as_tools(tools) or ()), *schemas_in(own, beside)] or None


def schemas_in(model: Any, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns all that a request carries beside its messages and settings, each as a tool."""
    found: list[dict[str, Any]] = []
    for name, value in sent_beside(model, arguments):
        given = value if isinstance(value, Sequence) else [value]
        if name == "tools":
            found += map(_schema, given)
        elif name == "functions":
            found += [{"type": "function", "function": dict(function)} for function in given]
        elif isinstance(value, type) or (isinstance(value, Mapping) and "json_schema" in value):
            found.append(_schema(value))
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            found.append({"type": "function", "function": {"name": name, "description": text}})
    return found


def _schema(tool: Any) -> dict[str, Any]:
    """Returns a tool as it was bound; one in a provider's own form is counted as it prints."""
    try:
        return (as_tools([tool]) or [{}])[0]
    except Exception:  # noqa: BLE001 - integrations bind objects of any kind, and all are counted
        text = {"text": str(tool)}
        return {"type": "function", "function": {"name": type(tool).__name__, "parameters": text}}


def planned(
    request: PromptRequest, session: BudgetSession | None, *, results_next: bool | None = None
) -> Steps[Plan]:
    """Makes the plan, of what is read where `results_next` is said; tuples and dicts are converted first."""
    plan: Callable[[PromptRequest], Steps[Plan]]
    plan = plan_steps if session is None else session.plan_steps
    if session is not None and results_next is not None:
        plan = partial(session.read_steps, results_next=results_next)
    try:
        return (yield from plan(request))
    except NeedsConversionError:
        return (yield from plan(replace(request, history=as_messages(request.history or ()))))
