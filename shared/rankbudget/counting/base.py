"""What all counters of texts share: remembered counts, OpenAI's message framing, and truncation."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import BudgetConfigError, BudgetError, CounterUnavailableError, check_list, shown
from . import messages as framing
from .cutting import Sums, cut_text
from .media import MediaTable
from .protocol import Message, Side, Tool
from .tools import check_tools, schema_tokens

_GENERATION_CHARACTERS = 8_000_000  # there are two generations: at most 16 M characters are kept
MOST_TEXTS = 200_000
"""Counts remembered in one generation."""
DIGEST_OVER = 65_536  # longer texts are remembered by digest: one of them must not push out everything else
_DIGEST_SIZE = 64
_PLAIN = 2  # role and content: a message with nothing else has a short way


class TextCounter(ABC):
    """Counts messages and tools by counting texts, with `_measure`; a request is the sum of its parts.

    `function_start` are the tokens before each tool's schema, `request_start` those before any message,
    `message_start` those around each; the other arguments are what `TokenCounter` says of them.
    """

    additive = True

    def __init__(
        self,
        *,
        name: str,
        exact: bool,
        why: str,
        band: float = 0.0,
        media: MediaTable | None = None,
        function_start: int = 7,
        request_start: int = framing.REPLY,
        message_start: int = framing.PER_MESSAGE,
    ) -> None:
        self.name = name
        self.exact = exact
        self.why = why
        self.band = band
        self._media = media or MediaTable()
        self._function_start = function_start
        self._request_start = request_start
        self._message_start = message_start
        self._recent: dict[str | bytes, int] = {}
        self._older: dict[str | bytes, int] = {}
        self._room = _GENERATION_CHARACTERS

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, exact={self.exact})"

    def __deepcopy__(self, memo: dict[int, Any]) -> TextCounter:
        return self  # counts are remembered once for all users of a counter

    def count(self, text: str) -> int:
        """Returns the tokens of one text."""
        try:
            found = self._recent.get(text)
        except TypeError:  # a list or a dict, which the next line refuses
            found = None
        return self._count_new(text) if found is None else found

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Returns the tokens of each text, in order."""
        check_list("texts", texts, "texts")
        return list(map(self.count, texts))

    def truncate(self, text: str, max_tokens: int, *, side: Side = "right") -> str:
        """Returns the longest start ("right") or end ("left") that fits, never half a grapheme."""
        return cut_text(text, max_tokens, self._measure, side=side, sums=self._sums())

    def count_message(self, message: Message) -> int:
        """Returns what one message adds to a request, framing included; odd content counts as its text."""
        if type(message) is dict and len(message) == _PLAIN:
            content, role = message.get("content"), message.get("role")
            if type(content) is str and type(role) is str:
                text, speaker = self._recent.get(content), self._recent.get(role)
                text = self._count_new(content) if text is None else text
                return self._message_start + text + (self._count_new(role) if speaker is None else speaker)
        return framing.message_tokens(message, self.count, self._media, start=self._message_start)

    def overhead(self, tools: Sequence[Tool] | None = None) -> int:
        """Returns what a request costs before any message: reply priming and tool schemas."""
        if not tools:
            return self._request_start
        check_tools(tools)
        return self._request_start + schema_tokens(tools, self.count, start=self._function_start)

    def count_messages(self, messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> int:
        """Returns the tokens of the whole request."""
        check_list("messages", messages, "messages")
        return self.overhead(tools) + sum(map(self.count_message, messages))

    @abstractmethod
    def _measure(self, text: str) -> int:
        """Returns the tokens of a text that is not remembered."""

    def _sums(self) -> Sums | None:
        """Returns what of a text adds up, so that a cut is found sooner; None where nothing does."""
        return None

    def _count_new(self, text: Any) -> int:
        """Counts a text that the recent generation does not know, and remembers the count."""
        if not isinstance(text, str):
            msg = f"a text to count must be a str (got {shown(text)})."
            raise BudgetConfigError(msg)
        size = len(text)
        if not size:
            return 0
        key: str | bytes = text
        if size > DIGEST_OVER:
            digest = hashlib.blake2b(digest_size=16)
            for start in range(0, size, DIGEST_OVER):  # without a copy of the whole text
                digest.update(text[start : start + DIGEST_OVER].encode("utf-8", "surrogatepass"))
            key = digest.digest()
            size = _DIGEST_SIZE
            if key in self._recent:
                return self._recent[key]
        found = self._older.get(key)
        if found is None:
            found = self._measure(text)
        # There is no lock: two threads at once can only forget more than they must, never count wrong.
        self._room -= size
        if self._room < 0 or len(self._recent) >= MOST_TEXTS:
            self._older, self._recent = self._recent, {}
            self._room = _GENERATION_CHARACTERS - size
        self._recent[key] = found
        return found


class CallableCounter(TextCounter):
    """Counts texts with a callable, fractions rounded up, and frames messages as OpenAI does."""

    def __init__(self, count: Callable[[str], int], *, name: str | None = None) -> None:
        own = name or getattr(count, "__name__", None) or type(count).__name__
        super().__init__(name=own, exact=True, why=f"the callable {own!r} is trusted")
        self._callable = count

    def _measure(self, text: str) -> int:
        try:
            counted = self._callable(text)
        except BudgetError:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            msg = f"the counter {self.name!r} must count every text (it raised {said})."
            raise CounterUnavailableError(msg) from error
        return whole_tokens(counted, self.name)


def whole_tokens(counted: Any, name: str) -> int:
    """Returns what a user's callable counted, rounded up; raises BudgetConfigError for no number from 0."""
    try:
        tokens: int = math.ceil(counted)
    except (TypeError, ValueError, OverflowError):
        tokens = -1
    if tokens < 0:
        msg = (
            f"the counter {name!r} must return a whole number from 0 (got {shown(counted)}). "
            "Return the number of tokens."
        )
        raise BudgetConfigError(msg)
    return tokens
