"""Read, price, grant: what was given, what it costs, what each block may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..budget.allocation import Demand, allocate, demand_for, with_absent
from ..conversation.fit import Needs, needs_of, read_thread
from ..conversation.thread import Thread
from ..conversation.timeline import Timeline
from ..errors import BudgetExceededError
from ..messages.codec import content_text
from ..messages.measure import CodecMeasure, Measure
from ..messages.tags import own_tags
from ..segment import Block, Decision
from .block_fit import NOTHING, BlockInput, Wish, wishes_of
from .read_blocks import for_reader
from .request import PromptRequest, Turn

__all__ = ["Grants", "Inputs", "Prices", "grant", "price", "read"]

_UNBOUNDED = 1 << 40
_NO_NEEDS = Needs(0, 0)


# ---- read -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What was given, as its reader sees it."""

    measure: Measure
    thread: Thread | None = None
    timeline: Timeline | None = None
    blocks: tuple[BlockInput, ...] = ()
    hidden: tuple[Decision, ...] = ()
    tags: tuple[str, ...] = ()
    sources: frozenset[str] | None = None
    awaited: frozenset[str] = frozenset()
    granted_history: int | None = None
    alone: bool = False
    """The history competes with nothing: no other block has a configured source."""


def read(request: PromptRequest, turn: Turn | None) -> Inputs:
    """Returns the conversation ready to be cut, and the blocks in rank order without what is hidden from their reader."""
    measure = request.measure or CodecMeasure(request.codec, request.counter, request.tools)
    thread = timeline = None
    if request.history is not None:
        thread = _thread(request, request.history, measure, turn)
        timeline = read_thread(thread)
    given = turn or Turn(request.sources)
    if not request.blocks:
        return Inputs(
            measure=measure,
            thread=thread,
            timeline=timeline,
            hidden=request.hidden,
            sources=given.sources,
            awaited=given.awaited,
            granted_history=given.granted_history,
            alone=thread is not None
            and not given.awaited
            and given.sources is not None
            and given.sources <= {"history"},
        )
    seen = [for_reader(block, request.scope) for block in request.blocks]
    question = request.question_text or _last_question(timeline)
    blocks = [BlockInput(block, _rank(request, block), block.query or question) for block, _ in seen]
    return Inputs(
        measure=measure,
        thread=thread,
        timeline=timeline,
        blocks=tuple(sorted(blocks, key=lambda b: (b.rank, b.block.name))),
        hidden=(*request.hidden, *(decision for _, hidden in seen for decision in hidden)),
        tags=own_tags(block.name for block, _ in seen),
        sources=given.sources,
        awaited=given.awaited,
        granted_history=given.granted_history,
    )


def _thread(request: PromptRequest, history: Block, measure: Measure, turn: Turn | None) -> Thread:
    budget = request.budget
    minimum = request.min_exchanges
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


def _rank(request: PromptRequest, block: Block) -> int:
    return block.rank if block.rank is not None else request.budget.rank_of(block.name)


def _last_question(timeline: Timeline | None) -> str:
    newest = timeline.newest if timeline is not None else None
    if timeline is None or newest is None or newest.question is None:
        return ""
    neutral = timeline.codec.to_dict(timeline.messages[newest.question.start])
    return content_text(neutral.get("content"))


# ---- price ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What everything costs before anything is granted.

    Args:
        limit: most tokens of the prompt.
        fixed: tokens that always stay: system prompt, tools, question, framing, what the host adds.
        room: tokens that history and blocks share.
        system_tokens: of them the system prompt; system messages of the history are counted there.
        system_text: tokens of the texts of all system messages.
        wishes: what each block wants.
        needs: what the conversation cannot do without.
    """

    limit: int
    fixed: int
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
    limit = budget.limit(
        system_tokens=system_tokens + pinned, band=request.counter.band, ceiling=request.ceiling
    )
    if request.render is not None:
        empty = {given.block.name: NOTHING for given in inputs.blocks}
        fixed = measure.total(list(request.render(empty, [])))
    else:
        question = measure.group([request.question]) if request.question is not None else 0
        fixed = measure.overhead + system_tokens + question
    fixed += request.extra_tokens
    if fixed > limit:
        raise _fixed_too_large(fixed, system_tokens, limit)
    wishes: Mapping[str, Wish] = {}
    needs = _NO_NEEDS
    if inputs.blocks or not inputs.alone:
        wishes = wishes_of(request, measure, inputs.blocks, inputs.tags)
        if inputs.thread is not None and inputs.timeline is not None:
            needs = needs_of(inputs.thread, inputs.timeline)
    return Prices(
        limit=limit,
        fixed=fixed,
        room=limit - fixed,
        system_tokens=system_tokens,
        system_text=system_text,
        wishes=wishes,
        needs=needs,
    )


def _check_system(request: PromptRequest, inputs: Inputs) -> int:
    """Returns the tokens of the system messages' texts, which the budget may bound."""
    budget, timeline = request.budget, inputs.timeline
    messages = list(request.system)
    if timeline is not None:
        messages += [timeline.messages[p] for p in timeline.pinned]
    texts = [content_text(request.codec.to_dict(m).get("content")) for m in messages]
    tokens = sum(request.counter.count_many(texts)) if texts else 0
    budget.check_system(tokens)
    return tokens


