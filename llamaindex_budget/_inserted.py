"""Memory blocks in a finished request: where it is too long, they are planned anew with the conversation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

from llama_index.core.base.llms.types import ChatMessage, TextBlock

from rankbudget import Block, TokenBudget
from rankbudget.adapters import CodecMeasure, Fit, Measure, PromptRequest, plain_budget

from ._codec import PINNED, ChatCodec, copy_message


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeOf:
    """What the text of memory blocks was made of, and how it is made of less."""

    blocks: Sequence[Block]  # with what of them is shown
    beside: Mapping[str, int]  # tokens of media by the id of their segment
    frames: Mapping[str, int]  # tokens around the pieces of each
    budget: TokenBudget  # the memory's, for shares and ranks
    notice: str | None  # the content block before the text
    are_texts: Sequence[bool]  # content blocks from the text on: texts and the media between them
    show: Callable[[Mapping[str, Fit]], list[Any]]  # such content blocks


_SHARES = ("ratios", "ranks", "surplus", "preset")
_FIXED = ("system", "query")
"""What a finished request has among its messages."""
_START = 16
"""Characters of a memory's text that are looked for first."""


class Inserted(str):
    """The first text in which a memory shows its blocks; it knows what they were made of.

    Hosts copy messages, and write them into other texts. So the text is searched for in a request while the
    memory's own message is alive. Elsewhere it is a plain text.
    """

    __slots__ = ("__weakref__", "made_of")

    made_of: MadeOf

    @classmethod
    def of(cls, text: str, made_of: MadeOf) -> Inserted:
        """Returns a text that can be made again."""
        made = cls(text)
        made.made_of = made_of
        _ALIVE[id(made)] = made
        return made

    def __deepcopy__(self, _: Any) -> Inserted:
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


_ALIVE: WeakValueDictionary[int, Inserted] = WeakValueDictionary()


def with_blocks(
    request: PromptRequest,
    fits: Callable[[Measure], bool],
    codec_of: Callable[[Sequence[ChatMessage]], ChatCodec],
) -> PromptRequest:
    """Returns a finished request that is too long with its memory blocks beside the conversation, not in it.

    A memory plans before it knows what agents and engines add: system prompt, tools, steps, a template. In a
    message its blocks would always stay. Here one plan of all says what of them does, as their ranks say.
    """
    given: Sequence[ChatMessage] = request.history or ()
    apart = _Apart.of(given) if _ALIVE else None
    if apart is None or not apart.history:
        return request
    measure = request.measure if request.measure is not None else _CountedOnce(request)
    if fits(measure):
        return replace(request, measure=measure)
    codec, made_of, outer = codec_of(apart.history), apart.text.made_of, request.render

    def render(kept: Mapping[str, Fit], history: list[Any]) -> Sequence[Any]:
        shown = apart.put(history, made_of.show(kept), codec)
        return shown if outer is None else outer({}, shown)

    return replace(
        request,
        budget=made_of.budget,
        codec=codec,
        measure=measure,
        system=[message for message in apart.front if message.blocks],
        history=apart.history,
        blocks=made_of.blocks,
        beside=made_of.beside,
        frames=made_of.frames,
        render=render,
        sources=frozenset(["history", *(block.name for block in made_of.blocks)]),
        cut="fill",  # what comes before it changes with every step
        repeatable=False,  # with more room the memory would show other texts
    )


def system_texts(messages: Sequence[ChatMessage]) -> list[str]:
    """Returns the texts of system messages without memory blocks; the stock memory tags its own."""
    apart = _Apart.of(messages) if _ALIVE else None
    told = messages if apart is None else [*apart.front, *apart.history]
    texts = [message.content or "" for message in told if message.role in PINNED]
    return [text for text in texts if "<memory>" not in text]


def budget_within(room: int, request: PromptRequest) -> TokenBudget:
    """Returns the budget of a finished request, whose limit leaves all else free; blocks keep their share."""
    plain, given = plain_budget(max(1, room)).replace(safety=0), request.budget
    if not request.blocks:
        return plain
    sizes, left = dict[str, int](), room
    for name in sorted(set(given.sizes).difference(_FIXED), key=given.rank_of):
        sizes[name] = min(given.sizes[name], left)
        left -= sizes[name]
    return plain.replace(sizes=sizes, **{name: getattr(given, name) for name in _SHARES})


