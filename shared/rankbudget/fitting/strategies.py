"""Strategies by name: what `Block(strategy=...)` may say."""

from __future__ import annotations

from typing import Any

from ..errors import BudgetConfigError
from .protocol import FitStrategy

__all__ = ["STRATEGIES", "strategy_for"]

STRATEGIES = ("best_first", "evidence", "in_order", "memories", "selective", "truncate")
"""best_first: whole segments by score. evidence: by score, sentences of them where few fit whole. memories: evidence, ranked by importance, age and
kind as well. selective: key moments whole, the rest in few words. in_order, truncate: as given, last one cut."""

_DEFAULTS = {
    "system": "truncate",
    "project": "truncate",
    "task": "truncate",
    "memory": "memories",
    "examples": "best_first",
}


def strategy_for(block: str, name: str | None = None, *, scorer: Any = None) -> FitStrategy:
    """Returns the strategy a block names, or the usual one for the block.

    Args:
        block: the block's name.
        name: one of `STRATEGIES`; None takes the usual one.
        scorer: rates segments that have no score; for memories, their nearness to the question.

    Raises:
        BudgetConfigError: an unknown name.

    Example:
        >>> [type(strategy_for(block)).__name__ for block in ("memory", "knowledge", "examples", "task")]
        ['Memories', 'Evidence', 'BestFirst', 'Truncate']
    """
    chosen = name or _DEFAULTS.get(block, "evidence")
    if chosen in ("truncate", "in_order"):
        from ..compression.truncate import Truncate

        return Truncate()
    if chosen == "best_first":
        from .best_first import BestFirst

        return BestFirst(scorer=scorer)
    if chosen == "evidence":
        from .evidence import Evidence

        return Evidence(scorer=scorer)
    if chosen == "memories":
        from .memories import Memories

        return Memories(scorer=scorer)
    if chosen == "selective":
        from .selective import Selective

        return Selective()
    msg = f"strategy of block {block!r} is {name!r}, allowed: {', '.join(map(repr, STRATEGIES))}"
    raise BudgetConfigError(msg)
