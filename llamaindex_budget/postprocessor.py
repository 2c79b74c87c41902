"""A node postprocessor that keeps what fits: counted as the model sees it, best first."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from rankbudget import (
    Block,
    BudgetReport,
    BudgetSession,
    FitResult,
    Segment,
    TokenBudget,
    TokenCounter,
    fit_documents,
)
from rankbudget.adapters import (
    JOINT,
    EmbeddingScorer,
    Evidence,
    Fit,
    Plan,
    Steps,
    adrive,
    drive,
    typed_errors,
)
from rankbudget.errors import BudgetConfigError, BudgetExceededError

from ._convert import emptied, media_tokens, seen_parts, shortened, to_segments
from ._counters import counter_of
from ._events import dispatcher, send_report
from ._memory import Turn
from ._options import by_name, check_part, check_values
from ._render import with_prompt
from ._serialize import add_settings, read_settings
from ._sharing import active, adopt, budget_of, one_call_of, within
from .models import embedder
from .prompt_helper import asks_once, beside_template, for_one_call

_FIRST_NODES = 400  # tokens of nodes that come before what a synthesizer keeps free
_LIVE = Field(default=None, exclude=True, repr=False)  # an object of this process, no plain data


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the model sees of each node beside its text, by the id of its segment."""

    around: Mapping[str, tuple[str, str, str]]  # metadata lines before the text, the text, lines after it
    media: Mapping[str, int]  # tokens of its pictures, sound and film

    def text(self, block: str, segment: Segment, text: str) -> str:
        """Returns a node's text with its metadata lines; texts of other blocks as they are."""
        if block != "knowledge" or segment.id not in self.around:
            return text
        before, _, after = self.around[segment.id]
        return before + text + after


