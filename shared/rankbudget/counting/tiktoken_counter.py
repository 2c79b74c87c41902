"""Counts with tiktoken's `encode_ordinary`, or fastokens: what looks like a special token is just text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import regex

from ..errors import CounterUnavailableError
from .base import TextCounter
from .cutting import Sums, check_cut, cut_text
from .protocol import Side
from .vocabulary import ENCODINGS, load_encoding, vocabulary_file

if TYPE_CHECKING:
    import tiktoken

LONG_TEXT = 50_000
"""Characters from which a text may hold a run of whitespace that is too long for tiktoken."""
_PIECE = 20_000
"""Characters from which a long text is parted at a joint: counted whole, it takes 14 times its memory."""
# In no pattern of OpenAI's does a token go on from a letter or digit to white space or another sign than "'",
# or from a sign to a space. None looks behind, only white space looks ahead, and no grapheme goes on there.
_JOINT = regex.compile(
    r"(?<=[[\p{L}\p{N}]--\p{GCB=Prepend}])(?=[[\s\p{P}]--'])|(?<=[\p{P}\p{S}])(?= )", regex.VERSION1
)
_PANIC_RUN = 250_000  # tiktoken 0.14 was seen to panic from 700,000 characters of whitespace on
_TOKEN_BYTES = 4
_NO_SPECIAL: set[str] = set()
_FAST = ("o200k_base", "cl100k_base")
_LINE_START = re.compile(r"\n(?:(?=<[^/])|(?<=>\n)(?=</)|\n(?=[^\s/]))")
"""Ends where a tag opens, where one closes after another tag, and behind an empty line."""
_CUT_AT_LINES = ("o200k_base", "o200k_harmony", "cl100k_base")
"""No piece of their patterns goes on behind a line break, except with white space or "/"; none looks back."""
_SHORT, _MOST_SPLIT = 400, 1_000_000
"""Characters up to which a text is counted at once, and above which its parts would fill the memory."""


class TiktokenCounter(TextCounter):
    """Counts with one of tiktoken's encodings; `options` are the other arguments of `TextCounter`.

    Example:
        >>> counter = TiktokenCounter("o200k_base")
        >>> counter.count_messages([{"role": "user", "content": "Hello"}])  # 3 + 1 + 1, reply 3
        8
        >>> counter.truncate("one two three", 2)
        'one two'
    """

    def __init__(
        self,
        encoding: str | tiktoken.Encoding,
        *,
        name: str | None = None,
        why: str | None = None,
        exact: bool = True,
        fast: bool = False,
        **options: Any,
    ) -> None:
        if fast and encoding not in _FAST:
            allowed = ", ".join(_FAST)
            msg = f"encoding must be one of {allowed} with fast (got {encoding!r}). Count without fast."
            raise CounterUnavailableError(msg)
        loaded = load_encoding(encoding) if isinstance(encoding, str) else encoding
        source = f"fastokens with tiktoken's {loaded.name}" if fast else f"tiktoken's {loaded.name}"
        start = 7 if loaded.name.startswith("o200k") else 10
        super().__init__(
            name=name or loaded.name, exact=exact, why=why or source, function_start=start, **options
        )
        self.encoding = loaded
        self._encode = loaded.encode_ordinary
        self._adds_up = exact and encoding in _CUT_AT_LINES  # not an encoding of somebody's own
        self._fast = _fast_encoding(loaded.name).encode_ordinary if fast else None
        # tiktoken's own `encode_to_numpy` without numpy: no list of numbers is made.
        self._encode_to_buffer = loaded._core_bpe.encode_to_tiktoken_buffer  # noqa: SLF001

    def truncate(self, text: str, max_tokens: int, *, side: Side = "right") -> str:
        """Returns the longest start ("right") or end ("left") that fits, never half a grapheme."""
        check_cut(text, max_tokens, side)
        if max_tokens <= 0 or not text:
            return ""
        reach = 6 * max_tokens + 64
        head = text if len(text) <= 2 * reach else text[:reach] if side == "right" else text[-reach:]
        if len(head) >= LONG_TEXT:
            return self._truncate_long(text, max_tokens, side)
        tokens = self._encode(head)
        if head is text and len(tokens) <= max_tokens and self._measure(text) <= max_tokens:
            return text
        guess = None
        if len(tokens) > max_tokens:
            part = tokens[:max_tokens] if side == "right" else tokens[-max_tokens:]
            guess = len(self.encoding.decode_bytes(part).decode("utf-8", "ignore")) or 1
        return cut_text(text, max_tokens, self._measure, side=side, guess=guess, sums=self._sums())

    def _truncate_long(self, text: str, max_tokens: int, side: Side) -> str:
        """Returns what `truncate` returns: whole pieces, and of the next one as much as fits."""
        pieces = list(self._pieces(text))
        if len(pieces) == 1:
            return super().truncate(text, max_tokens, side=side)
        for start, stop in pieces if side == "right" else reversed(pieces):
            piece = text[start:stop]
            tokens = self._measure(piece)
            if tokens > max_tokens:
                part = self.truncate(piece, max_tokens, side=side)
                return text[:start] + part if side == "right" else part + text[stop:]
            max_tokens -= tokens
        return text

    def _measure(self, text: str) -> int:
        if self._adds_up and _SHORT < len(text) <= _MOST_SPLIT:
            starts = [match.end() for match in _LINE_START.finditer(text)]
            if starts:  # each part is remembered by itself: a document counts once, whatever is around it
                return sum([self.count(text[a:b]) for a, b in pairwise([0, *starts, len(text)])])
        if len(text) >= LONG_TEXT:
            return sum([self._measure_piece(text[start:stop]) for start, stop in self._pieces(text)])
        return self._measure_piece(text)

    def _sums(self) -> Sums | None:
        return Sums(lambda text: (self._measure(text),), itemgetter(0))

    def _pieces(self, text: str) -> Iterator[tuple[int, int]]:
        """Yields where the pieces of a long text start and stop; their counts add up to its own."""
        start = 0
        known = self.encoding.name in ENCODINGS
        while known and (joint := _JOINT.search(text, start + _PIECE)):
            yield start, joint.start()
            start = joint.start()
        yield start, len(text)

    def _measure_piece(self, text: str) -> int:
        if len(text) >= LONG_TEXT:
            return self._measure_long(text)
        try:
            if self._fast:
                return len(self._fast(text))
            return memoryview(self._encode_to_buffer(text, _NO_SPECIAL)).nbytes // _TOKEN_BYTES
        except (UnicodeError, TypeError, ValueError):  # a lone surrogate has no UTF-8
            return len(self._encode(text))

    def _measure_long(self, text: str) -> int:
        """Counts a long piece; in slices, a token more for each, where tiktoken would panic."""
        starts = range(0, len(text) - _PANIC_RUN + 1, _PANIC_RUN)
        if not any(text[start : start + _PANIC_RUN].isspace() for start in starts):
            try:
                return len(self._encode(text))
            except BaseException as error:
                if type(error).__name__ != "PanicException":
                    raise
        return sum(1 + len(self._encode(text[i : i + LONG_TEXT])) for i in range(0, len(text), LONG_TEXT))


@cache
def _fast_encoding(name: str) -> Any:
    """Returns the accelerated encoding; one per process, because it is slow to start and large."""
    try:
        import fastokens
    except ImportError as error:
        msg = 'counting fast needs fastokens: pip install "rankbudget[fast]"'
        raise CounterUnavailableError(msg) from error
    file = vocabulary_file(name)
    if file is None:
        msg = (
            f"fastokens reads the vocabulary of {name} from a file, and it is not cached; "
            "set TIKTOKEN_CACHE_DIR to a folder that has it"
        )
        raise CounterUnavailableError(msg)
    return fastokens.Tokenizer.from_tiktoken(str(file), encoding=name)
