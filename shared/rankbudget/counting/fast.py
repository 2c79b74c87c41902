"""Counts with fastokens: the same numbers as tiktoken's, sooner once it has started. It needs the extra `rankbudget[fast]`.

Starting takes seconds, once per process; `make bench` shows from when on it pays. It knows no lone surrogates, which are replaced as tiktoken
replaces them, and is never given a giant run of whitespace. Counting in several threads at once makes it slower, not faster.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ..errors import CounterUnavailableError
from .media import MediaTable
from .tiktoken_counter import TiktokenCounter
from .vocabulary import vocabulary_file
from .whitespace import LONG_RUN

__all__ = ["FastCounter"]

_PRESETS = ("o200k_base", "cl100k_base")
_lock = threading.Lock()
_loaded: dict[str, Any] = {}


class FastCounter(TiktokenCounter):
    """Counts with fastokens what tiktoken would count.

    Args:
        encoding: the name of one of tiktoken's encodings.
        name: what it counts for; None takes the encoding's name and "+fast".
        media: what images, audio, files and videos cost.

    Raises:
        CounterUnavailableError: when fastokens is not installed.
    """

    def __init__(self, encoding: str, *, name: str | None = None, media: MediaTable | None = None) -> None:
        if encoding not in _PRESETS:
            msg = f"fastokens is not proved equal for {encoding!r}; allowed: {', '.join(_PRESETS)}. Count without fast."
            raise CounterUnavailableError(msg)
        super().__init__(
            encoding,
            name=name or f"{encoding}+fast",
            why=f"fastokens with tiktoken's {encoding}",
            media=media,
        )
        self._fast: Callable[[str], Any] = _load(self.encoding).encode_ordinary
        self._length = self._measure
        self._plain = type(self) is FastCounter

    def _measure(self, text: str) -> int:
        if len(text) >= LONG_RUN:
            return super()._measure(text)
        try:
            return len(self._fast(text))
        except (UnicodeError, TypeError, ValueError):  # a lone surrogate has no UTF-8
            return super()._measure(text)


def _load(encoding: Any) -> Any:
    """Returns the accelerated encoding; one per process, because it is slow to start and large."""
    try:
        import fastokens
    except ImportError as error:
        msg = 'counting fast needs fastokens: pip install "rankbudget[fast]"'
        raise CounterUnavailableError(msg) from error
    with _lock:
        if encoding.name not in _loaded:
            file = vocabulary_file(encoding.name)
            if file is None:
                msg = f"fastokens reads the vocabulary of {encoding.name} from a file, and it is not cached; set TIKTOKEN_CACHE_DIR to a folder that has it"
                raise CounterUnavailableError(msg)
            _loaded[encoding.name] = fastokens.Tokenizer.from_tiktoken(str(file), encoding=encoding.name)
        return _loaded[encoding.name]