class BudgetNodePostprocessor(BaseNodePostprocessor):
    """Fits retrieved nodes into a limit, or into what this turn's history leaves.

    Nodes kept whole come back as the same objects; shortened ones are copies that keep all but their text:
    the metadata lines that the model sees stay whole. Where no node fits, the best one comes back with an
    empty text: an engine without any node asks no model.

    Args:
        max_tokens: most tokens of all returned nodes together, from 1; `token_limit` is the same.
        session: the `BudgetSession` shared with a memory: one plan for history and nodes.
        memory: a `BudgetChatMemoryBuffer` or `BudgetMemory`, whose session is shared.
        budget: limits of the whole prompt, for a query engine without a memory.
        llm: its window and answer are the budget, its tokenizer the counter, when neither is given. What a
            response synthesizer keeps free beside the nodes stays free, so that one call is made, unless
            fewer than 400 tokens of nodes would be left. Where `Settings` has a `BudgetPromptHelper`, only
            160 tokens stay free, for the engine's own template, and none with `prompt`.
        prompt: what the host sends around history and nodes: a prompt template, a text or messages.
        counter: a model or encoding name, or what else `counter_for` takes.
        tokenizer_fn: a LlamaIndex tokenizer to count with instead.
        scorer: rates nodes and sentences, in place of the retriever; None takes its scores.
        embed_model: a LlamaIndex embedding to rate with.
        compress: shortens nodes by dropping sentences when few whole ones fit.
        dedup: drops nodes that say the same.
        each_alone: gives each node all of the room, for synthesizers that ask about one node at a time
            ("refine", "accumulate").

    Raises:
        BudgetConfigError: an option is wrong.

    Example:
        >>> from llama_index.core.schema import TextNode
        >>> texts = [f"Tea number {i} is green." for i in range(9)]
        >>> nodes = [NodeWithScore(node=TextNode(text=t), score=1 - i / 10) for i, t in enumerate(texts)]
        >>> kept = BudgetNodePostprocessor(max_tokens=20).postprocess_nodes(nodes)
        >>> len(kept), kept[0] is nodes[0]
        (2, True)
    """

    max_tokens: int | None = None
    budget: TokenBudget | None = None
    compress: bool = True
    dedup: bool = True
    each_alone: bool = False
    session: Any = _LIVE
    memory: Any = _LIVE
    llm: Any = _LIVE
    prompt: Any = _LIVE
    counter: Any = _LIVE
    tokenizer_fn: Any = _LIVE
    scorer: Any = _LIVE
    embed_model: Any = _LIVE

    _session: BudgetSession | None = PrivateAttr(default=None)
    _scorer: Any = PrivateAttr(default=None)

    @by_name
    def __init__(self, **options: Any) -> None:
        check_part(type(self), options, beside=("token_limit",))
        most = options.pop("token_limit", None)
        if options.get("max_tokens") is None:
            options["max_tokens"] = most
        with typed_errors():
            super().__init__(**{**options, "budget": budget_of(options.get("budget"), None, None)})
        self._scorer = self.scorer
        if self.scorer is None and self.embed_model is not None:
            self._scorer = EmbeddingScorer(embedder(self.embed_model))
        whole = budget_of(self.budget, self.llm, self.session)
        self._session = self.session
        if self.session is None and self.memory is None and whole is not None:
            self._session = BudgetSession(whole, counter=self._own_counter())
        for shared in (self._session, None if self.memory is None else self.memory.session):
            if shared is not None:
                adopt(shared).share_with("knowledge")

    @classmethod
    def class_name(cls) -> str:
        return "BudgetNodePostprocessor"

    # ---- fitting ---------------------------------------------------------------------------------
    def _postprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> list[NodeWithScore]:
        return drive(self._steps(nodes, query_bundle))

    @dispatcher.span
    async def _apostprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> list[NodeWithScore]:
        return await adrive(self._steps(nodes, query_bundle))

    def _steps(self, nodes: list[NodeWithScore], asked: QueryBundle | None) -> Steps[list[NodeWithScore]]:
        check_values({"nodes": nodes, "query_bundle": asked}, "nodes")
        dispatcher.event(
            ReRankStartEvent(query=asked, nodes=nodes, top_n=len(nodes), model_name=self.class_name())
        )
        query = asked.query_str if asked is not None else ""
        parts, counter = [seen_parts(item) for item in nodes], self._counter()
        given = to_segments(nodes, parts)
        if self._scorer is not None and query:
            given = [replace(segment, score=None) for segment in given]
        seen = _Seen(
            around={segment.id: part for segment, part in zip(given, parts, strict=True)},
            media={s.id: cost for s in given if (cost := media_tokens(s.source, counter))},
        )
        segments: list[Segment] = []
        for together in [[s] for s in given] if self.each_alone else [given]:
            kept, report = yield from self._fit_steps(together, seen, query)
            segments += kept
            send_report(report)
        whole = {segment.id: segment.text for segment in given}
        found = [s.source if s.text == whole[s.id] else shortened(s.source, s.text) for s in segments]
        if nodes and not found:
            found = [emptied(nodes)]
        dispatcher.event(ReRankEndEvent(nodes=found))
        return found

    def _fit_steps(
        self, segments: Sequence[Segment], seen: _Seen, query: str
    ) -> Steps[tuple[Sequence[Segment], BudgetReport]]:
        """Returns what is kept of nodes that share one prompt, and why."""
        alone = self.memory is None and (active.get() or self._session) is None
        if alone or self.max_tokens is not None:
            found = self._alone(segments, seen, query)
            if alone:
                return found.segments, found.report
            segments = found.segments
        strategy: Any = None
        if not (self.compress and self.dedup and self._scorer is None):
            strategy = Evidence(scorer=self._scorer, compress=self.compress, dedup=self.dedup)
        turn: dict[str, Any] = {
            "blocks": [Block(name="knowledge", segments=tuple(segments), strategy=strategy)],
            "beside": seen.media,
            "shown": seen.text,
        }
        plan = yield from self._one_call_steps(turn, query)
        pieces = plan.kept["knowledge"].pieces if "knowledge" in plan.kept else ()
        return [replace(p.segment, text=p.rendition.text) for p in pieces], plan.report

    def _one_call(self, turn: Mapping[str, Any]) -> tuple[Mapping[str, Any], int | None]:
        """Returns a turn with room for the engine's own template, and the most tokens that one call plans."""
        limit = self.memory.one_call if self.llm is None and self.memory is not None else None
        if self.llm is not None:
            limit = one_call_of(self.llm)
        told = self.prompt if self.memory is None or self.prompt is not None else self.memory.given_prompt
        ceiling = for_one_call(limit, told=told is not None)
        if told is not None or ceiling is None or limit is None:
            return turn, ceiling
        # Engines write no tags around nodes, and where the LLM is known what they write has its own room.
        # In a smaller session no node may take of that room.
        session, turn = self._shared(), {**turn, "prompt": ""}
        own = within(session.budget, self.llm)
        if own >= limit or session.host_tokens:
            return turn, ceiling
        most = min(beside_template(own), ceiling)
        return {**turn, "ceiling": most}, most

    def _one_call_steps(self, turn: Mapping[str, Any], query: str) -> Steps[Plan]:
        """Makes the plan with room for one call; nodes take of that room before few or none are kept."""
        turn, ceiling = self._one_call(turn)
        if ceiling is None:
            return (yield from self._plan_steps(turn, query))
        most = ceiling
        for least in (1,) if asks_once() or "ceiling" in turn else (_FIRST_NODES, 1):
            try:
                plan = yield from self._plan_steps({**turn, "ceiling": most}, query)
            except BudgetExceededError:
                break
            found = plan.kept.get("knowledge") or Fit(pieces=(), tokens=0)
            whole = sum(p.rendition.kind == "whole" for p in found.pieces)
            if found.tokens >= least or whole == len(turn["blocks"][0].segments):
                return plan
            most = max(ceiling, plan.report.total_tokens - found.tokens + _FIRST_NODES)
        return (yield from self._plan_steps(turn, query))  # the history keeps what it was granted

    def _shared(self) -> BudgetSession:
        """Returns the session of this turn."""
        session = self.memory.session if self.memory is not None else active.get() or self._session
        assert session is not None
        return session

    def _plan_steps(self, turn: Mapping[str, Any], query: str) -> Steps[Plan]:
        turn = {"prompt": self.prompt, **turn}
        session = self._shared()
        if self.llm is not None:  # a session may be larger than the model that is asked
            most = within(session.budget, self.llm)
            turn["ceiling"] = min(most, turn.get("ceiling") or most)
        if self.memory is not None:
            made: Turn = yield from self.memory.turn_steps(query, **turn)
            return made[0]
        prompt = turn.pop("prompt")
        question = query or None
        session.share_with("knowledge")
        request = session.request(None, question=question, covers="blocks", **turn)
        if prompt is not None:
            request = with_prompt(request, prompt, question, session.host_tokens)
        return (yield from session.plan_steps(request))

    def _alone(self, segments: Sequence[Segment], seen: _Seen, query: str) -> FitResult:
        """Returns what `max_tokens` alone lets stay."""
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
            cost=lambda s, text: (
                counter.count(seen.text("knowledge", s, text) + JOINT) + seen.media.get(s.id, 0)
            ),
            compress=self.compress,
            dedup=self.dedup,
        )

    def _counter(self) -> TokenCounter:
        session = active.get() or self._session or (self.memory.session if self.memory is not None else None)
        if session is None or self.counter is not None or self.tokenizer_fn is not None:
            return self._own_counter()
        return session.counter

    def _own_counter(self) -> TokenCounter:
        return counter_of(self.tokenizer_fn, self.counter, llm=self.llm, budget=self.budget)

    # ---- copies and plain data -------------------------------------------------------------------
    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Returns plain data that survives JSON: limits, session, names of counter and tokenizer."""
        data: dict[str, Any] = super().to_dict(**kwargs)
        add_settings(data, self.session, self.counter, self.tokenizer_fn if self.counter is None else None)
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
        return {"__dict__": {key: value for key, value in self.__dict__.items() if key != "callback_manager"}}

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> BudgetNodePostprocessor:
        memo = {} if memo is None else memo
        parts = {name: copy.deepcopy(getattr(self, name), memo) for name in ("session", "memory")}
        twin = type(self)(**{**self.__getstate__()["__dict__"], **parts})
        memo[id(self)] = twin
        return twin
