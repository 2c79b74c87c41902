"""Counts without a model's own tokenizer: tokens for each word, number, sign and character of a script."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from operator import mul
from pathlib import Path

from .base import TextCounter
from .cutting import Sums
from .media import MediaTable
from .tiktoken_counter import TiktokenCounter

ESTIMATE_BAND = 0.30
"""By what share an estimate may be too low."""

# The first alternative that matches is taken. So long a text without a space is base64, a hash or a key. A
# capital starts a new piece, as in camelCase. "bytes" are scripts of two bytes a letter that vocabularies
# hardly merge, and vowel signs, which keep the letters around them apart.
_PARTS = re.compile(
    r"(?P<blob>[A-Za-z0-9+/]{32,})"
    r"|(?P<word> ?[A-Za-z][a-z]*)"
    r"|(?P<number> ?[0-9]+)"
    r"|(?P<gap>[ \t\r\n]{2,}|\s)"
    r"|(?P<sign> ?[!-/:-@\[-`{-~]+)"
    r"|(?P<latin>[\u00a1-\u02ff]+)"
    r"|(?P<greek>[\u0370-\u03ff]+)"
    r"|(?P<cyrillic>[\u0400-\u045f]+)"
    r"|(?P<semitic>[\u05d0-\u05ea\u0600-\u064a]+)"
    r"|(?P<bytes>[\u0300-\u036f\u0460-\u05cf\u05eb-\u05ff\u064b-\u07ff]+)"
    r"|(?P<east>[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]+)"
    r"|(?P<other>[^\x00-\u07ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]+|.)",
    re.DOTALL,
)
_RATES = {
    "blob": 0.8,
    "latin": 1.1,
    "greek": 0.85,
    "cyrillic": 0.6,
    "semitic": 0.9,
    "bytes": 1.6,
    "east": 1.3,
}
"""Tokens per character."""
_BYTES_PER_TOKEN = 1.25
_SIGNS_PER_TOKEN = 2
_SHORT_WORD = 6
_LETTERS_PER_TOKEN = 4  # of a long English word, after its first six
_FOREIGN_LETTERS_PER_TOKEN = 2.2
_WORDS = json.loads((Path(__file__).parents[1] / "data" / "words.json").read_text(encoding="utf-8"))
# Vocabularies know the words of English and of code whole, other words in pieces. Where these are at least a
# quarter of a text's words, it is English or code.
_COMMON = frozenset(_WORDS["common"].split())
_COMMON_SHARE = 0.25
# Words of large European languages are cut a little more.
_EUROPEAN = frozenset(_WORDS["european"].split())
_EUROPEAN_WEIGHT = 0.4


def estimate_tokens(text: str) -> float:
    """Returns about how many tokens a text has, rather too many."""
    return _estimate(_traits(text))


def _traits(text: str) -> tuple[int, ...]:
    """Returns what the estimate needs of a text, as whole numbers: they add up without a rounding error."""
    sizes = dict.fromkeys(_RATES, 0)
    marks = utf8 = words = known = short = letters = common = european = 0
    for part in _PARTS.finditer(text):
        kind = part.lastgroup
        size = part.end() - part.start()
        if kind == "word":
            word = part[0].lstrip(" ").lower()
            size = len(word)
            words += 1
            known += 1 - min(0, _SHORT_WORD - size) // _LETTERS_PER_TOKEN
            if size < _FOREIGN_LETTERS_PER_TOKEN:
                short += 1
            else:
                letters += size
            if word in _COMMON:
                common += 1
            elif word in _EUROPEAN:
                european += 1
        elif kind in sizes:
            sizes[kind] += size
        elif kind == "number":  # o200k joins three digits; Llama 2, Qwen, Gemma and DeepSeek take each alone
            marks += size - (text[part.start()] == " ")
        elif kind == "gap":
            spaces = part[0].count(" ")  # small vocabularies take line breaks and tabs one by one
            marks += size - spaces + -(-spaces // 16)
        elif kind == "sign":
            marks += -(-size // _SIGNS_PER_TOKEN)
        else:
            utf8 += len(part[0].encode("utf-8", "replace"))
    return (*sizes.values(), marks, utf8, words, known, short, letters, common, european)


def _estimate(traits: Sequence[int]) -> float:
    """Returns the tokens of a text with these traits."""
    *sizes, marks, utf8, words, known, short, letters, common, european = traits
    total: float = sum(map(mul, sizes, _RATES.values())) + marks + utf8 / _BYTES_PER_TOKEN
    pieces = short + letters / _FOREIGN_LETTERS_PER_TOKEN
    familiar = common + _EUROPEAN_WEIGHT * european
    foreign = max(0.0, 1 - familiar / (words * _COMMON_SHARE)) if words else 0.0
    return total + known + foreign * max(0.0, pieces - known)


class EstimateCounter(TextCounter):
    """Estimates from the characters of a text, when no vocabulary can be had."""

    def __init__(self, *, name: str = "estimate", why: str, media: MediaTable | None = None) -> None:
        super().__init__(name=name, exact=False, why=why, band=ESTIMATE_BAND, media=media)

    def _measure(self, text: str) -> int:
        return math.ceil(estimate_tokens(text))

    def _sums(self) -> Sums:
        return Sums(_traits, lambda traits: math.ceil(_estimate(traits)))


class SimilarCounter(TiktokenCounter):
    """Counts the larger of another vocabulary, which may join what others keep apart, and the estimate."""

    def _measure(self, text: str) -> int:
        return max(super()._measure(text), math.ceil(estimate_tokens(text)))

    def _sums(self) -> Sums:
        others = super()._measure
        return Sums(
            lambda text: (others(text), *_traits(text)),
            lambda sums: max(sums[0], math.ceil(_estimate(sums[1:]))),
        )
