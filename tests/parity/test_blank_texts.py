"""A text of blanks takes no room from one that says something, at the doors of the core and of both frameworks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from langchain_core.documents import Document
from llama_index.core.schema import NodeWithScore, TextNode

import langchain_budget as lc
import llamaindex_budget as li
from rankbudget import Assembler, Block, Segment, fit_documents
from rankbudget.fitting.block import fit_block, strategy_for
from rankbudget.testing import WordCounter
from tests.drawing import draws

COUNTER, QUESTION = WordCounter(), "What do ferns like?"
SAID = [
    "Roses need sun and deep soil. They flower in June.",
    "Ferns like shade.",
    "Moss is green. It is old.",
    "Tea",
]
BLANK = ["", " ", "\n\n", "\t \u00a0"]


def documents(**options: Any) -> Callable[[Sequence[str], int], list[str]]:
    def run(texts: Sequence[str], limit: int) -> list[str]:
        made = fit_documents(texts, query=QUESTION, max_tokens=limit, counter=COUNTER, **options)
        return [segment.text for segment in made.segments]

    return run


def block(name: str, strategy: str | None = None) -> Callable[[Sequence[str], int], list[str]]:
    def run(texts: Sequence[str], limit: int) -> list[str]:
        given = Block.of(name, *texts, strategy=strategy)
        plan = Assembler(limit + 40, counter=COUNTER).assemble([given], query=QUESTION)
        fit = plan.kept.get(name)
        return [piece.rendition.text for piece in fit.pieces] if fit else []

    return run


def compressor(texts: Sequence[str], limit: int) -> list[str]:
    part = lc.BudgetDocumentCompressor(max_tokens=limit, counter=COUNTER)
    return [kept.page_content for kept in part.compress_documents([Document(t) for t in texts], QUESTION)]


def postprocessor(texts: Sequence[str], limit: int) -> list[str]:
    given = [NodeWithScore(node=TextNode(text=text, id_=str(i))) for i, text in enumerate(texts)]
    part = li.BudgetNodePostprocessor(
        token_limit=limit + 15, counter=COUNTER
    )  # of no text it hands out a shell
    return [kept.node.text for kept in part.postprocess_nodes(given, query_str=QUESTION)]


DOORS = {
    "fit_documents": documents(),
    "fit_documents, whole": documents(compress=False),
    "fit_documents, doubles": documents(dedup=False, order="edges"),
    "knowledge": block("knowledge"),
    "memory": block("memory"),
    "examples": block("examples"),
    "task, truncate": block("task"),
    "knowledge, selective": block("knowledge", "selective"),
    "LC BudgetDocumentCompressor": compressor,
    "LI BudgetNodePostprocessor": postprocessor,
}


@pytest.mark.parametrize("door", DOORS)
@draws(cases=len(DOORS))
@hypothesis.given(
    texts=st.permutations([*SAID, *BLANK]).flatmap(lambda all_: st.integers(2, 8).map(lambda n: all_[:n])),
    limit=st.integers(1, 40),
)
def test_a_blank_text_stays_only_where_all_texts_do(door: str, texts: list[str], limit: int) -> None:
    """Where a text is missing or shortened, no blank one is among what is kept; where all fit, all stay."""
    said = {text for text in texts if text.strip()}
    kept = DOORS[door](texts, limit)
    if not said <= set(kept):
        assert all(text.strip() for text in kept) or not said
    assert not said or len(DOORS[door](texts, 2000)) == len(texts)


def test_the_report_says_which_texts_are_blank() -> None:
    """A blank text that is dropped says nothing, whatever room is left; what it needs is room for all texts."""
    made = fit_documents(["", SAID[0], " ", SAID[1]], query=QUESTION, max_tokens=18, counter="gpt-4o")
    found = {d.segment_id: (d.action, d.reason, d.detail) for d in made.report.decisions if d.after == 0}
    assert set(found.values()) == {("trimmed", "filler", "It is blank, and not all texts fit.")}
    assert len(found) == 2


@pytest.mark.parametrize(
    ("one", "media"),
    [
        (Segment(id="one", text=""), {"one"}),
        (Segment(id="one", text=" ", beside="title: Ferns like shade"), ()),
        (Segment(id="one", text="", role="assistant"), ()),
        (Segment(id="one", text="", group="both"), ()),
        (Segment(id="one", text="", pinned=True), ()),
    ],
)
def test_what_has_more_than_its_text_is_not_blank(one: Segment, media: set[str]) -> None:
    """Pictures, lines of metadata, calls, members of a group and pinned segments are no blank texts."""
    others = [Segment(id="a", text="Tea", group=one.group), Segment(id="b", text="word " * 50)]
    found = fit_block(
        [one, *others],
        strategy=strategy_for("task"),
        limit=9,
        counter=COUNTER,
        block="task",
        media=media,
    )
    assert found.pieces[0].segment.id == "one"
