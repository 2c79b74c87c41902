"""Read, price, grant: what was given, what it costs, what each block may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..budget.allocation import Demand, allocate, demand_for, with_absent
from ..conversation.fit import Needs, least_parts, needs_of
from ..conversation.refusals import refuse_empty_question, refuse_invalid
from ..conversation.stored import StoredMessages
from ..conversation.thread import Thread, cut_of_request
from ..conversation.timeline import Timeline
from ..errors import too_large
from ..fitting.protocol import Fit
from ..messages.measure import CodecMeasure, Measure, opening
from ..messages.tags import USUAL_NAMES, own_tags
from ..messages.texts import content_text
from ..segment import Block, Decision, Scope
from .request import PromptRequest, Turn
from .wishes import UNBOUNDED, Wish, wishes_of

_NOTHING = Fit(pieces=(), tokens=0)


# ---- read -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What was given, as its reader sees it."""

    measure: Measure
    turn: Turn
    timeline: Timeline | None = None
    blocks: tuple[Block, ...] = ()  # in rank order
    ranks: Mapping[str, int] = field(default_factory=dict)  # of the blocks and of the history beside them
    question: str = ""  # what blocks without a query of their own should answer
    hidden: tuple[Decision, ...] = ()
    tags: tuple[str, ...] = ()
    alone: bool = False  # the history competes with nothing: no other block has a configured source
    bare: bool = False  # and nothing is rendered around it

    @property
    def overhead(self) -> int:
        """What the history costs before any message."""
        return self.measure.overhead if self.timeline is None else self.timeline.overhead


def read(request: PromptRequest, turn: Turn | None) -> Inputs:
    """Returns the conversation, and the blocks in rank order without what is hidden from their reader."""
    measure = request.measure or CodecMeasure(request.codec, request.counter, request.tools)
    if isinstance(request.history, StoredMessages):
        if request.history:  # its roles are stored, so the codec would not see another host's messages
            request.codec.role(request.history[-1])
        measure = request.history.measured(measure, request.counter)
    if request.question is not None and request.render is None:
        refuse_empty_question(request.codec, [request.question], "the question")
    sources = request.sources if turn is None else turn.sources
    inputs = Inputs(measure=measure, turn=turn or Turn(sources), hidden=request.hidden)
    if request.history is not None:
        timeline = _timeline(request, measure, inputs.turn, remembers=turn is not None)
        others = {"any"} if sources is None else sources - {"history"}
        alone = not (others or request.blocks or inputs.turn.awaited)
        hosts = (request.render is not None, request.profile is not None, request.question is not None)
        bare = alone and not any((request.system, request.text, *hosts))
        inputs = replace(inputs, timeline=timeline, alone=alone, bare=bare)
    return _with_blocks(request, inputs) if request.blocks else inputs


def _timeline(request: PromptRequest, measure: Measure, turn: Turn, *, remembers: bool) -> Timeline:
    """Returns the conversation, refused where it asks nothing or is broken while `strict`."""
    budget, minimum, last = request.budget, request.min_exchanges, request.last_turns
    assert request.history is not None
    thread = Thread(
        messages=request.history,
        codec=request.codec,
        counter=request.counter,
        measure=measure,
        cut=request.cut or cut_of_request(request.history, request.codec),
        min_exchanges=budget.min_exchanges if minimum is None else minimum,
        last_turns=budget.last_turns if last is None else last,
        message_cap=None if request.message_cap is None else budget.message_cap,
        shorten_question=bool(request.shorten_question or budget.shorten_question),
        summarizer=request.summarizer,
        summary_timeout=request.summary_timeout,
        strict=request.strict,
        for_question=remembers or request.cut != "stable",
        query=request.query,
        question=request.question_text,
        answered=request.profile is not None and request.profile.answered,
        asked_elsewhere=request.asked_elsewhere or request.question is not None,
        sent=request.sent,
        held=request.held,
        remembers=remembers,
        known=turn.known,
    )
    timeline = Timeline(thread.messages, request.codec, measure, thread=thread)
    if thread.strict or timeline.stripped or (timeline.newest is not None and timeline.newest.broken):
        refuse_invalid(timeline, asked_last=request.asked_last)
    return timeline


