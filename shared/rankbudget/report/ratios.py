"""Ratios that follow what blocks needed: from blocks that leave room unused to blocks that lack it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..budget.token_budget import TokenBudget
from ..errors import check_number, counted, refuse, shown
from ..segment import block_named
from .report import BudgetReport
from .rows import Row, rows_of
from .usage import Reports, reports_in, wanted_of

_log = logging.getLogger("rankbudget.report")
_POOL = "memory"
"""The block whose ratio is also that of blocks without one."""
_PARTS = 10_000
"""Ratios move in ten-thousandths."""


@dataclass(frozen=True, slots=True)
class RatioChange:
    """How far the ratio of a block should move.

    Args:
        block: the block; that of "memory" is also the ratio of blocks without one.
        before: the ratio of the budget, 0 to 1.
        after: the ratio that would fit better, 0 to 1.
        why: what the reports say of it, in one sentence.
    """

    block: str
    before: float
    after: float
    why: str


@dataclass(frozen=True, slots=True)
class _Need:
    """What the blocks under one ratio needed."""

    reports: int = 0
    exhausted: int = 0
    tokens: int = 0


def adapt_ratios(
    budget: TokenBudget, reports: Reports, *, most: float = 0.1, least: float = 0.05
) -> TokenBudget:
    """Returns the budget with ratios that follow what its blocks needed; `rankbudget.report` logs why.

    The sum of the ratios, the reserve and all sizes stay. Equal reports give equal ratios. Where no block
    lacked room, or none left any unused, the budget itself comes back. Nothing in the library calls this.

    Args:
        budget: the budget that the reports were made with.
        reports: of recent turns; each counts alike.
        most: how far one ratio moves in one step, above 0 to 1.
        least: no ratio falls below this share, 0 to 1, however many steps are made.

    Raises:
        BudgetConfigError: `budget` is none, `most` or `least` is no such share, or `reports` holds something
            else.

    Example:
        >>> from rankbudget import Assembler
        >>> budget = TokenBudget(context_window=400, reserve=100, ratios={"memory": 0.4, "history": 0.5})
        >>> chat = [{"role": "user", "content": f"question {n}"} for n in range(99)]
        >>> made = Assembler(budget).assemble({"memory": ["I like tea."], "history": chat}, query="Why?")
        >>> {name: round(ratio, 4) for name, ratio in adapt_ratios(budget, [made.report]).ratios.items()}
        {'memory': 0.3, 'history': 0.6}
    """
    changes = ratio_changes(budget, reports, most=most, least=least)
    for change in changes:
        _log.info(change.why)
    ratios = {change.block: change.after for change in changes}
    return budget.replace(ratios={**budget.ratios, **ratios}) if ratios else budget


def ratio_changes(
    budget: TokenBudget, reports: Reports, *, most: float = 0.1, least: float = 0.05
) -> tuple[RatioChange, ...]:
    """Returns what `adapt_ratios` changes, and why; arguments and errors are as in `adapt_ratios`."""
    problems: list[str] = []
    given: object = budget
    if not isinstance(given, TokenBudget):
        problems.append(f"budget must be a TokenBudget, and reports come second (got {shown(given)})")
    check_number("most", most, problems, high=1, above=True, allowed="a share above 0 to 1")
    check_number("least", least, problems, high=1, allowed="a share from 0 to 1")
    refuse(problems)
    room, needs = _needs(budget, reports_in(reports))
    whole = sum([budget.ratios[name] for name in needs])
    gaps: dict[str, int] = {}
    for name, need in needs.items():
        ratio = budget.ratios[name]
        gap = whole * min(need.tokens, room) / room - ratio if room > 0 else 0.0
        gives = min(most, max(0.0, ratio - least))
        takes = most if need.exhausted else 0.0
        gaps[name] = int(max(-gives, min(takes, gap)) * _PARTS)
    up, down = ({n: abs(gap) for n, gap in gaps.items() if gap * sign > 0} for sign in (1, -1))
    moved = min(sum(up.values()), sum(down.values()))
    parts = {**_spread(up, moved), **{name: -gap for name, gap in _spread(down, moved).items()}}
    return tuple(
        [_change(needs[n], n, budget.ratios[n], parts[n], room / whole) for n in needs if parts.get(n)]
    )


def _change(need: _Need, name: str, before: float, parts: int, of_ratio: float) -> RatioChange:
    after = round(before + parts / _PARTS, 10)
    why = (
        f"ratio of {name}: {before:g} -> {after:g}. It needed {counted(need.tokens, 'token')} a prompt, "
        f"its share was {int(of_ratio * before):,}; "
        f"pieces had no room in {need.exhausted} of {counted(need.reports, 'prompt')}."
    )
    return RatioChange(name, before, after, why)


def _needs(budget: TokenBudget, reports: Sequence[BudgetReport]) -> tuple[int, dict[str, _Need]]:
    """Returns the mean room of the ratios, and what was needed of each that has a block in the reports."""
    total, sums = 0, dict[str, _Need]()
    for report in reports:
        rows = [(row, _ratio_of(budget, row)) for row in rows_of(report) if row.is_block]
        room = report.limit - report.overhead - sum([row.used for row, ratio in rows if ratio is None])
        total += room
        for name in dict.fromkeys([ratio for _, ratio in rows if ratio is not None]):
            own = [row for row, ratio in rows if ratio == name]
            known = sums.get(name, _Need())
            exhausted = any(row.dropped_for_room for row in own)
            tokens = known.tokens + sum([_needed(row, room) for row in own])
            sums[name] = _Need(known.reports + 1, known.exhausted + exhausted, tokens)
    means = {n: replace(need, tokens=need.tokens // need.reports) for n, need in sums.items()}
    return total // max(1, len(reports)), means


def _ratio_of(budget: TokenBudget, row: Row) -> str | None:
    """Returns the block whose ratio a block draws from; None for a size, or where only the window limits."""
    name = block_named(row.name)
    if row.granted is None or name in budget.sizes:
        return None
    return name if name in budget.ratios else _POOL if _POOL in budget.ratios else None


def _needed(row: Row, room: int) -> int:
    """Returns the tokens that a block could use; all of the room where it had too little and nobody knows."""
    wanted = wanted_of(row) if row.dropped_for_room else row.used
    return room if wanted is None else wanted


def _spread(gaps: Mapping[str, int], moved: int) -> dict[str, int]:
    """Shares `moved`, which is at most the sum of the gaps, in proportion to them."""
    total = max(1, sum(gaps.values()))
    parts = {name: gap * moved // total for name, gap in gaps.items()}
    rest = moved - sum(parts.values())
    for name in sorted(parts, key=lambda n: -gaps[n])[:rest]:
        parts[name] += 1
    return parts
