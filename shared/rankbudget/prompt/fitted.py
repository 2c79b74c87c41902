"""Fit and verify: each within its grant, then all of it rendered and counted in its final form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .._drivers import Steps
from ..budget.allocation import allocate
from ..conversation.fit import fit_thread
from ..conversation.thread import FittedThread
from ..conversation.timeline import Timeline
from ..counting.profiles import apply_profile
from ..errors import BudgetExceededError, named_failure
from ..fitting import block as fitting
from ..fitting.protocol import Fit
from ..segment import Block
from .grants import Grants, Inputs, Prices, grant
from .layout import STATIC, Layout
from .request import PromptRequest, Shown

_ROUNDS = 12
"""Most rounds of giving up."""
_SHARED = 6
"""Of these, the most in which the room is shared again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The conversation and each block within their grants."""

    history: FittedThread | None = None
    fits: Mapping[str, Fit] = field(default_factory=dict)
    granted: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """The prompt in its final form, and what it is made of."""

    messages: Sequence[Any]
    total: int
    fitted: Fitted
    layout: Layout | None = None


# ---- fit ------------------------------------------------------------------------------------------


def fit_history(request: PromptRequest, inputs: Inputs, prices: Prices) -> Steps[Rendered]:
    """Fits a history that is all of the prompt: it is counted as it is kept."""
    assert inputs.timeline is not None
    granted = min(prices.room, prices.most)
    limit = granted + inputs.overhead
    history = yield from fit_thread(inputs.timeline, limit, beside=_besides(prices, granted, limit))
    fitted = Fitted(history=history, granted={"history": granted})
    total = history.tokens + request.extra_tokens
    if total > prices.limit:  # counts of parts may not add up
        return (yield from verify(request, inputs, prices, fitted))
    return Rendered(messages=history.messages, total=total, fitted=fitted)


def _besides(prices: Prices, granted: int, limit: int) -> int:
    """Returns what others hold of the prompt; of a limit of the history's own nothing is theirs."""
    return 0 if granted == prices.most else prices.limit - limit


def fit(request: PromptRequest, inputs: Inputs, prices: Prices, grants: Grants) -> Steps[Fitted]:
    """Fits the history first, then the blocks in rank order; with preset "rag" it has its rank's place, too.

    Each takes up to its grant and what the one before it left, and what is free at last, except with surplus
    "keep". The history waits for what others leave only with preset "rag", and not where an earlier call of
    the turn granted it.
    """
    overhead, timeline, rag = inputs.overhead, inputs.timeline, request.budget.preset == "rag"
    shares = request.budget.surplus != "keep"
    history_takes = shares and rag and inputs.turn.granted_history is None
    order: list[Block | None] = [*inputs.blocks]
    if timeline is not None:
        own = inputs.ranks.get("history", 0) if rag else 0
        before = [block for block in inputs.blocks if inputs.ranks[block.name] <= own]
        order.insert(len(before), None)
    tokens, unused, carry = grants.tokens, max(0, prices.room - sum(grants.tokens.values())), 0
    granted: dict[str, int] = {}
    fits: dict[str, Fit] = {}
    history: FittedThread | None = None
    for i, given in enumerate(order):
        name = "history" if given is None else given.name
        granted[name] = tokens[name]
        if history_takes if given is None else shares:
            granted[name] += carry + (unused if i == len(order) - 1 else 0)
        if given is not None:
            fits[name] = fit_block(request, inputs, prices, given, granted[name])
            carry = granted[name] - fits[name].tokens
            continue
        assert timeline is not None
        granted[name] = min(granted[name], prices.most)
        limit = granted[name] + overhead
        history = yield from fit_thread(timeline, limit, beside=_besides(prices, granted[name], limit))
        carry = limit - history.tokens
        if not rag and inputs.blocks:
            carry = 0
            tokens, unused = _left_by_history(request, prices, grants, history.tokens - overhead)
    fitted = Fitted(history=history, fits=fits, granted=granted)
    return _refilled(request, inputs, prices, fitted, _left(inputs, prices, fitted, tokens))


def _left(inputs: Inputs, prices: Prices, fitted: Fitted, tokens: Mapping[str, int]) -> int:
    """Returns the tokens that nothing has, without those for blocks of another call of this turn."""
    later = sum([tokens[name] for name in tokens.keys() - fitted.granted.keys()])
    return prices.room - later - _used(inputs, fitted)


def _used(inputs: Inputs, fitted: Fitted) -> int:
    used = sum([fit.tokens for fit in fitted.fits.values()])
    return used + (0 if fitted.history is None else fitted.history.tokens - inputs.overhead)


