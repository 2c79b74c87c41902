"""Counters for tests: one whose numbers are checked in the head, and one that records its work."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ..counting.protocol import Message, Side, TokenCounter, Tool

__all__ = ["ListCounter", "RecordingCounter", "WordCounter"]

_WORD = re.compile(r"\S+")


class WordCounter:
    """Counts one token for each word, and fixed costs for messages, media and the request.

    A real, exact and additive `TokenCounter`; a model with this tokenizer would read words.

    Args:
        framing: tokens around every message.
        priming: tokens a request costs before any message.
        media: tokens of an image, an audio clip or a file.

    Example:
        >>> counter = WordCounter()
        >>> counter.count("three short words")
        3
        >>> counter.count_messages([{"role": "user", "content": "hi there"}])  # 2 words, 4 framing, 3 priming
        9
        >>> counter.truncate("three short words", 2)
        'three short'
    """

    exact = True
    why = "one token is one word"
    band = 0.0
    additive = True

    def __init__(self, *, framing: int = 4, priming: int = 3, media: int = 85) -> None:
        self.framing = framing
        self.priming = priming
        self.media = media

    @property
    def name(self) -> str:
        return "words"

    def count(self, text: str) -> int:
        """Returns the number of words."""
        return _words(text)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Returns the number of words of each text."""
        return [self.count(text) for text in texts]

    def truncate(self, text: str, max_tokens: int, *, side: Side = "right") -> str:
        """Returns the first (side="right") or last (side="left") `max_tokens` words, cut at white space."""
        if self.count(text) <= max_tokens:
            return text
        if max_tokens <= 0:
            return ""
        words = [match.span() for match in _WORD.finditer(text)]
        if side == "right":
            return text[: words[max_tokens - 1][1]]
        return text[words[-max_tokens - 1][1] :]

    def count_message(self, message: Message) -> int:
        """Returns the words of everything in a message that is sent, and its framing."""
        total = self.framing + self._content(message.get("content"))
        for call in message.get("tool_calls") or ():
            function = call.get("function") or {}
            total += self.count(f"{function.get('name', '')} {function.get('arguments', '')}")
        return total + self.count(str(message.get("name") or ""))

    def overhead(self, tools: Sequence[Tool] | None = None) -> int:
        """Returns the priming and the words of the tools' JSON."""
        return self.priming + sum(
            self.count(json.dumps(tool, ensure_ascii=False, default=str)) for tool in tools or ()
        )

    def count_messages(self, messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> int:
        """Returns the words of a whole request."""
        return self.overhead(tools) + sum(map(self.count_message, messages))

    def _content(self, content: Any) -> int:
        if content is None:
            return 0
        if isinstance(content, str):
            return self.count(content)
        return sum(self._block(block) for block in content)

    def _block(self, block: Any) -> int:
        if isinstance(block, str):
            return self.count(block)
        if not isinstance(block, Mapping):
            return self.media
        kind = block.get("type")
        if kind in ("text", "input_text", "output_text"):
            return self.count(str(block.get("text") or ""))
        if kind in ("thinking", "reasoning", "redacted_thinking", "refusal"):
            return self.count(" ".join(str(v) for k, v in block.items() if k != "type"))
        if kind in ("tool_use", "tool_call", "tool_result"):
            return self.count(
                json.dumps({k: v for k, v in block.items() if k != "type"}, ensure_ascii=False, default=str)
            )
        return self.media


@lru_cache(maxsize=4096)
def _words(text: str) -> int:
    return len(text.split())


class ListCounter(WordCounter):
    """Counts words like its base, but only whole requests, as a provider's counting API.

    A list that no provider would take is an error. The counts do not add up: a request costs one token more
    for every pair of messages.

    Example:
        >>> counter = ListCounter()
        >>> messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
        >>> counter.count_messages(messages)  # 5 each, 3 priming, 1 for the pair
        14
        >>> counter.count_messages([{"role": "tool", "tool_call_id": "c1", "content": "found"}])
        Traceback (most recent call last):
        AssertionError: asked to count an invalid request: result 'c1' at 0 follows no call that asks for it
    """

    additive = False

    def count_messages(self, messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> int:
        """Returns the words of a whole request, and one token for every pair of messages."""
        from .repairs import pairing_errors

        problems = pairing_errors(messages)
        if problems:
            msg = f"asked to count an invalid request: {problems[0]}"
            raise AssertionError(msg)
        return super().count_messages(messages, tools) + len(messages) // 2


class RecordingCounter:
    """Wraps a counter and records how much text it was given.

    Tests about speed count work with it instead of seconds.

    Args:
        counter: the counter that does the counting.

    Attributes:
        calls: how often a counting method was called.
        texts: how many texts were counted.
        messages: how many messages were counted.
        characters: how many characters all of them had.

    Example:
        >>> counter = RecordingCounter(WordCounter())
        >>> counter.count_many(["one two", "three"])
        [2, 1]
        >>> (counter.calls, counter.texts, counter.characters)
        (1, 2, 12)
    """

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Forgets what was recorded."""
        self.calls = self.texts = self.messages = self.characters = 0

    @property
    def name(self) -> str:
        return self._counter.name

    @property
    def exact(self) -> bool:
        return self._counter.exact

    @property
    def why(self) -> str:
        return self._counter.why

    @property
    def band(self) -> float:
        return self._counter.band

    @property
    def additive(self) -> bool:
        return self._counter.additive

    def count(self, text: str) -> int:
        self._record(texts=1, characters=len(text))
        return self._counter.count(text)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        self._record(texts=len(texts), characters=sum(map(len, texts)))
        return self._counter.count_many(texts)

    def truncate(self, text: str, max_tokens: int, *, side: Side = "right") -> str:
        self._record(texts=1, characters=len(text))
        return self._counter.truncate(text, max_tokens, side=side)

    def count_message(self, message: Message) -> int:
        self._record(messages=1, characters=message_characters(message))
        return self._counter.count_message(message)

    def overhead(self, tools: Sequence[Tool] | None = None) -> int:
        return self._counter.overhead(tools)

    def count_messages(self, messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> int:
        self._record(messages=len(messages), characters=sum(map(message_characters, messages)))
        return self._counter.count_messages(messages, tools)

    def _record(self, *, texts: int = 0, messages: int = 0, characters: int = 0) -> None:
        with self._lock:
            self.calls += 1
            self.texts += texts
            self.messages += messages
            self.characters += characters


def message_characters(message: Message) -> int:
    """Returns the characters of a message's content and tool calls.

    Example:
        >>> message_characters({"role": "user", "content": "four"})
        4
    """
    content = message.get("content")
    size = (
        len(content)
        if isinstance(content, str)
        else 0
        if content is None
        else len(json.dumps(content, default=str))
    )
    calls = message.get("tool_calls")
    return size + (len(json.dumps(calls, default=str)) if calls else 0)
