"""What is known of models by their names: tokenizers and windows, as `data/models.json` lists them.

The file has
    windows: name: [context window, largest answer], as the providers' pages had it in 2026-11, or the limit
        for the prompt where it is smaller than the window (gpt-5: 272,000 of 400,000);
    encodings: tiktoken's encodings by name; other names are looked up in tiktoken's own table;
    families: a pattern, the encoding that comes nearest, and by what share its counts may be too low: 0.5
        for vocabularies of 32,000 pieces, 0.3 for larger ones that are not public; the first match is taken;
    hosts, vendors: what may be before a name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..errors import did_you_mean

_DATA: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "models.json").read_text(encoding="utf-8")
)
_UNKNOWN = ("o200k_base", 0.50)  # as for the smallest vocabularies in use
_PREFIX = re.compile(
    rf"^(?:ft:|meta-|(?:{'|'.join(_DATA['hosts'])}):(?=\D)|(?:{'|'.join(_DATA['vendors'])})\.)"
)
_REWRITTEN = (
    (re.compile(r"^gpt-4-?([15])(?!\d)"), r"gpt-4.\1"),  # Azure allows no dots: gpt-41 is gpt-4.1
    (re.compile(r"^gpt-4-o(?![a-z])"), "gpt-4o"),
    (re.compile(r"^(gemma|llama|phi)(?=\d)"), r"\1-"),  # Ollama's llama3.1:8b
    # Bedrock's llama3-1-8b, Fireworks' llama-v3p1
    (re.compile(r"^llama-?v?(\d)[-p](\d)(?=-)"), r"llama-\1.\2"),
)
_SAID = re.compile(r"(?:^|[-_.:])(\d{1,4})k(?:$|[-_.:])")  # phi-3-mini-128k-instruct names its own window


def plain_name(model: str) -> str:
    """Returns a model's name in lower case without host, region and vendor.

    Example:
        >>> plain_name("us.anthropic.claude-3-opus"), plain_name("openai:gpt-4o"), plain_name("llama3.1:8b")
        ('claude-3-opus', 'gpt-4o', 'llama-3.1:8b')
    """
    plain = model.strip().lower().rpartition("/")[2]
    while found := _PREFIX.match(plain):
        plain = plain[found.end() :]
        if found[0] == "ft:":
            plain = plain.partition(":")[0]
    for pattern, name in _REWRITTEN:
        plain = pattern.sub(name, plain)
    return plain


def encoding_for(model: str) -> str | None:
    """Returns the tiktoken encoding of an OpenAI model, None for any other name."""
    import tiktoken  # before its part: another thread that imports it takes the locks in this order
    import tiktoken.model

    plain = plain_name(model)
    start = _longest_start(plain, _DATA["encodings"], "a-z")
    found = _DATA["encodings"].get(start) or tiktoken.model.MODEL_TO_ENCODING.get(plain)
    return None if found is None else str(found)


def similar_to(model: str) -> tuple[str, float]:
    """Returns the nearest encoding for a model without one, and by what share it may be too low."""
    for names, encoding, band in _DATA["families"]:
        if re.search(rf"(?<![a-z])(?:{names})", model.lower()):
            return encoding, band
    return _UNKNOWN


def listed_models() -> list[str]:
    """Returns the names of models whose window is listed; others that begin so have the same."""
    return sorted(_DATA["windows"])


def listed_limits(model: str) -> tuple[int | None, int | None]:
    """Returns the context window and the largest answer of a model, each None where unknown."""
    start = _longest_start(plain_name(model), _DATA["windows"], r"\d")
    if start:
        window, answer = _DATA["windows"][start]
        return window, answer
    said = _SAID.search(model.lower())
    return (int(said[1]) * 1_024, None) if said else (None, None)


def is_known(model: str) -> bool:
    """Returns whether a model has a tokenizer, a family or a window here."""
    has_tokenizer = encoding_for(model) is not None or similar_to(model) is not _UNKNOWN
    return has_tokenizer or listed_limits(model)[0] is not None


def near_models(model: str) -> str:
    """Returns "; did you mean 'gpt-4o'?" for the listed model whose name is nearest; "" for a listed one."""
    plain = plain_name(model)
    return "" if plain in _DATA["windows"] else did_you_mean(plain, _DATA["windows"])


def _longest_start(plain: str, names: Iterable[str], not_followed_by: str) -> str:
    """Returns the longest of the names that a model's name starts with, "" when there is none."""
    starts = [name for name in names if re.match(rf"{re.escape(name)}(?![{not_followed_by}])", plain)]
    return max(starts, key=len, default="")
