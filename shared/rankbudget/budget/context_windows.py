"""A model's context window: a number, what the host's model object knows, a server's answer, or a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..counting.models import listed_limits, near_models
from ..errors import CounterUnavailableError, check_count, refuse, shown

_NAMES = ("model_name", "model", "model_id", "deployment_name", "azure_deployment")
_SERVED = ("num_ctx", "n_ctx")  # Ollama's and llama.cpp's, who may run a model with less than it can read
_HOST_UNKNOWN = 3_900  # what LlamaIndex reports for a model it does not know


def context_window_of(model: Any, *, default: int | None = None, base_url: str | None = None) -> int:
    """Returns the context window of a model, in tokens.

    Args:
        model: a number of tokens; a model's name; or a host's model object, whose LangChain `profile` or
            LlamaIndex `metadata` is read.
        default: the window of an unknown model; None raises.
        base_url: an Ollama, LM Studio or vLLM server that runs the model; it is asked first.

    Raises:
        CounterUnavailableError: when the window is unknown and there is no `default`.
        BudgetConfigError: when `model` or `default` is a number that cannot be a window.

    Example:
        >>> context_window_of("gpt-4o"), context_window_of("openai/gpt-4-0613"), context_window_of(16_384)
        (128000, 8192, 16384)
        >>> context_window_of("my-own-model", default=8192)
        8192
    """
    if isinstance(model, (int, float)) and not isinstance(model, bool):
        return _checked(model, "context_window")
    answers: list[str] = []
    if base_url is not None:
        from .local_servers import served_window

        served, answers = served_window(base_url, name_of(model))
        if served is not None:
            return served
    found = _known(model)[0]
    if found is not None:
        return found
    if default is not None:
        return _checked(default, "default")
    name = name_of(model)
    seen = "; ".join([name or shown(model), *answers])
    msg = (
        f"the model's context window must be known (got {seen}){near_models(name or '')}. "
        "Give context_window=<tokens>, or a budget=TokenBudget.for_model(model, ...) with default=8192 for "
        "unknown models or base_url=<server> to ask Ollama, LM Studio or vLLM."
    )
    raise CounterUnavailableError(msg)


def max_output_of(model: Any) -> int | None:
    """Returns the largest answer a model writes, in tokens; None when that is unknown."""
    return _known(model)[1]


def name_of(model: Any) -> str | None:
    """Returns the name of a model, or of the model that a host's object represents."""
    if isinstance(model, str):
        return model.strip()
    holders = [(model, name) for name in _NAMES] + [(_attribute(model, "metadata"), "model_name")]
    for holder, name in holders:
        found = _attribute(holder, name)
        if isinstance(found, str) and found.strip() and found != "unknown":
            return found.strip()
    return None


def _known(model: Any) -> tuple[int | None, int | None]:
    """Returns the window and the largest answer, each None where unknown."""
    name = name_of(model)
    listed = listed_limits(name) if name else (None, None)
    if model is None or isinstance(model, (str, int, float)):
        return listed
    profile = model if isinstance(model, Mapping) else _attribute(model, "profile")
    profile = profile if isinstance(profile, Mapping) else {}
    # Not `num_output`: it is what the host asks for, mostly a default, and limits nothing.
    said = _positive(_attribute(_attribute(model, "metadata"), "context_window"))
    windows = [
        window_asked_of(model) or assumed_window_of(model),
        _positive(profile.get("max_input_tokens")),
        None if said == _HOST_UNKNOWN and listed[0] else said,
        listed[0],
    ]
    window = next(filter(None, windows), None)
    fallbacks = _attribute(model, "fallbacks")
    for other in fallbacks if isinstance(fallbacks, (list, tuple)) else ():
        window = min(filter(None, [window, _known(other)[0]]), default=None)
    return window, _positive(profile.get("max_output_tokens")) or listed[1]


def window_asked_of(model: Any, arguments: Mapping[str, Any] | None = None) -> int | None:
    """Returns the window that a local server is asked to run a model with; None where it is not asked.

    What a request asks for, with its `arguments`, comes before the object's own field.
    """
    # Where LlamaIndex's models keep what their server is asked.
    extra = _attribute(model, "additional_kwargs")
    extra = extra if isinstance(extra, Mapping) else {}
    for name in _SERVED:
        for value in ((arguments or {}).get(name), extra.get(name), _attribute(model, name)):
            if _positive(value):
                return _positive(value)
    return None


def assumed_window_of(model: Any) -> int | None:
    """Returns the default of Ollama, None for models of others.

    Ollama takes it where it is asked for nothing, whatever the model could read, and cuts longer prompts
    without a word.
    """
    if not hasattr(model, "num_ctx"):
        return None
    from .local_servers import OLLAMA_DEFAULT  # what talks to servers is loaded only for their models

    return OLLAMA_DEFAULT


def _attribute(thing: Any, name: str) -> Any:
    try:
        return getattr(thing, name, None)
    except Exception:  # noqa: BLE001 - a host's property may raise anything; its value is then unknown
        return None


def _positive(value: Any) -> int | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return int(value) if is_number and value >= 1 else None


def _checked(value: Any, what: str) -> int:
    problems: list[str] = []
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    window = check_count(what, whole, problems, low=1)
    refuse(problems)
    return window


# ---- the five-block form -----------------------------------------------------------------------------------

_COLUMNS = (
    "context_window",
    "system",
    "project",
    "task",
    "history",
    "knowledge",
    "user_query",
    "response",
    "safety_buffer",
)
_TABLE = {
    "4K": (4_096, 300, 400, 300, 400, 800, 500, 1_200, 100),
    "8K": (8_192, 500, 1_000, 500, 1_000, 2_000, 1_000, 2_000, 192),
    "128K": (128_000, 1_000, 2_000, 1_000, 4_000, 8_000, 4_000, 8_000, 1_000),
}
FIVE_BLOCKS: Mapping[str, Mapping[str, int]] = {
    name: dict(zip(_COLUMNS, sizes, strict=True)) for name, sizes in _TABLE.items()
}
"""Tokens by window; what the sizes leave of the window flows down the ranks."""
_MODELS = {"claude-3-sonnet": "8K", "gpt-3.5-turbo": "4K"}  # specified below what their windows allow


def five_block_sizes(model: Any) -> dict[str, int]:
    """Returns the table for a model; one whose window is unknown gets the 8K table."""
    if isinstance(model, str) and model in _MODELS:
        return dict(FIVE_BLOCKS[_MODELS[model]])
    window = context_window_of(model, default=FIVE_BLOCKS["8K"]["context_window"])
    fitting = [name for name in ("128K", "8K", "4K") if window >= FIVE_BLOCKS[name]["context_window"]]
    return dict(FIVE_BLOCKS[fitting[0] if fitting else "4K"])
