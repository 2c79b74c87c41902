"""A knowledge block keeps what answers, wherever it stands: by the retriever's scores, else by the question."""

from __future__ import annotations

import asyncio

import hypothesis
import pytest
from hypothesis import strategies as st
from llama_index.core.memory import Memory
from llama_index.core.schema import NodeWithScore, TextNode

from llamaindex_budget import BudgetMemory, KnowledgeMemoryBlock
from tests.drawing import draws
from tests.llamaindex.models import FixedRetriever, ListStore, say

FACTS = [f"Customer {i} lives at {i} Hill Road and pays by invoice." for i in range(60)]
QUESTION = "What does the red piano in Oslo cost?"
NAMED, UNNAMED = "The red piano in Oslo costs 999 euros.", "We ask 999 euros for this fine instrument."


def _found(how: str, place: int, twice: bool) -> KnowledgeMemoryBlock:
    """Returns a block of 60 texts and the answer, which only its score tells where there are scores."""
    answer = UNNAMED if how == "scores" else NAMED
    texts = [*FACTS[:place], answer, *FACTS[place:], *([answer] if twice else [])]
    if how == "read":
        return KnowledgeMemoryBlock(read=lambda _: texts)
    nodes = [NodeWithScore(node=TextNode(text=text)) for text in texts]
    if how == "scores":
        for i, node in enumerate(nodes):
            node.score = 0.3 - i / 300
        nodes[place].score = 0.99
    return KnowledgeMemoryBlock(retriever=FixedRetriever(nodes))


@draws()
@hypothesis.given(
    how=st.sampled_from(["read", "scores", "no scores"]),
    place=st.integers(0, 60),
    twice=st.booleans(),
    limit=st.integers(150, 500),
)
def test_what_answers_stays_wherever_it_stands(how: str, place: int, twice: bool, limit: int) -> None:
    """The text with the best score, or without scores the one that answers, is kept by any memory."""
    block, asked = _found(how, place, twice), [say("user", QUESTION)]
    memory = BudgetMemory.from_defaults(token_limit=limit, memory_blocks=[block], chat_store=ListStore())
    assert "999" in "".join(m.content or "" for m in memory.get(QUESTION))
    stock = Memory.from_defaults(token_limit=limit, memory_blocks=[block], chat_history=asked)
    texts = asyncio.run(block.aget(asked))
    fewer = asyncio.run(block.atruncate(texts, 600))
    assert len(fewer) < len(texts)
    assert any("999" in text.text for text in fewer)
    assert "999" in "".join(m.content or "" for m in stock.get())


@pytest.mark.parametrize("name", ["knowledge", "history", "query", "mails"])
def test_the_name_of_a_block_decides_nothing(name: str) -> None:
    """A block with a name of the core's own blocks has the same room as any other, and leaves none free beside it."""
    mails = [f"Mail {n}: customer {n} asks for a refund of {n * 7} euros." for n in range(200)]
    block = KnowledgeMemoryBlock(name=name, read=lambda _: list(mails))
    memory = BudgetMemory.from_defaults(memory_blocks=[block], token_limit=1000, counter="gpt-4o")
    report = memory.fit("Who asks for a refund of 77 euros?").report
    assert report.total_tokens > 950
