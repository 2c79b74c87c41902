"""Shares the room of a prompt among its blocks, in whole tokens.

Each step only moves tokens that are there:
    1. Fixed sizes are set aside in rank order. Ratios share the rest, rounded down; without any ratio, blocks
       without a size share it equally.
    2. A block without a ratio or size of its own draws from the share of "memory": project and task all they
       want, then those that are chosen for the question 64 tokens each, in rank order, and then equal parts.
    3. Pinned content takes what others cannot use, then from lower ranks, then from higher ones, the least
       important first, what is beyond a block's minimum before the minimum; never pinned content.
    4. A block below its minimum takes the same from lower ranks, but leaves them their fixed sizes.
    5. A block that goes first takes the same from lower ranks, down to their minimum.
    6. A block whose texts would be shortened takes what no block can use.
    7. What is still unused moves as the surplus rule says, among blocks of one share in equal parts, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import BudgetConfigError
from ..segment import Block, block_named, ranked_as
from .token_budget import Surplus, TokenBudget
from .validation import PARTS

STEPS = 8
"""A stable block borrows in steps of 1/8 of its share: a limit that always changes would move its cut."""
_POOL = "memory"
"""The block whose share feeds the blocks that have neither ratio nor size."""
_FIXED = frozenset({"project", "task"})
"""Of these, the ones that are not chosen for a question: there is no more of them than is needed."""


_USEFUL = 64
"""Tokens that each block has, in rank order, before there are equal parts: fewer seldom hold a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one block wants."""

    name: str
    rank: int  # its importance, 1 = cut last
    wanted: int  # tokens it can use; any upper bound where the true number is unknown
    ratio: float | None = None  # its share of the room, in proportion to the other ratios
    size: int | None = None  # fixed tokens instead of a share
    minimum: int = 0  # tokens it should have, pinned ones included, at the cost of lower ranks
    pinned: int = 0  # tokens that are never cut, at the cost of anything that is not pinned
    whole: int = 0  # tokens below which its texts are shortened; for these it takes what no block wants
    first: bool = False  # it has all it wants before lower ranks have more than their minimum (preset "rag")
    stable: bool = False  # its grant should not change from turn to turn (history)

    @property
    def shareless(self) -> bool:
        """Whether it has neither a ratio nor a size of its own."""
        return self.ratio is None and self.size is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What every block is granted."""

    grants: Mapping[str, int]  # tokens by block name, never more than wanted
    unused: int  # tokens that no block holds; with the grants they are the room
    shares: Mapping[str, int]  # tokens that were each block's own before any of them moved


def allocate(room: int, demands: Sequence[Demand], *, surplus: Surplus = "waterfall") -> Allocation:
    """Returns how many tokens of the room each block is granted.

    With the surplus "waterfall" unused tokens flow to the next hungry block of a lower rank, except stable
    blocks; with "borrow" to any hungry block, the most important first; with "keep" nowhere.

    Raises:
        BudgetConfigError: `room` is negative.

    Example:
        >>> demands = [
        ...     Demand(name="memory", rank=4, wanted=20_000, ratio=0.3),
        ...     Demand(name="history", rank=5, wanted=20_000, ratio=0.4, stable=True),
        ... ]
        >>> allocate(32_768 - 9_740 - 300, demands).grants
        {'memory': 9740, 'history': 12987}
    """
    if room < 0:
        msg = f"room must be 0 or more (got {room})."
        raise BudgetConfigError(msg)
    ranked = sorted(demands, key=lambda demand: demand.rank)
    own = _shares(room, ranked)
    shares = list(own)
    for target, rounds in _CLAIMS:
        for i, demand in enumerate(ranked):
            if own[i] < (most := target(demand)):
                _fill_up(room, ranked, own, i, most, rounds)
    grants = [min(tokens, demand.wanted) for tokens, demand in zip(own, ranked, strict=True)]
    if surplus == "waterfall":
        _flow_down(room, ranked, own, grants)
    elif surplus == "borrow":
        _borrow(room, ranked, shares, grants)
    place = {demand.name: i for i, demand in enumerate(ranked)}
    return Allocation(
        grants={demand.name: grants[place[demand.name]] for demand in demands},
        unused=room - sum(grants),
        shares={demand.name: shares[place[demand.name]] for demand in demands},
    )


