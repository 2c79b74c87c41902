"""Pinned content is refused only where it cannot fit: whatever is not pinned gives way first."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Assembler, Block, BudgetExceededError, Segment, TokenBudget
from rankbudget.budget.allocation import Demand, allocate
from rankbudget.testing import WordCounter

COUNTER = WordCounter()
OTHERS = st.dictionaries(
    st.sampled_from(["project", "task", "memory", "examples", "rules", "history"]),
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
    max_size=4,
)


def words(n: int) -> str:
    return " ".join(["w"] * n)


def blocks_of(others: dict[str, list[int]]) -> list[Block]:
    made = []
    for name, sizes in others.items():
        if name == "history":
            roles = ("user", "assistant")
            made.append(
                Block(
                    name=name,
                    messages=[{"role": roles[i % 2], "content": words(n)} for i, n in enumerate(sizes)],
                )
            )
        else:
            made.append(Block.of(name, *[words(n) for n in sizes]))
    return made


def total(blocks: list[Block], window: int, surplus: Any) -> int:
    budget = TokenBudget(
        context_window=window,
        reserve=0,
        ratios={"memory": 0.43, "history": 0.57},
        max_system_ratio=None,
        surplus=surplus,
    )
    made = Assembler(budget, counter=COUNTER).assemble(blocks, query="now?")
    assert "must" in str(made.messages)
    return made.report.total_tokens


@given(OTHERS, st.integers(1, 20), st.sampled_from(["waterfall", "borrow", "keep"]), st.booleans())
def test_what_fits_alone_fits_beside_everything_that_is_not_pinned(
    others: dict[str, list[int]], size: int, surplus: str, whole: bool
) -> None:
    """The window that holds the pinned piece alone holds it beside any other blocks."""
    pinned = Block(
        name="knowledge",
        segments=[Segment(id="law", text=f"must {words(size)}", pinned=not whole)],
        pinned=whole,
    )
    alone = total([pinned], 1000, surplus)
    assert total([pinned], alone, surplus) == alone
    assert total([pinned, *blocks_of(others)], alone, surplus) <= alone


def test_two_that_are_pinned_do_not_take_from_each_other() -> None:
    """Two pinned blocks both stay, or the error says that they cannot."""
    blocks = [
        Block(name=name, segments=[Segment(id=name, text=f"must {words(30)}", pinned=True)])
        for name in ("project", "knowledge")
    ]
    needed = total(blocks, 1000, "waterfall")
    assert total(blocks, needed, "waterfall") == needed
    with pytest.raises(BudgetExceededError, match="pinned segments"):
        total(blocks, needed - 1, "waterfall")


def test_a_minimum_takes_nothing_that_is_pinned_below_it() -> None:
    """Pinned beats minimum, whatever the ranks."""
    history = Demand(name="history", rank=5, wanted=80, ratio=0.5, minimum=80)
    knowledge = Demand(name="knowledge", rank=7, wanted=60, ratio=0.5, pinned=30)
    assert allocate(100, [history, knowledge]).grants == {"history": 70, "knowledge": 30}


def test_pinned_takes_from_higher_ranks_only_what_lower_ones_do_not_have() -> None:
    """Lower ranks give way before higher ones."""
    demands = [
        Demand(name="project", rank=2, wanted=50, ratio=0.5),
        Demand(name="law", rank=6, wanted=40, pinned=40),
        Demand(name="knowledge", rank=7, wanted=50, ratio=0.5),
    ]
    assert allocate(100, demands).grants == {"project": 50, "law": 40, "knowledge": 10}
