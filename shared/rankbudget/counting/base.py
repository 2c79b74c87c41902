"""What all counters of texts share: a bounded memory of counts, OpenAI's message framing, and truncation.

A subclass says how many tokens one text has (`_measure`); everything else follows. The fast paths are written out by hand: fitting a long
conversation asks for thousands of counts that are already known.
"""

from __future__ import annotations

import hashlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from . import messages as framing
from .cutting import cut_text
from .learning import Learned
from .media import MediaTable
from .protocol import Message, Side, Tool
from .tools import schema_tokens

__all__ = ["MOST_TEXTS", "TextCounter"]

_GENERATION_CHARACTERS = 8_000_000  # two generations: at most 16 M characters, and less where the application holds the texts anyway
MOST_TEXTS = 200_000
"""Counts remembered in one generation."""
_DIGEST_OVER = (
    65_536  # a longer text is remembered by its digest, so that one giant does not push everything else out
)


class TextCounter(ABC):
    """Counts messages and tools by counting texts; a request is the sum of its parts.

    Args:
        name: what it counts for; `counter_for(name)` finds it again where possible.
        exact: whether it knows or estimates.
        why: where the numbers come from, or why they are estimates.
        band: by what share a count may be too low; 0 when exact.
        media: what images, audio, files and videos cost.
        function_start: tokens before each tool's schema: 7 in the gpt-4o family, 10 before it.
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
    ) -> None:
        self._name = name
        self._exact = exact
        self._why = why
        self._band = band
        self._media = media or MediaTable()
        self._function_start = function_start
        self._recent: dict[str | bytes, int] = {}
        self._older: dict[str | bytes, int] = {}
        self._room = _GENERATION_CHARACTERS
        self._framed: dict[Any, int] = {}
        self._learned: Learned | None = None if exact else Learned(band)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, exact={self._exact})"

    def __deepcopy__(self, memo: dict[int, Any]) -> TextCounter:
        return self  # what it remembers is shared by all who count

    def __reduce__(self) -> tuple[Any, ...]:
        from .resolve import counter_for, named

        if named(self._name) is not self:
            msg = f"{self!r} does not travel: counter_for({self._name!r}) gives another counter; send its name or what it was made from"
            raise TypeError(msg)
        return counter_for, (self._name,)

    # ---- who it is --------------------------------------------------------------------------------------------------------------
    @property
    def name(self) -> str:
        return self._name

    @property
    def exact(self) -> bool:
        return self._exact

    @property
    def why(self) -> str:
        return self._why

    @property
    def band(self) -> float:
        return self._band if self._learned is None else self._learned.band

    def observe(self, counted: int, reported: int) -> None:
        """Learns from the tokens a provider reports for a request that was counted; a counter that is exact has nothing to learn.

        Later counts are scaled so that they meet what was reported, and the band becomes what is left of the error.

        Args:
            counted: tokens this counter gave for the request.
            reported: tokens the provider reports for it, as in `usage.prompt_tokens`.
        """
        if self._learned is not None and self._learned.observe(counted, reported):
            self._forget()

    # ---- texts ------------------------------------------------------------------------------------------------------------------
    def count(self, text: str) -> int:
        """Returns the tokens of one text."""
        found = self._recent.get(text)
        return self._count_new(text) if found is None else found

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Returns the tokens of each text, in order."""
        return list(map(self.count, texts))

    def truncate(self, text: str, max_tokens: int, *, side: Side = "right") -> str:
        """Returns the longest start of `text` (side="right") or end (side="left") within `max_tokens`, never half a grapheme."""
        return cut_text(text, self._unscaled(max_tokens), self._measure, side=side)

    def _unscaled(self, max_tokens: int) -> int:
        """Returns the bound in tokens as `_measure` counts them."""
        return max_tokens if self._learned is None else self._learned.unscaled(max_tokens)

    @abstractmethod
    def _measure(self, text: str) -> int:
        """Returns the tokens of a text that is not remembered."""

    def _count_new(self, text: str) -> int:
        if not text:
            return 0
        size = len(text)
        if size > _DIGEST_OVER:
            return self._count_long(text)
        found = self._older.get(text)
        if found is None:
            found = self._measure(text)
            if self._learned is not None:
                found = self._learned.scaled(found)
        self._remember(text, found, size)
        return found

    def _count_long(self, text: str) -> int:
        key = _digest(text)
        found = self._recent.get(key)
        if found is None:
            found = self._older.get(key)
            if found is None:
                found = self._measure(text)
                if self._learned is not None:
                    found = self._learned.scaled(found)
            self._remember(key, found, 64)
        return found

    def _remember(self, key: str | bytes, found: int, size: int) -> None:
        """Keeps a count. Without a lock: two threads at once can only forget more than they must, never count wrong."""
        self._room -= size
        if self._room < 0 or len(self._recent) >= MOST_TEXTS:
            self._older, self._recent = self._recent, {}
            self._room = _GENERATION_CHARACTERS - size
        self._recent[key] = found

    def _forget(self) -> None:
        """Drops every remembered count, for counters that change what they answer."""
        with self._lock:
            self._recent = {}
            self._older = {}
            self._framed = {}
            self._room = _GENERATION_CHARACTERS

    # ---- requests ---------------------------------------------------------------------------------------------------------------
    def count_message(self, message: Message) -> int:
        """Returns what one message adds to a request, framing included; odd content is counted as its text, never refused."""
        if type(message) is dict and len(message) == 2:  # noqa: PLR2004 - role and content: the plain message
            content = message.get("content")
            if type(content) is str:
                role = message.get("role")
                framed = self._framed.get(role) if type(role) is str else None
                if framed is not None:
                    found = self._recent.get(content)
                    return framed + (self._count_new(content) if found is None else found)
        return self._count_odd(message)

    def overhead(self, tools: Sequence[Tool] | None = None) -> int:
        """Returns what a request costs before any message: reply priming and tool schemas."""
        if not tools:
            return framing.REPLY
        return framing.REPLY + schema_tokens(tools, self.count, start=self._function_start)

    def count_messages(self, messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> int:
        """Returns the tokens of the whole request."""
        total, framed, count_new = self.overhead(tools), self._framed, self._count_new
        for message in messages:  # `count_message`, written out
            if type(message) is dict and len(message) == 2:  # noqa: PLR2004 - role and content: the plain message
                content, role = message.get("content"), message.get("role")
                if type(content) is str and type(role) is str and role in framed:
                    found = self._recent.get(content)
                    total += framed[role] + (count_new(content) if found is None else found)
                    continue
            total += self._count_odd(message)
        return total

    def _count_odd(self, message: Message) -> int:
        """Counts every message but the plain one, and learns the framing of its role."""
        total = framing.message_tokens(message, self.count, self._media)
        if isinstance(message, dict):
            role = message.get("role")
            if type(role) is str and len(self._framed) < 64 and role not in self._framed:  # noqa: PLR2004 - roles are few
                self._framed[role] = framing.PER_MESSAGE + self.count(role)
        return total


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
