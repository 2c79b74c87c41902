"""What a memory's template puts around all blocks together is counted once."""

from __future__ import annotations

from typing import Any

from hypothesis import given as drawn
from hypothesis import strategies as st

from llamaindex_budget import BudgetMemory, ProjectMemoryBlock, SystemMemoryBlock, TaskMemoryBlock
from tests.drawing import draws
from tests.llamaindex.models import ListStore, say

KINDS = (SystemMemoryBlock, ProjectMemoryBlock, TaskMemoryBlock)


@draws(asynchronous=True)
@drawn(
    sizes=st.lists(st.integers(1, 40), min_size=2, max_size=3),
    exchanges=st.integers(0, 3),
    spare=st.integers(0, 60),
)
def test_blocks_that_fit_together_stay_whole(sizes: list[int], exchanges: int, spare: int) -> None:
    """In a few tokens more than all of it takes in a large window nothing is shortened or dropped."""
    blocks = [kind(text="A fact of it. " * size) for kind, size in zip(KINDS, sizes, strict=False)]
    chat = [say(role, f"{role} {n}") for n in range(exchanges) for role in ("user", "assistant")]

    def fit(limit: int) -> Any:
        options: dict[str, Any] = {"counter": "cl100k_base", "chat_store": ListStore(), "chat_history": chat}
        return BudgetMemory.from_defaults(token_limit=limit, memory_blocks=blocks, **options).fit("And now?")

    needed = fit(100_000).report.total_tokens
    made = fit(needed + spare + 3 * len(blocks))  # a text may cost two tokens more between its tags
    assert [d.segment_id for d in made.report.decisions if d.action != "kept"] == []
    assert made.report.total_tokens == needed
