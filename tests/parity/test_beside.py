"""What a prompt shows beside a text, by a document prompt or as a node's metadata, counts as what the text says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from llama_index.core.schema import NodeWithScore, TextNode

from langchain_budget import BudgetChatPromptTemplate, BudgetDocumentCompressor, BudgetTrimmer
from llamaindex_budget import BudgetNodePostprocessor
from rankbudget import Segment, counter_for
from tests.drawing import draws

COUNTER = counter_for("gpt-4o")
RULE = "Employees are entitled to 25 days of leave per year. Requests go to the line manager in writing."
SHOWN = PromptTemplate.from_template("company: {company}\n\n{page_content}")
TEMPLATE = ChatPromptTemplate([("system", "{documents}"), ("human", "{question}")])
ROOM = 3 * COUNTER.count(f"company: Umbrella\n\n{RULE}\n\n")
FRAME = 30
QUESTION = "How many days of leave does Firm 1 give?"
NAMES = ["Acme", "Globex", "Initech", "Umbrella", "Hooli", "Stark", "Wayne", "Tyrell"]

Found = list[tuple[str, str]]


def documents(found: Found) -> list[Document]:
    return [Document(page_content=text, metadata={"company": name}) for name, text in found]


def compressor(found: Found, question: str) -> str:
    fit = BudgetDocumentCompressor(max_tokens=ROOM, counter="gpt-4o", document_prompt=SHOWN)
    return _names(fit.compress_documents(documents(found), question))


def trimmer(found: Found, question: str) -> str:
    fit = BudgetTrimmer(
        max_tokens=ROOM + FRAME,
        counter="gpt-4o",
        prompt=TEMPLATE,
        document_prompt=SHOWN,
        history_key="history",
    )
    return _names(fit.invoke({"documents": documents(found), "question": question})["documents"])


def template(found: Found, question: str) -> str:
    fit = BudgetChatPromptTemplate.from_messages(
        [("system", "{documents}"), ("human", "{question}")],
        max_tokens=ROOM + FRAME,
        counter="gpt-4o",
        document_prompt=SHOWN,
    )
    return str(fit.invoke({"documents": documents(found), "question": question}).to_messages()[0].content)


def postprocessor(found: Found, question: str) -> str:
    nodes = [NodeWithScore(node=TextNode(text=text, metadata={"company": name})) for name, text in found]
    fit = BudgetNodePostprocessor(max_tokens=ROOM, counter="gpt-4o")
    return " ".join(
        item.node.metadata["company"] for item in fit.postprocess_nodes(nodes, query_str=question)
    )


def _names(kept: list[Any]) -> str:
    return " ".join(document.metadata["company"] for document in kept)


@pytest.mark.parametrize("door", [compressor, trimmer, template, postprocessor])
@draws()
@given(data=st.data())
def test_a_text_is_told_from_its_twins_by_what_is_shown_beside_it(
    door: Callable[[Found, str], str], data: Any
) -> None:
    """Of eight companies with the same rule there is room for three: the one that the question names is among them."""
    names = data.draw(st.permutations(NAMES))
    asked = data.draw(st.sampled_from(names))
    kept = door([(name, RULE) for name in names], f"How many days of leave does {asked} give?")
    assert asked in kept
    assert sum(name in kept for name in names) >= 2


def test_what_a_segment_says_of_itself_stays() -> None:
    """A segment of one's own keeps what it has beside its text, whatever a document prompt would show."""
    own = [Segment(id=name, text=RULE, beside=f"company: {name}") for name in NAMES]
    fit = BudgetDocumentCompressor(max_tokens=ROOM, counter="gpt-4o", document_prompt=SHOWN)
    kept = fit.fit(own, "How many days of leave does Tyrell give?").segments  # type: ignore[arg-type]
    assert "Tyrell" in [segment.id for segment in kept]


def _compressed(found: Found, room: int) -> list[str]:
    fit = BudgetDocumentCompressor(max_tokens=room, counter="gpt-4o", document_prompt=SHOWN)
    return [document.page_content for document in fit.compress_documents(documents(found), QUESTION)]


def _postprocessed(found: Found, room: int) -> list[str]:
    nodes = [
        NodeWithScore(node=TextNode(text=text, metadata={"company": name}), score=1 - i / 9)
        for i, (name, text) in enumerate(found)
    ]
    fit = BudgetNodePostprocessor(max_tokens=room, counter="gpt-4o")
    return [item.node.get_content() for item in fit.postprocess_nodes(nodes, query_str=QUESTION)]


@pytest.mark.parametrize("door", [_compressed, _postprocessed])
@draws()
@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    place=st.integers(0, 5),
    more=st.integers(0, 200),
    long=st.integers(0, 6),
)
@example(sizes=[3, 3, 3], place=0, more=0, long=5)
def test_what_is_beside_a_text_ends_no_packing(
    door: Callable[[Found, int], list[str]], sizes: list[int], place: int, more: int, long: int
) -> None:
    """Wherever a text ranks beside which too much is shown, and however long it is, all others stay that fit."""
    others = [(f"Firm {i}", f"Firm {i} gives {20 + i} days. " * said) for i, said in enumerate(sizes)]
    prices = [COUNTER.count(f"company: {name}\n\n{text}\n\n") for name, text in others]
    room = sum(prices) + 2 * sum(sizes)
    beside = room + 128 + more
    costly = "firm " * beside, "Firm 1 has days of leave. " * (long * beside // 7 + 1)
    assert door([*others[:place], costly, *others[place:]], room) == [text for _, text in others]
