"""Many short documents and memories, whose tags cost more than their texts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda

from langchain_budget import BudgetChatPromptTemplate, BudgetTrimmer
from rankbudget import TokenBudget, counter_for
from tests.drawing import draws

EXACT = counter_for("o200k_base")


def _template(limit: int, slot: str) -> Any:
    template = BudgetChatPromptTemplate.from_messages(
        [("system", f"{{{slot}}}"), ("human", "{question}")], max_tokens=limit, counter="o200k_base"
    )
    return template.fit


def _own_tags(limit: int, slot: str) -> Any:
    def written(given: Any) -> Any:
        texts = [getattr(one, "page_content", one) for one in given[slot]]
        return {**given, slot: "".join(f"<item kind='{slot}'>\n{text}\n</item>\n" for text in texts)}

    prompt = RunnableLambda(written) | ChatPromptTemplate(
        [("system", f"{{{slot}}}"), ("human", "{question}")]
    )
    trimmer = BudgetTrimmer(prompt=prompt, max_tokens=limit, counter="o200k_base")
    return lambda **given: trimmer.fit(given)


@pytest.mark.parametrize("slot", ["documents", "memory"])
@pytest.mark.parametrize("make", [_template, _own_tags])
def test_the_window_is_filled_however_short_the_pieces_are(make: Any, slot: str) -> None:
    """What tags cost is taken into account for the pieces that are kept, not for all that were given."""

    @draws()
    @given(
        number=st.integers(1, 150),
        words=st.integers(1, 12),
        limit=st.integers(150, 1_500),
    )
    def check(number: int, words: int, limit: int) -> None:
        texts = [f"{i} " + "tea " * words for i in range(number)]
        pieces = [Document(text) if slot == "documents" else text for text in texts]
        found = make(limit, slot)(**{slot: pieces, "question": "Which tea?"})
        assert found.report.total_tokens <= limit
        rendered = EXACT.count(texts[-1]) + 24  # with the tags of both ways
        assert len(found.segments) == number or limit - found.report.total_tokens <= 2 * rendered

    check()


@draws()
@given(
    memories=st.integers(0, 120),
    words=st.integers(1, 8),
    documents=st.integers(1, 12),
    limit=st.integers(300, 1_500),
    own=st.booleans(),
)
def test_tags_are_paid_by_the_block_they_are_around(
    memories: int, words: int, documents: int, limit: int, own: bool
) -> None:
    """However small its pieces, a block takes no room of another's share, and a piece is called too large only where it is."""
    written = ("system", "{memory}"), ("system", "{documents}"), ("human", "{question}")
    budget = TokenBudget(context_window=limit, reserve=0, ratios={"memory": 0.3, "knowledge": 0.7})
    prompt: Any = BudgetChatPromptTemplate.from_messages(written, budget=budget, counter="o200k_base")
    if own:
        lines = RunnableLambda(
            lambda given: {**given, "memory": "".join(f"<m>{m}</m>\n" for m in given["memory"])}
        )
        prompt = BudgetTrimmer(
            prompt=lines | ChatPromptTemplate(written), budget=budget, counter="o200k_base"
        )
    given = {
        "memory": [f"{i} " + "tea " * words for i in range(memories)],
        "documents": [Document(f"Part {i} is red. " * 8) for i in range(documents)],
        "question": "Which part is red?",
    }
    done = prompt.fit(given) if own else prompt.fit(**given)
    report = done.report
    blocks = {block.name: block for block in report.blocks}
    wanting = blocks["knowledge"].dropped or blocks["knowledge"].shortened
    shown = EXACT.count(done.messages[0].text)
    assert not wanting or shown <= 0.3 * limit + 40
    for decision in report.decisions:
        if decision.reason == "too_large":
            block = blocks[decision.block]
            assert decision.before > (block.granted or 0) - block.frame
