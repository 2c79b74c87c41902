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
from rankbudget import counter_for
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
