"""Token classifier: a small ONNX model rates every word and the least important go, as in LLMLingua-2."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from pathlib import Path
from typing import Any

from ..counting.protocol import TokenCounter
from ..errors import BudgetConfigError, CounterUnavailableError
from .truncate import truncate_text
from .units import split_units

_QUOTED = r"\"[^\"\n]{1,120}\"|“[^”\n]{1,120}”|«[^»\n]{1,120}»|`[^`\n]{1,120}`"
_WORD = re.compile(rf"(?:{_QUOTED}|\S)+\s*|\s+")
_PROTECTED = re.compile(
    rf"{_QUOTED}|\d|://|^(?:not|no|never|none|nor|neither|without|cannot|nothing|nobody|nowhere|unless"
    rf"|except|only)\W*$"
    r"|n['’]t\W*$|^\w+@\w|[_{}<>]|\w/\w",
    re.IGNORECASE,
)
_MODELS = ("model.onnx", "onnx/model.onnx")
_WINDOW = 512
"""Most tokens of one run, the special ones included: what encoders of this kind are trained on."""
_BATCH_WORDS = 200
_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}


class TokenClassifier:
    """Drops the words a token-classification model finds least worth keeping.

    Args:
        path: folder with `tokenizer.json` and `model.onnx`, as exporters write them; the last label of the
            model means "keep".
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def compress(self, text: str, max_tokens: int, counter: TokenCounter) -> str:
        """Returns `text` without its least important words, in at most `max_tokens`; `text` if it fits."""
        if max_tokens <= 0 or not text:
            return ""
        if len(counter.truncate(text, max_tokens)) == len(text):
            return text
        words, ranks = self._ranked(text)
        ranked = sorted(range(len(words)), key=lambda i: (ranks[i], i))

        def best(number: int) -> str:
            return "".join([words[i] for i in sorted(ranked[:number])]).strip()

        # The first number of words that is too many; tokens grow with it.
        numbers = range(1, len(words) + 1)
        found = bisect_right(numbers, max_tokens, key=lambda number: counter.count(best(number)))
        return best(found) or truncate_text(text, max_tokens, counter)

    def rate(self, words: list[str]) -> list[float]:
        """Returns for each word how sure the model is that it should stay, 0 to 1."""
        tokenizer, model = self._loaded
        best = [0.0] * len(words)
        for start in range(0, len(words), _BATCH_WORDS):
            encoded = tokenizer.encode(words[start : start + _BATCH_WORDS], is_pretokenized=True)
            # A part longer than the window comes in several rows; no word is cut off.
            for row in (encoded, *encoded.overflowing):
                for word, chance in zip(row.word_ids, _chances(model, row), strict=True):
                    if word is not None:
                        best[start + word] = max(best[start + word], chance)
        return best

    def _ranked(self, text: str) -> tuple[list[str], list[tuple[bool, float]]]:
        """Returns the words, a block as one word, and their ranks: protected first, then the best rated."""
        words: list[str] = []
        blocks: set[int] = set()
        for unit in split_units(text):
            for word in [unit.text] if unit.fixed else _WORD.findall(unit.text):
                if words and word.isspace():
                    words[-1] += word
                    continue
                if unit.fixed:
                    blocks.add(len(words))
                words.append(word)
        plain = [i for i in range(len(words)) if i not in blocks]
        ratings = dict(zip(plain, self.rate([words[i].strip() for i in plain]), strict=True))
        return words, [
            (i in ratings and not _PROTECTED.search(word.strip()), -ratings.get(i, 1.0))
            for i, word in enumerate(words)
        ]

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        try:
            import onnxruntime
            from tokenizers import Tokenizer
        except ImportError as error:
            msg = f'the token classifier needs {error.name}: pip install "rankbudget[onnx]"'
            raise CounterUnavailableError(msg) from error
        model = next((self.path / name for name in _MODELS if (self.path / name).is_file()), "")
        try:
            tokenizer = Tokenizer.from_file(str(self.path / "tokenizer.json"))
            session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        except Exception as error:
            wanted = "a folder with a tokenizer.json and a model.onnx that can be read"
            msg = f"classifier_path must be {wanted} (got {str(self.path)!r}: {error})."
            raise BudgetConfigError(msg) from error
        unknown = {given.name for given in session.get_inputs()} - _INPUTS
        if unknown:
            msg = f"the model must take input_ids, attention_mask and token_type_ids (got {sorted(unknown)})."
            raise BudgetConfigError(msg)
        own = (tokenizer.truncation or {}).get("max_length", _WINDOW)
        tokenizer.no_padding()
        tokenizer.enable_truncation(max_length=min(own, _WINDOW))
        return tokenizer, session


def _chances(model: Any, row: Any) -> list[float]:
    """Returns for each token of a row how sure the model is of its last label."""
    import numpy as np

    named = {"input_ids": row.ids, "attention_mask": row.attention_mask, "token_type_ids": row.type_ids}
    wanted = [given.name for given in model.get_inputs()]
    logits = model.run(None, {name: np.array([named[name]], dtype=np.int64) for name in wanted})[0][0]
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return [float(chance) for chance in shifted[:, -1] / shifted.sum(axis=-1)]
