"""A bare number of tokens as a budget."""

from __future__ import annotations

from functools import lru_cache

from ..budget.token_budget import TokenBudget
from ..errors import BudgetConfigError

__all__ = ["plain_budget"]


@lru_cache(maxsize=256)
def _plain(tokens: int) -> TokenBudget:
    return TokenBudget(
        context_window=tokens,
        reserve=0,
        ratios={"memory": 0.43, "history": 0.57},
        max_system_ratio=None,
    )


def plain_budget(tokens: object) -> TokenBudget:
    """Returns the budget that a bare number of prompt tokens stands for.

    It has no reserve, shares memory to history as 3 : 4, and allows a system prompt of any size.
    """
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
        msg = f"budget must be a TokenBudget or a number of prompt tokens, 1 or more (got {tokens!r})"
        raise BudgetConfigError(msg)
    return _plain(tokens)
