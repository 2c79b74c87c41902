"""Settings are read with care: a misspelt one is refused, a changed one counts, copies and the wire keep them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import MessagesPlaceholder
from langchain_core.runnables import ConfigurableField

from langchain_budget import BudgetChatPromptTemplate, BudgetDocumentCompressor, BudgetTrimmer
from rankbudget import counter_for
from rankbudget.errors import BudgetConfigError
from rankbudget.testing import WordCounter

WORDS = WordCounter(framing=1, priming=0)
THREAD = [m for i in range(20) for m in (HumanMessage(f"question {i}"), AIMessage(f"answer {i}"))]


def template(**options: Any) -> BudgetChatPromptTemplate:
    return BudgetChatPromptTemplate.from_messages(
        [MessagesPlaceholder("history"), ("human", "{question}")], **options
    )


def test_the_hosts_own_options_are_known() -> None:
    """A name, tags and metadata, partial variables and configurable fields go where LangChain has them."""
    assert BudgetTrimmer(max_tokens=9, name="trim").get_name() == "trim"
    prompt = template(max_tokens=400, tags=["t"], metadata={"m": 1})
    assert prompt.invoke({"history": [], "question": "hi"}).to_messages()[-1].content == "hi"
    partial = prompt.partial(question="hello")
    assert partial.invoke({"history": []}).to_messages()[-1].content == "hello"
    assert partial.max_tokens == 400
    bound = prompt.configurable_fields(max_tokens=ConfigurableField(id="limit"))
    few = bound.invoke(
        {"history": THREAD, "question": "hi"}, config={"configurable": {"limit": 60}}
    ).to_messages()
    assert len(few) < len(bound.invoke({"history": THREAD, "question": "hi"}).to_messages())
    other = BudgetTrimmer(max_tokens=3, counter=WORDS)
    either = BudgetTrimmer(max_tokens=9, counter=WORDS).configurable_alternatives(
        ConfigurableField(id="which"), small=other
    )
    assert len(either.invoke(THREAD[:3], config={"configurable": {"which": "small"}})) == 1


def test_a_template_format_reaches_the_template() -> None:
    """Messages in mustache are filled in as mustache, from both constructors."""
    messages = [("system", "x {{{documents}}}"), ("human", "{{question}}")]
    for prompt in (
        BudgetChatPromptTemplate.from_messages(messages, max_tokens=200, template_format="mustache"),
        BudgetChatPromptTemplate(messages, max_tokens=200, template_format="mustache"),
    ):
        made = prompt.format_messages(documents=[Document("Tea is hot.")], question="q")
        assert made[1].content == "q"
        assert "<document" in made[0].text


def test_a_changed_setting_counts_from_then_on() -> None:
    """Assigned, copied with an update, copied deep or pickled: the limit is the one that can be read."""
    trimmer = BudgetTrimmer(max_tokens=1000, counter=WORDS)
    trimmer.max_tokens = 9
    assert len(trimmer.invoke([*THREAD, HumanMessage("last one")])) == 3
    assert trimmer.model_copy(update={"max_tokens": 30}).fit(THREAD).report.limit == 30
    assert copy.deepcopy(trimmer).fit(THREAD).report.limit == 9
    assert pickle.loads(pickle.dumps(BudgetTrimmer(max_tokens=50))).fit(THREAD[:2]).report.limit == 50

    prompt = template(max_tokens=1000)
    assert prompt.model_copy(update={"max_tokens": 60}).fit(history=THREAD, question="x").report.limit == 60
    prompt.max_tokens = 70
    assert prompt.fit(history=THREAD, question="x").report.limit == 70
    assert copy.deepcopy(prompt).fit(history=THREAD, question="x").report.limit == 70

    exact = counter_for("o200k_base")
    found = [Document(f"Fact {i} about cats.") for i in range(50)]
    compressor = BudgetDocumentCompressor(max_tokens=1000, counter=lambda text: 10_000)
    compressor.counter = exact
    compressor.max_tokens = 40
    kept = compressor.compress_documents(found, "cats")
    assert 0 < exact.count("\n\n".join(d.page_content for d in kept)) <= 40


def test_a_change_that_cannot_work_changes_nothing() -> None:
    """A refused value leaves the one before in place."""
    trimmer = BudgetTrimmer(max_tokens=9, counter=WORDS)
    with pytest.raises(BudgetConfigError, match=r"max_tokens must be .*got 0"):
        trimmer.max_tokens = 0
    with pytest.raises(BudgetConfigError, match=r"summarizer must be .*int"):
        trimmer.summarizer = 3
    assert (trimmer.max_tokens, trimmer.summarizer) == (9, None)
    assert len(trimmer.invoke([*THREAD, HumanMessage("last one")])) == 3


@pytest.mark.parametrize("key", ["history", "question", "documents"])
def test_a_report_does_not_overwrite_a_slot(key: str) -> None:
    """The key of the report is one that no slot has."""
    with pytest.raises(BudgetConfigError, match=f"report_key must be a key of its own .*'{key}'"):
        BudgetTrimmer(max_tokens=9, report_key=key)
