"""Counts with fastokens: tiktoken's numbers, faster once it has started. Needs `rankbudget[fast]`.

Starting takes seconds, once per process; `make bench` shows when it pays. Several threads at once are slower
than one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ..errors import CounterUnavailableError
from .media import MediaTable
from .tiktoken_counter import LONG_TEXT, TiktokenCounter
from .vocabulary import vocabulary_file

__all__ = ["FastCounter"]

_PRESETS = ("o200k_base", "cl100k_base")
_lock = threading.Lock()
_loaded: dict[str, Any] = {}


class FastCounter(TiktokenCounter):
    """Counts with fastokens what tiktoken would count.

    Raises:
        CounterUnavailableError: fastokens is not installed, or was not tested with the encoding.
    """

    def __init__(self, encoding: str, *, name: str | None = None, media: MediaTable | None = None) -> None:
        if encoding not in _PRESETS:
            allowed = ", ".join(_PRESETS)
            msg = f"encoding must be one of {allowed} with fast (got {encoding!r}). Count without fast."
            raise CounterUnavailableError(msg)
        why = f"fastokens with tiktoken's {encoding}"
        super().__init__(encoding, name=name or f"{encoding}+fast", why=why, media=media)
        self._fast: Callable[[str], Any] = _load(self.encoding).encode_ordinary

    def _measure(self, text: str) -> int:
        if len(text) < LONG_TEXT:
            try:
                return len(self._fast(text))
            except (UnicodeError, TypeError, ValueError):  # a lone surrogate has no UTF-8
                pass
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
                msg = (
                    f"fastokens reads the vocabulary of {encoding.name} from a file, and it is not cached; "
                    "set TIKTOKEN_CACHE_DIR to a folder that has it"
                )
                raise CounterUnavailableError(msg)
            _loaded[encoding.name] = fastokens.Tokenizer.from_tiktoken(str(file), encoding=encoding.name)
        return _loaded[encoding.name]
