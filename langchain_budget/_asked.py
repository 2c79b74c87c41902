"""What a model object will send beside the messages: the tools bound to it, and how long an answer it asks for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from langchain_core.runnables import RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.configurable import DynamicRunnable

from ._convert import as_tools

__all__ = ["answer_tokens", "bound_tools", "unwrapped"]

_ANSWER_NAMES = (
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_new_tokens",
    "max_tokens_to_sample",
    "num_predict",
)
"""What the integrations call the longest answer a request asks for; each has one or two of them."""


def unwrapped(model: Any) -> tuple[Any, dict[str, Any]]:
    """Returns the model inside `bind_tools`, `bind`, `with_config`, `with_retry` and the like, and the arguments bound to it.

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
            model = model.bound
        elif isinstance(model, RunnableWithFallbacks):
            model = model.runnable
        elif isinstance(model, DynamicRunnable):
            model = model.default
        else:
            return model, arguments


def bound_tools(model: Any) -> list[dict[str, Any]] | None:
    """Returns the tools that are bound to a model, as the model will see them; None when there are none."""
    arguments = unwrapped(model)[1]
    tools = [_schema(tool) for tool in arguments.get("tools") or ()]
    tools += [
        {"type": "function", "function": dict(function)} for function in arguments.get("functions") or ()
    ]
    return tools or None


def answer_tokens(model: Any) -> tuple[int | None, bool]:
    """Returns the longest answer a model's requests ask for, None when they name none, and whether it is known to be the user's own choice.

    What is bound to the model goes before its own fields. A field that nobody set, or that holds the most the model's profile allows,
    may be the integration's default.

    Example:
        >>> from langchain_core.language_models.fake_chat_models import FakeListChatModel
        >>> answer_tokens(FakeListChatModel(responses=["fine"]).bind(max_tokens=500))
        (500, True)
    """
    own, arguments = unwrapped(model)
    bound = _largest(arguments)
    if bound is not None:
        return bound, True
    if isinstance(own, str) or own is None:
        return None, False
    set_by_user: Collection[str] = getattr(own, "model_fields_set", frozenset())
    fields = {name: getattr(own, name, None) for name in _ANSWER_NAMES}
    extras = [
        extra
        for name in ("model_kwargs", "extra_body")
        if isinstance(extra := getattr(own, name, None), Mapping)
    ]
    found = [n for n in (_largest(fields), *map(_largest, extras)) if n is not None]
    if not found:
        return None, False
    asked = max(found)
    profile = getattr(own, "profile", None)
    most = profile.get("max_output_tokens") if isinstance(profile, Mapping) else None
    chosen = asked in map(_largest, extras) or any(
        fields[name] == asked and name in set_by_user for name in fields
    )
    return asked, chosen and asked != most


def _largest(given: Mapping[str, Any]) -> int | None:
    """Returns the largest of the named numbers; 0 and less mean "no limit" where they are allowed."""
    found = [
        given[name]
        for name in _ANSWER_NAMES
        if isinstance(given.get(name), int) and not isinstance(given[name], bool)
    ]
    return max((n for n in found if n > 0), default=None)


def _schema(tool: Any) -> dict[str, Any]:
    """Returns a tool as it was bound; one in a provider's own form is counted as it prints."""
    try:
        return (as_tools([tool]) or [{}])[0]
    except Exception:  # noqa: BLE001 - an integration may bind objects of any kind; uncounted they would overflow the window
        return {
            "type": "function",
            "function": {"name": type(tool).__name__, "parameters": {"text": str(tool)}},
        }
