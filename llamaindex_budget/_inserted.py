"""Memory blocks in a request that is too long: what of them is shown beside what must stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from llama_index.core.base.llms.types import ChatMessage, TextBlock

from rankbudget import TokenCounter
from rankbudget.adapters import CodecMeasure, Steps
from rankbudget.errors import BudgetExceededError

from ._codec import CODEC, PINNED, copy_message

T = TypeVar("T")


class Inserted(str):
    """The text in which a memory shows its blocks; it can be made again with fewer tokens.

    Hosts copy messages, and write them into other texts. So the text is searched for in a request while the
    memory's own message is alive. Elsewhere it is a plain text.
    """

    __slots__ = ("__weakref__", "again", "counter")

    counter: TokenCounter
    again: Callable[[int], Steps[str]]  # takes the most tokens

    @classmethod
    def of(cls, text: str, counter: TokenCounter, again: Callable[[int], Steps[str]]) -> Inserted:
        """Returns a text that can be made again."""
        made = cls(text)
        made.counter, made.again = counter, again
        _ALIVE[id(made)] = made
        return made

    def __deepcopy__(self, _: Any) -> Inserted:
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


_ALIVE: WeakValueDictionary[int, Inserted] = WeakValueDictionary()


def with_less_memory(
    fit: Callable[[Sequence[ChatMessage]], Steps[T]], messages: Sequence[ChatMessage]
) -> Steps[T]:
    """Fits a request; where what must stay is too long, memory blocks in it are planned again in less room.

    A memory does not see what agents and engines add: system prompt, tools, a template.
    """
    first = True
    while True:
        try:
            return (yield from fit(messages))
        except BudgetExceededError as error:  # noqa: PERF203 - it is tried once or twice
            shorter = yield from _shorter(messages, error.needed - error.limit, first=first)
            if shorter is None:
                raise
            messages, first = shorter, False


def _shorter(messages: Sequence[ChatMessage], over: int, *, first: bool) -> Steps[list[ChatMessage] | None]:
    """Returns a request with `over` tokens less of memory blocks; None where there is nothing to cut."""
    found = _found(messages)
    if found is None:
        return None
    at, place, text = found
    tokens = text.counter.count(text)
    room = tokens - max(1, over)
    if first:  # the conversation has what it needs, up to half of what the blocks have left
        others = [m for m in messages[:-1] if m.role not in PINNED]
        room = max(room // 2, room - CodecMeasure(CODEC, text.counter).group(others))
    less = yield from text.again(max(0, room))
    if text.counter.count(less) >= tokens:
        return None
    edited = copy_message(messages[at])
    block: Any = edited.blocks[place]
    block.text = less if block.text == text else block.text.replace(text, less)
    if not block.text:
        del edited.blocks[place]
    return [*messages[:at], *([edited] if edited.blocks else []), *messages[at + 1 :]]


def _found(messages: Sequence[ChatMessage]) -> tuple[int, int, Inserted] | None:
    """Returns where a memory's text is in a request: message, block, and the text as it was made."""
    alive = list(_ALIVE.values())
    for at, message in enumerate(messages):
        for place, block in enumerate(message.blocks):
            if isinstance(block, TextBlock):
                text = next((made for made in alive if made in block.text), None)
                if text is not None:
                    return at, place, text
    return None