def _with_blocks(request: PromptRequest, inputs: Inputs) -> Inputs:
    hidden, blocks = list(request.hidden), []
    timeline, question, history = inputs.timeline, request.question_text, request.history_block
    if not question and timeline is not None and timeline.asked is not None:
        question = timeline.text(timeline.asked)
    own = {block.name: block.rank for block in (*request.blocks, *([history] if history else ()))}
    ranks = {name: own.get(name) or request.budget.rank_of(name) for name in (*own, "history")}
    for given in sorted(request.blocks, key=lambda block: (ranks[block.name], block.name)):
        block, unseen = given, list[Decision]()
        if any(segment.scope is not None for segment in given.segments):
            block, unseen = for_reader(given, request.scope)
        hidden += unseen
        blocks.append(block)
    tags = () if ranks.keys() <= USUAL_NAMES else own_tags(ranks)
    return replace(
        inputs, blocks=tuple(blocks), ranks=ranks, question=question, hidden=tuple(hidden), tags=tags
    )


def for_reader(block: Block, reader: Scope | None) -> tuple[Block, list[Decision]]:
    """Returns what the reader may see of a block, and a decision without its id for each hidden segment."""
    seen = [s for s in block.segments if s.scope is None or s.scope.visible_to(reader)]
    hidden = len(block.segments) - len(seen)
    if not hidden:
        return block, []
    unseen = partial(Decision, block=block.name, action="trimmed", reason="out_of_scope", before=0, after=0)
    decisions = [unseen(segment_id=f"{block.name}-hidden-{n}") for n in range(1, hidden + 1)]
    return replace(block, segments=tuple(seen)), decisions


# ---- price ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What everything costs before anything is granted, in tokens."""

    limit: int  # the largest prompt
    reserve: int  # kept for the answer
    safety: int  # kept free because counts may be too low
    room: int  # of the limit, what history and blocks share; the rest always stays
    most: int  # of the room, what the history may have
    system_tokens: int = 0  # the system prompt; system messages of the history are counted there
    system_text: int = 0  # the texts of all system messages
    wishes: Mapping[str, Wish] = field(default_factory=dict)  # what each block wants
    needs: Needs = field(default_factory=Needs)  # what the conversation cannot do without
    question_before: int = 0  # a question of its own before it was cut; 0 where it is whole


def price(request: PromptRequest, inputs: Inputs) -> Prices:
    """Returns what always stays, what the blocks want, and what the conversation needs."""
    budget, measure = request.budget, inputs.measure
    system_tokens = measure.group(request.system) if request.system else 0
    pinned = inputs.timeline.pinned_tokens if inputs.timeline is not None else 0
    bounded = budget.max_system_ratio is not None or "system" in budget.sizes
    system_text = _check_system(request, inputs) if bounded or request.system else 0
    system, band = system_tokens + pinned, request.counter.band
    reserve, safety, limit = budget.split(system_tokens=system, band=band, ceiling=request.ceiling)
    question = measure.group([request.question]) if request.question is not None else 0
    framing = _framing(request, inputs)
    known = framing + system_tokens + question
    rendered = known if request.render is None else _rendered(request, inputs)
    fixed = rendered + request.extra_tokens
    if fixed > limit:
        rest = fixed - known  # less than 0 where joined texts cost less
        parts = {"system": 0, "question": 0} if inputs.timeline is None else least_parts(inputs.timeline)
        parts["system"] += system_tokens
        parts["question"] += question
        parts["tools and framing"] = framing + min(0, rest)
        parts["rest of the prompt"] = max(0, rest)
        advice = "Shorten these parts, lower the reserve, or take a larger window."
        raise too_large(parts, limit, advice)
    competes = inputs.timeline is not None and not inputs.alone
    return Prices(
        limit=limit,
        reserve=reserve,
        safety=safety,
        room=limit - fixed,
        most=UNBOUNDED if request.history_tokens is None else request.history_tokens,
        system_tokens=system_tokens,
        system_text=system_text,
        wishes=wishes_of(request, measure, inputs.blocks, inputs.tags, rendered, limit - fixed),
        needs=needs_of(inputs.timeline, limit - fixed) if competes and inputs.timeline else Needs(),
    )


def _framing(request: PromptRequest, inputs: Inputs) -> int:
    """Returns what the request costs before any message, where its system messages open it."""
    if inputs.measure.additive or not request.system:
        return inputs.overhead
    return inputs.measure.overhead + opening(inputs.measure, _systems(request, inputs))


