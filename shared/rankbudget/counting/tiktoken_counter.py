"""Counts as OpenAI's models do: tiktoken's `encode_ordinary`, in which text that looks like a special token is just text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import TextCounter
from .cutting import cut_text
from .media import MediaTable
from .protocol import Side
from .vocabulary import load_encoding

if TYPE_CHECKING:
    import tiktoken

__all__ = ["TiktokenCounter"]


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

    def _measure(self, text: str) -> int:
        return len(self._encode(text))

    def truncate(self, text: str, max_tokens: int, *, side: Side = "right") -> str:
        """Returns the longest start of `text` (side="right") or end (side="left") within `max_tokens`, never half a grapheme."""
        if max_tokens > 0 and len(text) > 8 * max_tokens:
            head = text[: 6 * max_tokens] if side == "right" else text[-6 * max_tokens :]
        else:
            head = text
        tokens = self._encode(head) if max_tokens > 0 else []
        if head is text and len(tokens) <= max_tokens:
            return text if max_tokens > 0 else ""
        guess = None
        if len(tokens) > max_tokens > 0:
            part = tokens[:max_tokens] if side == "right" else tokens[-max_tokens:]
            guess = len(self.encoding.decode_bytes(part).decode("utf-8", "ignore"))
        return cut_text(text, max_tokens, self._measure, side=side, guess=guess)