def _refilled(request: PromptRequest, inputs: Inputs, prices: Prices, fitted: Fitted, free: int) -> Fitted:
    """Returns what fits when blocks in rank order also take the `free` tokens, except with surplus "keep".

    Only whole turns and pieces are kept, so what they leave of their grants is known only afterwards.
    """
    fits, granted = dict(fitted.fits), dict(fitted.granted)
    if request.budget.surplus == "keep":
        return fitted
    for block in inputs.blocks:
        name, before = block.name, fits[block.name].tokens
        if before + free > granted[name] < prices.wishes[name].wanted:
            granted[name] = before + free
            fits[name] = fit_block(request, inputs, prices, block, granted[name])
            free += before - fits[name].tokens
    return replace(fitted, fits=fits, granted=granted)


def _left_by_history(
    request: PromptRequest, prices: Prices, grants: Grants, used: int
) -> tuple[Mapping[str, int], int]:
    """Returns the grants of the blocks when the history has `used` tokens, and what is left after them."""
    if grants.whole:
        return grants.tokens, 0
    demands = [
        replace(d, wanted=used, minimum=0, pinned=used, rank=1) if d.name == "history" else d
        for d in grants.demands
    ]
    left = allocate(prices.room, demands, surplus=request.budget.surplus)
    return left.grants, left.unused


def fit_block(request: PromptRequest, inputs: Inputs, prices: Prices, block: Block, granted: int) -> Fit:
    """Returns what a block keeps within `granted` tokens, its frame included."""
    segments, wish = block.segments, prices.wishes[block.name]
    if block.pinned:
        segments = tuple([replace(s, pinned=True) for s in segments])
    with named_failure(f"fitting the block {block.name!r}"):  # scorers, costs and strategies from outside
        if request.cost or request.shown:
            wish.all_of(block)  # a host's texts may have changed when somebody reads the report
        fit = fitting.fit_block(
            segments,
            strategy=fitting.strategy_for(block.name, block.strategy, scorer=request.scorer),
            limit=max(0, granted - wish.base),
            counter=request.counter,
            block=block.name,
            query=block.query or inputs.question,
            cost=wish.cost,
            media=request.beside,
        )
    return replace(fit, tokens=fit.tokens + wish.base) if fit.pieces else fit


# ---- render and verify ----------------------------------------------------------------------------


def verify(request: PromptRequest, inputs: Inputs, prices: Prices, fitted: Fitted) -> Steps[Rendered]:
    """Returns the prompt, counted in its final form.

    While it is too large, the room is shared again without the excess where counts of messages do not add
    up; else the lowest rank that still has something gives up some of it, the history last.

    Raises:
        BudgetExceededError: it is too large in its final form, and nothing can be given up any more.
    """
    largest, room = 0, prices.room
    # A template that joins messages may make less of them than their sum.
    may_join = inputs.timeline is not None and not inputs.measure.additive
    for gave_up in range(_ROUNDS):
        rendered = _render(request, inputs, fitted)
        largest = _largest(request, rendered)
        over = largest - prices.limit
        if over <= 0:
            is_refilled = gave_up or may_join
            return _with_more(request, inputs, prices, rendered, -over) if is_refilled else rendered
        room = min(room, _used(inputs, fitted)) - over
        shared = (yield from _shared_again(request, inputs, prices, room)) if gave_up < _SHARED else None
        if shared is not None:
            fitted = shared
            continue
        fits, granted, rest = _give_up(request, inputs, prices, fitted, over)
        history = fitted.history
        if fits == fitted.fits:  # a dropped block's frame goes too, so the history gives only after blocks
            history = (yield from _smaller_history(inputs, prices, history, rest)) if history else None
            if history is None:
                break
        fitted = replace(fitted, fits=fits, granted=granted, history=history)
    raise _too_large(inputs, prices, fitted, largest)


def _shared_again(request: PromptRequest, inputs: Inputs, prices: Prices, room: int) -> Steps[Fitted | None]:
    """Returns all of it fitted into less room: where counts do not add up, no block caused the excess.

    None where counts add up, and where a second cut would move what a cache holds or ask a model again.
    """
    timeline, smaller = inputs.timeline, replace(prices, room=room)
    if inputs.measure.additive or timeline is None or not inputs.blocks or room < 0:
        return None
    if timeline.thread.cut != "fill" or timeline.thread.remembers or timeline.thread.summarizer is not None:
        return None
    try:
        return (yield from fit(request, inputs, smaller, grant(request, inputs, smaller)))
    except BudgetExceededError:
        return None


def _largest(request: PromptRequest, rendered: Rendered) -> int:
    """Returns the tokens of a prompt in its largest form."""
    if request.text and rendered.layout is not None:
        return max(rendered.total, request.counter.count(rendered.layout.text()))
    return rendered.total


