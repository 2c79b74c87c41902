"""From a request to a plan, in stages. Each stage is a function over frozen values.

read     request                  -> Inputs     the conversation, the blocks as their reader sees them
price    request, Inputs          -> Prices     fixed cost, what blocks want, what the conversation needs
grant    request, Inputs, Prices  -> Grants     integers: one allocation for all
fit      ... Grants               -> Fitted     the conversation and each block within its grant
verify   ... Fitted               -> Rendered   rendered and counted; lower ranks give up any excess
report   ... Rendered             -> Plan       a decision and a reason for every piece
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from .._drivers import Steps, drive
from ..budget.token_budget import TokenBudget
from ..conversation.selection import in_order_of_importance
from ..errors import BudgetConfigError
from ..report.report import BlockTotal, BudgetReport, MoreTokens, Part, warnings_for
from ..segment import Block, Decision, DecisionRange
from .fitted import Rendered, fit, verify
from .grants import Inputs, Prices, grant, price, read
from .layout import STATIC
from .needs import Kept, Needs
from .plan import Plan
from .request import PromptRequest, Turn

__all__ = ["plain_budget", "plan_steps"]

_IN_PROMPT = {name: i for i, name in enumerate((*STATIC, "history"))}
"""Where each block stands; others follow, the question is last."""


def plan_steps(request: PromptRequest, turn: Turn | None = None) -> Steps[Plan]:
    """Returns the plan for a request; `turn` is what a session adds to it.

    Raises:
        BudgetExceededError: what must stay does not fit.
        BudgetConfigError: the blocks cannot be read.
        MessageError: a message cannot be read, or needs a repair while `strict`.
    """
    inputs = read(request, turn)
    prices = price(request, inputs)
    grants = grant(request, inputs, prices)
    fitted = yield from fit(request, inputs, prices, grants)
    rendered = yield from verify(request, inputs, prices, fitted)
    return _report(request, inputs, prices, rendered)


def plain_budget(tokens: object) -> TokenBudget:
    """Returns the budget of a bare number of prompt tokens.

    It has no reserve, shares memory to history as 3 : 4, and allows a system prompt of any size.
    """
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
        msg = f"budget must be a TokenBudget or a number of prompt tokens, 1 or more (got {tokens!r})"
        raise BudgetConfigError(msg)
    return _plain_budget(tokens)


@lru_cache(maxsize=256)
def _plain_budget(tokens: int) -> TokenBudget:
    ratios = {"memory": 0.43, "history": 0.57}
    return TokenBudget(context_window=tokens, reserve=0, ratios=ratios, max_system_ratio=None)


# ---- report ---------------------------------------------------------------------------------------


def _report(request: PromptRequest, inputs: Inputs, prices: Prices, rendered: Rendered) -> Plan:
    """Returns the finished plan with its report."""
    fitted, budget, counter = rendered.fitted, request.budget, request.counter
    history, system = fitted.history, prices.system_tokens
    totals, joined = _totals(request, inputs, prices, rendered)
    parts: list[Part] = [_always(t.name, t.used) for t in totals if t.granted is None]
    parts += inputs.hidden
    for kept in fitted.fits.values():
        parts += kept.decisions
    if history is not None and request.history is not None:
        parts += _named(history.parts, request.history) if request.history.segments else history.parts
    warnings = history.warnings if history is not None else ()
    unsure = request.summarizer is not None or (inputs.thread is not None and inputs.thread.remembers)
    if inputs.hidden:
        hidden = f"out_of_scope: {len(inputs.hidden)} segments belong to other users or projects"
        warnings = (*warnings, hidden)
    report = BudgetReport(
        limit=prices.limit,
        total_tokens=rendered.total,
        window=None if budget.context_window == prices.limit else budget.context_window,
        reserve=budget.reserve_tokens(system),
        safety=budget.safety_tokens(system_tokens=system, band=counter.band),
        overhead=rendered.total - sum([total.used for total in totals]),
        blocks=totals,
        parts=parts,
        warnings=lambda: (*warnings, *_warnings(request, prices)),
        counter=counter.name,
        exact=counter.exact,
        model=budget.model,
        covers=request.covers,
        joined=joined,
        needs=None if unsure else partial(_needs, request, inputs, prices),
    )
    return Plan(
        messages=rendered.messages,
        history=history.messages if history is not None else (),
        kept=fitted.fits,
        report=report,
        counter=counter,
        granted=fitted.granted,
        layout=rendered.layout,
        state=history.state if history is not None else None,
    )


def _totals(
    request: PromptRequest, inputs: Inputs, prices: Prices, rendered: Rendered
) -> tuple[list[BlockTotal], frozenset[str]]:
    """Returns the figures of each block in the order of the prompt, and the blocks whose pieces do not add up.

    A block's tags are overhead. Where joined texts and merged messages cost less than one by one, the largest
    block has saved it.
    """
    fitted, rank = rendered.fitted, request.budget.rank_of
    totals = []
    if request.system:
        totals.append(BlockTotal(name="system", rank=rank("system"), granted=None, used=prices.system_tokens))
    if fitted.history is not None and request.history is not None:
        own = request.history.rank
        used = fitted.history.tokens - inputs.measure.overhead
        granted = fitted.granted["history"]
        history_rank = rank("history") if own is None else own
        totals.append(BlockTotal(name="history", rank=history_rank, granted=granted, used=used))
    for given in inputs.blocks:
        name, wish = given.block.name, prices.wishes[given.block.name]
        used = max(0, fitted.fits[name].tokens - wish.base)
        wanted = wish.wanted if request.cost is None else None
        granted = fitted.granted[name]
        totals.append(BlockTotal(name=name, rank=given.rank, granted=granted, used=used, wanted=wanted))
    if request.question is not None:
        used = inputs.measure.group([request.question])
        totals.append(BlockTotal(name="query", rank=rank("query"), granted=None, used=used))
    if len(totals) > 1:
        totals.sort(key=lambda t: _IN_PROMPT.get(t.name, 99 if t.name == "query" else 50))
    joined = set() if inputs.measure.additive or fitted.history is None else {"history"}
    saved = sum([total.used for total in totals]) - rendered.total
    if saved > 0:
        largest = max(range(len(totals)), key=lambda i: totals[i].used)
        totals[largest] = replace(totals[largest], used=totals[largest].used - saved)
        joined.add(totals[largest].name)
    return totals, frozenset(joined)


def _always(name: str, tokens: int) -> Decision:
    return Decision(segment_id=name, block=name, action="kept", reason="pinned", before=tokens, after=tokens)


def _named(parts: Sequence[Part], history: Block) -> list[Part]:
    """Returns the decisions on a history of segments under the segments' own ids; messages keep theirs."""
    names = {f"history-{i}": s.id for i, s in enumerate(history.segments)}

    def name(decision: Decision) -> Decision:
        return replace(decision, segment_id=names.get(decision.segment_id, decision.segment_id))

    def name_all(expand: Callable[[], Iterator[Decision]]) -> Iterator[Decision]:
        return map(name, expand())

    return [
        replace(p, expand=partial(name_all, p.expand)) if isinstance(p, DecisionRange) else name(p)
        for p in parts
    ]


