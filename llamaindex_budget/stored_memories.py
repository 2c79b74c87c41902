"""A store's memories as a block of a LlamaIndex memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import Field, PrivateAttr

from rankbudget import Scope, Segment
from rankbudget.errors import BudgetConfigError, shown

from .blocks import BudgetMemoryBlock, Name, Rank, found_texts, question_of


class StoredMemoryBlock(BudgetMemoryBlock):
    """What a reader may see of a `MemoryStore`, for the question: the best that fit.

    Each text says its source, its confidence where it is known, and its date.

    Args:
        store: a `MemoryStore`.
        scope: who reads: a `Scope`, or a function of the memory's session id that returns one.
        k: how many memories at most compete, 1 or more.

    Raises:
        BudgetConfigError: an option is wrong, or `scope` is no Scope.

    Example:
        >>> import asyncio
        >>> from rankbudget.memory import MemoryStore
        >>> store, ann = MemoryStore(":memory:"), Scope(user="ann")
        >>> _ = store.put("Ann likes tea.", scope=ann, key="drink")
        >>> block = StoredMemoryBlock(store=store, scope=ann)
        >>> asked = [ChatMessage("What does she drink?")]
        >>> asyncio.run(block.aget(asked))[0].text[:28]
        'Ann likes tea. (source drink'
    """

    name: Name = "memories"
    rank: Rank = 4
    store: Any = Field(default=None, exclude=True)
    scope: Any = Field(default=None, exclude=True)
    k: int = Field(default=50, ge=1)

    _lost: tuple[str, ...] = PrivateAttr(default=("store", "scope"))  # without them there is nothing to read

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> Any:
        asked, reader = question_of(messages), self._reader(block_kwargs.get("session_id"))
        block = await self.store.acompeting(asked, scope=reader, limit=self.k)
        known = {_shown(segment, segment.text): replace(segment, scope=None) for segment in block.segments}
        found = found_texts(known, asked)
        found.known, found.strategy, found.notes, found.show = known, block.strategy, block.notes, _shown
        return found

    def _reader(self, session_id: Any) -> Scope:
        found = self.scope(session_id) if callable(self.scope) else self.scope
        if not isinstance(found, Scope):
            msg = f"scope must be a Scope, or a function of a session id that gives one (got {shown(found)})"
            raise BudgetConfigError(msg)
        return found


def _shown(segment: Segment, text: str) -> str:
    """Returns what is left of a memory's text as the prompt has it; its date is no word of it."""
    source = segment.provenance
    if not text or source is None:
        return text
    known = [f"source {source.source_id}"]
    if source.confidence is not None:
        known.append(f"confidence {source.confidence:.2f}")
    if segment.created_at is not None:
        known.append(f"written {segment.created_at:%Y-%m-%d}")
    return f"{text} ({', '.join(known)})"
