"""What `max_tokens` of a compressor and a retriever bounds, whatever other limits are given."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import PromptTemplate

from langchain_budget import BudgetDocumentCompressor, BudgetRetriever
from langchain_budget._codec import CODEC
from rankbudget import BudgetSession, TokenBudget, counter_for
from rankbudget.adapters import JOINT
from tests.drawing import draws
from tests.langchain.test_retriever import Found

EXACT = counter_for("gpt-4o")
SHOWN = PromptTemplate.from_template("From {source}: {page_content}")
WORDS = ["pump", "refund", "noise", "gasket", "ten days", "invoice", "Oslo", "price"]
texts = st.lists(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=30).map(" ".join), min_size=1, max_size=6
)


def session() -> BudgetSession:
    made = BudgetSession(TokenBudget(context_window=2000, reserve=500), codec=CODEC, counter=EXACT)
    made.fit([HumanMessage("one " * 20), AIMessage("two " * 20)])
    return made


def limits(which: str) -> dict[str, Any]:
    """Returns limits beside `max_tokens`; all of them leave the documents more room than that."""
    model = FakeListChatModel(responses=["fine"], profile={"max_input_tokens": 300})
    return {
        "none": {"counter": "gpt-4o"},
        "name": {"model": "gpt-4o"},
        "model": {"model": model, "counter": "gpt-4o"},
        "window": {"model": "gpt-4o", "context_window": 300},
        "budget": {"budget": TokenBudget(context_window=9000, reserve=500), "counter": "gpt-4o"},
        "session": {"session": session()},
    }[which]


def cost(document: Document, prompt: Any) -> int:
    text = document.page_content
    return EXACT.count((text if prompt is None else prompt.format(source="s", page_content=text)) + JOINT)


@draws()
@given(
    texts=texts,
    most=st.integers(5, 200),
    which=st.sampled_from(["none", "name", "model", "window", "budget", "session"]),
    prompt=st.sampled_from([None, SHOWN]),
    question=st.sampled_from(
        ["Refund?", "I bought a pump, and it makes a noise. " * 12 + "What of the refund?"]
    ),
    compress=st.booleans(),
)
def test_a_number_bounds_the_documents_and_nothing_else(
    texts: list[str], most: int, which: str, prompt: Any, question: str, compress: bool
) -> None:
    """Documents that fit in `max_tokens` stay whole whatever the question costs, none exceed it, and each has its reason."""
    found = [Document(text, metadata={"source": "s"}, id=str(n)) for n, text in enumerate(texts)]
    own: dict[str, Any] = {**limits(which), "compress": compress, "dedup": False, "document_prompt": prompt}
    compressor = BudgetDocumentCompressor(max_tokens=most, **own)
    result = compressor.fit(found, question)
    kept = list(compressor.compress_documents(found, question))
    assert sum(cost(document, prompt) for document in kept) <= most
    if sum(cost(document, prompt) for document in found) <= most:
        assert kept == found
    if which != "session":
        same = BudgetDocumentCompressor(
            max_tokens=most, **{**own, **limits("none"), "budget": None, "model": None}
        )
        assert kept == same.compress_documents(found, question)
    told = {d.segment_id for d in result.report.decisions if d.block == "knowledge"}
    assert told == {str(n) for n in range(len(found))}
    retriever = BudgetRetriever(retriever=Found(documents=found), max_tokens=most, **{**own, **limits(which)})
    assert retriever.invoke(question) == kept