def _fixed_too_large(fixed: int, system: int, limit: int) -> BudgetExceededError:
    msg = (
        f"what always stays needs {fixed:,} tokens ({system:,} of them the system prompt), the limit is {limit:,}. "
        "Shorten the system prompt, tools, template or question, lower the reserve, or take a larger window."
    )
    blocks = {"system": system, "other": fixed - system}
    return BudgetExceededError(msg, limit=limit, needed=fixed, blocks=blocks)


# ---- grant ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Grants:
    """What each block is granted, the history under "history"; and the demands that led to it."""

    tokens: Mapping[str, int]
    demands: tuple[Demand, ...] = ()
    whole: bool = False
    """Everything fits as it is, so that nothing has to be shared out."""


def grant(request: PromptRequest, inputs: Inputs, prices: Prices) -> Grants:
    """Returns one allocation of the room for all."""
    if inputs.alone:
        tokens = prices.room
        if request.history_tokens is not None:
            tokens = min(tokens, request.history_tokens)
        return Grants({"history": tokens})
    budget, needs = request.budget, prices.needs
    demands = [
        demand_for(
            budget,
            given.block.name,
            prices.wishes[given.block.name].wanted,
            block=given.block,
            pinned=prices.wishes[given.block.name].pinned,
        )
        for given in inputs.blocks
    ]
    if inputs.thread is not None:
        most = _UNBOUNDED if request.history_tokens is None else request.history_tokens
        demands.append(
            demand_for(
                budget, "history", most, block=request.history, minimum=needs.exchanges, pinned=needs.must
            )
        )
    demands += _awaited(request, inputs, prices.room, demands)
    if budget.surplus != "keep" and _all_fits(inputs, prices.room, demands):
        tokens_of = {demand.name: demand.wanted for demand in demands}
        others = sum([wanted for name, wanted in tokens_of.items() if name != "history"])
        if "history" in tokens_of:
            tokens_of["history"] = prices.room - others
        return Grants(tokens_of, tuple(demands), whole=True)
    everyone = with_absent(budget, demands, sources=inputs.sources)
    granted = dict(allocate(prices.room, everyone, surplus=budget.surplus).grants)
    if inputs.granted_history is not None and inputs.thread is not None:
        granted["history"] = min(inputs.granted_history, prices.room)
    return Grants(granted, tuple(everyone))


def _all_fits(inputs: Inputs, room: int, demands: Sequence[Demand]) -> bool:
    """Returns whether all that is wanted fits; counts the history only as far as the room reaches."""
    left = room - sum([demand.wanted for demand in demands if demand.name != "history"])
    if left < 0 or inputs.timeline is None:
        return left >= 0
    if inputs.granted_history is not None:
        return False
    most = [demand.wanted for demand in demands if demand.name == "history"]
    return inputs.timeline.costs_at_most(min([left, *most]))


def _awaited(request: PromptRequest, inputs: Inputs, room: int, demands: Sequence[Demand]) -> list[Demand]:
    """Returns demands that reserve the share of each block that another call of this turn will bring."""
    present = {demand.name for demand in demands}
    missing = [name for name in sorted(inputs.awaited) if name not in present]
    if not missing:
        return []
    unbounded = [demand_for(request.budget, name, _UNBOUNDED) for name in missing]
    shares = allocate(
        room, with_absent(request.budget, [*demands, *unbounded], sources=inputs.sources), surplus="keep"
    ).shares
    return [replace(demand, wanted=shares[demand.name]) for demand in unbounded]