def _with_more(
    request: PromptRequest, inputs: Inputs, prices: Prices, rendered: Rendered, free: int
) -> Rendered:
    """Returns the prompt with what of the pieces fits into what whole ones that were given up left `free`."""
    if inputs.turn.awaited:
        return rendered
    more = _render(request, inputs, _refilled(request, inputs, prices, rendered.fitted, free))
    return more if _largest(request, more) <= prices.limit else rendered


def _too_large(inputs: Inputs, prices: Prices, fitted: Fitted, largest: int) -> BudgetExceededError:
    used = {"system": prices.system_tokens, **{name: f.tokens for name, f in fitted.fits.items()}}
    if fitted.history is not None:
        used["history"] = fitted.history.tokens - inputs.overhead
    msg = (
        f"the prompt must have at most {prices.limit:,} tokens in its final form (got {largest:,}). "
        "Shorten the fixed parts or raise the limit."
    )
    return BudgetExceededError(msg, limit=prices.limit, needed=largest, blocks=used)


def _render(request: PromptRequest, inputs: Inputs, fitted: Fitted) -> Rendered:
    history = fitted.history.messages if fitted.history is not None else []
    if request.render is not None:
        messages = list(request.render(fitted.fits, history))
        total = inputs.measure.total(messages) + request.extra_tokens
        total += _beside(request, fitted) if request.beside else 0
        return Rendered(messages=messages, total=total, fitted=fitted)
    fits = fitted.fits if request.shown is None else _as_shown(fitted.fits, request.shown)
    layout = Layout(
        codec=request.codec,
        among=request.history or [request.question],
        system=list(request.system),
        static={name: fits[name] for name in STATIC if name in fits},
        history=history,
        asked=fitted.history.question if fitted.history is not None else None,
        volatile={name: fit for name, fit in fits.items() if name not in STATIC},
        question=request.question,
        notice=request.notice,
        tags=inputs.tags,
    )
    around = layout.around()
    messages = layout.messages(*around)
    if request.profile is not None:
        messages = apply_profile(messages, request.profile)
    if fitted.history is not None and inputs.measure.additive and not request.moves:
        total = fitted.history.tokens + inputs.measure.group([m for part in around for m in part])
    else:
        total = inputs.measure.total(messages)
    total += request.extra_tokens + (_beside(request, fitted) if request.beside else 0)
    return Rendered(messages=messages, total=total, fitted=fitted, layout=layout)


def _as_shown(fits: Mapping[str, Fit], shown: Shown) -> dict[str, Fit]:
    """Returns fits whose pieces read as the prompt shows them."""
    made: dict[str, Fit] = {}
    for name, fit in fits.items():
        pieces = [
            replace(p, rendition=replace(p.rendition, text=shown(name, p.segment, p.rendition.text)))
            for p in fit.pieces
        ]
        made[name] = replace(fit, pieces=tuple(pieces))
    return made


def _beside(request: PromptRequest, fitted: Fitted) -> int:
    """Returns the tokens of media that the rendering does not show; a host's own shows its blocks'."""
    fits = [fit for name, fit in fitted.fits.items() if request.render is None or name == "knowledge"]
    return sum([request.beside.get(piece.segment.id, 0) for fit in fits for piece in fit.pieces])


def _give_up(
    request: PromptRequest, inputs: Inputs, prices: Prices, fitted: Fitted, over: int
) -> tuple[dict[str, Fit], dict[str, int], int]:
    """Returns fits and grants after the lowest ranks gave up `over` tokens, and what of that is missing.

    A host may show a text twice, or escape it: what that adds to the parts is put down to all alike.
    """
    made, granted = dict(fitted.fits), dict(fitted.granted)
    used, shown = _used(inputs, fitted), prices.room + over
    over = -(-over * used // shown) if shown > used else over
    for given in reversed(inputs.blocks):
        name = given.name
        if made[name].pieces and over > 0:
            before = made[name].tokens
            granted[name] = max(prices.wishes[name].pinned, before - over)
            made[name] = fit_block(request, inputs, prices, given, granted[name])
            over -= before - made[name].tokens
    return made, granted, over


def _smaller_history(
    inputs: Inputs, prices: Prices, history: FittedThread, over: int
) -> Steps[FittedThread | None]:
    """Returns the history within `over` tokens less, None when it cannot shrink; its summary stays."""
    assert inputs.timeline is not None
    thread = inputs.timeline.thread
    thread = replace(
        thread, known=(history.state,) if history.state is not None else thread.known, strict=False
    )
    timeline = Timeline(thread.messages, thread.codec, thread.measure, thread=thread)
    limit = history.tokens - over
    try:
        return (yield from fit_thread(timeline, limit, beside=prices.limit - limit))
    except BudgetExceededError:
        return None
