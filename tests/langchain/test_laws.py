"""The laws hold through every entry point that returns messages; a failure names the law."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from langchain.agents.middleware import ContextEditingMiddleware, ModelRequest, ModelResponse
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, convert_to_messages
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder, PromptTemplate
from langchain_core.retrievers import BaseRetriever

from langchain_budget import (
    BudgetChatPromptTemplate,
    BudgetContextEdit,
    BudgetMemory,
    BudgetMessageHistory,
    BudgetMiddleware,
    BudgetTrimmer,
    pre_model_hook,
    trim_messages,
)
from langchain_budget._convert import CODEC
from rankbudget import counter_for
from rankbudget.errors import BudgetError, BudgetExceededError
from rankbudget.testing import (
    AdapterConformance,
    Application,
    WordCounter,
    applications,
    check_outcome,
    check_same,
    check_superset,
    draws,
    pairing_errors,
    snapshot,
)

MODEL = FakeListChatModel(responses=["ok"])


def to_host(messages: Sequence[dict[str, Any]]) -> list[BaseMessage]:
    """Returns OpenAI-style dicts as LangChain messages, every one an object of its own with an id."""
    made = convert_to_messages(list(messages))
    for i, message in enumerate(made):
        message.id = message.id or f"m{i}"
    return made


@dataclass(frozen=True)
class Entry:
    """One way into the library: messages in, messages out."""

    name: str
    make: Callable[[Application, int, WordCounter], tuple[Callable[[list[Any]], Any], Callable[[list[Any]], Awaitable[Any]]]]
    identity: bool = True
    remembers: bool = False
    edits: bool = True
    tools: bool = True
    superset: bool = True
    stored: bool = False


def trimmer(app: Application, limit: int, counter: WordCounter) -> Any:
    made = BudgetTrimmer(max_tokens=limit, counter=counter, tools=list(app.tools))
    return made.invoke, made.ainvoke


def stable_trimmer(app: Application, limit: int, counter: WordCounter) -> Any:
    made = BudgetTrimmer(max_tokens=limit, counter=counter, tools=list(app.tools), cut="stable")
    return made.invoke, made.ainvoke


def prompted_trimmer(app: Application, limit: int, counter: WordCounter) -> Any:
    made = BudgetTrimmer(
        max_tokens=limit, counter=counter, tools=list(app.tools), prompt=ChatPromptTemplate([MessagesPlaceholder("messages")])
    )
    return made.invoke, made.ainvoke


def trim(app: Application, limit: int, counter: WordCounter) -> Any:
    made = trim_messages(max_tokens=limit, token_counter=counter, include_system=True)
    return made.invoke, made.ainvoke


def history(app: Application, limit: int, counter: WordCounter) -> Any:
    def made(messages: list[Any]) -> BudgetMessageHistory:
        store = BudgetMessageHistory(max_tokens=limit, counter=counter, tools=list(app.tools))
        store.add_messages(messages)
        return store

    async def aread(messages: list[Any]) -> Any:
        return await made(messages).aget_messages()

    return lambda messages: made(messages).messages, aread


def memory(app: Application, limit: int, counter: WordCounter) -> Any:
    def made(messages: list[Any]) -> BudgetMemory:
        store = BudgetMemory(max_tokens=limit, counter=counter, tools=list(app.tools), return_messages=True)
        store.chat_memory.add_messages(messages)
        return store

    async def aread(messages: list[Any]) -> Any:
        return (await made(messages).aload_memory_variables({}))["history"]

    return lambda messages: made(messages).load_memory_variables({})["history"], aread


def middleware(app: Application, limit: int, counter: WordCounter) -> Any:
    made = BudgetMiddleware(max_tokens=limit, counter=counter)
    sent: list[Any] = []

    def request(messages: list[Any]) -> ModelRequest[Any]:
        system = messages[0] if messages and isinstance(messages[0], SystemMessage) else None
        return ModelRequest(model=MODEL, messages=messages[1:] if system else messages, system_message=system, tools=list(app.tools))

    def note(asked: ModelRequest[Any]) -> ModelResponse[Any]:
        sent[:] = [*([asked.system_message] if asked.system_message else []), *asked.messages]
        return ModelResponse(result=[AIMessage("ok")])

    async def anote(asked: ModelRequest[Any]) -> ModelResponse[Any]:
        return note(asked)

    def run(messages: list[Any]) -> Any:
        made.wrap_model_call(request(messages), note)
        return list(sent)

    async def arun(messages: list[Any]) -> Any:
        await made.awrap_model_call(request(messages), anote)
        return list(sent)

    return run, arun


def hook(app: Application, limit: int, counter: WordCounter) -> Any:
    made = pre_model_hook(max_tokens=limit, counter=counter, tools=list(app.tools))

    async def arun(messages: list[Any]) -> Any:
        return (await made.ainvoke({"messages": messages}))["llm_input_messages"]

    return lambda messages: made.invoke({"messages": messages})["llm_input_messages"], arun


def edit(app: Application, limit: int, counter: WordCounter) -> Any:
    made = ContextEditingMiddleware(edits=[BudgetContextEdit(trigger=limit, counter=counter)])
    sent: list[Any] = []

    def note(asked: ModelRequest[Any]) -> ModelResponse[Any]:
        sent[:] = asked.messages
        return ModelResponse(result=[AIMessage("ok")])

    async def anote(asked: ModelRequest[Any]) -> ModelResponse[Any]:
        return note(asked)

    def run(messages: list[Any]) -> Any:
        made.wrap_model_call(ModelRequest(model=MODEL, messages=messages), note)
        return list(sent)

    async def arun(messages: list[Any]) -> Any:
        await made.awrap_model_call(ModelRequest(model=MODEL, messages=messages), anote)
        return list(sent)

    return run, arun


def template(app: Application, limit: int, counter: WordCounter) -> Any:
    made = BudgetChatPromptTemplate.from_messages(
        [MessagesPlaceholder("history")], max_tokens=limit, counter=counter, tools=list(app.tools)
    )

    async def arun(messages: list[Any]) -> Any:
        return await made.aformat_messages(history=messages)

    return lambda messages: made.format_messages(history=messages), arun


ENTRIES = [
    Entry("trimmer", trimmer),
    Entry("stable trimmer", stable_trimmer, superset=False),
    Entry("prompted trimmer", prompted_trimmer),
    Entry("trim_messages", trim, edits=False, tools=False),
    Entry("message history", history, identity=False, stored=True),
    Entry("memory", memory, identity=False, stored=True),
    Entry("middleware", middleware),
    Entry("hook", hook),
    Entry("context edit", edit, identity=False, tools=False, superset=False),
]
entries = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)


def _judge(entry: Entry, app: Application, found: Any, host: list[Any], before: Any, limit: int, counter: WordCounter) -> None:
    tools = list(app.tools) if entry.tools and app.tools else None
    rules = {"before": before, "identity": entry.identity, "edits": entry.edits, "stored": entry.stored}
    check_outcome(host, found, limit=limit, counter=counter, codec=CODEC, tools=tools, **rules)


def _run(call: Callable[[list[Any]], Any], messages: list[Any]) -> Any:
    try:
        return call(list(messages))
    except BudgetError as error:
        return error


@entries
def test_the_laws_hold(entry: Entry) -> None:
    """Each drawn application comes back within the limit and valid, twice the same, and no less with a larger limit."""

    @draws()
    @given(applications())
    def check(app: Application) -> None:
        counter = WordCounter()
        limit, host = app.limit(counter), to_host(app.messages)
        before = snapshot(host)
        found = _run(entry.make(app, limit, counter)[0], host)
        _judge(entry, app, found, host, before, limit, counter)
        if isinstance(found, BudgetError):
            return
        check_same(found, _run(entry.make(app, limit, counter)[0], host), codec=CODEC)
        check_same(found, _run(entry.make(app, limit, counter)[0], list(found)), codec=CODEC, what="fitting twice")
        if entry.superset:
            check_superset(host, found, _run(entry.make(app, limit + 50, counter)[0], host), codec=CODEC)

    check()


@entries
def test_the_laws_hold_async(entry: Entry) -> None:
    """The async form gives exactly what the sync form gives, or the same refusal."""

    @draws(asynchronous=True)
    @given(applications())
    def check(app: Application) -> None:
        counter = WordCounter()
        limit, host = app.limit(counter), to_host(app.messages)
        before = snapshot(host)
        sync = _run(entry.make(app, limit, counter)[0], host)
        found = _run(lambda messages: asyncio.run(_await(entry.make(app, limit, counter)[1], messages)), host)
        _judge(entry, app, found, host, before, limit, counter)
        assert isinstance(found, BudgetError) == isinstance(sync, BudgetError)
        if not isinstance(found, BudgetError):
            check_same(sync, found, codec=CODEC, what="the async form")

    check()


async def _await(call: Callable[[list[Any]], Awaitable[Any]], messages: list[Any]) -> Any:
    return await call(messages)


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
        else ChatPromptTemplate([("system", "Docs: {documents}."), MessagesPlaceholder("history"), ("human", "{input}")])
    )

    @draws(asynchronous=True)
    @given(applications(systems=False))
    def check(app: Application) -> None:
        limit = max(30, app.limit(exact))
        memory = BudgetMemory(
            max_tokens=limit, counter=exact, prompt=prompt, return_messages=not text, retriever=Given(documents=list(app.documents))
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
    has_async = True
    examples = 60

    def to_host(self, messages: Sequence[dict[str, Any]]) -> list[Any]:
        return to_host(messages)

    def fit(self, messages: list[Any], *, max_tokens: int, counter: Any, tools: Any) -> list[Any]:
        return list(BudgetTrimmer(max_tokens=max_tokens, counter=counter, tools=tools).invoke(messages))

    async def afit(self, messages: list[Any], *, max_tokens: int, counter: Any, tools: Any) -> list[Any]:
        return list(await BudgetTrimmer(max_tokens=max_tokens, counter=counter, tools=tools).ainvoke(messages))
