"""`rankbudget config`: the budget that a file, a profile and options make."""

from __future__ import annotations

from ..budget.token_budget import TokenBudget
from ..counting import counter_for
from .fitting import print_json
from .tables import aligned


def show_budget(budget: TokenBudget, *, as_json: bool) -> None:
    """Prints a budget: the window and what is kept of it, then each block with its rank and share."""
    if as_json:
        print_json(budget.to_dict())
        return
    counter = counter_for(budget.model or "o200k_base")
    reserve, safety, limit = budget.split(band=counter.band)
    rest = f"{reserve:,} reserve + {safety:,} safety"
    print(f"window {budget.context_window:,} = {limit:,} for the prompt + {rest}")
    print(f"counted with {counter.name}{'' if counter.exact else ' (estimated)'}; surplus: {budget.surplus}")
    names = sorted(
        {*budget.ratios, *budget.sizes, *budget.ranks, "system", "query"},
        key=lambda n: (budget.rank_of(n), n),
    )
    rows = []
    for name in names:
        share = budget.share_of(name)
        size = budget.sizes.get(name, int(limit * share) if share else None)
        rows.append((name, budget.rank_of(name), f"{share:.0%}" if share else "", size))
    print(aligned(("block", "rank", "share", "tokens at most, before surplus"), rows))
    print("Shares are of what system prompt, tools and question leave.")
