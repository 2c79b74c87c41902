"""Documents about one thing each, cut to fit: no line of another one is read as the asked one's."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, TextNode

from langchain_budget import BudgetDocumentCompressor, BudgetRetriever
from llamaindex_budget import BudgetNodePostprocessor
from rankbudget import counter_for, fit_documents
from tests.drawing import draws

COUNTER = counter_for("gpt-4o")
NAMES = "Aldermoor Brinsford Coldwater Dunmere Eastholt Farrowby Grimsel Harrowden Inglewick Jesmond".split()
SAYS = {
    "dues": "The last dues were {} crowns.",
    "roll": "Names on the roll: {}.",
    "trainer": "Its trainer came {} days ago.",
    "hall": "Meetings take place in hall {}.",
    "boats": "In the shed lie boats worth {}.",
}
Values = dict[str, int]


def _prose(values: Values) -> str:
    return " ".join(SAYS[key].format(value) for key, value in values.items())


FORMS: dict[str, Callable[[str, Values], str]] = {
    "prose": lambda name, values: f"The {name} rowing club was founded early. {_prose(values)}",
    "kind first": lambda name, values: (
        f"The club {name} is on the river. "
        + " ".join(f"The club's {key} is {value}." for key, value in values.items())
    ),
    "question": lambda name, values: f"What is known of {name}? {_prose(values)}",
    "line above": lambda name, values: f"This is the page of {name}.\n{_prose(values)}",
    "title": lambda name, values: f"# {name}\n\n{_prose(values)}",
    "fields": lambda name, values: (
        f"Club: {name}\n" + "\n".join(f"{key.title()}: {value}" for key, value in values.items())
    ),
    "JSON": lambda name, values: json.dumps({"club": name, **values}, indent=1),
    "mail": lambda name, values: f"From: office@club.example\nSubject: {name}\n\n{_prose(values)}",
}


class Found(BaseRetriever):
    """Finds what it was given, with or without scores."""

    documents: list[Document]

    def _get_relevant_documents(self, query: str, **_: object) -> list[Document]:
        return self.documents


def _core(texts: list[str], limit: int, query: str) -> list[str]:
    found = fit_documents(texts, max_tokens=limit, query=query, counter=COUNTER)
    return [segment.text for segment in found.segments]


def _retriever(texts: list[str], limit: int, query: str) -> list[str]:
    found = [Document(text, metadata={"score": 0.9 - n / 50}) for n, text in enumerate(texts)]
    retriever = BudgetRetriever(retriever=Found(documents=found), max_tokens=limit, counter=COUNTER)
    return [document.page_content for document in retriever.invoke(query)]


def _compressor(texts: list[str], limit: int, query: str) -> list[str]:
    compressor = BudgetDocumentCompressor(max_tokens=limit, counter=COUNTER)
    return [d.page_content for d in compressor.compress_documents([*map(Document, texts)], query)]


def _nodes(texts: list[str], limit: int, query: str) -> list[str]:
    nodes = [NodeWithScore(node=TextNode(text=text), score=0.9 - n / 50) for n, text in enumerate(texts)]
    kept = BudgetNodePostprocessor(max_tokens=limit, counter=COUNTER).postprocess_nodes(
        nodes, query_str=query
    )
    return [node.get_content() for node in kept]


DOORS = {"core": _core, "retriever": _retriever, "compressor": _compressor, "nodes": _nodes}


@pytest.mark.parametrize("door", sorted(DOORS))
@pytest.mark.parametrize("form", sorted(FORMS))
@draws(cases=len(DOORS) * len(FORMS))
@given(seed=st.integers(0, 10**6))
def test_a_kept_line_has_its_name_above(form: str, door: str, seed: int) -> None:
    """The answer stays under its name, and a line of another document is never without that one's."""
    drawn = random.Random(seed)
    names = drawn.sample(NAMES, drawn.randint(5, len(NAMES)))
    numbers = iter(drawn.sample(range(10_000, 99_999), len(names) * len(SAYS)))
    values = {name: {key: next(numbers) for key in SAYS} for name in names}
    texts = [FORMS[form](name, said) for name, said in values.items()]
    name, key = drawn.choice(names), drawn.choice(list(SAYS))
    limit = int(drawn.uniform(0.2, 0.6) * sum(COUNTER.count(text) for text in texts))
    kept = DOORS[door](texts, limit, f"What is the {key} of {name}?")
    owners = {str(number): name for name, said in values.items() for number in said.values()}
    places = {number: text for text in kept for number in owners if number in text}
    assert str(values[name][key]) in places
    bare = [number for number, text in places.items() if owners[number] not in text.partition(number)[0]]
    assert not bare, "\n".join(kept)
