"""Strategies by name or object: what `Block(strategy=...)` takes."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ..errors import BudgetConfigError
from ..relevance.protocol import Scorer
from ..segment import Segment
from .block import fit_block
from .protocol import Fit, FitStrategy

__all__ = ["STRATEGIES", "BlockStrategy", "strategy_for"]

_CLASSES = {
    "best_first": "evidence.BestFirst",
    "evidence": "evidence.Evidence",
    "in_order": "truncate.Truncate",
    "memories": "evidence.Memories",
    "selective": "selective.Selective",
    "truncate": "truncate.Truncate",
}
"""Loaded only where a block asks for them."""
STRATEGIES = tuple(_CLASSES)
"""best_first: whole segments by score. evidence: the best sentences of all. memories: evidence, ranked by
importance, age and kind as well. selective: key moments whole, the rest in few words. in_order, truncate: as
given, last one cut."""

_DEFAULTS = {
    "system": "truncate",
    "project": "truncate",
    "task": "truncate",
    "memory": "memories",
    "examples": "best_first",
}


class BlockStrategy:
    """A strategy with what `fit_block` adds: pins, groups and decisions.

    Attributes:
        strategy: picks what stays.
    """

    def __init__(self, strategy: FitStrategy) -> None:
        self.strategy = strategy

    def fit(self, segments: Sequence[Segment], **given: Any) -> Fit:
        """Returns what `fit_block` returns."""
        return fit_block(segments, strategy=self.strategy, **given)


def strategy_for(block: str, strategy: Any = None, *, scorer: Scorer | None = None) -> BlockStrategy:
    """Returns the strategy of a block, with pins, groups and decisions around it.

    Args:
        block: the block's name.
        strategy: one of `STRATEGIES`, an object with `fit` as `FitStrategy` says, or None for the usual one.
        scorer: rates segments that have no score; for memories, their nearness to the question.

    Raises:
        BudgetConfigError: an unknown name, or an object without `fit`.

    Example:
        >>> [type(strategy_for(name).strategy).__name__ for name in ("memory", "knowledge", "task")]
        ['Memories', 'Evidence', 'Truncate']
    """
    if strategy is None or isinstance(strategy, str):
        name = strategy or _DEFAULTS.get(block, "evidence")
        if name in STRATEGIES:
            module, _, made = _CLASSES[name].partition(".")
            scorers = {"scorer": scorer} if name in ("best_first", "evidence", "memories") else {}
            return BlockStrategy(getattr(import_module(f"{__package__}.{module}"), made)(**scorers))
    elif callable(getattr(strategy, "fit", None)) and not isinstance(strategy, type):
        return BlockStrategy(strategy)
    msg = (
        f"strategy of block {block!r} must be one of {', '.join(map(repr, STRATEGIES))}, "
        f"or an object with fit() (got {strategy!r})."
    )
    raise BudgetConfigError(msg)
