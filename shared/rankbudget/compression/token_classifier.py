"""Token classifier: a small model rates every word and the least important go, as in LLMLingua-2.

Works with any token-classification weights whose last label means "keep", from a folder the user gives;
nothing is downloaded. Numbers, negations, URLs, quoted names, code, JSON and tables go last. This file owns
transformers and torch.
"""

from __future__ import annotations

import re
from pathlib import Path
from threading import Lock
from typing import Any

from ..counting.protocol import TokenCounter
from ..errors import BudgetConfigError, CounterUnavailableError
from .truncate import truncate_text
from .units import split_units

__all__ = ["TokenClassifier"]

_QUOTED = r"\"[^\"\n]{1,120}\"|“[^”\n]{1,120}”|«[^»\n]{1,120}»|`[^`\n]{1,120}`"
_WORD = re.compile(rf"(?:{_QUOTED}|\S)+\s*|\s+")
_PROTECTED = re.compile(
    rf"{_QUOTED}|\d|://|^(?:not|no|never|none|nor|neither|without|cannot|nothing|nobody|nowhere|unless"
    rf"|except|only)\W*$"
    r"|n['’]t\W*$|^\w+@\w|[_{}<>]|\w/\w",
    re.IGNORECASE,
)
_BATCH_WORDS = 200


class TokenClassifier:
    """Drops the words a token-classification model finds least worth keeping.

    Args:
        path: folder with a tokenizer and a token-classification model, as `save_pretrained` writes them; the
            model's last label means "keep".
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._loaded: tuple[Any, Any] | None = None
        self._lock = Lock()

    def compress(self, text: str, max_tokens: int, counter: TokenCounter) -> str:
        """Returns `text` without its least important words, in at most `max_tokens`; `text` if it fits."""
        if max_tokens <= 0 or not text:
            return ""
        if len(counter.truncate(text, max_tokens)) == len(text):
            return text
        words, ranks = self._ranked(text)
        ranked = sorted(range(len(words)), key=lambda i: (ranks[i], i))
        best = ""
        low, high = 0, len(ranked)
        while low < high:
            middle = (low + high + 1) // 2
            kept = "".join([words[i] for i in sorted(ranked[:middle])]).strip()
            if counter.count(kept) <= max_tokens:
                low, best = middle, kept
            else:
                high = middle - 1
        return best or truncate_text(text, max_tokens, counter)

    def rate(self, words: list[str]) -> list[float]:
        """Returns for each word how sure the model is that it should stay, 0 to 1."""
        if not words:
            return []
        tokenizer, model = self._load()
        import torch  # type: ignore[import-not-found,unused-ignore]  # optional, ships types when installed

        chances: list[float] = []
        window = min(int(getattr(model.config, "max_position_embeddings", 512)) - 2, 510)
        for start in range(0, len(words), _BATCH_WORDS):
            part = words[start : start + _BATCH_WORDS]
            # Long parts come back as several rows of the model's own window; no word is cut off.
            encoded = tokenizer(
                part,
                is_split_into_words=True,
                truncation=True,
                max_length=window,
                return_overflowing_tokens=True,
                padding=True,
                return_tensors="pt",
            )
            inputs = {key: encoded[key] for key in ("input_ids", "attention_mask") if key in encoded}
            with torch.no_grad():
                keep = torch.softmax(model(**inputs).logits.float(), dim=-1)[..., -1]
            best = [0.0] * len(part)
            for row in range(keep.shape[0]):
                for position, word in enumerate(encoded.word_ids(row)):
                    if word is not None:
                        best[word] = max(best[word], float(keep[row, position]))
            chances.extend(best)
        return chances

    def _ranked(self, text: str) -> tuple[list[str], list[tuple[bool, float]]]:
        """Returns the words, a block as one word, and their ranks: protected first, then the best rated."""
        words: list[str] = []
        fixed: list[bool] = []
        for unit in split_units(text):
            for word in [unit.text] if unit.fixed else _WORD.findall(unit.text):
                if words and word.isspace():
                    words[-1] += word
                else:
                    words.append(word)
                    fixed.append(unit.fixed)
        ratings = iter(
            self.rate([word.strip() for word, whole in zip(words, fixed, strict=True) if not whole])
        )
        ranks: list[tuple[bool, float]] = []
        for word, whole in zip(words, fixed, strict=True):
            rating = 1.0 if whole else next(ratings)
            ranks.append((not whole and not _PROTECTED.search(word.strip()), -rating))
        return words, ranks

    def _load(self) -> tuple[Any, Any]:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._read()
            return self._loaded

    def _read(self) -> tuple[Any, Any]:
        if not self.path.is_dir():
            msg = f"the token classifier's path must be a folder of weights (got {str(self.path)!r})."
            raise BudgetConfigError(msg)
        try:
            import torch  # noqa: F401 - the model needs it; a missing one is named here
            from transformers import AutoModelForTokenClassification, AutoTokenizer
        except ImportError as error:
            msg = f'the token classifier needs {error.name}: pip install "rankbudget[transformers]" torch'
            raise CounterUnavailableError(msg) from error
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(self.path), local_files_only=True, use_fast=True)
            model = AutoModelForTokenClassification.from_pretrained(str(self.path), local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            msg = f"the folder {str(self.path)!r} holds no token-classification model: {error}"
            raise BudgetConfigError(msg) from error
        model.eval()
        return tokenizer, model
