"""Budget and demands in, grants out: pure integers, exact to the token, nothing counted or cut here.

The order of events, each of which only moves tokens that are there:
    1. Fixed sizes are set aside in rank order; the rest of the room is shared by ratio, rounded down.
    2. Blocks with neither draw from the pool (the "memory" share) in rank order.
    3. Pinned content takes what others leave, then from lower ranks, then from higher ones, the least important first, never what is pinned
       there; then a block below its minimum takes what others leave, then from lower ranks.
    4. What is still unused moves as the surplus rule says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from .token_budget import Surplus
from .validation import parts_of, shown
from ..errors import BudgetConfigError

if TYPE_CHECKING:
    from .token_budget import TokenBudget
    from ..segment import Block

__all__ = ["STEPS", "Allocation", "Demand", "allocate", "demand_for", "with_absent"]

STEPS = 8
"""A stable block borrows in steps of one eighth of its own share: a limit that moves every turn would move its cut every turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one block wants.

    Args:
        name: the block.
        rank: its importance, 1 = cut last.
        wanted: tokens it can use; any upper bound where the true number is unknown.
        ratio: its share of the room, in proportion to the other ratios.
        size: fixed tokens instead of a share.
        minimum: tokens it should have even at the cost of lower ranks.
        pinned: tokens of content that is never cut: it has them at the cost of anybody's content that is not.
        stable: its grant should not move from turn to turn (history).
    """

    name: str
    rank: int
    wanted: int
    ratio: float | None = None
    size: int | None = None
    minimum: int = 0
    pinned: int = 0
    stable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What every block is granted.

    Args:
        grants: tokens by block name, never more than wanted.
        unused: tokens of the room nobody holds; together with the grants they are the room.
        shares: tokens that were each block's own before any surplus moved.
    """

    grants: Mapping[str, int]
    unused: int
    shares: Mapping[str, int] = field(default_factory=dict)

    def __getitem__(self, name: str) -> int:
        return self.grants.get(name, 0)


def allocate(
    room: int, demands: Sequence[Demand], *, surplus: Surplus = "waterfall", pool: str = "memory"
) -> Allocation:
    """Returns how the room is granted.

    A block that is absent but has a share takes part with `wanted=0`: its share is then surplus (`with_absent` adds these).

    Args:
        room: tokens to share.
        demands: what the blocks want; one for each name.
        surplus: "waterfall": unused tokens flow to the next hungry block of a lower rank, stable blocks apart; "borrow": to any hungry
            block, the most important first; "keep": nowhere.
        pool: the block whose share feeds the blocks that have neither ratio nor size.

    Example:
        >>> demands = [
        ...     Demand(name="memory", rank=4, wanted=20_000, ratio=0.3),
        ...     Demand(name="history", rank=5, wanted=20_000, ratio=0.4, stable=True),
        ... ]
        >>> allocate(32_768 - 9_740 - 300, demands)
        Allocation(grants={'memory': 9740, 'history': 12987}, unused=1, shares={'memory': 9740, 'history': 12987})
        >>> allocate(70, [Demand(name="memory", rank=4, wanted=10, ratio=0.3), Demand(name="knowledge", rank=7, wanted=90, ratio=0.4)]).grants
        {'memory': 10, 'knowledge': 60}
    """
    _check(room, demands, surplus)
    order = sorted(range(len(demands)), key=lambda i: demands[i].rank)
    ranked = [demands[i] for i in order]
    own = _shares(room, ranked, pool)
    shares = list(own)
    _meet(ranked, own, [demand.pinned for demand in ranked], everybody=True, spare=room - sum(own))
    _meet(ranked, own, [demand.minimum for demand in ranked], everybody=False, spare=room - sum(own))
    grants = [min(tokens, demand.wanted) for tokens, demand in zip(own, ranked, strict=True)]
    if surplus == "waterfall":
        _flow_down(ranked, own, grants, spare=room - sum(own))
    elif surplus == "borrow":
        _lend(room, ranked, shares, grants)
    by_name = {
        demand.name: (grant, share) for demand, grant, share in zip(ranked, grants, shares, strict=True)
    }
    return Allocation(
        grants={d.name: by_name[d.name][0] for d in demands},
        unused=room - sum(grants),
        shares={d.name: by_name[d.name][1] for d in demands},
    )


def demand_for(
    budget: TokenBudget,
    name: str,
    wanted: int,
    *,
    block: Block | None = None,
    minimum: int = 0,
    pinned: int = 0,
    stable: bool | None = None,
) -> Demand:
    """Returns the demand of one block with the rank, ratio and size the block or else the budget gives it; a pinned block needs all it wants.

    Example:
        >>> from rankbudget.budget.token_budget import TokenBudget
        >>> demand_for(TokenBudget(), "history", 500)
        Demand(name='history', rank=5, wanted=500, ratio=0.4, size=None, minimum=0, pinned=0, stable=True)
        >>> from rankbudget.segment import Block
        >>> demand_for(TokenBudget(), "rules", 50, block=Block(name="rules", pinned=True)).pinned
        50
    """
    if block is not None and block.pinned:
        pinned = max(pinned, wanted)
    rank = budget.rank_of(name) if block is None or block.rank is None else block.rank
    ratio, size = budget.ratios.get(name), budget.sizes.get(name)
    if block is not None and (block.size is not None or block.ratio is not None):
        ratio, size = (None, block.size) if block.size is not None else (block.ratio, None)
    stable = name == "history" if stable is None else stable
    return Demand(
        name=name,
        rank=rank,
        wanted=wanted,
        ratio=ratio,
        size=size,
        minimum=minimum,
        pinned=pinned,
        stable=stable,
    )


