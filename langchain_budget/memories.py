"""A store's memories in LangChain: a retriever, and tools for agents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from html import unescape
from typing import Any, Literal

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig, ensure_config
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import ConfigDict
from typing_extensions import override

from rankbudget import Block, Scope
from rankbudget.errors import BudgetConfigError, counted, shown
from rankbudget.memory import Memory, MemoryStore, levels_of

from ._items import Remembered
from ._options import Settings, checked

Kind = Literal["core", "explicit", "fact", "project", "experience", "preference", "decision"]
Reader = Scope | Callable[[RunnableConfig], Scope]
"""Whose memories: a scope, or a function of the run's config, which the application sets and no model."""


_SHARED = {"user": "in all projects", "project": "for everybody in the project", "global": "for everybody"}
"""Where a memory holds that a reader of one user and project sees but does not own."""


class MemoryRetriever(Settings, BaseRetriever):
    """Finds what a reader may see of a store's memories, for a trimmer's or a template's `memory` slot.

    The slot keeps what the store's own `fit` would. Those below the store's `least_confidence` are left out,
    as in every prompt. Each document has the memory's kind, priority, confidence, date and source in its
    metadata. Documents that a chain puts into a list of its own are ranked by these alone.

    Args:
        store: a `MemoryStore`.
        scope: who reads: a `Scope`, or a function that returns it for the run's config.
        k: how many memories at most, 1 or more.

    Example:
        >>> store, ann = MemoryStore(":memory:"), Scope(user="ann")
        >>> _ = store.put("Ann likes tea.", scope=ann, kind="explicit")
        >>> [d.page_content for d in MemoryRetriever(store=store, scope=ann).invoke("What does she drink?")]
        ['Ann likes tea.']
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    store: Any
    scope: Any
    k: int = 50

    @override
    def _prepare(self) -> None:
        _check_store(self.store)

    @override
    def invoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:
        return super().invoke(input, config, scope=scope_of(self.scope, ensure_config(config)), **kwargs)

    @override
    async def ainvoke(
        self, input: str, config: RunnableConfig | None = None, **kwargs: Any
    ) -> list[Document]:
        return await super().ainvoke(
            input, config, scope=scope_of(self.scope, ensure_config(config)), **kwargs
        )

    @override
    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, scope: Any = None
    ) -> list[Document]:
        return _remembered(self.store._ranked(query, scope, self.k))  # noqa: SLF001 - not public

    @override
    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, scope: Any = None
    ) -> list[Document]:
        ranked = self.store._ranked  # noqa: SLF001 - not public
        return _remembered(await asyncio.to_thread(ranked, query, scope, self.k))


@checked
def memory_tools(
    store: MemoryStore, scope: Reader, *, max_tokens: int = 500, counter: Any = "o200k_base"
) -> list[BaseTool]:
    """Returns the tools `remember`, `recall` and `forget_memory` for an agent.

    The model chooses texts and keys; whose memories they are comes from `scope` alone. What the store refuses
    of what the model gave is told to the model.

    Args:
        store: a `MemoryStore`.
        scope: whose memories: a `Scope`, or a function that returns it for the run's config.
        max_tokens: most tokens of what `recall` returns, 1 or more.
        counter: what `counter_for` takes.

    Example:
        >>> store, ann = MemoryStore(":memory:"), Scope(user="ann")
        >>> remember, recall, forget_memory = memory_tools(store, ann)
        >>> remember.invoke({"text": "Ann likes tea.", "key": "drink"})
        "Remembered as 'drink'."
        >>> "Ann likes tea." in recall.invoke({"query": "drink"})
        True
        >>> forget_memory.invoke({"key": "drink"})
        "Forgot 'drink'."
    """
    _check_store(store)

    def remember(text: str, config: RunnableConfig, key: str | None = None, kind: Kind = "explicit") -> str:
        owner = scope_of(scope, config)
        try:  # models fill what is optional with ""
            memory = store.put(text, scope=owner, key=_as_stored(store, key or None, owner), kind=kind)
        except BudgetConfigError as error:
            return f"Not remembered: {str(error).rstrip('.')}."
        return f"Remembered as {memory.key or memory.id!r}."

    def recall(query: str, config: RunnableConfig) -> str:
        owner = scope_of(scope, config)
        found = store.fit(query, scope=owner, max_tokens=max_tokens, counter=counter, named=True)
        if not found.text and found.report.decisions:
            return f"No memory fits into {counted(max_tokens, 'token')}."
        return found.text or "Nothing is remembered about this."

    def forget_memory(key: str, config: RunnableConfig) -> str:
        owner = scope_of(scope, config)
        try:
            key = _as_stored(store, key, owner)
            if key and store.delete(key, scope=owner):
                return f"Forgot {key!r}."
            others = [store.get(key, scope=level) for level in levels_of(owner)] if key else []
        except BudgetConfigError as error:
            return f"Nothing forgotten: {str(error).rstrip('.')}."
        if memory := next(filter(None, others), None):
            return (
                f"Not forgotten: {key!r} is remembered {_SHARED[memory.level]} and cannot be forgotten here."
            )
        return f"Nothing is remembered as {key!r}."

    told = (
        (remember, "Remembers a short text. A text under the same key, or a source of recall, replaces it."),
        (recall, "Returns what is remembered about a question. The source of each is its key."),
        (forget_memory, "Forgets what is remembered under a key, or under a source that recall returned."),
    )
    return [StructuredTool.from_function(run, description=words) for run, words in told]


def _check_store(store: Any) -> None:
    if not hasattr(store, "blocks"):  # as a block takes it
        msg = f"store must be a MemoryStore (got {shown(store)})."
        raise BudgetConfigError(msg)


def _as_stored(store: MemoryStore, name: Any, owner: Scope) -> Any:
    """Returns the name of a memory that its reader sees; a model gives it as `recall` prints it, escaped."""
    names = [name, plain] if name and (plain := unescape(name)) != name else []
    seen = (one for one in names for level in levels_of(owner) if store.get(one, scope=level))
    return next(seen, name)


def scope_of(scope: Callable[[Any], Scope] | Scope, given: Any, name: str = "config") -> Scope:
    """Returns a scope, or what a function says of what is `given` of a run: its `name` is in the error."""
    try:
        found: Any = scope(given) if callable(scope) else scope
    except (TypeError, AttributeError) as error:
        msg = f"scope must be a Scope, or a function of the run's {name} (it raised: {error})"
        raise BudgetConfigError(msg) from error
    if not isinstance(found, Scope):
        msg = (
            f"scope must be a Scope, or a function of the run's {name} that returns one (got {shown(found)})"
        )
        raise BudgetConfigError(msg)
    return found


def _remembered(found: tuple[list[Memory], Block]) -> Remembered:
    memories, competing = found
    return Remembered(map(_document, memories), competing)


def _document(memory: Memory) -> Document:
    segment = memory.segment()
    known = {
        "kind": memory.kind,
        "priority": memory.priority,
        "confidence": memory.confidence,
        "created_at": memory.created_at.isoformat() if memory.created_at else None,
        "source": segment.provenance.source_id if segment.provenance else None,
        "relevance_score": memory.score,
    }
    metadata = {**memory.metadata, **{name: value for name, value in known.items() if value is not None}}
    return Document(page_content=memory.text, metadata=metadata, id=memory.id)
