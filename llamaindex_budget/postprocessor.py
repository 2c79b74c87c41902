"""A node postprocessor that keeps what fits: counted as the model sees it, best first, shortened where whole nodes do not fit."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]  # public, not re-exported by name
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.memory import BaseMemory
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from rankbudget import BudgetSession, TokenBudget, TokenCounter, counter_for, fit_documents
from rankbudget.errors import BudgetConfigError
from rankbudget.relevance.protocol import Scorer
from rankbudget.messages.tags import JOINT

from ._convert import counter_of, settings_counter
from ._events import BudgetEvent
from ._frame import Frame, current_frame, watch_engines
from ._nodes import media_tokens, shortened, to_nodes, to_segments
from ._sharing import active_session, adopt, engine_session, fixed_tokens
from ._store import name_of_tokenizer, tokenizer_named
from ._travel import counter_read, counter_written, session_read, session_written
from .block_memory import BudgetMemory
from .memory import BudgetChatMemoryBuffer
from .models import embedder

__all__ = ["BudgetNodePostprocessor"]

dispatcher = get_dispatcher(__name__)


class BudgetNodePostprocessor(BaseNodePostprocessor):
    """Fits retrieved nodes into a limit, or into what this turn's history leaves.

    Nodes kept whole come back as the same objects; shortened ones are copies with their id, score, metadata and relationships.
    Where the limit comes from, the first that is there: `session`, `memory`'s session, `budget`, the session of the engine's own
    `BudgetChatMemoryBuffer`, the window of the engine's model; `max_tokens` is a ceiling beside all of them. Where no node fits, a context engine
    gets the best one with an empty text: without any it would answer "Empty Response" and not ask the model.

    Args:
        max_tokens: most tokens of all returned nodes together; `token_limit` is the same.
        budget: limits of the whole prompt, for a query engine without a memory.
        session: the `BudgetSession` shared with a memory.
        memory: a `BudgetChatMemoryBuffer` whose session is shared.
        counter: a model or encoding name, or what else `counter_for` takes.
        tokenizer_fn: a LlamaIndex tokenizer to count with instead.
        scorer: rates nodes that have no score and sentences; None takes the core's default.
        embed_model: a LlamaIndex embedding to rate with.
        compress: shortens nodes by dropping sentences when few whole ones fit.
        dedup: drops nodes that say the same.

    Example:
        >>> from llama_index.core.schema import TextNode
        >>> nodes = [NodeWithScore(node=TextNode(text=f"Tea number {i} is green."), score=1 - i / 10) for i in range(9)]
        >>> kept = BudgetNodePostprocessor(max_tokens=20).postprocess_nodes(nodes)
        >>> len(kept), kept[0] is nodes[0]
        (2, True)
    """

    max_tokens: int | None = Field(default=None, description="Most tokens of all returned nodes together.")
    budget: TokenBudget | None = Field(default=None, description="Limits of the whole prompt.")
    counter: str | None = Field(default=None, description="Name of the token counter.")
    compress: bool = Field(default=True, description="Shorten nodes when few whole ones fit.")
    dedup: bool = Field(default=True, description="Drop nodes that say the same.")

    _session: BudgetSession | None = PrivateAttr(default=None)
    _memory: Any = PrivateAttr(default=None)
    _counter: TokenCounter | None = PrivateAttr(default=None)
    _given: dict[str, Any] = PrivateAttr(default_factory=dict)
    _scorer: Any = PrivateAttr(default=None)

    def __init__(
        self,
        *,
        max_tokens: int | None = None,
        token_limit: int | None = None,
        budget: TokenBudget | None = None,
        session: BudgetSession | None = None,
        memory: BaseMemory | None = None,
        counter: Any = None,
        tokenizer_fn: Callable[[str], list[Any]] | None = None,
        scorer: Scorer | None = None,
        embed_model: BaseEmbedding | None = None,
        **data: Any,
    ) -> None:
        limit = max_tokens if max_tokens is not None else token_limit
        if limit is not None and limit < 1:
            msg = f"max_tokens is {limit}, allowed: 1 or more, or None to take what the budget leaves"
            raise BudgetConfigError(msg)
        super().__init__(
            max_tokens=limit, budget=budget, counter=counter if isinstance(counter, str) else None, **data
        )
        self._session = None if session is None else adopt(session)
        self._memory = memory
        self._given = {
            "counter": counter,
            "tokenizer_fn": tokenizer_fn,
            "scorer": scorer,
            "embed_model": embed_model,
        }
        if counter is not None:
            self._counter = counter_for(counter)
        elif tokenizer_fn is not None:
            self._counter = counter_of(tokenizer_fn)
        self._scorer = scorer if scorer is not None else _scorer_of(embed_model)
        watch_engines()

    @classmethod
    def class_name(cls) -> str:
        return "BudgetNodePostprocessor"

    # ---- leaving the process ----------------------------------------------------------------------------------------------------
    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Returns plain data that survives JSON: limits, session, and the names of counter and tokenizer; a memory or a scorer is given again."""
        data: dict[str, Any] = super().to_dict(**kwargs)
        if self._session is not None:
            data["session"] = session_written(self._session)
        if self.counter is None:
            data["counting"] = counter_written(self._given["counter"])
        tokenizer = self._given["tokenizer_fn"]
        if tokenizer is not None and self._given["counter"] is None:
            data["tokenizer"] = name_of_tokenizer(tokenizer) or f"lost:{tokenizer!r}"
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> BudgetNodePostprocessor:
        """Returns the postprocessor that `to_dict` wrote; `kwargs` take the place of what was written.

        Raises:
            BudgetConfigError: its counter or tokenizer cannot be found here.
        """
        values = {
            key: value
            for key, value in data.items()
            if key not in ("class_name", "counting", "tokenizer", "session")
        }
        if "session" not in kwargs and data.get("session") is not None:
            kwargs = {**kwargs, "session": session_read(data["session"], counter=kwargs.get("counter"))}
        if "counter" not in kwargs and "tokenizer_fn" not in kwargs:
            values |= {
                "counter": counter_read(data.get("counting")) or values.get("counter"),
                "tokenizer_fn": tokenizer_named(data.get("tokenizer")),
            }
        return cls(**{**values, **kwargs})

    def __getstate__(self) -> dict[str, Any]:
        # The base drops what cannot be pickled, in the live object too; here the state is a copy, and a counter that does not travel raises.
        fields = {
            key: value for key, value in self.__dict__.items() if key not in ("counter", "callback_manager")
        }
        return {"__dict__": {**fields, **self._given, "session": self._session, "memory": self._memory}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["__dict__"])  # type: ignore[misc]  # as the base restores

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> BudgetNodePostprocessor:
        memo = {} if memo is None else memo
        fields = {key: value for key, value in self.__dict__.items() if key != "counter"}
        parts = {"session": copy.deepcopy(self._session, memo), "memory": copy.deepcopy(self._memory, memo)}
        twin = type(self)(**fields, **parts, **self._given)
        memo[id(self)] = twin
        return twin

    # ---- fitting ----------------------------------------------------------------------------------------------------------------
    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return self._fit(nodes, query_bundle, current_frame(self))

    @dispatcher.span
    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._fit, nodes, query_bundle, current_frame(self))

    def _fit(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None, frame: Frame | None
    ) -> list[NodeWithScore]:
        query = query_bundle.query_str if query_bundle is not None else ""
        dispatcher.event(
            ReRankStartEvent(query=query_bundle, nodes=nodes, top_n=len(nodes), model_name=self.class_name())
        )
        session = self._shared(frame)
        counter = self._counter or (session.counter if session is not None else self._own_counter())
        given = to_segments(nodes)
        media = {segment.id: media_tokens(node, counter) for segment, node in zip(given, nodes, strict=True)}
        if self._scorer is not None and query:
            given = [
                replace(segment, score=None) for segment in given
            ]  # whoever brings a scorer wants its order, not the retriever's
        result = fit_documents(
            given,
            max_tokens=self._limit(frame, session, query),
            query=query,
            counter=counter,
            scorer=self._scorer,
            cost=lambda segment, text: counter.count(text + JOINT) + media[segment.id],
            compress=self.compress,
            dedup=self.dedup,
        )
        kept = to_nodes(result.segments, given)
        if nodes and not kept and frame is not None and frame.formats_history:
            # A context engine without nodes never asks the model. The best one, without its text, costs nothing and has the question asked.
            kept = [shortened(max(nodes, key=lambda n: n.score or 0.0), "")]
        dispatcher.event(BudgetEvent(report=result.report))
        dispatcher.event(ReRankEndEvent(nodes=kept))
        return kept

    def _own_counter(self) -> TokenCounter:
        model = self.budget.model if self.budget is not None else None
        return counter_for(model) if model else settings_counter()

    def _shared(self, frame: Frame | None) -> BudgetSession | None:
        """Returns the session to share, made for the engine when there is nothing to share but the engine's window."""
        found = active_session() or self._session
        if found is not None or self._block_memory(frame) is not None:
            return found
        memory = self._memory
        if memory is None and self.budget is None and frame is not None:
            memory = getattr(frame.engine, "_memory", None)
        if isinstance(memory, BudgetChatMemoryBuffer):
            return memory.session_in(frame)
        if self.budget is not None:
            return BudgetSession(self.budget, counter=self._counter or self._own_counter())
        if frame is not None and self.max_tokens is None:
            return engine_session(frame, BudgetSession(1, counter=self._counter or self._own_counter()))
        return None

    def _block_memory(self, frame: Frame | None) -> BudgetMemory | None:
        memory = (
            self._memory
            if self._memory is not None
            else getattr(getattr(frame, "engine", None), "_memory", None)
        )
        return memory if isinstance(memory, BudgetMemory) else None

    def _limit(self, frame: Frame | None, session: BudgetSession | None, query: str) -> int:
        limits = [] if self.max_tokens is None else [self.max_tokens]
        if session is None and (blocks := self._block_memory(frame)) is not None:
            limits.append(blocks.room_for(frame))
        if session is not None:
            question = frame.question if frame is not None else query or None
            fixed = fixed_tokens(session, frame)
            memory = (
                self._memory if self._memory is not None else getattr(frame and frame.engine, "_memory", None)
            )
            if isinstance(memory, BudgetChatMemoryBuffer):
                fixed += memory.slot_tokens_in(frame)
            limits.append(session.room_for("knowledge", extra_tokens=fixed, question=question))
        if not limits:
            msg = "no limit: give BudgetNodePostprocessor max_tokens=, budget=, session= or memory=, or use it in an engine that has a model"
            raise BudgetConfigError(msg)
        return max(0, min(limits))


def _scorer_of(embed_model: BaseEmbedding | None) -> Any:
    if embed_model is None:
        return None
    from rankbudget.relevance.embedding import EmbeddingScorer

    return EmbeddingScorer(embedder(embed_model))
