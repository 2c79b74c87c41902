"""Token classifier: a small model says of every word whether it may go, in the way of LLMLingua-2, but to an exact bound.

Works with any token-classification weights whose last label means "keep", from a folder the user gives; nothing is downloaded. Words are
dropped whole; numbers, negations, URLs, quoted names, code, JSON and tables are never dropped while anything else is left. This file owns
transformers and torch.
"""

from __future__ import annotations

import re
from pathlib import Path
from threading import Lock
from typing import Any

from ..counting.protocol import TokenCounter
from ..errors import BudgetConfigError, CounterUnavailableError
from .cut import truncate_text
from .units import split_units

__all__ = ["TokenClassifier"]

_WORD = re.compile(r"\S+\s*")
_QUOTED = re.compile(r"\"[^\"\n]{1,120}\"|“[^”\n]{1,120}”|«[^»\n]{1,120}»|`[^`\n]+`")
_KEEP_WORD = re.compile(
    r"\d|://|^(?:not|no|never|none|nor|neither|without|cannot|nothing|nobody|nowhere|unless|except|only)\W*$|n['’]t\W*$|^\w+@\w+|[_{}<>]|\w/\w",
    re.IGNORECASE,
)


class TokenClassifier:
    """Drops the words a token-classification model finds least worth keeping.

    Args:
        path: folder with a tokenizer and a token-classification model, as `save_pretrained` writes them.
        keep_label: number of the label that means "keep"; -1 is the last one.
        batch_words: most words handed to the model at once, within its own window.

    Raises:
        CounterUnavailableError: transformers or torch is not installed.
        BudgetConfigError: the folder does not hold such a model.
    """

    def __init__(self, path: str | Path, *, keep_label: int = -1, batch_words: int = 200) -> None:
        self.path = Path(path)
        self.keep_label = keep_label
        self.batch_words = batch_words
        self._loaded: tuple[Any, Any] | None = None
        self._lock = Lock()

    def compress(self, text: str, max_tokens: int, counter: TokenCounter) -> str:
        """Returns `text` without its least important words, in at most `max_tokens`; `text` itself when it fits."""
        if max_tokens <= 0 or not text:
            return ""
        if len(counter.truncate(text, max_tokens)) == len(text):
            return text
        words, protected = _words(text)
        chances = self.rate([word.strip() for word, whole in words if not whole])
        ratings = iter(chances)
        order: list[tuple[bool, float, int]] = []
        for i, (_, whole) in enumerate(words):
            order.append((not protected[i], -1.0 if whole else -next(ratings), i))
        ranked = [i for _, _, i in sorted(order)]
        return self._fit(words, ranked, max_tokens, counter) or truncate_text(text, max_tokens, counter)

    def rate(self, words: list[str]) -> list[float]:
        """Returns for each word how sure the model is that it should stay, 0 to 1."""
        if not words:
            return []
        tokenizer, model = self._load()
        import torch  # type: ignore[import-not-found,unused-ignore]  # optional, ships types when installed

        chances: list[float] = []
        window = min(int(getattr(model.config, "max_position_embeddings", 512)) - 2, 510)
        for start in range(0, len(words), self.batch_words):
            part = words[start : start + self.batch_words]
            # Overlong parts come back as several rows of the model's own window; no word is cut off.
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
                keep = torch.softmax(model(**inputs).logits.float(), dim=-1)[..., self.keep_label]
            best = [0.0] * len(part)
            for row in range(keep.shape[0]):
                for position, word in enumerate(encoded.word_ids(row)):
                    if word is not None:
                        best[word] = max(best[word], float(keep[row, position]))
            chances.extend(best)
        return chances

    def _load(self) -> tuple[Any, Any]:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._read()
            return self._loaded

    def _read(self) -> tuple[Any, Any]:
        if not self.path.is_dir():
            raise BudgetConfigError.of(
                [
                    f"the token classifier {str(self.path)!r} is not a folder; give the folder that holds its weights"
                ]
            )
        try:
            import torch  # noqa: F401 - the model needs it; a missing one is named here
            from transformers import AutoModelForTokenClassification, AutoTokenizer
        except ImportError as error:
            msg = f'the token classifier needs {error.name}: pip install "rankbudget[transformers]" torch'
            raise CounterUnavailableError(msg) from error
        from transformers.utils import logging as messages

        # A library does not draw progress bars; the user's own setting is put back.
        shown = messages.is_progress_bar_enabled()
        messages.disable_progress_bar()  # type: ignore[no-untyped-call,unused-ignore]  # transformers types half of it
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(self.path), local_files_only=True, use_fast=True)
            model = AutoModelForTokenClassification.from_pretrained(str(self.path), local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            msg = f"the folder {str(self.path)!r} holds no token-classification model: {error}"
            raise BudgetConfigError(msg) from error
        finally:
            if shown:
                messages.enable_progress_bar()  # type: ignore[no-untyped-call,unused-ignore]  # see above
        model.eval()
        return tokenizer, model

    @staticmethod
    def _fit(words: list[tuple[str, bool]], ranked: list[int], max_tokens: int, counter: TokenCounter) -> str:
        # How many words fit is searched by halves; counts are not quite monotone, so the end of the search is checked and stepped back.
        low, high = 0, len(ranked)
        while low < high:
            middle = (low + high + 1) // 2
            if counter.count(_joined(words, ranked[:middle])) <= max_tokens:
                low = middle
            else:
                high = middle - 1
        while low > 0:
            kept = _joined(words, ranked[:low])
            if counter.count(kept) <= max_tokens:
                return kept
            low -= 1
        return ""


def _words(text: str) -> tuple[list[tuple[str, bool]], list[bool]]:
    """Returns the words (blocks that stay whole are one word) and which of them are protected."""
    words: list[tuple[str, bool]] = []
    protected: list[bool] = []
    for unit in split_units(text):
        if unit.kind in {"code", "json", "table"}:
            words.append((unit.text, True))
            protected.append(True)
            continue
        quotes = [match.span() for match in _QUOTED.finditer(unit.text)]
        lead = len(unit.text) - len(unit.text.lstrip())
        if lead and words:
            words[-1] = (words[-1][0] + unit.text[:lead], words[-1][1])
        position = lead
        while position < len(unit.text):
            quote = next((end for start, end in quotes if start <= position < end), None)
            match = _WORD.match(unit.text, position)
            end = match.end() if match else len(unit.text)
            spanning = next((stop for start, stop in quotes if position <= start < end), None)
            stop = quote or spanning
            if stop is not None and stop > position:
                match = re.compile(r"\S*\s*").match(unit.text, stop)
                end = max(end, match.end() if match else stop)
            word = unit.text[position:end]
            words.append((word, False))
            protected.append(stop is not None or bool(_KEEP_WORD.search(word.strip())))
            position = end
    return words, protected


def _joined(words: list[tuple[str, bool]], chosen: list[int]) -> str:
    return "".join(words[i][0] for i in sorted(chosen)).strip()
