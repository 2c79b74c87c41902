"""A model's context window: a number, what the host's model object knows, a server's answer, or a table.

Nothing is guessed: an unknown model is an error that says how to go on, or the `default` the caller chose.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..counting.models import plain_name
from ..errors import BudgetConfigError, CounterUnavailableError

__all__ = ["context_window_of", "max_output_of", "name_of"]

# name: (context window, largest answer), as the providers' pages had it in 2026-11. The longest name that a
# model's name starts with wins. Where a provider's limit for the prompt is smaller than the window (gpt-5:
# 272,000 of 400,000), it is used: no prompt within it is refused.
_TABLE: dict[str, tuple[int, int | None]] = {
    "gpt-3.5-turbo": (16_385, 4_096),
    "gpt-3.5-turbo-instruct": (4_096, 4_096),
    "gpt-35-turbo": (4_096, 4_096),
    "gpt-4": (8_192, 8_192),
    "gpt-4-32k": (32_768, 8_192),
    "gpt-4-0125-preview": (128_000, 4_096),
    "gpt-4-turbo": (128_000, 4_096),
    "gpt-4.1": (1_047_576, 32_768),
    "gpt-4.5": (128_000, 16_384),
    "gpt-4o": (128_000, 16_384),
    "gpt-4o-2024-05-13": (128_000, 4_096),
    "chatgpt-4o": (128_000, 16_384),
    "gpt-5": (272_000, 128_000),
    "gpt-5-chat": (128_000, 16_384),
    "gpt-5.1-chat": (128_000, 16_384),
    "gpt-5.2-chat": (128_000, 16_384),
    "gpt-5.3-chat": (128_000, 16_384),
    "gpt-5.4": (1_050_000, 128_000),
    "gpt-5.4-mini": (272_000, 128_000),
    "gpt-5.4-nano": (272_000, 128_000),
    "gpt-5.5": (1_050_000, 128_000),
    "gpt-oss": (131_072, 131_072),
    "o1": (200_000, 100_000),
    "o1-mini": (128_000, 65_536),
    "o3": (200_000, 100_000),
    "o4-mini": (200_000, 100_000),
    "claude-3": (200_000, 4_096),
    "claude-3-5": (200_000, 8_192),
    "claude-3-7": (200_000, 64_000),
    "claude-opus-4": (200_000, 32_000),
    "claude-opus-4-5": (200_000, 64_000),
    "claude-opus-4-6": (1_000_000, 128_000),
    "claude-opus-4-7": (1_000_000, 128_000),
    "claude-opus-4-8": (1_000_000, 128_000),
    "claude-sonnet-4": (200_000, 64_000),
    "claude-sonnet-4-6": (1_000_000, 128_000),
    "claude-haiku-4-5": (200_000, 64_000),
    "gemini-1.5-flash": (1_048_576, 8_192),
    "gemini-1.5-pro": (2_097_152, 8_192),
    "gemini-2.0": (1_048_576, 8_192),
    "gemini-2.5": (1_048_576, 65_536),
    "gemini-3": (1_048_576, 65_536),
    "llama-2": (4_096, None),
    "llama-3": (8_192, None),
    "llama-3.1": (131_072, None),
    "llama-3.2": (131_072, None),
    "llama-3.3": (131_072, None),
    "llama-4": (131_072, None),  # hosts run it with this or more
    "mistral-7b": (32_768, None),
    "mistral-large": (131_072, None),
    "mistral-nemo": (131_072, None),
    "mistral-small": (32_768, None),
    "mixtral-8x7b": (32_768, None),
    "mixtral-8x22b": (65_536, None),
    "codestral": (32_768, None),
    "qwen2.5": (32_768, None),
    "qwen3": (32_768, None),
    "deepseek-chat": (131_072, 8_192),
    "deepseek-reasoner": (131_072, 65_536),
    "deepseek-r1": (131_072, None),
    "gemma-2": (8_192, None),
    "gemma-3": (131_072, None),
    "gemma-3-1b": (32_768, None),
    "gemma-3:1b": (32_768, None),
    "phi-4": (16_384, None),
    "command-r": (128_000, 4_096),
    "grok-3": (131_072, None),
    "grok-4": (256_000, None),
    "kimi-k2": (131_072, None),
    "glm-4": (128_000, None),
    "glm-4.6": (200_000, None),
    "nova-lite": (300_000, None),
    "nova-micro": (128_000, None),
    "nova-pro": (300_000, None),
}
_SAID = re.compile(r"(?:^|[-_.:])(\d{1,4})k(?:$|[-_.:])")  # phi-3-mini-128k-instruct names its own window
_NAMES = ("model_name", "model", "model_id", "deployment_name", "azure_deployment")
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
    asked = f"; {'; '.join(answers)}" if answers else ""
    msg = (
        f"the model's context window must be known (got {name_of(model) or model!r:.80}{asked}). "
        "Give context_window=<tokens>, or default=8192 for unknown models, "
        "or base_url=<server> to ask Ollama, LM Studio or vLLM."
    )
    raise CounterUnavailableError(msg)


def max_output_of(model: Any) -> int | None:
    """Returns the largest answer a model writes, in tokens; None when that is unknown."""
    return _known(model)[1]


def name_of(model: Any) -> str | None:
    """Returns the name of a model, or of the model a host's object stands for."""
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
    listed = _listed(name) if name else (None, None)
    if model is None or isinstance(model, (str, int, float)):
        return listed
    window: int | None = None
    answer: int | None = None
    profile = model if isinstance(model, Mapping) else _attribute(model, "profile")
    if isinstance(profile, Mapping):
        window = _positive(profile.get("max_input_tokens"))
        answer = _positive(profile.get("max_output_tokens"))
    if window is None:
        # Not `num_output`: it is what the host asks for, mostly a default, and limits nothing.
        window = _positive(_attribute(_attribute(model, "metadata"), "context_window"))
        window = None if window == _HOST_UNKNOWN and listed[0] else window
    return window or listed[0], answer or listed[1]


def _listed(name: str) -> tuple[int | None, int | None]:
    plain = plain_name(name)
    found = [start for start in _TABLE if re.match(rf"{re.escape(start)}(?!\d)", plain)]
    if found:
        return _TABLE[max(found, key=len)]
    said = _SAID.search(name.lower())
    return (int(said[1]) * 1_024, None) if said else (None, None)


def _attribute(thing: Any, name: str) -> Any:
    try:
        return getattr(thing, name, None)
    except Exception:  # noqa: BLE001 - a host's property may raise anything; its value is then unknown
        return None


def _positive(value: Any) -> int | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return int(value) if is_number and value >= 1 else None


def _checked(value: float, what: str) -> int:
    if value != int(value) or value < 1:
        msg = f"{what} must be a whole number of tokens from 1 (got {value!r})."
        raise BudgetConfigError(msg)
    return int(value)
