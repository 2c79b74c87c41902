"""The laws hold through every entry point that returns messages; a failure names the law, and the way in."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder, PromptTemplate
from langchain_core.retrievers import BaseRetriever

from langchain_budget import BudgetMemory, BudgetTrimmer
from langchain_budget._codec import CODEC
from rankbudget import counter_for
from rankbudget.errors import BudgetExceededError
from rankbudget.testing import (
    AdapterConformance,
    Application,
    WordCounter,
    applications,
    pairing_errors,
    snapshot,
)
from tests.drawing import draws
from tests.entry_points import check_entry, check_entry_async, check_growth
from tests.langchain.entries import ENTRIES, as_providers_answer, check_kept, removing, to_host

REMEMBERING = [entry for entry in ENTRIES if entry.remembers]


def _drawn(app: Application) -> tuple[int, list[Any], Any]:
    """Returns the limit, the conversation as integrations leave it, and what it looks like now."""
    host = as_providers_answer(to_host(app.messages))
    return app.limit(WordCounter()), host, snapshot(host)


@draws()
@given(applications())
def test_the_laws_hold(app: Application) -> None:
    """Every drawn application, through every entry point: within the limit, valid, twice the same, no less with a larger limit."""
    limit, host, before = _drawn(app)
    for entry in ENTRIES:
        with entry.named():
            takes_removals = len(host) % 5 == 3 and not entry.stored and entry.name != "context edit"
            way = removing(entry) if takes_removals else entry
            check_entry(way, app, host, limit=limit, codec=CODEC, before=before, check_host=check_kept)


@draws(asynchronous=True)
@given(applications())
def test_the_laws_hold_async(app: Application) -> None:
    """The async form gives exactly what the sync form gives, or the same refusal."""
    limit, host, _ = _drawn(app)
    loop = asyncio.new_event_loop()
    for entry in ENTRIES:
        with entry.named():
            check_entry_async(entry, app, host, limit=limit, codec=CODEC, run=loop.run_until_complete)
    loop.close()


@draws(asynchronous=True)  # each draw is as many fits as it has messages
@given(applications(max_turns=5))
def test_a_memory_that_grows_keeps_the_laws_at_every_turn(app: Application) -> None:
    """Message after message, reading twice each time: always valid, within the limit and with a prefix that stays; what is stored is what was put."""
    limit, host, before = _drawn(app)
    for entry in REMEMBERING:
        with entry.named():
            check_growth(entry, app, host, limit=limit, codec=CODEC, before=before)


class Given(BaseRetriever):
    """Finds the documents it was made with."""

    documents: list[str]

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [Document(page_content=text) for text in self.documents]


@pytest.mark.parametrize("text", [True, False], ids=["text", "messages"])
def test_what_a_memory_loads_fits_the_chains_prompt(text: bool) -> None:
    """Any drawn thread, documents and question: the chain's prompt, formatted with what was loaded, is within the limit on a real tokenizer."""
    exact = counter_for("o200k_base")
    prompt: Any = (
        PromptTemplate.from_template("Talk. {history}x{documents}\nHuman: {input}\nAI:")
        if text
        else ChatPromptTemplate(
            [("system", "Docs: {documents}."), MessagesPlaceholder("history"), ("human", "{input}")]
        )
    )

    @draws(asynchronous=True)
    @given(applications(systems=False))
    def check(app: Application) -> None:
        limit = max(30, app.limit(exact))
        memory = BudgetMemory(
            max_tokens=limit,
            counter=exact,
            prompt=prompt,
            return_messages=not text,
            retriever=Given(documents=list(app.documents)),
        )
        memory.chat_memory.add_messages(to_host(app.messages))
        inputs = {"input": app.question or "ok"}
        try:
            loaded = memory.load_memory_variables(inputs)
        except BudgetExceededError:
            return
        sent = prompt.format_prompt(**loaded, **inputs).to_messages()
        assert exact.count_messages([CODEC.to_dict(m) for m in sent]) <= limit
        assert text or pairing_errors(sent, CODEC) == []

    check()


class TestTrimmerConformance(AdapterConformance):
    """The kit's own rules for adapters: the codec's four, and the laws."""

    codec = CODEC
    examples = 60

    def to_host(self, messages: Sequence[dict[str, Any]]) -> list[Any]:
        return to_host(messages)

    def fit(self, messages: list[Any], *, max_tokens: int, counter: Any, tools: Any) -> list[Any]:
        return list(BudgetTrimmer(max_tokens=max_tokens, counter=counter, tools=tools).invoke(messages))

    async def afit(self, messages: list[Any], *, max_tokens: int, counter: Any, tools: Any) -> list[Any]:
        return list(
            await BudgetTrimmer(max_tokens=max_tokens, counter=counter, tools=tools).ainvoke(messages)
        )