def demand_for(
    budget: TokenBudget,
    name: str,
    wanted: int,
    *,
    block: Block | None = None,
    minimum: int = 0,
    pinned: int = 0,
    whole: int = 0,
) -> Demand:
    """Returns the demand of one block, with the rank, ratio and size of the block or else of the budget.

    All that a pinned block wants is pinned. The history's grant is stable, except with "rag".

    Example:
        >>> demand = demand_for(TokenBudget(), "history", 500)
        >>> demand.rank, demand.ratio, demand.stable
        (5, 0.4, True)
    """
    rank, own = budget.rank_of(name), block_named(name)
    ratio, size = budget.ratios.get(own), budget.sizes.get(own)
    if block is not None:
        rank = block.rank or rank
        pinned = max(pinned, wanted) if block.pinned else pinned
        if block.size is not None or block.ratio is not None:
            ratio, size = block.ratio, block.size
    return Demand(
        name=name,
        rank=rank,
        wanted=wanted,
        ratio=ratio,
        size=size,
        minimum=minimum,
        pinned=pinned,
        whole=whole,
        first=budget.preset == "rag" and ranked_as(own) == "knowledge" and size is None,
        stable=name == "history" and budget.preset != "rag",
    )


def with_absent(
    budget: TokenBudget, demands: Iterable[Demand], *, sources: Collection[str] | None = None
) -> list[Demand]:
    """Returns the demands and, wanting nothing, the blocks that keep a share without content.

    `sources` are the blocks that can have content in some turn; the shares of all others go to these before
    anything is granted. None: every block with a ratio keeps its share.

    Example:
        >>> budget = TokenBudget()
        >>> history = demand_for(budget, "history", 500)
        >>> allocate(700, with_absent(budget, [history])).shares
        {'history': 400, 'memory': 300}
        >>> allocate(700, with_absent(budget, [history], sources=["history"])).shares
        {'history': 700}
    """
    present = list(demands)
    names = {demand.name for demand in present}
    if sources is None:
        names = set(map(block_named, names))
        return present + [demand_for(budget, name, 0) for name in budget.ratios if name not in names]
    configured = [name for name in sorted(set(sources)) if name not in {*names, "system", "query"}]
    everyone = present + [demand_for(budget, name, 0) for name in configured]
    has_pool = _POOL in names or _POOL in configured
    if budget.ratios.get(_POOL) and not has_pool and any(demand.shareless for demand in everyone):
        everyone.append(demand_for(budget, _POOL, 0))  # blocks without a share draw from it
    return everyone


def _shares(room: int, ranked: Sequence[Demand]) -> list[int]:
    """Returns what is each block's own; every entry grows or stays when the room grows."""
    own = [0] * len(ranked)
    left = room
    for i, demand in enumerate(ranked):
        if demand.size is not None:
            own[i] = min(demand.size, left)
            left -= own[i]
    with_ratios = any(demand.ratio for demand in ranked)
    parts = [
        round((demand.ratio or 0) * PARTS) if with_ratios else int(demand.shareless) for demand in ranked
    ]
    total = sum(parts)
    for i, part in enumerate(parts):
        if part:
            own[i] = left * part // total
    pool = next((i for i, d in enumerate(ranked) if d.name == _POOL and d.size is None), None)
    if with_ratios and pool is not None:
        _draw(ranked, own, pool)
    return own


def _draw(ranked: Sequence[Demand], own: list[int], pool: int) -> None:
    """Shares what is in `own` of a block among it and the blocks that have no share."""
    left, own[pool] = own[pool], 0
    drawing = [i for i, demand in enumerate(ranked) if i == pool or demand.shareless]
    rest = _level(ranked, own, drawing, left)
    own[pool] += rest


def _give(
    ranked: Sequence[Demand], own: list[int], takers: Sequence[int], parts: Sequence[int], left: int
) -> int:
    """Gives each of some blocks a part at most of what is `left`, and returns how much that was."""
    before = left
    for i, part in zip(takers, parts, strict=True):
        more = min(ranked[i].wanted - own[i], part, left)
        own[i] += more
        left -= more
    return before - left


Floor = Callable[[Demand], int]


def _pinned(demand: Demand) -> int:
    return min(demand.pinned, demand.wanted)


def _needed(demand: Demand) -> int:
    return min(max(demand.pinned, demand.minimum, demand.size or 0), demand.wanted)


def _kept(demand: Demand) -> int:
    return min(max(demand.pinned, demand.size or 0), demand.wanted)


