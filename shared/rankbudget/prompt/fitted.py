"""Fit and verify: each within its grant, then all of it rendered and counted in its final form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .._drivers import Steps
from ..budget.allocation import allocate, rank_of
from ..conversation.fit import fit_thread
from ..conversation.thread import FittedThread
from ..conversation.timeline import Timeline
from ..counting.profiles import apply_profile
from ..errors import BudgetExceededError
from ..fitting.protocol import Fit
from ..segment import Block
from .blocks import as_shown, fit_block
from .grants import Grants, Inputs, Prices
from .layout import STATIC, Layout
from .request import PromptRequest

_ROUNDS = 12
"""Most rounds of giving up."""


# ---- fit ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The conversation and each block within their grants."""

    history: FittedThread | None = None
    fits: Mapping[str, Fit] = field(default_factory=dict)
    granted: Mapping[str, int] = field(default_factory=dict)


def fit(request: PromptRequest, inputs: Inputs, prices: Prices, grants: Grants) -> Steps[Fitted]:
    """Fits the history first, then the blocks in rank order; with preset "rag" it has its rank's place, too.

    Each takes up to its grant and what the one before it left, except with surplus "keep". The history waits
    for what others leave only with preset "rag", and not where an earlier call of the turn granted it.
    """
    overhead, timeline, rag = inputs.measure.overhead, inputs.timeline, request.budget.preset == "rag"
    shares = request.budget.surplus != "keep"
    history_takes = shares and rag and inputs.turn.granted_history is None
    order: list[Block | None] = [*inputs.blocks]
    if timeline is not None:
        own = rank_of(request.budget, "history", request.history_block) if rag else 0
        before = [block for block in inputs.blocks if rank_of(request.budget, block.name, block) <= own]
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
            fits[name] = fit_block(request, given, prices.wishes[name], granted[name], inputs.tags)
            carry = granted[name] - fits[name].tokens
            continue
        assert timeline is not None
        limit = granted[name] + overhead
        history = yield from fit_thread(timeline, limit, beside=prices.limit - limit)
        carry = limit - history.tokens
        if not rag and inputs.blocks:
            carry = 0
            tokens, unused = _left_by_history(request, prices, grants, history.tokens - overhead)
    return Fitted(history=history, fits=fits, granted=granted)


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


# ---- render and verify ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """The prompt in its final form, and what it is made of."""

    messages: Sequence[Any]
    total: int
    fitted: Fitted
    layout: Layout | None = None


def verify(request: PromptRequest, inputs: Inputs, prices: Prices, fitted: Fitted) -> Steps[Rendered]:
    """Returns the prompt, counted in its final form.

    While it is too large, the lowest rank that still has something gives up some of the excess, the history
    last.

    Raises:
        BudgetExceededError: it is too large in its final form, and nothing can be given up any more.
    """
    history = fitted.history
    hosts = (request.render is not None, request.profile is not None, request.question is not None)
    if history is not None and not any((fitted.fits, request.system, request.text, *hosts)):
        total = history.tokens + request.extra_tokens
        if total <= prices.limit:
            return Rendered(messages=history.messages, total=total, fitted=fitted)
    largest = 0
    for _ in range(_ROUNDS):
        rendered = _render(request, inputs, fitted)
        largest = rendered.total
        if request.text and rendered.layout is not None:
            largest = max(largest, request.counter.count(rendered.layout.text()))
        over = largest - prices.limit
        if over <= 0:
            return rendered
        fits, rest = _give_up(request, inputs, prices, fitted, over)
        history = fitted.history
        if fits == fitted.fits:  # a dropped block's frame goes too, so the history gives only after blocks
            history = (yield from _smaller_history(inputs, prices, history, rest)) if history else None
            if history is None:
                break
        fitted = replace(fitted, fits=fits, history=history)
    raise _too_large(inputs, prices, fitted, largest)


def _too_large(inputs: Inputs, prices: Prices, fitted: Fitted, largest: int) -> BudgetExceededError:
    used = {"system": prices.system_tokens, **{name: f.tokens for name, f in fitted.fits.items()}}
    if fitted.history is not None:
        used["history"] = fitted.history.tokens - inputs.measure.overhead
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
    fits = fitted.fits if request.shown is None else as_shown(fitted.fits, request.shown)
    layout = Layout(
        codec=request.codec,
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
    if fitted.history is not None and inputs.measure.additive and request.profile is None:
        total = fitted.history.tokens + inputs.measure.group([m for part in around for m in part])
    else:
        messages = messages if request.profile is None else apply_profile(messages, request.profile)
        total = inputs.measure.total(messages)
    total += request.extra_tokens + (_beside(request, fitted) if request.beside else 0)
    return Rendered(messages=messages, total=total, fitted=fitted, layout=layout)


def _beside(request: PromptRequest, fitted: Fitted) -> int:
    """Returns the tokens of media that the rendering does not show; a host's own shows its blocks'."""
    fits = [fit for name, fit in fitted.fits.items() if request.render is None or name == "knowledge"]
    return sum([request.beside.get(piece.segment.id, 0) for fit in fits for piece in fit.pieces])


def _give_up(
    request: PromptRequest, inputs: Inputs, prices: Prices, fitted: Fitted, over: int
) -> tuple[dict[str, Fit], int]:
    """Returns the fits after the lowest ranks gave up `over` tokens, and what of that is still missing.

    A template may put tags around each piece, or show a text twice. What the prompt has beyond the sum of its
    parts is put down to all pieces and messages alike, and goes with them.
    """
    made, history = dict(fitted.fits), fitted.history
    used = 0 if history is None else history.tokens - inputs.measure.overhead
    expected = prices.limit - prices.room + sum([fit.tokens for fit in made.values()]) + used
    unseen = max(0, prices.limit + over - expected)
    messages = 0 if history is None else len(history.messages)
    pieces = messages + sum([len(fit.pieces) for fit in made.values()])
    for given in reversed(inputs.blocks):
        name = given.name
        if made[name].pieces and over > 0:
            wish, before = prices.wishes[name], made[name].tokens
            shown = before + unseen * len(made[name].pieces) // pieces
            most = before * max(0, shown - over) // shown if shown else 0
            made[name] = fit_block(request, given, wish, max(wish.pinned, most), inputs.tags)
            over -= shown - made[name].tokens * shown // max(1, before)
    if messages and used > 0:
        over = -(-over * used // (used + unseen * messages // pieces))
    return made, over


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
