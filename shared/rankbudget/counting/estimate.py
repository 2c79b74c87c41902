"""Counts without a model's own tokenizer: tokens for each word, number, sign and character of a script.

The rates are set so that, for o200k and cl100k, no kind of text in the table of docs/counting.md is
under-counted by more than the band; mostly they count too much. The table is made by `python
benchmarks/bench_counting.py --table`.
"""

from __future__ import annotations

import math
import re

from .base import TextCounter
from .media import MediaTable
from .tiktoken_counter import TiktokenCounter

__all__ = ["ESTIMATE_BAND", "EstimateCounter", "SimilarCounter", "estimate_tokens"]

ESTIMATE_BAND = 0.30
"""By what share an estimate may be too low."""

# The first alternative that matches is taken. So long a text without a space is base64, a hash or a key. A
# capital starts a new piece, as in camelCase.
_PARTS = re.compile(
    r"(?P<blob>[A-Za-z0-9+/]{32,})"
    r"|(?P<word> ?[A-Za-z][a-z]*)"
    r"|(?P<number> ?[0-9]+)"
    r"|(?P<gap>[ \t]{2,}|\s*[\r\n]+[ \t]*|\s)"
    r"|(?P<sign> ?[!-/:-@\[-`{-~]+)"
    r"|(?P<latin>[\u00a1-\u02ff]+)"
    r"|(?P<greek>[\u0370-\u058f]+)"
    r"|(?P<semitic>[\u0590-\u08ff]+)"
    r"|(?P<east>[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]+)"
    r"|(?P<other>[^\x00-\u02ff\u0370-\u08ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]+|.)",
    re.DOTALL,
)
_SHORT_WORD = 6
_LETTERS_PER_TOKEN = 4  # of a long word, after its first six
_SIGNS_PER_TOKEN = 2
_RATES = {"blob": 0.8, "latin": 1.1, "greek": 0.6, "semitic": 0.8, "east": 1.3}  # tokens per character
_BYTES_PER_TOKEN = 1.3


def estimate_tokens(text: str) -> float:
    """Returns about how many tokens a text has, rather too many.

    Example:
        >>> estimate_tokens("Hello, world!")  # two words of at most 6 letters, two signs
        4.0
    """
    total = 0.0
    for part in _PARTS.finditer(text):
        kind = part.lastgroup
        size = part.end() - part.start()
        if kind == "word":
            letters = size - (text[part.start()] == " ")
            total += 1 if letters <= _SHORT_WORD else 1 - (_SHORT_WORD - letters) // _LETTERS_PER_TOKEN
        elif kind == "number":  # o200k joins three digits; Llama 2, Qwen, Gemma and DeepSeek take each alone
            total += size - (text[part.start()] == " ")
        elif kind == "gap":
            total += 1 + size // 16
        elif kind == "sign":
            total += -(-size // _SIGNS_PER_TOKEN)
        elif kind in _RATES:
            total += size * _RATES[kind]
        else:
            total += len(part[0].encode("utf-8", "replace")) / _BYTES_PER_TOKEN
    return total


class EstimateCounter(TextCounter):
    """Estimates from the characters of a text, when no vocabulary can be had."""

    def __init__(self, *, name: str = "estimate", why: str, media: MediaTable | None = None) -> None:
        super().__init__(name=name, exact=False, why=why, band=ESTIMATE_BAND, media=media)

    def _measure(self, text: str) -> int:
        return math.ceil(estimate_tokens(text))


class SimilarCounter(TiktokenCounter):
    """Counts the larger of what another model's vocabulary and the estimate say.

    A vocabulary of 200,000 pieces joins characters and digits that other tokenizers keep apart; the estimate
    does not.
    """

    def _measure(self, text: str) -> int:
        return max(super()._measure(text), math.ceil(estimate_tokens(text)))
