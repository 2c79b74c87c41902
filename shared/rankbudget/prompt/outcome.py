"""Report: a decision and a reason for every piece, totals for every block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from ..budget.token_budget import TokenBudget
from ..report.report import BlockTotal, BudgetReport, warnings_for
from ..segment import Block, Decision, DecisionRange
from .fitted import Rendered
from .grants import Inputs, Prices
from .layout import STATIC
from .plan import Plan
from .request import PromptRequest

__all__ = ["report"]


def report(request: PromptRequest, inputs: Inputs, prices: Prices, rendered: Rendered) -> Plan:
    """Returns the finished plan with its report."""
    fitted, budget = rendered.fitted, request.budget
    history = fitted.history
    totals = _totals(request, inputs, prices, rendered)
    parts: list[Decision | DecisionRange] = [_always(t, prices) for t in totals if t.granted is None]
    parts += inputs.hidden
    for given in inputs.blocks:
        parts += fitted.fits[given.block.name].decisions
    if history is not None and request.history is not None:
        parts += _named(history.parts, request.history) if request.history.segments else history.parts
    notes = list(history.warnings) if history is not None else []
    if inputs.hidden:
        notes.append(f"out_of_scope: {len(inputs.hidden)} segments belong to other users or projects")
    window: int | None = budget.context_window
    if window == prices.limit:  # a bare number of tokens: there is no window to speak of
        window = None
    made = BudgetReport(
        limit=prices.limit,
        total_tokens=rendered.total,
        window=window,
        reserve=budget.reserve_tokens(prices.system_tokens),
        safety=budget.safety_tokens(system_tokens=prices.system_tokens, band=request.counter.band),
        overhead=rendered.total - sum([total.used for total in totals]),
        blocks=totals,
        parts=parts,
        warnings=lambda: (*notes, *_warnings(request, prices)),
        counter=request.counter.name,
        exact=request.counter.exact,
        model=budget.model,
        covers=request.covers,
    )
    return Plan(
        messages=rendered.messages,
        history=history.messages if history is not None else (),
        kept=fitted.fits,
        report=made,
        counter=request.counter,
        granted=fitted.granted,
        layout=rendered.layout,
        state=history.state if history is not None else None,
    )


def _totals(request: PromptRequest, inputs: Inputs, prices: Prices, rendered: Rendered) -> list[BlockTotal]:
    """Returns the figures of each block in the order of the prompt."""
    fitted, rank = rendered.fitted, request.budget.rank_of
    totals = []
    if request.system:
        totals.append(BlockTotal(name="system", rank=rank("system"), granted=None, used=prices.system_tokens))
    if fitted.history is not None and request.history is not None:
        own = request.history.rank
        totals.append(
            BlockTotal(
                name="history",
                rank=rank("history") if own is None else own,
                granted=fitted.granted["history"],
                used=fitted.history.tokens - inputs.measure.overhead,
            )
        )
    for given in inputs.blocks:
        name = given.block.name
        totals.append(
            BlockTotal(
                name=name,
                rank=given.rank,
                granted=fitted.granted[name],
                used=fitted.fits[name].tokens,
                wanted=prices.wishes[name].wanted if request.cost is None else None,
            )
        )
    if request.question is not None:
        used = inputs.measure.group([request.question])
        totals.append(BlockTotal(name="query", rank=rank("query"), granted=None, used=used))
    order = {name: i for i, name in enumerate((*STATIC, "history"))}
    return sorted(totals, key=lambda t: order.get(t.name, 99 if t.name == "query" else 50))


def _always(total: BlockTotal, prices: Prices) -> Decision:
    """Returns the decision on what always stays; only a question may be cut."""
    made = Decision(
        segment_id=total.name,
        block=total.name,
        action="kept",
        reason="pinned",
        before=total.used,
        after=total.used,
    )
    if total.name == "query" and prices.question_before:
        return replace(made, action="truncated", reason="message_cap", before=prices.question_before)
    return made


def _named(parts: list[Decision | DecisionRange], history: Block) -> list[Decision | DecisionRange]:
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
    return warnings_for(
        window=request.budget.context_window,
        system_tokens=prices.system_text,
        system_limit=_most_system(request.budget),
        task_turns=request.task_turns,
    )


def _most_system(budget: TokenBudget) -> int | None:
    """Returns the tokens the system prompt may have at most, None where only the window limits it."""
    limits = [budget.sizes["system"]] if "system" in budget.sizes else []
    if budget.max_system_ratio is not None:
        limits.append(int(budget.context_window * budget.max_system_ratio))
    return min(limits, default=None)