def with_absent(budget: TokenBudget, demands: Iterable[Demand]) -> list[Demand]:
    """Returns the demands and, wanting nothing, the blocks that have a share in the budget but are not there.

    Example:
        >>> from rankbudget.budget.token_budget import TokenBudget
        >>> budget = TokenBudget()
        >>> [d.name for d in with_absent(budget, [demand_for(budget, "history", 500)])]
        ['history', 'memory']
    """
    present = list(demands)
    names = {demand.name for demand in present}
    return present + [demand_for(budget, name, 0) for name in budget.ratios if name not in names]


def _check(room: int, demands: Sequence[Demand], surplus: str) -> None:
    problems = [] if room >= 0 else [f"room is {room}, allowed: 0 or more"]
    if surplus not in get_args(Surplus):
        problems.append(f"surplus is {shown(surplus)}, allowed: {', '.join(map(repr, get_args(Surplus)))}")
    names = [demand.name for demand in demands]
    if len(set(names)) < len(names):
        problems.append(
            f"blocks {', '.join(sorted({repr(n) for n in names if names.count(n) > 1}))} are there twice, allowed: once"
        )
    for demand in demands:
        for word, value in (
            ("wanted", demand.wanted),
            ("minimum", demand.minimum),
            ("pinned", demand.pinned),
            ("size", demand.size),
            ("ratio", demand.ratio),
        ):
            if value is not None and not value >= 0:
                problems.append(f"{word} of {demand.name!r} is {value}, allowed: 0 or more")
        if demand.ratio is not None and demand.size is not None:
            problems.append(f"{demand.name!r} has a ratio and a size, allowed: one of them")
    if problems:
        raise BudgetConfigError.of(problems)


def _shares(room: int, ranked: Sequence[Demand], pool: str) -> list[int]:
    """Returns what is each block's own; every entry grows or stays when the room grows."""
    own = [0] * len(ranked)
    left = room
    for i, demand in enumerate(ranked):
        if demand.size is not None:
            own[i] = min(demand.size, left)
            left -= own[i]
    parts = [0 if demand.ratio is None else parts_of(demand.ratio) for demand in ranked]
    total = sum(parts)
    for i, part in enumerate(parts):
        if part:
            own[i] = left * part // total  # down: the rounded-off rest moves only as surplus
    source = next((i for i, demand in enumerate(ranked) if demand.name == pool and demand.size is None), None)
    if source is not None:
        left, own[source] = own[source], 0
        for i, demand in enumerate(ranked):
            if i == source or (demand.ratio is None and demand.size is None):
                own[i] = min(demand.wanted, left)
                left -= own[i]
        own[source] += left
    return own


def _meet(
    ranked: Sequence[Demand], own: list[int], needs: Sequence[int], *, everybody: bool, spare: int
) -> None:
    """Moves tokens to blocks that have less than they need, the most important of them first.

    Args:
        ranked: the demands by rank.
        own: what each has; changed in place.
        needs: what each needs.
        everybody: higher ranks give, too, after the lower ones.
        spare: what rounding left over.
    """
    for i, demand in enumerate(ranked):
        need = min(needs[i], demand.wanted) - own[i]
        if need <= 0:
            continue
        moved = min(need, spare)
        own[i] += moved
        spare -= moved
        need -= moved
        others = [j for j in range(len(ranked) - 1, -1, -1) if j != i]
        lower = [j for j in others if ranked[j].rank > demand.rank]
        rounds = [(others, True), (lower, False), (others if everybody else [], False)]
        for givers, only_spare in rounds:
            for j in givers:
                floor = ranked[j].wanted if only_spare else min(ranked[j].pinned, ranked[j].wanted)
                moved = min(need, own[j] - floor)
                if moved > 0:
                    own[j] -= moved
                    own[i] += moved
                    need -= moved


def _flow_down(ranked: Sequence[Demand], own: Sequence[int], grants: list[int], *, spare: int) -> None:
    """Passes what a block leaves to the next hungry one below it."""
    shared = any(demand.ratio for demand in ranked)
    carry = (
        0 if shared else spare
    )  # without ratios the room beyond the sizes is nobody's own: it starts at the top
    for i, demand in enumerate(ranked):
        carry += own[i] - grants[i]
        if not demand.stable:
            moved = min(carry, demand.wanted - grants[i])
            grants[i] += moved
            carry -= moved


def _lend(room: int, ranked: Sequence[Demand], shares: Sequence[int], grants: list[int]) -> None:
    """Lends what all leave to the hungry, the most important first; a stable block borrows whole steps."""
    left = room - sum(grants)
    for i, demand in enumerate(ranked):
        moved = left
        if demand.stable:
            step = max(1, shares[i] // STEPS)
            moved = left // step * step
        moved = min(moved, demand.wanted - grants[i])
        grants[i] += moved
        left -= moved
