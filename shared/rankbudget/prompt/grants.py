"""Read, price, grant: what was given, what it costs, what each block may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..budget.allocation import Demand, allocate, demand_for, with_absent
from ..conversation.fit import Needs, needs_of, read_thread
from ..conversation.thread import Thread
from ..conversation.timeline import Timeline
from ..errors import BudgetExceededError
from ..fitting.protocol import Fit
from ..messages.codec import content_text
from ..messages.measure import CodecMeasure, Measure
from ..messages.tags import JOINT, close_tag, open_tag, own_tags, wrapper_of
from ..segment import Block, Decision, Segment
from .layout import STATIC
from .read_blocks import for_reader
from .request import PromptRequest, Turn

__all__ = ["BlockInput", "Grants", "Inputs", "Prices", "Wish", "grant", "price", "read", "shown_text"]

_UNBOUNDED = 1 << 40
_NO_NEEDS = Needs(0, 0)
_NOTHING = Fit(pieces=(), tokens=0, decisions=())


# ---- read -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BlockInput:
    """A block as its reader sees it, with its rank and the question it should answer."""

    block: Block
    rank: int
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What was given, as its reader sees it."""

    measure: Measure
    turn: Turn
    thread: Thread | None = None
    timeline: Timeline | None = None
    blocks: tuple[BlockInput, ...] = ()
    hidden: tuple[Decision, ...] = ()
    tags: tuple[str, ...] = ()
    alone: bool = False
    """The history competes with nothing: no other block has a configured source."""


def read(request: PromptRequest, turn: Turn | None) -> Inputs:
    """Returns the conversation, and the blocks in rank order without what is hidden from their reader."""
    measure = request.measure or CodecMeasure(request.codec, request.counter, request.tools)
    thread = timeline = None
    if request.history is not None:
        thread = _thread(request, request.history, measure, turn)
        timeline = read_thread(thread)
    turn = turn or Turn(request.sources)
    if not request.blocks:
        sources = {"other"} if turn.sources is None else turn.sources
        return Inputs(
            measure=measure,
            turn=turn,
            thread=thread,
            timeline=timeline,
            hidden=request.hidden,
            alone=thread is not None and not turn.awaited and sources <= {"history"},
        )
    hidden, blocks = list(request.hidden), []
    question = request.question_text or _last_question(timeline)
    for given in request.blocks:
        block, unseen = for_reader(given, request.scope)
        hidden += unseen
        rank = request.budget.rank_of(block.name) if block.rank is None else block.rank
        blocks.append(BlockInput(block, rank, block.query or question))
    return Inputs(
        measure=measure,
        turn=turn,
        thread=thread,
        timeline=timeline,
        blocks=tuple(sorted(blocks, key=lambda b: (b.rank, b.block.name))),
        hidden=tuple(hidden),
        tags=own_tags(given.block.name for given in blocks),
    )


def _thread(request: PromptRequest, history: Block, measure: Measure, turn: Turn | None) -> Thread:
    budget, minimum = request.budget, request.min_exchanges
    return Thread(
        messages=history.messages or (),
        codec=request.codec,
        counter=request.counter,
        measure=measure,
        cut=request.cut,
        min_exchanges=budget.min_exchanges if minimum is None else minimum,
        message_cap=None if request.message_cap is None else budget.message_cap,
        summarizer=request.summarizer,
        summary_timeout=request.summary_timeout,
        strict=request.strict,
        query=request.query,
        asked_elsewhere=request.asked_elsewhere or request.question is not None,
        remembers=turn is not None,
        known=turn.known if turn is not None else None,
    )


def _last_question(timeline: Timeline | None) -> str:
    newest = timeline.newest if timeline is not None else None
    if timeline is None or newest is None or newest.question is None:
        return ""
    neutral = timeline.codec.to_dict(timeline.messages[newest.question.start])
    return content_text(neutral.get("content"))


