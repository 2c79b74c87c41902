"""Strategies by name or object: what `Block(strategy=...)` takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import BudgetConfigError
from ..relevance.protocol import Scorer
from ..segment import Segment
from .block import fit_block
from .protocol import Fit, FitStrategy

__all__ = ["STRATEGIES", "BlockStrategy", "strategy_for"]

STRATEGIES = ("best_first", "evidence", "in_order", "memories", "selective", "truncate")
"""best_first: whole segments by score. evidence: by score, sentences of them where few fit whole. memories:
evidence, ranked by importance, age and kind as well. selective: key moments whole, the rest in few words.
in_order, truncate: as given, last one cut."""

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
    if strategy is not None and not isinstance(strategy, str):
        if callable(getattr(strategy, "fit", None)) and not isinstance(strategy, type):
            return BlockStrategy(strategy)
        raise _unknown(block, strategy)
    return BlockStrategy(_named(block, strategy or _DEFAULTS.get(block, "evidence"), scorer))


def _named(block: str, name: str, scorer: Scorer | None) -> FitStrategy:
    if name in ("truncate", "in_order"):
        from .truncate import Truncate

        return Truncate()
    if name == "best_first":
        from .best_first import BestFirst

        return BestFirst(scorer=scorer)
    if name == "evidence":
        from .evidence import Evidence

        return Evidence(scorer=scorer)
    if name == "memories":
        from .memories import Memories

        return Memories(scorer=scorer)
    if name == "selective":
        from .selective import Selective

        return Selective()
    raise _unknown(block, name)


def _unknown(block: str, given: object) -> BudgetConfigError:
    names = ", ".join(map(repr, STRATEGIES))
    return BudgetConfigError(
        f"strategy of block {block!r} must be one of {names}, or an object with fit() (got {given!r})."
    )
