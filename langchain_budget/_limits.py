"""What a model object says about its limits, and what it sends beside messages: tools and schemas."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.runnables import RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.configurable import DynamicRunnable

from rankbudget import BudgetSession, TokenBudget
from rankbudget.adapters import Limits, ModelFacts, limits_of
from rankbudget.errors import BudgetConfigError, BudgetError

from ._convert import as_tools
from ._counters import counts_itself, host_counter, model_name

__all__ = [
    "ANSWER_NAMES",
    "bound_tools",
    "check_number",
    "facts_of",
    "limits_for",
    "schemas_in",
    "tool_schemas",
    "unwrapped",
]

ANSWER_NAMES = (
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_new_tokens",
    "max_tokens_to_sample",
    "num_predict",
)
"""What the integrations call the longest answer a request asks for; each has one or two of them."""
_SCHEMA_NAMES = (
    "response_format",
    "format",
    "output_format",
    "output_config",
    "response_schema",
    "response_json_schema",
    "guided_json",
)
"""What the integrations call the schema of a structured answer that is no tool."""


def limits_for(
    *,
    budget: Any = None,
    model: Any = None,
    max_tokens: int | None = None,
    context_window: int | None = None,
    counter: Any = None,
    tools: Sequence[Any] | None = None,
    session: Any = None,
) -> Limits:
    """Returns the limits of an entry point's options; with a measure where the host counts messages itself.

    Without `tools` those bound to the model are counted; an empty list says that there are none. A session
    gives what is not said otherwise.
    """
    given = {"budget": budget, "max_tokens": max_tokens, "counter": counter, "tools": tools}
    if session is not None:
        given = _with_session(given, session, beside_model=model is not None)
    facts = None if model is None else facts_of(model)
    schemas = bound_tools(model) if given["tools"] is None else tool_schemas(given["tools"])
    counter = given["counter"]
    if counter is None and facts is not None:
        counter = facts.counter
    host = None if counter is None else host_counter(counter)
    limits = limits_of(
        budget=given["budget"],
        max_tokens=given["max_tokens"],
        context_window=context_window,
        model=facts,
        counter=None if host is None else host.counter,
        tools=schemas,
    )
    return limits if host is None else replace(limits, measure=host.with_tools(schemas).measure)


def _with_session(given: dict[str, Any], session: Any, *, beside_model: bool) -> dict[str, Any]:
    """Returns the options with the session's own where the user gave none."""
    if not isinstance(session, BudgetSession):
        msg = f"session must be a BudgetSession (got a {type(session).__name__})"
        raise BudgetConfigError(msg)
    made = {**given}
    if given["budget"] is None and not beside_model:
        if isinstance(session.budget, TokenBudget):
            made["budget"] = session.budget
        else:
            made["max_tokens"] = min(session.budget, given["max_tokens"] or session.budget)
    for name in ("counter", "tools"):
        if given[name] is None:
            made[name] = getattr(session, name)
    return made


def facts_of(model: Any) -> ModelFacts:
    """Returns what a model object says about itself; a name says nothing but itself.

    Example:
        >>> from langchain_core.language_models.fake_chat_models import FakeListChatModel
        >>> facts_of(FakeListChatModel(responses=["fine"]).bind(max_tokens=500)).answer
        500
    """
    if isinstance(model, str):
        return ModelFacts(name=model)
    own = unwrapped(model)[0]
    profile, name = _profile(own), model_name(own)
    answer, chosen = _answer(model)
    return ModelFacts(
        name=name,
        window=_count(getattr(own, "num_ctx", None)) or profile.get("max_input_tokens"),
        max_output=profile.get("max_output_tokens"),
        answer=answer,
        answer_chosen=chosen,
        smallest_fallback=min(_fallback_windows(model), default=None),
        counter=own if name is None and counts_itself(own) else None,
        shown_as=type(own).__name__,
    )


def unwrapped(model: Any) -> tuple[Any, dict[str, Any]]:
    """Returns the model inside `bind_tools`, `with_retry` and the like, and the arguments bound to it.

    Example:
        >>> from langchain_core.language_models.fake_chat_models import FakeListChatModel
        >>> fake = FakeListChatModel(responses=["fine"])
        >>> unwrapped(fake.bind(stop=["."]).with_retry()) == (fake, {"stop": ["."]})
        True
    """
    arguments: dict[str, Any] = {}
    while True:
        if isinstance(model, RunnableBindingBase):
            arguments = {**model.kwargs, **arguments}
        inner = _inner(model)
        if inner is None:
            return model, arguments
        model = inner


