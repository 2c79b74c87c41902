"""Strategies by name or object: what `Block(strategy=...)` takes."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from ..errors import BudgetConfigError
from ..relevance.protocol import Scorer
from .protocol import FitStrategy

__all__ = ["strategy_for"]

_CLASSES = {
    "best_first": "evidence.BestFirst",
    "evidence": "evidence.Evidence",
    "in_order": "truncate.Truncate",
    "memories": "evidence.Memories",
    "selective": "selective.Selective",
    "truncate": "truncate.Truncate",
}
"""Loaded only where a block asks for them."""
_DEFAULTS = {
    "system": "truncate",
    "project": "truncate",
    "task": "truncate",
    "memory": "memories",
    "examples": "best_first",
}


def strategy_for(block: str, strategy: Any = None, *, scorer: Scorer | None = None) -> FitStrategy:
    """Returns the strategy of a block.

    Args:
        block: the block's name.
        strategy: a name, an object with `fit` as `FitStrategy` says, or None for the usual one of this block.
        scorer: rates segments that have no score; for memories, their nearness to the question.

    Raises:
        BudgetConfigError: an unknown name, or an object without `fit`.

    Example:
        >>> [type(strategy_for(name)).__name__ for name in ("memory", "knowledge", "task")]
        ['Memories', 'Evidence', 'Truncate']
    """
    if callable(getattr(strategy, "fit", None)) and not isinstance(strategy, type):
        return cast("FitStrategy", strategy)
    name = strategy or _DEFAULTS.get(block, "evidence")
    if isinstance(name, str) and name in _CLASSES:
        module, _, made = _CLASSES[name].partition(".")
        options = {"scorer": scorer} if module == "evidence" else {}
        return cast("FitStrategy", getattr(import_module(f"{__package__}.{module}"), made)(**options))
    msg = (
        f"strategy of block {block!r} must be one of {', '.join(map(repr, _CLASSES))}, "
        f"or an object with fit() (got {strategy!r})."
    )
    raise BudgetConfigError(msg)
