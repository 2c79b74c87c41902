"""The history block among the others: what it refuses to promise, and under which ids it is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from ..errors import BudgetConfigError
from ..segment import Block, Decision, DecisionRange

__all__ = ["check_history", "named_parts"]


def check_history(block: Block) -> None:
    """Refuses what a conversation cannot promise: it is cut by age, in turns."""
    asked = (
        [f"pinned segments {[s.id for s in block.segments if s.pinned][:5]!r}"]
        if any(s.pinned for s in block.segments)
        else []
    )
    asked += ["pinned=True"] if block.pinned else []
    asked += [f"strategy={block.strategy!r}"] if block.strategy is not None else []
    asked += (
        [f"a group of its own for {[s.id for s in block.segments if s.group][:5]!r}"]
        if any(s.group for s in block.segments)
        else []
    )
    if asked:
        msg = (
            f"the history block has {', '.join(asked)}, allowed: neither, because a conversation is kept from its newest turn on, calls with their "
            "results; put what must stay into the project or memory block or into a system message, and say cut= and min_exchanges= for the rest"
        )
        raise BudgetConfigError(msg)


def named_parts(parts: Sequence[Decision | DecisionRange], history: Block) -> list[Decision | DecisionRange]:
    """Returns the decisions on a history of segments under the segments' own ids; messages keep theirs."""
    if history.messages is not None:
        return list(parts)
    names = {f"history-{i}": s.id for i, s in enumerate(history.segments)}

    def name(decision: Decision) -> Decision:
        return replace(decision, segment_id=names.get(decision.segment_id, decision.segment_id))

    def name_all(expand: Callable[[], Iterator[Decision]]) -> Iterator[Decision]:
        return map(name, expand())

    return [
        replace(p, expand=partial(name_all, p.expand)) if isinstance(p, DecisionRange) else name(p)
        for p in parts
    ]
