"""Fit and verify: each within its grant, then all of it rendered and counted in its final form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .._drivers import Steps
from ..budget.allocation import Allocation, allocate
from ..conversation.fit import fit_thread, read_thread
from ..conversation.thread import FittedThread
from ..counting.profiles import apply_profile
from ..errors import BudgetExceededError
from ..fitting.protocol import Fit
from .block_fit import as_shown, fit_block
from .grants import Grants, Inputs, Prices
from .layout import STATIC, Layout
from .request import PromptRequest

__all__ = ["Fitted", "Rendered", "fit", "verify"]

_ROUNDS, _HALVING = 12, 6
"""Most rounds of giving up, and those in which half of the excess is asked for."""


# ---- fit --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The conversation and each block within their grants."""

    history: FittedThread | None = None
    fits: Mapping[str, Fit] = field(default_factory=dict)
    granted: Mapping[str, int] = field(default_factory=dict)


def fit(request: PromptRequest, inputs: Inputs, prices: Prices, grants: Grants) -> Steps[Fitted]:
    """Fits the history first, then the blocks in rank order; with preset "rag" the history in rank order, too.

    Each takes up to its grant and what the one before it left.
    """
    surplus = request.budget.surplus
    if request.budget.preset == "rag" or inputs.thread is None:
        return (yield from _fit_in_rank_order(request, inputs, prices, grants))
    history = yield from _fit_history(inputs, prices, grants.tokens["history"])
    if not inputs.blocks:
        return Fitted(history=history, granted=grants.tokens)
    used = history.tokens - inputs.measure.overhead
    demands = [
        replace(d, wanted=used, minimum=0, pinned=used, rank=1) if d.name == "history" else d
        for d in grants.demands
    ]
    left = (
        Allocation(grants=grants.tokens, unused=0)
        if grants.whole
        else allocate(prices.room, demands, surplus=surplus)
    )
    fits, granted = _fit_blocks(request, inputs, prices, left)
    return Fitted(history=history, fits=fits, granted={**granted, "history": grants.tokens["history"]})


def _fit_history(inputs: Inputs, prices: Prices, granted: int) -> Steps[FittedThread]:
    assert inputs.thread is not None
    assert inputs.timeline is not None
    limit = granted + inputs.measure.overhead
    return (yield from fit_thread(inputs.thread, inputs.timeline, limit, beside=prices.limit - limit))


def _fit_blocks(
    request: PromptRequest, inputs: Inputs, prices: Prices, allocation: Allocation
) -> tuple[dict[str, Fit], dict[str, int]]:
    fits: dict[str, Fit] = {}
    granted: dict[str, int] = {}
    carry = 0
    for i, given in enumerate(inputs.blocks):
        name = given.block.name
        if i == len(inputs.blocks) - 1:
            carry += allocation.unused  # rounded off, or left by a history that ranks below
        granted[name] = allocation[name] + (carry if request.budget.surplus != "keep" else 0)
        fits[name] = fit_block(request, given, prices.wishes[name].base, granted[name], inputs.tags)
        carry = granted[name] - fits[name].tokens
    return fits, granted


def _fit_in_rank_order(
    request: PromptRequest, inputs: Inputs, prices: Prices, grants: Grants
) -> Steps[Fitted]:
    fits: dict[str, Fit] = {}
    granted: dict[str, int] = {}
    history: FittedThread | None = None
    rank = request.budget.rank_of("history")
    if request.history is not None and request.history.rank is not None:
        rank = request.history.rank
    carry = prices.room - sum(grants.tokens.values())
    keep = request.budget.surplus == "keep"
    for given in [
        *[b for b in inputs.blocks if b.rank <= rank],
        None,
        *[b for b in inputs.blocks if b.rank > rank],
    ]:
        if given is None and inputs.thread is None:
            continue
        name = "history" if given is None else given.block.name
        granted[name] = grants.tokens.get(name, 0) + (0 if keep else max(0, carry))
        if given is None:
            history = yield from _fit_history(inputs, prices, granted[name])
            carry = granted[name] - (history.tokens - inputs.measure.overhead)
        else:
            fits[name] = fit_block(request, given, prices.wishes[name].base, granted[name], inputs.tags)
            carry = granted[name] - fits[name].tokens
    return Fitted(history=history, fits=fits, granted=granted)


