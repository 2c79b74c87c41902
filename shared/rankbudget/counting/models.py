"""Which tokenizer a model's name stands for: one of tiktoken's encodings, or the one that comes nearest."""

from __future__ import annotations

import re

__all__ = ["encoding_for", "plain_name", "similar_to"]

# The longest matching start wins. Names that are not here are looked up in tiktoken's own table.
_OPENAI = {
    "gpt-5": "o200k_base",
    "gpt-4.5": "o200k_base",
    "gpt-4.1": "o200k_base",
    "gpt-4o": "o200k_base",
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
    "text-embedding-3": "cl100k_base",
}
# The count is the larger of the encoding's and the estimate's; the number is the band. 0.5 covers
# vocabularies of 32,000 pieces on every kind of text in the table of docs/counting.md; 0.3 is assumed for
# larger ones that are not public: reports speak of 20-30 % over GPT for Claude. The first match is taken.
_FAMILIES = {
    r"claude|gemini|gemma|deepseek|command|grok|glm|kimi": ("o200k_base", 0.30),
    r"llama-?2|mi[sx]tral|codestral": ("cl100k_base", 0.50),
    r"llama|qwen": ("cl100k_base", 0.30),
    r"phi-?4": ("cl100k_base", 0.10),
    r"phi": ("cl100k_base", 0.50),
}
_UNKNOWN = ("o200k_base", 0.50)  # as for the smallest vocabularies in use

_HOSTS = (
    "azure|azure_openai|openai|openai-responses|anthropic|google|google_genai|google_vertexai|google-gla|"
    "google-vertex|vertex_ai|gemini|bedrock|bedrock_converse|cohere|deepseek|fireworks|github|groq|"
    "huggingface|litellm|mistralai|moonshot|moonshotai|nvidia|ollama|openrouter|perplexity|together|xai|zai"
)
_PREFIX = re.compile(
    rf"^(?:ft:|meta-|(?:{_HOSTS}):(?=\D)|"
    r"(?:us|eu|apac|global|amazon|anthropic|cohere|deepseek|google|meta|mistral|moonshot|openai|qwen|zai)\.)"
)
_AZURE = re.compile(r"^gpt-4([15])(?!\d)")  # Azure allows no dots: gpt-41 is gpt-4.1
_DASHLESS = re.compile(r"^(gemma|llama|phi)(?=\d)")  # Ollama's llama3.1:8b
_LLAMA = re.compile(r"^llama-?v?(\d)[-p](\d)(?=-)")  # llama3-1-8b (Bedrock), llama-v3p1-8b (Fireworks)


def plain_name(model: str) -> str:
    """Returns a model's name in lower case without host, region and vendor.

    Example:
        >>> plain_name("us.anthropic.claude-3-opus"), plain_name("openai:gpt-4o"), plain_name("llama3.1:8b")
        ('claude-3-opus', 'gpt-4o', 'llama-3.1:8b')
        >>> plain_name("openrouter/meta-llama/Llama-3.1-8B"), plain_name("gpt-41-mini")
        ('llama-3.1-8b', 'gpt-4.1-mini')
    """
    plain = model.strip().lower().rpartition("/")[2]
    while found := _PREFIX.match(plain):
        plain = plain[found.end() :]
        if found[0] == "ft:":
            plain = plain.partition(":")[0]
    plain = _DASHLESS.sub(r"\1-", _AZURE.sub(r"gpt-4.\1", plain))
    return _LLAMA.sub(r"llama-\1.\2", plain)


def encoding_for(model: str) -> str | None:
    """Returns the tiktoken encoding of an OpenAI model, None for any other name.

    Example:
        >>> encoding_for("gpt-4o-mini"), encoding_for("gpt-4-turbo"), encoding_for("openai/o3-mini")
        ('o200k_base', 'cl100k_base', 'o200k_base')
        >>> encoding_for("claude-sonnet-4-5") is None
        True
    """
    from tiktoken.model import MODEL_TO_ENCODING

    plain = plain_name(model)
    starts = [name for name in _OPENAI if re.match(rf"{re.escape(name)}(?![a-z])", plain)]
    return _OPENAI[max(starts, key=len)] if starts else MODEL_TO_ENCODING.get(plain)


def similar_to(model: str) -> tuple[str, float]:
    """Returns the encoding that stands in for a model without one, and by what share it may be too low."""
    for names, similar in _FAMILIES.items():
        if re.search(rf"(?<![a-z])(?:{names})", model.lower()):
            return similar
    return _UNKNOWN
