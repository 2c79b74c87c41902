"""What leaves the history of a `BudgetMemory` has been told to its blocks before."""

from __future__ import annotations

from typing import Any

from hypothesis import given as drawn
from hypothesis import strategies as st
from llama_index.core.base.llms.types import ChatMessage

from llamaindex_budget import BudgetMemory, HistorySummaryMemoryBlock
from tests.drawing import draws
from tests.llamaindex.models import ListStore


@draws(asynchronous=True)
@drawn(
    limit=st.integers(250, 900),
    size=st.integers(1, 25),
    turns=st.integers(5, 30),
    tokens=st.integers(30, 100),
)
async def test_each_exchange_is_in_the_prompt_or_was_told_to_a_block(
    limit: int, size: int, turns: int, tokens: int
) -> None:
    """After every turn nothing of the conversation is lost to the model, whatever fits."""
    told: list[str] = []

    def summarize(text: str, _: int) -> str:
        told.append(text)
        return "Sum."

    block = HistorySummaryMemoryBlock(max_tokens=tokens, summarizer=summarize)
    options: dict[str, Any] = {"counter": "cl100k_base", "chat_store": ListStore()}
    memory = BudgetMemory.from_defaults(token_limit=limit, memory_blocks=[block], **options)
    for turn in range(turns):
        await memory.aput_messages(
            [
                ChatMessage(f"q{turn:02} about the pump?"),
                ChatMessage(f"a{turn:02} " + "fine " * size, role="assistant"),
            ]
        )
        shown = " ".join([str(m.content) for m in await memory.aget(input="And now?")])
        known = f"{shown} {' '.join(told)} {block.waiting}"
        assert [n for n in range(turn + 1) if f"q{n:02}" not in known] == []