# ---- price ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wish:
    """What a block wants.

    Args:
        wanted: tokens of all of it, frame included.
        base: tokens of its frame: tags, and for the first block of a message its framing and notice.
        pinned: tokens of what is never cut, frame included.
    """

    wanted: int = 0
    base: int = 0
    pinned: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What everything costs before anything is granted.

    Args:
        limit: most tokens of the prompt.
        room: of them, what history and blocks share; the rest always stays.
        system_tokens: tokens of the system prompt; system messages of the history are counted there.
        system_text: tokens of the texts of all system messages.
        wishes: what each block wants.
        needs: what the conversation cannot do without.
    """

    limit: int
    room: int
    system_tokens: int = 0
    system_text: int = 0
    wishes: Mapping[str, Wish] = field(default_factory=dict)
    needs: Needs = _NO_NEEDS


def price(request: PromptRequest, inputs: Inputs) -> Prices:
    """Returns what always stays, what the blocks want, and what the conversation needs."""
    budget, measure = request.budget, inputs.measure
    system_tokens = measure.group(request.system) if request.system else 0
    pinned = inputs.timeline.pinned_tokens if inputs.timeline is not None else 0
    bounded = budget.max_system_ratio is not None or "system" in budget.sizes
    system_text = _check_system(request, inputs) if bounded or request.system else 0
    limit = budget.limit(system_tokens=system_tokens + pinned, band=request.counter.band)
    if request.ceiling is not None:
        limit = min(limit, request.ceiling)
    if request.render is not None:
        empty = {given.block.name: _NOTHING for given in inputs.blocks}
        fixed = measure.total(list(request.render(empty, [])))
    else:
        question = measure.group([request.question]) if request.question is not None else 0
        fixed = measure.overhead + system_tokens + question
    fixed += request.extra_tokens
    if fixed > limit:
        msg = (
            f"what always stays needs {fixed:,} tokens ({system_tokens:,} of them the system prompt), the limit "
            f"is {limit:,}. Shorten the system prompt, tools, template or question, lower the reserve, or take "
            "a larger window."
        )
        held = {"system": system_tokens, "other": fixed - system_tokens}
        raise BudgetExceededError(msg, limit=limit, needed=fixed, blocks=held)
    prices = Prices(limit=limit, room=limit - fixed, system_tokens=system_tokens, system_text=system_text)
    if inputs.alone:
        return prices
    needs = prices.needs
    if inputs.thread is not None and inputs.timeline is not None:
        needs = needs_of(inputs.thread, inputs.timeline)
    return replace(prices, wishes=_wishes(request, inputs), needs=needs)


def _check_system(request: PromptRequest, inputs: Inputs) -> int:
    """Returns the tokens of the system messages' texts, which the budget may bound."""
    timeline = inputs.timeline
    messages = list(request.system)
    if timeline is not None:
        messages += [timeline.messages[p] for p in timeline.pinned]
    if not messages:
        return 0
    texts = [content_text(request.codec.to_dict(m).get("content")) for m in messages]
    tokens = sum(request.counter.count_many(texts))
    request.budget.check_system(tokens)
    return tokens


def _wishes(request: PromptRequest, inputs: Inputs) -> dict[str, Wish]:
    """Returns what each block wants, by name."""
    wishes: dict[str, Wish] = {}
    framed = False  # blocks that change every turn share one message, which is framed once
    for given in inputs.blocks:
        block = given.block
        if not block.segments:
            wishes[block.name] = Wish()
        elif request.cost is not None:  # the strategy prices the segments; here they would be counted twice
            wishes[block.name] = Wish(wanted=_UNBOUNDED)
        else:
            static = block.name in STATIC
            base = 0
            if request.render is None:
                base = _frame_tokens(request, inputs.measure, block.name, framing=static or not framed)
            framed = framed or not static
            texts = [shown_text(request, block.name, inputs.tags, s, s.text) for s in block.segments]
            costs = request.counter.count_many(texts)
            if request.beside:
                costs = [c + request.beside.get(s.id, 0) for c, s in zip(costs, block.segments, strict=True)]
            groups = {s.group for s in block.segments if s.pinned and s.group is not None}
            pinned = [
                cost
                for cost, s in zip(costs, block.segments, strict=True)
                if block.pinned or s.pinned or s.group in groups
            ]
            wishes[block.name] = Wish(base + sum(costs), base, base + sum(pinned) if pinned else 0)
    return wishes