class _CountedOnce(CodecMeasure):
    """Counts each message of a request once, however often it is looked at."""

    def __init__(self, request: PromptRequest) -> None:
        super().__init__(request.codec, request.counter, request.tools)
        self._known: dict[int, tuple[ChatMessage, int]] = {}

    def group(self, messages: Sequence[ChatMessage]) -> int:
        total = 0
        for message in messages:
            if id(message) not in self._known:
                self._known[id(message)] = message, super().group([message])
            total += self._known[id(message)][1]
        return total


@dataclass(frozen=True, slots=True)
class _Apart:
    """The memory blocks in a request, and the request without them."""

    text: Inserted
    message: ChatMessage  # that shows them
    start: int  # its content blocks that do
    stop: int
    bare: ChatMessage  # the message without them
    front: list[ChatMessage]  # system messages before the conversation
    history: list[ChatMessage]

    @classmethod
    def of(cls, messages: Sequence[ChatMessage]) -> _Apart | None:
        found = _found(messages)
        if found is None:
            return None
        at, start, text = found
        stop, message, bare = start + 1, messages[at], copy_message(messages[at])
        blocks: list[Any] = bare.blocks
        if blocks[start].text == text:
            stop = start
            for is_text in text.made_of.are_texts:  # a conversation written as text has lost the media
                stop += stop < len(blocks) and isinstance(blocks[stop], TextBlock) == is_text
            start -= bool(start) and getattr(blocks[start - 1], "text", "") == text.made_of.notice
            del blocks[start:stop]
        else:  # the host wrote it into a text of its own
            blocks[start].text = blocks[start].text.replace(text, "")
        others = [*messages[:at], bare, *messages[at + 1 :]]
        first = next((i for i, m in enumerate(others) if m.role not in PINNED), len(others))
        history = [m for m in others[first:] if m.blocks or m is not bare]
        return cls(text, message, start, stop, bare, others[:first], history)

    def put(self, history: Sequence[ChatMessage], shown: list[Any], codec: ChatCodec) -> list[ChatMessage]:
        """Returns what is kept of the conversation with what is shown of the blocks in their place."""
        messages, made = [*self.front, *history], copy_message(self.message)
        if not shown:
            return [message for message in messages if message.blocks or message is not self.bare]
        made.blocks[self.start : self.stop] = content = self._showing(shown)
        at = next((i for i, message in enumerate(messages) if message is self.bare), None)
        if at is not None:
            messages[at] = made
        else:  # all of a user's message, or of a question that was shortened
            made.blocks = content
            asked = [i for i, message in enumerate(messages) if codec.role(message) == "user"]
            messages.insert(asked[-1] if asked else len(messages), made)
        return messages

    def _showing(self, shown: list[Any]) -> list[Any]:
        """Returns the content blocks that show less, with the notice or the host's own words around them."""
        blocks: list[Any] = self.message.blocks
        first, *rest = blocks[self.start : self.stop]
        if first.text == self.text:
            return shown
        return [first, *shown] if rest else [TextBlock(text=first.text.replace(self.text, shown[0].text))]


def _found(messages: Sequence[ChatMessage]) -> tuple[int, int, Inserted] | None:
    """Returns where a memory's text is in a request: message, block, and the text as it was made."""
    texts = [
        (at, place, block.text)
        for at, message in enumerate(messages)
        for place, block in enumerate(message.blocks)
        if isinstance(block, TextBlock)
    ]
    own = ((at, place, _ALIVE[id(text)]) for at, place, text in texts if id(text) in _ALIVE)
    alive = list(_ALIVE.values())
    starts = {made[:_START] for made in alive}  # those of many memories are the same
    may_hold = [one for one in texts if any(start in one[2] for start in starts)]
    written = ((at, place, made) for at, place, text in may_hold for made in alive if made in text)
    return next(own, None) or next(written, None)
