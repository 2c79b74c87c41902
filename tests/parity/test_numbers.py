"""A limit that numpy or pandas counted is a number at every door, and the report is still plain data."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage
from llama_index.core.llms import ChatMessage, MockLLM
from llama_index.core.schema import TextNode

import langchain_budget
import llamaindex_budget
from rankbudget import Assembler, BudgetError, BudgetSession, fit_documents, fit_messages
from rankbudget.batch import FitPrompt
from rankbudget.testing import WordCounter

CHAT = [{"role": "user", "content": "Hello there."}]
COUNTER = WordCounter()


def _langchain(limit: Any) -> Any:
    seen: list[Any] = []
    model = FakeListChatModel(responses=["a"])
    langchain_budget.budget_model(model, max_tokens=limit, counter=COUNTER, on_report=seen.append).invoke(
        "Hi"
    )
    return seen[0]


def _llamaindex(limit: Any) -> Any:
    seen: list[Any] = []
    model = MockLLM(is_chat_model=True)
    llamaindex_budget.budget_model(model, limit, counter=COUNTER, on_report=seen.append).chat(
        [ChatMessage("Hi")]
    )
    return seen[0]


def _trimmed(limit: Any) -> Any:
    return langchain_budget.BudgetTrimmer(max_tokens=limit, counter=COUNTER).invoke([HumanMessage("Hi")])


DOORS: dict[str, Callable[[Any], Any]] = {
    "fit_messages": lambda n: fit_messages(CHAT, max_tokens=n, counter=COUNTER).report,
    "fit_documents": lambda n: fit_documents(["a"], query="x", max_tokens=n, counter=COUNTER).report,
    "Assembler": lambda n: Assembler(n, counter=COUNTER).assemble({"history": CHAT}).report,
    "BudgetSession": lambda n: BudgetSession(n, counter=COUNTER).fit(CHAT).report,
    "FitPrompt": lambda n: FitPrompt(n, counter=COUNTER).row({"question": "Why?"})["messages"],
    "langchain budget_model": _langchain,
    "langchain BudgetTrimmer": lambda n: [message.content for message in _trimmed(n)],
    "llamaindex budget_model": _llamaindex,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", [np.int64, np.uint16, int])
def test_a_number_is_a_number(door: str, kind: Any) -> None:
    """The limit holds as one of Python's own does, and what is reported can be written as JSON."""
    made = DOORS[door](kind(60))
    plain = getattr(made, "to_dict", lambda: made)()
    assert json.loads(json.dumps(plain)) == json.loads(
        json.dumps(getattr(DOORS[door](60), "to_dict", lambda: made)())
    )


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("wrong", [np.float64(60.5), np.int64(0), True])
def test_what_is_no_number_of_tokens_is_refused(door: str, wrong: Any) -> None:
    """A fraction, a truth, or no tokens at all is an error of ours that says so; documents may have no room."""
    if door == "fit_documents" and wrong == 0:
        assert DOORS[door](wrong).total_tokens == 0
        return
    with pytest.raises(BudgetError, match="must be"):
        DOORS[door](wrong)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fit_messages([HumanMessage("Hi")], max_tokens=9), "langchain_budget takes it"),
        (lambda: fit_messages([ChatMessage("Hi")], max_tokens=9), "llamaindex_budget takes it"),
        (lambda: BudgetSession(9).fit([HumanMessage("Hi")]), "langchain_budget takes it"),
        (lambda: fit_documents([Document("Hi")], max_tokens=9, query="q"), "langchain_budget takes it"),
        (lambda: fit_documents([TextNode(text="Hi")], max_tokens=9, query="q"), "llamaindex_budget takes it"),
        (
            lambda: Assembler(99).assemble({"knowledge": [Document("Hi")]}, query="q"),
            "langchain_budget takes it",
        ),
        (
            lambda: Assembler(99).assemble({"knowledge": ["a"]}, query=["q"]),
            "query must be a text or one message",
        ),
        (lambda: fit_messages(CHAT, max_tokens=9, model="gpt-4o"), "did you mean 'counter'"),  # type: ignore[call-arg]
    ],
)
def test_an_object_of_a_framework_is_sent_to_its_adapter(call: Callable[[], Any], words: str) -> None:
    """The core names the package that takes what it cannot read, and the option that is meant."""
    with pytest.raises(BudgetError, match=words):
        call()