# ---- render and verify ------------------------------------------------------------------------------------------------------


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
    largest = 0
    for attempt in range(_ROUNDS):
        rendered = _render(request, inputs, fitted)
        largest = rendered.total
        if request.text and rendered.layout is not None:
            largest = max(largest, request.counter.count(rendered.layout.text()))
        over = largest - prices.limit
        if over <= 0:
            return rendered
        # A template may show a text twice: what is asked for first is what a doubled text needs.
        fits, rest = _give_up(
            request, inputs, prices, fitted.fits, (over + 1) // 2 if attempt < _HALVING else over
        )
        history = fitted.history
        if (
            fits == fitted.fits
        ):  # a block that is dropped takes its frame with it: the history gives only after that
            if history is None:
                break
            history = yield from _smaller_history(inputs, prices, history, rest)
            if history is None:
                break
        fitted = replace(fitted, fits=fits, history=history)
    used = {"system": prices.system_tokens, **{name: f.tokens for name, f in fitted.fits.items()}}
    if fitted.history is not None:
        used["history"] = fitted.history.tokens - inputs.measure.overhead
    msg = (
        f"the prompt must have at most {prices.limit:,} tokens in its final form (got {largest:,}). "
        "Shorten the fixed parts or raise the limit."
    )
    raise BudgetExceededError(msg, limit=prices.limit, needed=largest, blocks=used)


def _render(request: PromptRequest, inputs: Inputs, fitted: Fitted) -> Rendered:
    history = fitted.history.messages if fitted.history is not None else []
    if request.render is not None:
        messages = list(request.render(fitted.fits, history))
        total = inputs.measure.total(messages) + request.extra_tokens
        return Rendered(messages=messages, total=total, fitted=fitted)
    simple = not fitted.fits and not request.system and request.question is None
    if simple and fitted.history is not None and request.profile is None and not request.text:
        return Rendered(messages=history, total=fitted.history.tokens + request.extra_tokens, fitted=fitted)
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
    messages = layout.messages()
    if request.profile is not None:
        messages = apply_profile(messages, request.profile)
    total = inputs.measure.total(messages) + request.extra_tokens
    if request.beside:  # the default rendering shows texts; a host's own shows what is beside them, too
        kept = [piece.segment.id for fit in fitted.fits.values() for piece in fit.pieces]
        total += sum([request.beside.get(name, 0) for name in kept])
    return Rendered(messages=messages, total=total, fitted=fitted, layout=layout)


def _give_up(
    request: PromptRequest, inputs: Inputs, prices: Prices, fits: Mapping[str, Fit], over: int
) -> tuple[dict[str, Fit], int]:
    """Returns the fits after the lowest ranks gave up `over` tokens, and what of that nobody gave."""
    made = dict(fits)
    for given in reversed(inputs.blocks):
        name = given.block.name
        if made[name].pieces and over > 0:
            wish, before = prices.wishes[name], made[name].tokens
            made[name] = fit_block(request, given, wish.base, max(wish.pinned, before - over), inputs.tags)
            over -= before - made[name].tokens
    return made, over


def _smaller_history(
    inputs: Inputs, prices: Prices, history: FittedThread, over: int
) -> Steps[FittedThread | None]:
    """Returns the history within `over` tokens less, None when it cannot shrink; its summary stays."""
    assert inputs.thread is not None
    thread = replace(inputs.thread, known=history.state or inputs.thread.known)
    limit = history.tokens - over
    try:
        return (yield from fit_thread(thread, read_thread(thread), limit, beside=prices.limit - limit))
    except BudgetExceededError:
        return None
