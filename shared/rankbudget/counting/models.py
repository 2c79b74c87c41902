"""Which tokenizer a model's name stands for: one of tiktoken's encodings, or the one that comes nearest and by how much it may be too low."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Similar", "encoding_for", "similar_to"]

# The longest matching start wins; a name is matched after its provider's prefix ("openai/", "azure/", "ft:") is taken off.
_OPENAI = {
    "gpt-5": "o200k_base",
    "gpt-4.5": "o200k_base",
    "gpt-4.1": "o200k_base",
    "gpt-4o": "o200k_base",
    "chatgpt-4o": "o200k_base",
    "chatgpt": "o200k_base",
    "computer-use-preview": "o200k_base",
    "codex-mini": "o200k_base",
    "gpt-audio": "o200k_base",
    "gpt-realtime": "o200k_base",
    "gpt-oss": "o200k_harmony",
    "o1": "o200k_base",
    "o3": "o200k_base",
    "o4-mini": "o200k_base",
    "gpt-4": "cl100k_base",
    "gpt-3.5": "cl100k_base",
    "gpt-35": "cl100k_base",
    "davinci-002": "cl100k_base",
    "babbage-002": "cl100k_base",
    "text-embedding-ada-002": "cl100k_base",
    "text-embedding-3": "cl100k_base",
    "text-davinci-003": "p50k_base",
    "text-davinci-002": "p50k_base",
    "code-davinci": "p50k_base",
    "code-cushman": "p50k_base",
    "text-davinci": "r50k_base",
    "text-curie": "r50k_base",
    "text-babbage": "r50k_base",
    "text-ada": "r50k_base",
    "gpt2": "gpt2",
    "gpt-2": "gpt2",
}
_PROVIDERS = re.compile(r"^(?:ft:|openai[/:]|azure[/:]|azure_openai[/:]|openrouter/|github/|litellm/)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Similar:
    """An encoding that stands in for a model's own tokenizer.

    Args:
        encoding: the encoding that counts.
        band: by what share it may be too low.
        family: whose tokenizer is missing.
    """

    encoding: str
    band: float
    family: str


# Such a count is the larger of the encoding's and the estimate's. Bands: 0.5 covers vocabularies of 32,000 pieces on every kind of text in the
# table of docs/counting.md; 0.3 is taken for larger ones, which nobody can download here: reports speak of 20-30 % over GPT for Claude.
_FAMILIES = {
    "claude": Similar(encoding="o200k_base", band=0.30, family="Anthropic"),
    "gemini": Similar(encoding="o200k_base", band=0.30, family="Google"),
    "gemma": Similar(encoding="o200k_base", band=0.30, family="Google"),
    "llama-?2": Similar(encoding="cl100k_base", band=0.50, family="Meta"),
    "llama": Similar(encoding="cl100k_base", band=0.30, family="Meta"),
    "mi[sx]tral": Similar(encoding="cl100k_base", band=0.50, family="Mistral"),
    "codestral": Similar(encoding="cl100k_base", band=0.50, family="Mistral"),
    "qwen": Similar(encoding="cl100k_base", band=0.30, family="Qwen"),
    "deepseek": Similar(encoding="o200k_base", band=0.30, family="DeepSeek"),
    "command": Similar(encoding="o200k_base", band=0.30, family="Cohere"),
    "grok": Similar(encoding="o200k_base", band=0.30, family="xAI"),
    "phi-?4": Similar(encoding="cl100k_base", band=0.10, family="Microsoft"),
    "phi": Similar(encoding="cl100k_base", band=0.50, family="Microsoft"),
    "glm": Similar(encoding="o200k_base", band=0.30, family="Zhipu"),
    "kimi": Similar(encoding="o200k_base", band=0.30, family="Moonshot"),
}
_UNKNOWN_BAND = 0.50  # as for the smallest vocabularies in use, of 32,000 pieces


def encoding_for(model: str) -> str | None:
    """Returns the tiktoken encoding of an OpenAI model, None for any other name.

    Example:
        >>> encoding_for("gpt-4o-mini"), encoding_for("gpt-4-turbo"), encoding_for("openai/o3-mini"), encoding_for("claude-sonnet-4-5")
        ('o200k_base', 'cl100k_base', 'o200k_base', None)
    """
    plain = _PROVIDERS.sub("", model.strip().lower())
    found = [
        start
        for start in _OPENAI
        if plain == start or (plain.startswith(start) and not plain[len(start)].isalpha())
    ]
    return _OPENAI[max(found, key=len)] if found else None


def similar_to(model: str) -> Similar:
    """Returns the encoding that stands in for a model without one.

    Example:
        >>> similar_to("anthropic/claude-sonnet-4-5").family
        'Anthropic'
    """
    lowered = model.lower()
    for start, similar in _FAMILIES.items():
        if re.search(rf"(?<![a-z]){start}", lowered):
            return similar
    return Similar(encoding="o200k_base", band=_UNKNOWN_BAND, family="unknown")
