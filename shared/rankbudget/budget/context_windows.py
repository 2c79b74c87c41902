"""How large a model's context window is: a number, what the host's model object knows, a server's answer, or a dated table.

Nothing is guessed: an unknown model is an error that says how to go on, or the `default` the caller chose.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..errors import BudgetConfigError, CounterUnavailableError

__all__ = ["TABLE_DATE", "context_window_of", "max_output_of"]

TABLE_DATE = "2026-11"
"""When the table below was compared with the providers' pages."""

# name: (context window, largest answer). The longest name a model's name starts with wins. Where a provider's limit for the prompt is smaller
# than the whole window (gpt-5: 272,000 of 400,000), the prompt's limit stands here: a prompt that fits it is never refused.
_TABLE: dict[str, tuple[int, int | None]] = {
    "gpt-3.5-turbo": (16_385, 4_096),
    "gpt-3.5-turbo-0301": (4_096, 4_096),
    "gpt-3.5-turbo-0613": (4_096, 4_096),
    "gpt-3.5-turbo-instruct": (4_096, 4_096),
    "gpt-35-turbo": (4_096, 4_096),
    "gpt-35-turbo-0125": (16_384, 4_096),
    "gpt-35-turbo-1106": (16_384, 4_096),
    "gpt-35-turbo-16k": (16_384, 4_096),
    "gpt-4": (8_192, 8_192),
    "gpt-4-32k": (32_768, 8_192),
    "gpt-4-0125-preview": (128_000, 4_096),
    "gpt-4-1106": (128_000, 4_096),
    "gpt-4-vision": (128_000, 4_096),
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
    "gpt-oss": (131_072, 131_072),
    "o1": (200_000, 100_000),
    "o1-mini": (128_000, 65_536),
    "o1-preview": (128_000, 32_768),
    "o3": (200_000, 100_000),
    "o4-mini": (200_000, 100_000),
    "claude-2": (100_000, 4_096),
    "claude-2.1": (200_000, 4_096),
    "claude-3": (200_000, 4_096),
    "claude-3-5": (200_000, 8_192),
    "claude-3-7": (200_000, 64_000),
    "claude-opus-4": (200_000, 32_000),
    "claude-opus-4-5": (200_000, 64_000),
    "claude-opus-4-6": (1_000_000, 128_000),
    "claude-sonnet-4": (200_000, 64_000),
    "claude-sonnet-4-6": (1_000_000, 128_000),
    "claude-haiku-4-5": (200_000, 64_000),
    "gemini-1.5-flash": (1_048_576, 8_192),
    "gemini-1.5-pro": (2_097_152, 8_192),
    "gemini-2.0": (1_048_576, 8_192),
    "gemini-2.5": (1_048_576, 65_536),
    "llama-2": (4_096, None),
    "llama2": (4_096, None),
    "llama-3": (8_192, None),
    "llama3": (8_192, None),
    "llama-3.1": (131_072, None),
    "llama3.1": (131_072, None),
    "llama-3.2": (131_072, None),
    "llama3.2": (131_072, None),
    "llama-3.3": (131_072, None),
    "llama3.3": (131_072, None),
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
    "gemma2": (8_192, None),
    "gemma-3": (131_072, None),
    "gemma3": (131_072, None),
    "gemma-3-1b": (32_768, None),
    "gemma3:1b": (32_768, None),
    "phi-4": (16_384, None),
    "phi4": (16_384, None),
    "command-r": (128_000, 4_096),
    "grok-3": (131_072, None),
    "grok-4": (256_000, None),
}
_SAID = re.compile(r"(?:^|[-_.:])(\d{1,4})k(?:$|[-_.:])")  # phi-3-mini-128k-instruct says its window itself
_VENDORS = ("us.", "eu.", "apac.", "global.", "anthropic.", "meta.", "mistral.", "meta-")
_NAMES = ("model_name", "model", "model_id", "deployment_name", "azure_deployment")
_MILLION_GPT = 4  # gpt-5.4 brought the window of a million tokens
_MILLION_CLAUDE = 6  # and so did claude-opus-4-6
_HOST_UNKNOWN = 3_900  # what LlamaIndex reports for a model it knows nothing about


