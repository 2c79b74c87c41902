"""Counts as OpenAI's models do: tiktoken's `encode_ordinary`, in which text that looks like a special token is just text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .base import MOST_TEXTS, TextCounter
from .cutting import cut_text
from .media import MediaTable
from .protocol import Side
from .vocabulary import load_encoding
from .whitespace import LONG_RUN, shape_of, shorten_runs

if TYPE_CHECKING:
    import tiktoken

__all__ = ["TiktokenCounter"]

_SLICE = 50_000
_WIDEST_TOKEN = 128  # bytes; a longer text cannot fit into so few tokens


class TiktokenCounter(TextCounter):
    """Counts with one of tiktoken's encodings.

    Args:
        encoding: the encoding's name, or an encoding of the user's own.
        name: what it counts for; None takes the encoding's name.
        exact: False when the encoding stands in for another tokenizer.
        why: where the numbers come from; None says so.
        band: by what share a count may be too low; 0 when exact.
        media: what images, audio, files and videos cost.

    Example:
        >>> counter = TiktokenCounter("o200k_base")
        >>> counter.count("Hello, world! This is a test.")
        9
        >>> counter.count_messages([{"role": "user", "content": "Hello"}])  # 3 + 1 role + 1 content, and 3 for the reply
        8
        >>> counter.truncate("one two three", 2)
        'one two'
    """

    def __init__(
        self,
        encoding: str | tiktoken.Encoding,
        *,
        name: str | None = None,
        exact: bool = True,
        why: str | None = None,
        band: float = 0.0,
        media: MediaTable | None = None,
    ) -> None:
        loaded = load_encoding(encoding) if isinstance(encoding, str) else encoding
        super().__init__(
            name=name or loaded.name,
            exact=exact,
            why=why or f"tiktoken's {loaded.name}",
            band=band,
            media=media,
            function_start=7 if loaded.name.startswith("o200k") else 10,
        )
        self.encoding = loaded
        self._encode = loaded.encode_ordinary
        self._shape = shape_of(loaded.name)
        self._length = _length_with(loaded)
        self._plain = exact and type(self) is TiktokenCounter  # whoever counts otherwise goes the long way

    def truncate(self, text: str, max_tokens: int, *, side: Side = "right") -> str:
        """Returns the longest start of `text` (side="right") or end (side="left") within `max_tokens`, never half a grapheme."""
        max_tokens = self._unscaled(max_tokens)
        if max_tokens <= 0 or not text:
            return ""
        reach = 6 * max_tokens + 64
        head = text if len(text) <= 2 * reach else text[:reach] if side == "right" else text[-reach:]
        if len(head) >= LONG_RUN:
            return cut_text(text, max_tokens, self._measure, side=side)
        tokens = self._encode(head)
        if head is text and len(tokens) <= max_tokens and self._measure(text) <= max_tokens:
            return text
        guess = None
        if len(tokens) > max_tokens:
            part = tokens[:max_tokens] if side == "right" else tokens[-max_tokens:]
            guess = len(self.encoding.decode_bytes(part).decode("utf-8", "ignore")) or 1
        return cut_text(
            text, max_tokens, self._measure, side=side, guess=guess, widest=_WIDEST_TOKEN, joints=True
        )

    def _count_new(self, text: str) -> int:
        size = len(text)
        room = self._room - size
        if (
            self._plain and 0 < size < LONG_RUN and room > 0 and len(self._recent) < MOST_TEXTS
        ):  # written out: ten thousand texts go through here
            found = self._older.get(text)
            if found is None:
                try:
                    found = self._length(text)
                except (UnicodeError, TypeError, ValueError):  # a lone surrogate
                    found = self._measure(text)
            self._room = room
            self._recent[text] = found
            return found
        return super()._count_new(text)

    def _measure(self, text: str) -> int:
        if len(text) < LONG_RUN:
            return len(self._encode(text))
        return self._measure_long(text)

    def _measure_long(self, text: str) -> int:
        """Counts a text that may hold a giant run of whitespace, on which tiktoken panics."""
        short, removed = (text, 0) if self._shape is None else shorten_runs(text, self._shape, self._merged)
        try:
            return len(self._encode(short)) + removed
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            # An encoding of someone's own: pieces are counted one by one. A cut can only split tokens, so this is too much, never too little.
            return removed + sum(
                len(self._encode(short[i : i + _SLICE])) for i in range(0, len(short), _SLICE)
            )

    def _merged(self, piece: str) -> int:
        return len(self.encoding._encode_single_piece(piece))  # noqa: SLF001 - the only way around the pattern that panics


def _length_with(encoding: tiktoken.Encoding) -> Callable[[str], int]:
    """Returns what counts as `encode_ordinary` does, without making a list of numbers that nobody reads; a lone surrogate is an error here."""
    encode = encoding._core_bpe.encode_to_tiktoken_buffer  # noqa: SLF001 - tiktoken's own `encode_to_numpy`, without numpy

    def length(text: str) -> int:
        return memoryview(encode(text, _NO_SPECIAL)).nbytes // _TOKEN_BYTES

    return length


_NO_SPECIAL: set[str] = set()
"""No text is special: what looks so is ordinary text."""
_TOKEN_BYTES = 4