_CLAIMS: Sequence[tuple[Floor, Sequence[tuple[bool, Floor]]]] = (
    (lambda demand: demand.pinned, [(False, _needed), (True, _needed), (True, _pinned)]),
    (lambda demand: demand.minimum, [(False, _needed), (False, _kept)]),
    (lambda demand: demand.wanted if demand.first else 0, [(False, _needed)]),
    (lambda demand: demand.whole, []),
)
"""What a block may have, and the rounds in which others give it that, unused tokens first: steps 3 to 6."""


def _fill_up(
    room: int,
    ranked: Sequence[Demand],
    own: list[int],
    taker: int,
    target: int,
    rounds: Sequence[tuple[bool, Floor]],
) -> None:
    """Moves tokens in `own` to one block until it has `target`: unused ones, then round by round.

    A round says whether higher ranks give, too, and what is left to each giver.
    """
    need = min(target, ranked[taker].wanted) - own[taker]
    if need <= 0:
        return
    rest = min(need, room - sum(own))
    own[taker] += rest
    need -= rest
    unused: tuple[bool, Floor] = (True, lambda demand: demand.wanted)
    for higher_give, floor in [unused, *rounds]:
        for giver in range(len(ranked) - 1, -1, -1):
            if giver == taker or not (higher_give or ranked[giver].rank > ranked[taker].rank):
                continue
            moved = min(need, own[giver] - floor(ranked[giver]))
            if moved > 0:
                own[giver] -= moved
                own[taker] += moved
                need -= moved


def _flow_down(room: int, ranked: Sequence[Demand], own: Sequence[int], grants: list[int]) -> None:
    """Passes what a block cannot use to those above it of its share, then to the next hungry ones below."""
    shared = any(demand.ratio or demand.shareless for demand in ranked)
    carry = 0 if shared else room - sum(own)  # what sizes alone leave starts at the top
    spare = [tokens - granted for tokens, granted in zip(own, grants, strict=True)]
    alike = [i for i, demand in enumerate(ranked) if _draws(demand) and not demand.stable]
    for place in range(len(alike) - 1, -1, -1):
        i = alike[place]
        spare[i] = _level(ranked, grants, alike[:place], spare[i])
    for more, takers in zip(spare, _takers(ranked, [demand.stable for demand in ranked]), strict=True):
        carry = _level(ranked, grants, takers, carry + more)


def _borrow(room: int, ranked: Sequence[Demand], shares: Sequence[int], grants: list[int]) -> None:
    """Gives unused tokens to the hungry, the most important first; a stable block borrows whole steps."""
    left = room - sum(grants)
    sated = [tokens == demand.wanted for tokens, demand in zip(grants, ranked, strict=True)]
    for i, takers in enumerate(_takers(ranked, sated)):
        step = max(1, shares[i] // STEPS) if ranked[i].stable else 1
        left -= (lent := left // step * step) - _level(ranked, grants, takers, lent)


def _takers(ranked: Sequence[Demand], aside: Sequence[bool]) -> list[list[int]]:
    """Returns who takes what reaches the place of each block: none for one that is set `aside`.

    Those that draw from one share take it together with the ones that follow them.
    """
    takers: list[list[int]] = []
    following: list[int] = []
    for i in range(len(ranked) - 1, -1, -1):
        if not aside[i]:
            following = [i, *following] if _draws(ranked[i]) and not ranked[i].stable else []
        takers.append([] if aside[i] else following or [i])
    return takers[::-1]


def _draws(demand: Demand) -> bool:
    """Returns whether a block draws from the share of the memories."""
    return demand.shareless or (demand.name == _POOL and demand.size is None)


def _level(ranked: Sequence[Demand], grants: list[int], takers: Sequence[int], left: int) -> int:
    """Gives what is `left` to fixed ones, then to those that have least, and returns the rest."""
    if not left:  # nearly always
        return 0
    fixed = [i for i in takers if ranked_as(block_named(ranked[i].name)) in _FIXED]
    left -= _give(ranked, grants, fixed, [left] * len(fixed), left)
    left -= _give(ranked, grants, takers, [max(0, _USEFUL - grants[i]) for i in takers], left)
    hungry = [i for i in takers if grants[i] < ranked[i].wanted]
    while left and hungry:
        least = min([grants[i] for i in hungry])
        lowest = [i for i in hungry if grants[i] == least]
        next_least = min([ranked[i].wanted for i in lowest] + [grants[i] for i in hungry if i not in lowest])
        parts = [min(next_least - least, (left + n) // len(lowest)) for n in reversed(range(len(lowest)))]
        left -= _give(ranked, grants, lowest, parts, left)
        hungry = [i for i in takers if grants[i] < ranked[i].wanted]
    return left
