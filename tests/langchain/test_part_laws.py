"""The laws of the parts that are given more than a conversation: all slots of a prompt, documents, examples; in sync and async code."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder, PromptTemplate
from langchain_core.retrievers import BaseRetriever

from langchain_budget import BudgetDocumentCompressor, BudgetExampleSelector, BudgetRetriever, BudgetTrimmer
from langchain_budget._codec import CODEC
from rankbudget.errors import BudgetExceededError
from rankbudget.testing import HOSTILE, Application, WordCounter, applications, check_laws
from tests.drawing import draws
from tests.langchain.entries import to_host

WORDS = WordCounter()
PROMPT = ChatPromptTemplate.from_messages(
    [
        ("system", "Known:\n{memory}\nExamples:\n{examples}\nDocuments:\n{documents}"),
        MessagesPlaceholder("history"),
        ("human", "{question}"),
    ]
)
SHOWN = PromptTemplate.from_template("Q {input}\nA {output}")


class Drawn(BaseRetriever):
    """Finds what was drawn."""

    found: list[Document]

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return self.found


def _documents(app: Application) -> list[Document]:
    return [
        Document(id=f"d{i}", page_content=text, metadata={"n": i})
        for i, text in enumerate([*app.documents, *HOSTILE[:2]])
    ]


def _values(app: Application) -> dict[str, Any]:
    return {
        "history": to_host(app.messages),
        "documents": _documents(app),
        "examples": [{"input": given, "output": wanted} for given, wanted in app.examples],
        "memory": [item.text for item in app.memories],
        "question": app.question or "Which is it?",
        "user": "ann",
    }


def _fitted(trimmer: BudgetTrimmer, values: dict[str, Any]) -> Any:
    try:
        return trimmer.invoke(values)
    except BudgetExceededError as error:
        return error


@draws()
@given(applications())
def test_the_slots_of_a_prompt_keep_the_laws(app: Application) -> None:
    """All slots together: the finished prompt fits, its history is valid and ends on the question, inputs are as they were, twice is the same."""
    limit, values = app.limit(WORDS) + 30, _values(app)
    before = copy.deepcopy(values)
    trimmer = BudgetTrimmer(max_tokens=limit, counter=WORDS, prompt=PROMPT)
    found = _fitted(trimmer, values)
    assert values == before
    if isinstance(found, BudgetExceededError):
        return  # what the prompt itself needs is too much for a drawn limit
    assert found["question"] == values["question"]
    assert found["user"] == "ann"
    messages = PROMPT.format_messages(**found)
    neutral = [CODEC.to_dict(m) for m in messages]
    assert WORDS.count_messages(neutral) <= limit
    asked = to_host([*app.messages, {"role": "user", "content": values["question"]}])
    check_laws(
        asked,
        [*found["history"], asked[-1]],
        limit=limit,
        counter=WORDS,
        codec=CODEC,
        identity=False,
        remembers=True,
    )
    sources = {d.id: d for d in values["documents"]}
    for kept in found["documents"]:
        assert kept is sources[kept.id] or set(kept.page_content.split()) <= set(
            sources[kept.id].page_content.split()
        )
    assert _fitted(trimmer, values) == found


@draws(asynchronous=True)
@given(applications())
def test_the_slots_of_a_prompt_are_the_same_in_async_code(app: Application) -> None:
    """`ainvoke` gives what `invoke` gives, or the same refusal."""
    limit, values = app.limit(WORDS) + 30, _values(app)
    found = _fitted(BudgetTrimmer(max_tokens=limit, counter=WORDS, prompt=PROMPT), values)
    try:
        other: Any = asyncio.run(
            BudgetTrimmer(max_tokens=limit, counter=WORDS, prompt=PROMPT).ainvoke(values)
        )
    except BudgetExceededError as error:
        other = error
    assert type(found) is type(other)
    assert isinstance(found, BudgetExceededError) or found == other


@draws()
@given(applications(), st.integers(1, 200))
def test_a_retriever_keeps_the_laws_of_documents(app: Application, limit: int) -> None:
    """What a retriever gives is what the compressor keeps of what was found: within the limit, in order, whole ones the same objects."""
    found = _documents(app)
    before = copy.deepcopy(found)
    query = app.question or "ok"
    kept = BudgetRetriever(
        retriever=Drawn(found=found), max_tokens=limit, counter=WORDS, separator="\n"
    ).invoke(query)
    assert (
        list(
            BudgetDocumentCompressor(max_tokens=limit, counter=WORDS, separator="\n").compress_documents(
                found, query
            )
        )
        == kept
    )
    assert sum(WORDS.count(d.page_content) for d in kept) <= limit
    places = [int(d.metadata["n"]) for d in kept]
    assert places == sorted(set(places))
    assert all(
        d is found[n] or d.page_content != found[n].page_content for d, n in zip(kept, places, strict=True)
    )
    assert found == before


@draws(asynchronous=True)
@given(applications(), st.integers(1, 200))
def test_documents_are_the_same_in_async_code(app: Application, limit: int) -> None:
    """Retriever and compressor give the same in both."""
    found, query = _documents(app), app.question or "ok"
    retriever = BudgetRetriever(retriever=Drawn(found=found), max_tokens=limit, counter=WORDS)
    compressor = BudgetDocumentCompressor(max_tokens=limit, counter=WORDS)

    async def both() -> tuple[Any, Any]:
        return await retriever.ainvoke(query), await compressor.acompress_documents(found, query)

    assert asyncio.run(both()) == (retriever.invoke(query), list(compressor.compress_documents(found, query)))


@draws()
@given(applications(), st.integers(1, 120))
def test_examples_keep_the_laws(app: Application, limit: int) -> None:
    """Selected examples are the given objects, each once, and cost at most the limit as their prompt shows them; async code selects the same."""
    examples = [
        {"input": given, "output": wanted} for given, wanted in [*app.examples, ("a a", "b"), ("c", "d")]
    ]
    before = copy.deepcopy(examples)
    selector = BudgetExampleSelector(examples, max_tokens=limit, example_prompt=SHOWN, counter=WORDS)
    asked = {"question": app.question or "ok"}
    kept = selector.select_examples(asked)
    assert all(any(k is e for e in examples) for k in kept)
    assert len({id(k) for k in kept}) == len(kept)
    assert sum(WORDS.count(SHOWN.format(**k)) for k in kept) <= limit
    assert kept == selector.select_examples(asked) == asyncio.run(selector.aselect_examples(asked))
    assert examples == before