def _systems(request: PromptRequest, inputs: Inputs) -> list[Any]:
    return [*request.system, *(() if inputs.timeline is None else inputs.timeline.systems)]


def _rendered(request: PromptRequest, inputs: Inputs) -> int:
    """Returns what the host's prompt costs without blocks and history."""
    assert request.render is not None
    changes = inputs.overhead != inputs.measure.overhead
    opens = inputs.timeline.systems if inputs.timeline is not None and changes else []
    empty = {block.name: _NOTHING for block in inputs.blocks}
    total = inputs.measure.total(list(request.render(empty, opens)))
    return total - (inputs.measure.group(opens) if opens else 0)


def _check_system(request: PromptRequest, inputs: Inputs) -> int:
    """Returns the tokens of the system messages' texts, which the budget may bound."""
    dicts = map(request.codec.to_dict, _systems(request, inputs))
    texts = [content_text(message.get("content")) for message in dicts]
    tokens = sum(request.counter.count_many(texts)) if texts else 0
    request.budget.check_system(tokens)
    return tokens


# ---- grant ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Grants:
    """What each block is granted, the history under "history"; and the demands that led to it."""

    tokens: Mapping[str, int]
    demands: tuple[Demand, ...] = ()
    whole: bool = False  # everything fits as it is, so that nothing has to be shared out


def grant(request: PromptRequest, inputs: Inputs, prices: Prices) -> Grants:
    """Returns one allocation of the room for all."""
    room, budget, needs = prices.room, request.budget, prices.needs
    if inputs.alone:
        return Grants({"history": min(room, prices.most)})
    demands = []
    for block in inputs.blocks:
        wish = prices.wishes[block.name]
        demands.append(demand_for(budget, block.name, wish.wanted, block=block, pinned=wish.pinned))
    if inputs.timeline is not None:
        must = needs.must
        if budget.preset == "rag" and must + sum([d.wanted for d in demands]) > room:
            must = max(must, min(needs.exchanges, room // 2))  # long documents leave the last exchanges room
        demands.append(
            demand_for(
                budget,
                "history",
                prices.most,
                block=request.history_block,
                minimum=needs.exchanges,
                whole=needs.whole,
                pinned=must,
            )
        )
    if inputs.turn.awaited:
        demands += _awaited(request, inputs.turn, room, demands)
    if budget.surplus != "keep" and _all_fits(inputs, room, demands):
        wanted = {demand.name: demand.wanted for demand in demands}
        if inputs.timeline is not None:
            wanted["history"] = room - sum(wanted.values()) + wanted["history"]
        return Grants(wanted, tuple(demands), whole=True)
    everyone = with_absent(budget, demands, sources=inputs.turn.sources)
    granted = dict(allocate(room, everyone, surplus=budget.surplus).grants)
    if inputs.turn.granted_history is not None and inputs.timeline is not None:
        granted["history"] = min(inputs.turn.granted_history, room)
    return Grants(granted, tuple(everyone))


def _all_fits(inputs: Inputs, room: int, demands: Sequence[Demand]) -> bool:
    """Returns whether all that is wanted fits; counts the history only as far as the room reaches."""
    given = inputs.timeline is not None
    left = room - sum([demand.wanted for demand in demands if not given or demand.name != "history"])
    if left < 0 or inputs.timeline is None:
        return left >= 0
    if inputs.turn.granted_history is not None:
        return False
    most = [demand.wanted for demand in demands if demand.name == "history"]
    return inputs.timeline.costs_at_most(min([left, *most]))


def _awaited(request: PromptRequest, turn: Turn, room: int, demands: Sequence[Demand]) -> list[Demand]:
    """Returns demands that reserve what each block of another call of this turn had, or else its share.

    A history must have its share: what it cannot do without is not known yet.
    """
    missing = sorted(turn.awaited.difference([demand.name for demand in demands]))
    unbounded = [demand_for(request.budget, name, UNBOUNDED) for name in missing]
    everyone = with_absent(request.budget, [*demands, *unbounded], sources=turn.sources)
    shares = allocate(room, everyone, surplus="keep").shares
    wanted = {**shares, **turn.taken}
    shared = [replace(demand, wanted=wanted[demand.name]) for demand in unbounded]
    return [replace(one, pinned=one.wanted) if one.name == "history" else one for one in shared]