def context_window_of(model: Any, *, default: int | None = None, base_url: str | None = None) -> int:
    """Returns the context window of a model, in tokens.

    Args:
        model: a number of tokens; a model's name; or a host's model object, whose LangChain `profile` or LlamaIndex `metadata` is read.
        default: the window to take when the model is unknown; None makes that an error.
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
        return _checked(model, "context window")
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
    asked = f" ({'; '.join(answers)})" if answers else ""
    msg = (
        f"the context window of {name_of(model) or model!r:.80} is unknown{asked}; the table of {TABLE_DATE} has {len(_TABLE)} families. "
        "Say context_window=<tokens>, or default=8192 to choose a window for unknown models, or base_url=<server> to ask Ollama, LM Studio or vLLM."
    )
    raise CounterUnavailableError(msg)


def max_output_of(model: Any, *, default: int | None = None) -> int | None:
    """Returns the largest answer a model writes, in tokens; `default` when that is unknown.

    Example:
        >>> max_output_of("gpt-4o"), max_output_of("my-own-model")
        (16384, None)
    """
    found = _known(model)[1]
    return default if found is None else found


def name_of(model: Any) -> str | None:
    """Returns the name of a model, or of the model a host's object stands for."""
    if isinstance(model, str):
        return model.strip()
    metadata = _attribute(model, "metadata")
    for holder, names in ((model, _NAMES), (metadata, ("model_name",))):
        for name in names:
            found = _attribute(holder, name)
            if isinstance(found, str) and found.strip() and found != "unknown":
                return found.strip()
    return None


def _known(model: Any) -> tuple[int | None, int | None]:
    """Returns the window and the largest answer, each None where unknown."""
    if isinstance(model, bool) or model is None:
        return None, None
    name = name_of(model)
    listed = _listed(name) if name else (None, None)
    if isinstance(model, (str, int, float)):
        return listed
    window: int | None = None
    answer: int | None = None
    profile = model if isinstance(model, Mapping) else _attribute(model, "profile")
    if isinstance(profile, Mapping):
        window = _positive(profile.get("max_input_tokens"))
        answer = _positive(profile.get("max_output_tokens"))
    metadata = _attribute(model, "metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        told = _positive(_attribute(metadata, "context_window"))
        window = window or (None if told == _HOST_UNKNOWN and listed[0] else told)
        # `num_output` is what the host asks for, mostly a default: it bounds nothing, and is not read.
    return window or listed[0], answer or listed[1]


def _listed(name: str) -> tuple[int | None, int | None]:
    lowered = name.lower()
    for plain in dict.fromkeys((lowered, _stripped(lowered), _stripped(lowered.rpartition("/")[2]))):
        found = [
            start
            for start in _TABLE
            if plain.startswith(start) and not plain[len(start) : len(start) + 1].isdigit()
        ]
        if found:
            best = max(found, key=len)
            return _refined(plain, best)
    said = _SAID.search(lowered)
    return (int(said[1]) * 1_024, None) if said else (None, None)


def _refined(plain: str, best: str) -> tuple[int, int | None]:
    """Returns the table's entry; a later version of a family is not the family: gpt-5.4 is no gpt-5, claude-opus-4-8 is no claude-opus-4."""
    if best == "gpt-5" and (version := re.match(r"gpt-5\.(\d+)(-mini|-nano|-codex)?", plain)):
        return (272_000, 128_000) if int(version[1]) < _MILLION_GPT or version[2] else (1_050_000, 128_000)
    if best in {"claude-opus-4", "claude-sonnet-4"} and (
        version := re.match(r"claude-\w+-4-(\d)(?!\d)", plain)
    ):
        return (1_000_000, 128_000) if int(version[1]) >= _MILLION_CLAUDE else _TABLE[best]
    return _TABLE[best]


def _stripped(name: str) -> str:
    """Returns a name without provider, region and vendor: "us.anthropic.claude-3-opus" is "claude-3-opus"."""
    plain = name.rpartition("/")[2] if "/" in name else name
    if plain.startswith("ft:"):
        plain = plain[3:].partition(":")[0]
    while (shorter := next((plain[len(v) :] for v in _VENDORS if plain.startswith(v)), plain)) != plain:
        plain = shorter
    return plain


def _attribute(thing: Any, name: str) -> Any:
    try:
        return getattr(thing, name, None)
    except Exception:  # noqa: BLE001 - a host's property may do anything; what cannot be read is unknown
        return None


def _positive(value: Any) -> int | None:
    return (
        int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 1 else None
    )


def _checked(value: float, what: str) -> int:
    if value != int(value) or value < 1:
        msg = f"the {what} is {value!r}; allowed: a whole number of tokens, 1 or more"
        raise BudgetConfigError(msg)
    return int(value)