def _frame_tokens(request: PromptRequest, measure: Measure, name: str, *, framing: bool) -> int:
    count = request.counter.count
    tags = count(open_tag(name)) + count(close_tag(name))
    if not framing:
        return tags
    notice = count(request.notice + "\n") if request.notice and name not in STATIC else 0
    return tags + notice + measure.group([request.codec.make("system", "", origin=name)])


def shown_text(request: PromptRequest, name: str, tags: tuple[str, ...], segment: Segment, text: str) -> str:
    """Returns a text of a segment as the prompt holds it, wrapping included."""
    if request.shown is not None:
        text = request.shown(name, segment, text)
    return text + JOINT if request.render is not None else wrapper_of(name, tags)(segment, text)


# ---- grant ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Grants:
    """What each block is granted, the history under "history"; and the demands that led to it."""

    tokens: Mapping[str, int]
    demands: tuple[Demand, ...] = ()
    whole: bool = False
    """Everything fits as it is, so that nothing has to be shared out."""


def grant(request: PromptRequest, inputs: Inputs, prices: Prices) -> Grants:
    """Returns one allocation of the room for all."""
    room, budget, needs = prices.room, request.budget, prices.needs
    most = _UNBOUNDED if request.history_tokens is None else request.history_tokens
    if inputs.alone:
        return Grants({"history": min(room, most)})
    demands = []
    for given in inputs.blocks:
        wish = prices.wishes[given.block.name]
        demands.append(
            demand_for(budget, given.block.name, wish.wanted, block=given.block, pinned=wish.pinned)
        )
    if inputs.thread is not None:
        must = needs.must
        if budget.preset == "rag" and must + sum([d.wanted for d in demands]) > room:
            must = max(must, min(needs.exchanges, room // 2))  # long documents leave the last exchanges room
        demands.append(
            demand_for(budget, "history", most, block=request.history, minimum=needs.exchanges, pinned=must)
        )
    demands += _awaited(request, inputs.turn, room, demands)
    if budget.surplus != "keep" and _all_fits(inputs, room, demands):
        tokens_of = {demand.name: demand.wanted for demand in demands}
        if "history" in tokens_of:
            tokens_of["history"] = room - sum([n for name, n in tokens_of.items() if name != "history"])
        return Grants(tokens_of, tuple(demands), whole=True)
    everyone = with_absent(budget, demands, sources=inputs.turn.sources)
    granted = dict(allocate(room, everyone, surplus=budget.surplus).grants)
    if inputs.turn.granted_history is not None and inputs.thread is not None:
        granted["history"] = min(inputs.turn.granted_history, room)
    return Grants(granted, tuple(everyone))


def _all_fits(inputs: Inputs, room: int, demands: Sequence[Demand]) -> bool:
    """Returns whether all that is wanted fits; counts the history only as far as the room reaches."""
    left = room - sum([demand.wanted for demand in demands if demand.name != "history"])
    if left < 0 or inputs.timeline is None:
        return left >= 0
    if inputs.turn.granted_history is not None:
        return False
    most = [demand.wanted for demand in demands if demand.name == "history"]
    return inputs.timeline.costs_at_most(min([left, *most]))


def _awaited(request: PromptRequest, turn: Turn, room: int, demands: Sequence[Demand]) -> list[Demand]:
    """Returns demands that reserve the share of each block that another call of this turn will bring."""
    present = {demand.name for demand in demands}
    missing = [name for name in sorted(turn.awaited) if name not in present]
    if not missing:
        return []
    unbounded = [demand_for(request.budget, name, _UNBOUNDED) for name in missing]
    everyone = with_absent(request.budget, [*demands, *unbounded], sources=turn.sources)
    shares = allocate(room, everyone, surplus="keep").shares
    return [replace(demand, wanted=shares[demand.name]) for demand in unbounded]