def _warnings(request: PromptRequest, prices: Prices) -> list[str]:
    budget = request.budget
    limits = [budget.sizes["system"]] if "system" in budget.sizes else []
    if budget.max_system_ratio is not None:
        limits.append(int(budget.context_window * budget.max_system_ratio))
    return warnings_for(
        window=budget.context_window,
        system_tokens=prices.system_text,
        system_limit=min(limits, default=None),
        task_turns=request.task_turns,
    )


# ---- what brings a piece back ---------------------------------------------------------------------


def _needs(request: PromptRequest, inputs: Inputs, prices: Prices, report: BudgetReport) -> MoreTokens:
    """Returns what says how many more tokens bring back a piece that this plan dropped."""
    budget = request.budget

    def refit(more: int) -> Kept:
        if budget == plain_budget(budget.context_window):  # counted in `max_tokens`, as the caller gave it
            larger = plain_budget(budget.context_window + more)
        else:
            window = prices.limit + more + 2
            larger = budget.replace(context_window=window, reserve=2, safety=0, max_system_ratio=None)
        ceiling = None if request.ceiling is None else request.ceiling + more
        again = drive(plan_steps(replace(request, budget=larger, ceiling=ceiling)))
        return again.report.in_prompt()

    dropped = sum([d.before for d in report.decisions if d.action == "trimmed"])
    most = 64 * (dropped + prices.limit) + 1024
    known = partial(_thresholds, request, inputs, prices)
    return Needs(report.in_prompt, refit, known, size=report.size, most=most).tokens


def _thresholds(request: PromptRequest, inputs: Inputs, prices: Prices) -> dict[tuple[str, str], int]:
    """Returns what each message of a conversation alone needs: it is kept in a known order."""
    timeline, thread = inputs.timeline, inputs.thread
    exact = inputs.measure.additive and not request.counter.band and request.profile is None
    if timeline is None or thread is None or not (exact and inputs.alone):
        return {}
    if thread.cut != "fill" or thread.query or request.history_tokens is not None:
        return {}
    found: dict[tuple[str, str], int] = {}
    used = timeline.pinned_tokens - prices.room
    for must, units in in_order_of_importance(timeline, thread.min_exchanges):
        used += timeline.cost(units)
        for position in [p for unit in units for p in unit.positions()] if used > 0 and not must else ():
            name = timeline.codec.message_id(timeline.messages[position]) or f"history-{position}"
            found["history", name] = used
    return found
