"""A node postprocessor that keeps what fits: counted as the model sees it, best first."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]  # not re-exported
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.llms.llm import LLM
from llama_index.core.memory import BaseMemory
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from rankbudget import (
    Block,
    BudgetReport,
    BudgetSession,
    Scorer,
    Segment,
    TokenBudget,
    TokenCounter,
    fit_documents,
)
from rankbudget.adapters import (
    JOINT,
    EmbeddingScorer,
    Evidence,
    Plan,
    Steps,
    adrive,
    drive,
)
from rankbudget.errors import BudgetConfigError

from ._convert import emptied, media_tokens, to_nodes, to_segments
from ._counters import counter_of
from ._events import BudgetEvent
from ._host_prompt import HostPrompt
from ._serialize import add_settings, read_settings
from ._sharing import active_session, adopt, budget_of, one_call_limit
from .block_memory import BudgetMemory
from .memory import BudgetChatMemoryBuffer
from .models import embedder

__all__ = ["BudgetNodePostprocessor"]

dispatcher = get_dispatcher(__name__)


class BudgetNodePostprocessor(BaseNodePostprocessor):
    """Fits retrieved nodes into a limit, or into what this turn's history leaves.

    Nodes kept whole come back as the same objects; shortened ones are copies that keep all but their text.
    Where no node fits, the best one comes back with an empty text: an engine without any node asks no model.

    Args:
        max_tokens: most tokens of all returned nodes together, from 1; `token_limit` is the same.
        session: the `BudgetSession` shared with a memory: one plan for history and nodes.
        memory: a `BudgetChatMemoryBuffer` or `BudgetMemory`, whose session is shared.
        budget: limits of the whole prompt, for a query engine without a memory.
        llm: its window and answer are the budget, its tokenizer the counter, when neither is given. What a
            response synthesizer keeps free beside the nodes stays free, so that one call is made.
        prompt: what the host sends around history and nodes: a prompt template, a text or messages.
        counter: a model or encoding name, or what else `counter_for` takes.
        tokenizer_fn: a LlamaIndex tokenizer to count with instead.
        scorer: rates nodes and sentences, in place of the retriever; None takes its scores.
        embed_model: a LlamaIndex embedding to rate with.
        compress: shortens nodes by dropping sentences when few whole ones fit.
        dedup: drops nodes that say the same.

    Example:
        >>> from llama_index.core.schema import TextNode
        >>> texts = [f"Tea number {i} is green." for i in range(9)]
        >>> nodes = [NodeWithScore(node=TextNode(text=t), score=1 - i / 10) for i, t in enumerate(texts)]
        >>> kept = BudgetNodePostprocessor(max_tokens=20).postprocess_nodes(nodes)
        >>> len(kept), kept[0] is nodes[0]
        (2, True)
    """

    max_tokens: int | None = Field(default=None, description="Most tokens of all returned nodes together.")
    budget: TokenBudget | None = Field(default=None, description="Limits of the whole prompt.")
    counter: str | None = Field(default=None, description="Name of the token counter.")
    compress: bool = Field(default=True, description="Shorten nodes when few whole ones fit.")
    dedup: bool = Field(default=True, description="Drop nodes that say the same.")

    _given: dict[str, Any] = PrivateAttr(default_factory=dict)
    _session: BudgetSession | None = PrivateAttr(default=None)
    _scorer: Any = PrivateAttr(default=None)

    def __init__(
        self,
        *,
        max_tokens: int | None = None,
        token_limit: int | None = None,
        session: BudgetSession | None = None,
        memory: BaseMemory | None = None,
        budget: TokenBudget | None = None,
        llm: LLM | None = None,
        prompt: Any = None,
        counter: Any = None,
        tokenizer_fn: Callable[[str], list[Any]] | None = None,
        scorer: Scorer | None = None,
        embed_model: BaseEmbedding | None = None,
        **data: Any,
    ) -> None:
        limit = max_tokens if max_tokens is not None else token_limit
        if limit is not None and limit < 1:
            msg = f"max_tokens must be 1 or more (got {limit}). None takes what the budget leaves."
            raise BudgetConfigError(msg)
        name = counter if isinstance(counter, str) else None
        if prompt is not None:
            HostPrompt(prompt)  # raises where it is none
        budget = budget_of(budget, None, None)
        super().__init__(max_tokens=limit, budget=budget, counter=name, **data)
        self._given = {
            "session": session,
            "memory": memory,
            "llm": llm,
            "prompt": prompt,
            "counter": counter,
            "tokenizer_fn": tokenizer_fn,
            "scorer": scorer,
            "embed_model": embed_model,
        }
        self._scorer = scorer or (EmbeddingScorer(embedder(embed_model)) if embed_model is not None else None)
        self._session = session
        if session is None and memory is None and (budget is not None or llm is not None):
            limits = budget_of(budget, llm, None)
            assert limits is not None  # one of the two is there
            self._session = BudgetSession(limits, counter=self._own_counter())
        for shared in (self._session, getattr(memory, "session", None)):
            if shared is not None:
                adopt(shared).share_with("knowledge")

    @classmethod
    def class_name(cls) -> str:
        return "BudgetNodePostprocessor"

    # ---- fitting ---------------------------------------------------------------------------------
    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        query = _begin(self, nodes, query_bundle)
        memory = self._memory()
        segments, media = self._segments(nodes, query)
        plan: Plan | None
        if isinstance(memory, BudgetMemory):
            plan = memory.plan(query, prompt=self._given["prompt"], **self._turn(segments, media, query))
        elif memory is not None:
            turn = {"prompt": self._given["prompt"], **self._turn(segments, media, query)}
            plan = drive(memory.plan_steps(memory.stored(), query, **turn))
        else:
            steps = self._plan_steps(segments, media, query)
            plan = None if steps is None else drive(steps)
        return self._done(nodes, segments, media, query, plan)

    @dispatcher.span
    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        query = _begin(self, nodes, query_bundle)
        memory = self._memory()
        segments, media = self._segments(nodes, query)
        plan: Plan | None
        if isinstance(memory, BudgetMemory):
            plan = await memory.aplan(
                query, prompt=self._given["prompt"], **self._turn(segments, media, query)
            )
        elif memory is not None:
            turn = {"prompt": self._given["prompt"], **self._turn(segments, media, query)}
            plan = await adrive(memory.plan_steps(await memory.astored(), query, **turn))
        else:
            steps = self._plan_steps(segments, media, query)
            plan = None if steps is None else await adrive(steps)
        return self._done(nodes, segments, media, query, plan)

    def _memory(self) -> Any:
        memory = self._given["memory"]
        return memory if isinstance(memory, (BudgetMemory, BudgetChatMemoryBuffer)) else None

    def _segments(self, nodes: Sequence[NodeWithScore], query: str) -> tuple[list[Segment], dict[str, int]]:
        """Returns the nodes as segments, and what their media cost."""
        segments, counter = to_segments(nodes), self._counter()
        if self._scorer is not None and query:
            segments = [replace(segment, score=None) for segment in segments]
        costs = [media_tokens(node, counter) for node in nodes]
        return segments, {s.id: cost for s, cost in zip(segments, costs, strict=True) if cost}

    def _turn(self, segments: Sequence[Segment], media: dict[str, int], query: str) -> dict[str, Any]:
        """Returns what a turn's plan is told about the nodes."""
        if self.max_tokens is not None:
            segments = self._alone(segments, media, query).segments
        strategy: Any = None
        if not (self.compress and self.dedup and self._scorer is None):
            strategy = Evidence(scorer=self._scorer, compress=self.compress, dedup=self.dedup)
        llm = self._given["llm"]
        blocks = [Block(name="knowledge", segments=tuple(segments), strategy=strategy)]
        turn: dict[str, Any] = {
            "blocks": blocks,
            "beside": media,
            "ceiling": None if llm is None else one_call_limit(llm),
        }
        return turn

    def _plan_steps(
        self, segments: Sequence[Segment], media: dict[str, int], query: str
    ) -> Steps[Plan] | None:
        session = active_session() or self._session
        if session is None:
            return None
        session.share_with("knowledge")
        request = session.request(None, question=query or None, **self._turn(segments, media, query))
        if self._given["prompt"] is not None:
            request = HostPrompt(self._given["prompt"]).around(request, query or None, session.host_tokens)
        return session.plan_steps(request)

    def _alone(self, segments: Sequence[Segment], media: dict[str, int], query: str) -> Any:
        if self.max_tokens is None:
            msg = "no limit: give BudgetNodePostprocessor max_tokens=, session=, memory=, budget= or llm="
            raise BudgetConfigError(msg)
        counter = self._counter()
        return fit_documents(
            segments,
            max_tokens=self.max_tokens,
            query=query,
            counter=counter,
            scorer=self._scorer,
            cost=lambda segment, text: counter.count(text + JOINT) + media.get(segment.id, 0),
            compress=self.compress,
            dedup=self.dedup,
        )

    def _done(
        self,
        nodes: list[NodeWithScore],
        given: Sequence[Segment],
        media: dict[str, int],
        query: str,
        plan: Plan | None,
    ) -> list[NodeWithScore]:
        report: BudgetReport
        if plan is None:
            result = self._alone(given, media, query)
            segments, report = result.segments, result.report
        else:
            pieces = plan.kept["knowledge"].pieces if "knowledge" in plan.kept else ()
            segments = [replace(p.segment, text=p.rendition.text) for p in pieces]
            report = plan.report
        kept = to_nodes(segments, given)
        if nodes and not kept:
            kept = [emptied(nodes)]
        dispatcher.event(BudgetEvent(report=report))
        dispatcher.event(ReRankEndEvent(nodes=kept))
        return kept

    def _counter(self) -> TokenCounter:
        given, memory = self._given, self._given["memory"]
        if given["counter"] is not None or given["tokenizer_fn"] is not None:
            return self._own_counter()
        session = active_session() or self._session or getattr(memory, "session", None)
        return self._own_counter() if session is None else session.counter

    def _own_counter(self) -> TokenCounter:
        given = self._given
        return counter_of(given["tokenizer_fn"], given["counter"], llm=given["llm"], budget=self.budget)

    # ---- copies and plain data -------------------------------------------------------------------
    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Returns plain data that survives JSON: limits, session, names of counter and tokenizer."""
        data: dict[str, Any] = super().to_dict(**kwargs)
        given = self._given
        tokenizer = given["tokenizer_fn"] if given["counter"] is None else None
        add_settings(data, given["session"], given["counter"], tokenizer)
        if tokenizer is not None and data["tokenizer"] is None:
            data["tokenizer"] = f"lost:{tokenizer!r}"  # another tokenizer must not count in its place
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> BudgetNodePostprocessor:
        """Returns the postprocessor that `to_dict` wrote; `kwargs` replace what was written.

        Raises:
            BudgetConfigError: its counter or tokenizer cannot be found here.
        """
        return cls(**read_settings(data, kwargs))

    def __getstate__(self) -> dict[str, Any]:
        # The base deletes what cannot be pickled from the live object; here the state is a copy.
        return {"__dict__": {**self._fields(), **self._given}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["__dict__"])  # type: ignore[misc]  # as the base restores

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> BudgetNodePostprocessor:
        memo = {} if memo is None else memo
        parts = {name: copy.deepcopy(self._given[name], memo) for name in ("session", "memory")}
        twin = type(self)(**{**self._fields(), **self._given, **parts})
        memo[id(self)] = twin
        return twin

    def _fields(self) -> dict[str, Any]:
        left_out = ("counter", "callback_manager")
        return {key: value for key, value in self.__dict__.items() if key not in left_out}


def _begin(part: BudgetNodePostprocessor, nodes: list[NodeWithScore], asked: QueryBundle | None) -> str:
    event = ReRankStartEvent(query=asked, nodes=nodes, top_n=len(nodes), model_name=part.class_name())
    dispatcher.event(event)
    return asked.query_str if asked is not None else ""
