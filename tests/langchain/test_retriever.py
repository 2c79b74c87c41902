"""A retriever within a budget: the best documents first, a budget for each call, errors that say what is allowed."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import ConfigurableField
from langchain_core.tools import tool

from langchain_budget import BudgetDocumentCompressor, BudgetRetriever, BudgetTrimmer
from rankbudget import counter_for
from rankbudget.errors import BudgetConfigError

EXACT = counter_for("o200k_base")
CATS = Document("Cats sleep for most of the day and hunt at night.")
REFUND = Document("A refund takes ten days after the parcel arrives.")
QUESTION = "How long does a refund take?"


class Found(BaseRetriever):
    """Finds what it was given."""

    documents: list[Document]

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return self.documents


def tokens(documents: list[Document]) -> int:
    return EXACT.count("\n\n".join(d.page_content for d in documents))


async def test_the_best_document_is_the_one_of_k() -> None:
    """Whatever place it was found at; sync and async alike, for the retriever or for one call."""
    retriever = BudgetRetriever(retriever=Found(documents=[CATS, REFUND]), max_tokens=100, k=1)
    assert retriever.invoke(QUESTION) == await retriever.ainvoke(QUESTION) == [REFUND]
    two = BudgetRetriever(retriever=Found(documents=[CATS, REFUND, CATS]), max_tokens=100)
    assert two.invoke(QUESTION, k=1)[0] is REFUND
    dogs = Document("Dogs bark at the post.")
    rated = [d.model_copy(update={"metadata": {"relevance_score": s}}) for d, s in ((dogs, 0.1), (CATS, 0.9))]
    assert BudgetRetriever(retriever=Found(documents=rated), max_tokens=100, k=1).invoke(QUESTION) == [
        rated[1]
    ]


def test_the_tokens_are_spent_on_the_k_best() -> None:
    """With k=1 the best document has the whole budget, nothing is cut for documents that are not returned."""
    best = Document(
        "A refund takes ten long days. "
        + " ".join(f"The refund of kind {i} is paid on day {i}." for i in range(12))
    )
    others = [
        Document(f"How long a refund takes is told in part {i}. " + "It is long. " * 30) for i in range(19)
    ]
    limit = EXACT.count(best.page_content) + 4
    found = [
        d.model_copy(update={"metadata": {"relevance_score": 0.9 - i / 100}})
        for i, d in enumerate([best, *others])
    ]
    retriever = BudgetRetriever(retriever=Found(documents=found), max_tokens=limit, counter=EXACT)
    assert retriever.invoke(QUESTION)[0].page_content != best.page_content  # among twenty it is cut
    assert retriever.invoke(QUESTION, k=1) == [found[0]]


def test_whole_documents_of_k_are_those_that_fit() -> None:
    """Where nothing may be cut, a document that cannot fit takes no place among the k."""
    huge = Document("A refund takes ten days. " * 100)
    retriever = BudgetRetriever(
        retriever=Found(documents=[huge, REFUND, CATS]), max_tokens=20, k=1, compress=False
    )
    assert retriever.invoke(QUESTION) == [REFUND]


def test_a_budget_for_each_call() -> None:
    """As an argument of one call, and as a configurable field; the retriever stays as it was."""
    documents = [Document(f"Fact {i} about cats: it is number {i}.") for i in range(40)]
    retriever = BudgetRetriever(retriever=Found(documents=documents), max_tokens=200, counter=EXACT)
    configurable = retriever.configurable_fields(max_tokens=ConfigurableField(id="max_tokens"))
    for limit in (30, 400):
        assert limit / 2 < tokens(retriever.invoke("cats", max_tokens=limit)) <= limit
        assert (
            limit / 2
            < tokens(configurable.invoke("cats", config={"configurable": {"max_tokens": limit}}))
            <= limit
        )
    assert 100 < tokens(retriever.invoke("cats")) <= 200
    with pytest.raises(BudgetConfigError, match=r"max_tokens must be .*0"):
        retriever.invoke("cats", max_tokens=0)


@pytest.mark.parametrize("wrong", ["max_token", "max_tokns", "maxtokens", "Max_Tokens", "max_tokens_"])
async def test_a_misspelt_option_of_one_call_is_refused(wrong: str) -> None:
    """Before anything is retrieved, in both forms; what is no option of ours goes to the retriever."""
    asked: list[dict[str, Any]] = []

    class Asked(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: Any, **options: Any) -> list[Document]:
            asked.append(options)
            return [CATS]

    retriever = BudgetRetriever(retriever=Asked(), max_tokens=100)
    with pytest.raises(BudgetConfigError, match=rf"{wrong!r}; did you mean 'max_tokens'"):
        retriever.invoke("cats", **{wrong: 20})
    with pytest.raises(BudgetConfigError, match=rf"{wrong!r}; did you mean 'max_tokens'"):
        await retriever.ainvoke("cats", **{wrong: 20})
    assert asked == []
    theirs: dict[str, Any] = {"filter": {"a": 1}, "fetch_k": 3, "score_threshold": 0.5, "max_results": 3}
    assert retriever.invoke("cats", **theirs, max_tokens=50) == [CATS]
    assert asked == [theirs]


def test_a_shared_compressor_and_a_limit_of_the_retriever() -> None:
    """A compressor without a limit takes the retriever's; two limits are refused."""
    compressor = BudgetDocumentCompressor(counter=EXACT)
    retriever = BudgetRetriever(
        retriever=Found(documents=[REFUND] * 3 + [CATS] * 30), compressor=compressor, max_tokens=15
    )
    assert tokens(retriever.invoke(QUESTION)) <= 15
    assert compressor.max_tokens is None
    with pytest.raises(BudgetConfigError, match="max_tokens must be given once"):
        BudgetRetriever(
            retriever=Found(documents=[]), compressor=BudgetDocumentCompressor(max_tokens=5), max_tokens=5
        )


def test_tools_that_are_none_are_a_bad_setting() -> None:
    """A trimmer refuses them like any setting; a real tool passes."""

    @tool
    def look(name: str) -> str:
        """Looks."""
        return name

    assert BudgetTrimmer(max_tokens=200, tools=[look]).invoke([("human", "hi")])
    with pytest.raises(BudgetConfigError, match="each tool must be"):
        BudgetTrimmer(max_tokens=200, tools=[3])