def bound_tools(model: Any) -> list[dict[str, Any]] | None:
    """Returns the tools and output schemas that are bound to a model; None when there are none."""
    return schemas_in(unwrapped(model)[1])


def schemas_in(arguments: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Returns the tools and output schemas among the arguments of a request; None when there are none.

    Example:
        >>> [t["function"]["name"] for t in schemas_in({"format": {"type": "json_object"}, "stop": ["."]})]
        ['format']
    """
    tools = [_schema(tool) for tool in arguments.get("tools") or ()]
    tools += [{"type": "function", "function": dict(f)} for f in arguments.get("functions") or ()]
    for name in _SCHEMA_NAMES:
        schema = arguments.get(name)
        if isinstance(schema, type):
            tools.append(_schema(schema))
        elif isinstance(schema, Mapping):
            text = json.dumps(schema, ensure_ascii=False, default=str)
            tools.append({"type": "function", "function": {"name": name, "description": text}})
    return tools or None


def tool_schemas(tools: Sequence[Any] | None) -> list[dict[str, Any]] | None:
    """Returns tools as the model will see them.

    Raises:
        BudgetConfigError: for what `bind_tools` does not take either.
    """
    if isinstance(tools, (str, Mapping)) or (tools is not None and not isinstance(tools, Iterable)):
        msg = f"tools must be a list of tools, functions, models or schemas (got a {type(tools).__name__})"
        raise BudgetConfigError(msg)
    return as_tools(None if tools is None else list(tools))


def check_number(name: str, value: Any, advice: str) -> None:
    """Raises BudgetConfigError unless `value` is None or a whole number of at least 1."""
    if value is not None and _count(value) is None:
        msg = f"{name} must be 1 or more (got {value!r}); {advice}"
        raise BudgetConfigError(msg)


def _inner(model: Any) -> Any:
    if isinstance(model, RunnableBindingBase):
        return model.bound
    if isinstance(model, RunnableWithFallbacks):
        return model.runnable
    return model.default if isinstance(model, DynamicRunnable) else None


def _fallback_windows(model: Any) -> Iterator[int]:
    """Returns the windows, where they are known, of the models that stand in for a model."""
    while model is not None:
        for other in model.fallbacks if isinstance(model, RunnableWithFallbacks) else ():
            facts = facts_of(other)
            known = [facts.window, facts.smallest_fallback]
            if facts.window is None and facts.name is not None:
                try:
                    known.append(TokenBudget.for_model(facts.name).context_window)
                except BudgetError:
                    continue
            yield from (window for window in known if window is not None)
        model = _inner(model)


def _answer(model: Any) -> tuple[int | None, bool]:
    """Returns the longest answer a model's requests ask for, and whether the user chose it.

    What is bound to the model goes before its own fields. A field that nobody set, or that holds the most the
    model's profile allows, may be the integration's default.
    """
    own, arguments = unwrapped(model)
    bound = _largest(arguments)
    if bound is not None:
        return bound, True
    set_by_user: Collection[str] = getattr(own, "model_fields_set", frozenset())
    fields = {name: getattr(own, name, None) for name in ANSWER_NAMES}
    further = [getattr(own, name, None) for name in ("model_kwargs", "extra_body")]
    asked_there = [_largest(extra) for extra in further if isinstance(extra, Mapping)]
    found = [n for n in (_largest(fields), *asked_there) if n is not None]
    if not found:
        return None, False
    asked = max(found)
    chosen = asked in asked_there or any(fields[n] == asked and n in set_by_user for n in fields)
    return asked, chosen and asked != _profile(own).get("max_output_tokens")


def _largest(given: Mapping[str, Any]) -> int | None:
    """Returns the largest of the named numbers; 0 and less mean "no limit" where they are allowed."""
    found = [_count(given.get(name)) for name in ANSWER_NAMES]
    return max((n for n in found if n is not None), default=None)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _profile(model: Any) -> dict[str, int]:
    profile = getattr(model, "profile", None)
    if not isinstance(profile, Mapping):
        return {}
    return {key: found for key, value in profile.items() if (found := _count(value)) is not None}


def _schema(tool: Any) -> dict[str, Any]:
    """Returns a tool as it was bound; one in a provider's own form is counted as it prints."""
    try:
        return (as_tools([tool]) or [{}])[0]
    except Exception:  # noqa: BLE001 - integrations bind objects of any kind, and all are counted
        text = {"text": str(tool)}
        return {"type": "function", "function": {"name": type(tool).__name__, "parameters": text}}
