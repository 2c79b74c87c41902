"""Counting a host's messages: through a codec and a token counter, or through a callable of the host's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

from ..counting.base import whole_tokens
from ..counting.protocol import TokenCounter, Tool
from .codec import Codec


class Measure(Protocol):
    """Says what host messages cost.

    Rules:
        1. `total(messages)` is the truth for a whole request, tools and priming included.
        2. When `additive`, `total(m) == overhead + sum(one(x) for x in m)`; otherwise `group` is an estimate.
        3. It is only ever given valid, in-order runs of messages.
    """

    @property
    def additive(self) -> bool: ...

    @property
    def overhead(self) -> int:
        """Returns what a request costs before any message."""

    def group(self, messages: Sequence[Any]) -> int:
        """Returns what a run of messages that stays together adds to a request."""

    def total(self, messages: Sequence[Any]) -> int: ...


_ASKED = {"role": "user", "content": "one"}


def opening(measure: Measure, systems: Sequence[Any]) -> int:
    """Returns what system messages add to a request beside what each of them costs; may be less than 0.

    A template may write tools only behind a system message, and a text of its own where there is none.
    """
    added = None if measure.additive or not systems else getattr(measure, "added", None)
    return 0 if added is None else int(added(systems)) - measure.group(systems)


def total_before(measure: Measure, messages: Sequence[Any]) -> int:
    """Returns what a request costs without the question that follows: a template may write tools in that."""
    added = None if measure.additive else getattr(measure, "added", None)  # a host's measure sees no tools
    return measure.total(messages) if added is None else measure.overhead + int(added(messages))


class CodecMeasure:
    """Counts host messages in their neutral form."""

    def __init__(self, codec: Codec, counter: TokenCounter, tools: Sequence[Tool] | None = None) -> None:
        self.additive = counter.additive
        self.overhead = counter.overhead(tools)
        self.codec = codec
        self._to_dict: Callable[[Any], Mapping[str, Any]] = codec.to_dict
        self._count = counter.count_message
        self._counter = counter
        self._tools = tools

    def group(self, messages: Sequence[Any]) -> int:
        count, to_dict = self._count, self._to_dict
        if len(messages) == 1:  # most groups
            return count(to_dict(messages[0]))
        return sum([count(to_dict(message)) for message in messages])

    def total(self, messages: Sequence[Any]) -> int:
        if self.additive:
            return self.overhead + self.group(messages)
        return self._counter.count_messages([self._to_dict(m) for m in messages], self._tools)

    def added(self, messages: Sequence[Any]) -> int:
        """Returns what messages add to a request with a question."""
        with_question = [*map(self._to_dict, messages), _ASKED]
        return self._counter.count_messages(with_question, self._tools) - self._asked

    @cached_property
    def _asked(self) -> int:
        return self._counter.count_messages([_ASKED], self._tools)


class ListMeasure:
    """Counts with a callable of the host's, of a list or with `single` of one message.

    `extra` are tokens of a request that `count` does not see.
    """

    def __init__(self, count: Callable[[Any], int], *, single: bool = False, extra: int = 0) -> None:
        self.additive = single
        self.overhead = extra
        self.count = count
        self._name = getattr(count, "__name__", type(count).__name__)

    def group(self, messages: Sequence[Any]) -> int:
        listed = messages if self.additive else [list(messages)]
        return sum([whole_tokens(self.count(given), self._name) for given in listed])

    def total(self, messages: Sequence[Any]) -> int:
        return self.overhead + (self.group(messages) if messages else 0)
