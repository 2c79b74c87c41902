"""Memory blocks with a rank that can be shortened, for a stock `Memory` and for `BudgetMemory`."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

from llama_index.core.base.llms.types import ChatMessage, TextBlock
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.memory import BaseMemoryBlock
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from typing_extensions import override

from rankbudget import Block, FitStrategy, Segment, TokenCounter, counter_for, truncate_text
from rankbudget.adapters import SUMMARY_TIMEOUT, adrive, fit_one_block, summarize_steps, typed_errors
from rankbudget.errors import BudgetConfigError, SummaryError

from ._codec import CODEC, copy_message
from ._counters import settings_counter
from ._options import by_name, check_part
from .models import as_summarizer

_LOWEST = 100
Name = Annotated[str, Field(pattern=r"\S")]
Rank = Annotated[int, Field(ge=1)]
_MAY_LACK = ("counter", "read")
"""Without these a restored block still says its text."""


class Found(list[Any]):
    """Content with the question that it was found for: one block may serve several conversations at once."""

    asked = ""
    known: Mapping[str, Segment] = {}  # what texts are rated by, by the texts
    strategy: str | FitStrategy | None = None  # which of them stay; None for what answers the question
    notes: tuple[str, ...] = ()  # for the report
    show: Callable[[Segment, str], str] = staticmethod(lambda _, text: text)  # what is left of one


class BudgetMemoryBlock(BaseMemoryBlock[Any]):
    """A named text in the prompt with a rank, cut at sentence ends when it must give up tokens.

    Args:
        name: its name and tag.
        text: what it says; or
        read: a function of the conversation that returns what it says, plain or async: a text, or a list of
            texts, of which those that answer the question stay, in their order.
        rank: importance, 1 = cut last; its `priority` makes a stock `Memory` cut in the same order.
        pinned: never cut.
        size: fixed number of tokens in a `BudgetMemory`, instead of what its rank gets.
        counter: what `counter_for` takes; None takes LlamaIndex's tokenizer.

    Raises:
        BudgetConfigError: an option is wrong.

    Example:
        >>> import asyncio
        >>> text = "The door is red. The roof is old. The yard is wide."
        >>> asyncio.run(BudgetMemoryBlock(name="house", text=text).atruncate(text, 5))
        'The door is red. The roof is old.'
    """

    name: Name
    text: str = ""
    read: Any = Field(default=None, exclude=True)
    rank: Rank = 4
    pinned: bool = False
    size: int | None = Field(default=None, ge=0)
    counter: Any = Field(default=None, exclude=True)
    priority: int = -1  # a stock Memory cuts the smallest above 0 first

    _tokens: TokenCounter | None = PrivateAttr(default=None)
    _lost: tuple[str, ...] = PrivateAttr(default=())  # options that plain data could not hold

    @by_name
    def __init__(self, **options: Any) -> None:
        check_part(type(self), options)
        with typed_errors():
            super().__init__(**options)
        if self.priority < 0:
            self.priority = 0 if self.pinned else max(1, _LOWEST - self.rank)

    @property
    def tokens(self) -> TokenCounter:
        """What counts this block."""
        if self._tokens is None:
            self._tokens = settings_counter() if self.counter is None else counter_for(self.counter)
        return self._tokens

    def _check_sources(self) -> None:
        """Raises BudgetConfigError where the block was made or restored without what it reads."""
        missing = [f"{name}=" for name in self._lost if name not in _MAY_LACK and getattr(self, name) is None]
        if missing:
            msg = (
                f"memory block {self.name!r} must have {' and '.join(missing)} (got none). Give it to the "
                "block; plain data cannot hold it, so pass memory_blocks= where a memory is loaded, or "
                "memory= to a run."
            )
            raise BudgetConfigError(msg)

    async def _aget(self, messages: list[ChatMessage] | None = None, **_: Any) -> Any:
        if self.read is None:
            return self.text
        found = self.read(list(messages or ()))
        found = await found if inspect.isawaitable(found) else found
        return found_texts(found, question_of(messages)) if isinstance(found, list) else found

    async def _aput(self, messages: list[ChatMessage]) -> None:
        """Takes messages that left the conversation; a fixed text has no use for them."""

    async def aput(self, messages: list[ChatMessage], *args: Any, **kwargs: Any) -> None:
        """Takes copies of messages: the host's own method writes the session's id into what it is given."""
        await super().aput([copy_message(m) for m in messages], *args, **kwargs)

    async def atruncate(self, content: Any, tokens_to_truncate: int) -> Any:
        """Returns the content at least `tokens_to_truncate` tokens shorter; None when nothing is left."""
        if self.pinned:
            return content
        if not isinstance(content, str):
            return self._fewer(content, tokens_to_truncate)
        most = self.tokens.count(content) - tokens_to_truncate
        return truncate_text(content, most, self.tokens, ellipsis="") or None if most > 0 else None

    def _fewer(self, content: Sequence[Any], tokens_to_truncate: int) -> Any:
        """Returns the content blocks that answer the question, some shortened; None where there are media."""
        texts = [str(block.text) for block in content if hasattr(block, "text")]
        if len(texts) < len(content):
            return None
        room = sum(self.tokens.count_many([f"{text}\n" for text in texts])) - tokens_to_truncate
        if room <= 0:
            return None
        found = content if isinstance(content, Found) else Found(content)
        given = [found.known.get(text) or Segment(id=f"{i}", text=text) for i, text in enumerate(texts)]
        block = Block(name="knowledge", segments=given, strategy=found.strategy or "evidence")

        def cost(segment: Segment, text: str) -> int:
            return self.tokens.count(f"{found.show(segment, text)}\n")

        kept, _ = fit_one_block(block, found.asked, room, self.tokens, cost=cost)
        return [TextBlock(text=found.show(p.segment, p.rendition.text)) for p in kept.pieces] or None


def found_texts(texts: Iterable[Any], asked: str) -> Found:
    """Returns texts as content blocks that know the question they were found for."""
    found = Found(TextBlock(text=text) if isinstance(text, str) else text for text in texts)
    found.asked = asked
    return found


def question_of(messages: Sequence[ChatMessage] | None) -> str:
    """Returns the text of the newest question, "" where there is none."""
    said = (m.content for m in reversed(messages or ()) if CODEC.role(m) == "user")
    return next(filter(None, said), "")


class SystemMemoryBlock(BudgetMemoryBlock):
    """Standing instructions: never cut."""

    name: Name = "instructions"
    rank: Rank = 1
    pinned: bool = True


class ProjectMemoryBlock(BudgetMemoryBlock):
    """What the project is about: cut after everything but the instructions."""

    name: Name = "project"
    rank: Rank = 2


class TaskMemoryBlock(BudgetMemoryBlock):
    """What is being done now."""

    name: Name = "task"
    rank: Rank = 3


class KnowledgeMemoryBlock(BudgetMemoryBlock):
    """Retrieved texts for the question: the best that fit, each whole or with its best sentences.

    Args:
        retriever: any LlamaIndex retriever.
    """

    name: Name = "knowledge"
    rank: Rank = 7
    retriever: Any = Field(default=None, exclude=True)

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> Any:
        if self.retriever is None:
            return await super()._aget(messages, **block_kwargs)
        asked = question_of(messages)
        if not asked:
            return []
        nodes: list[NodeWithScore] = await self.retriever.aretrieve(QueryBundle(asked))
        scores: dict[str, float | None] = {}
        for node in nodes:
            text, score = node.get_content(MetadataMode.LLM), node.score
            best = scores.get(text)
            scores[text] = best if score is None or (best is not None and best > score) else score
        found = found_texts(filter(None, scores), asked)
        found.known = {
            block.text: Segment(id=f"{self.name}-{i}", text=block.text, score=scores[block.text])
            for i, block in enumerate(found)
        }
        return found


class HistorySummaryMemoryBlock(BudgetMemoryBlock):
    """A running summary of the messages that left the conversation, for one conversation alone.

    A second session is refused: it would read the first one's summary. When the model fails, the last summary
    stays, a RuntimeWarning says so, and the messages wait for the next turn.

    Args:
        summarizer: an LLM, or `(text, max_tokens) -> str`, plain or async; "extractive" needs no model.
        max_tokens: most tokens of the summary, from 1.
        waiting: what the summary does not hold yet.

    Raises:
        BudgetConfigError: an option is wrong, or a memory with another `session_id` uses the block.
    """

    name: Name = "summary"
    rank: Rank = 4
    summarizer: Any = Field(default="extractive", exclude=True)
    max_tokens: int = Field(default=500, ge=1)
    waiting: list[str] = Field(default_factory=list)

    _session_id: str | None = PrivateAttr(default=None)  # the first that used it

    @by_name
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self.summarizer != "extractive":
            self.summarizer = as_summarizer(self.summarizer)

    def _serve(self, session_id: str | None) -> None:
        """Raises BudgetConfigError where the block holds the summary of another session."""
        if session_id is None or self._session_id in (None, session_id):
            self._session_id = self._session_id or session_id
            return
        msg = (
            f"memory block {self.name!r} must serve one conversation (got a second session_id, "
            f"{session_id!r:.80}). Make a HistorySummaryMemoryBlock for each memory."
        )
        raise BudgetConfigError(msg)

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> Any:
        self._serve(block_kwargs.get("session_id"))
        await self._catch_up()
        return await super()._aget(messages, **block_kwargs)

    @override
    async def aput(
        self, messages: list[ChatMessage], from_short_term_memory: bool = False, session_id: str | None = None
    ) -> None:
        """Takes messages of a session that left the conversation."""
        self._serve(session_id)
        await super().aput(messages, from_short_term_memory, session_id)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        self.waiting = [*self.waiting, *map(_line, messages)]
        await self._catch_up()

    def forget(self, but: Iterable[ChatMessage] = ()) -> None:
        """Forgets the summary and what waits for it: what it covers was deleted or replaced.

        Args:
            but: what is left of that; the next summary begins with it.
        """
        self.text, self.waiting = "", list(map(_line, but))

    async def _catch_up(self) -> None:
        if not self.waiting:
            return
        taken = list(self.waiting)
        try:
            summary = await adrive(
                summarize_steps(
                    taken,
                    previous=self.text,
                    max_tokens=self.max_tokens,
                    counter=self.tokens,
                    summarizer=self.summarizer,
                    timeout=SUMMARY_TIMEOUT,
                )
            )
        except SummaryError as error:
            msg = f"Block {self.name!r} keeps its last summary; {len(taken)} messages wait. {error}"
            warnings.warn(msg, RuntimeWarning, stacklevel=2)
            return
        if self.waiting[: len(taken)] == taken:  # no other call summarized them meanwhile
            self.text, self.waiting = summary, self.waiting[len(taken) :]


def serve(blocks: Iterable[Any], session_id: str | None) -> None:
    """Raises BudgetConfigError where a block serves another session, before a reset can empty it."""
    for block in blocks:
        if isinstance(block, HistorySummaryMemoryBlock):
            block._serve(session_id)  # noqa: SLF001 - not public


def _line(message: ChatMessage) -> str:
    """Returns a message as a summarizer reads it."""
    neutral = CODEC.to_dict(message)
    functions = [call["function"] for call in neutral.get("tool_calls", ())]
    called = [f"[called {f['name']}({f['arguments']})]" for f in functions]
    return f"{neutral['role']}: " + "\n".join([message.content or "", *called]).strip()
