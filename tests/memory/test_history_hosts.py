"""One conversation in both frameworks: each gets its own messages back, and goes on with the other's."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage
from langchain_core.runnables.history import RunnableWithMessageHistory
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from llama_index.core.base.llms.types import (
    ChatMessage,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
)
from llama_index.core.storage.chat_store.base_db import MessageStatus
from llama_index.llms.openai_like import OpenAILike

from langchain_budget import BudgetMessageHistory, StoredMessageHistory
from langchain_budget._codec import CODEC as LANGCHAIN
from langchain_budget.stored_history import FORM as LANGCHAIN_FORM
from llamaindex_budget import BudgetChatMemoryBuffer, BudgetMemory, StoredAsyncChatStore, StoredChatStore
from llamaindex_budget._codec import CODEC as LLAMAINDEX
from llamaindex_budget._stored import FORM as LLAMAINDEX_FORM
from rankbudget import Scope
from rankbudget.errors import BudgetError
from rankbudget.memory import HistoryStore, MemoryStore
from rankbudget.testing import Application, StoreConformance, WordCounter, applications
from rankbudget.testing.server import Reply, StrictModelServer
from tests.drawing import draws
from tests.langchain import entries as langchain
from tests.llamaindex import entries as llamaindex

ANN = Scope(user="ann")
FORMS = {"langchain": LANGCHAIN_FORM, "llamaindex": LLAMAINDEX_FORM}
CODECS: dict[str, Any] = {"langchain": LANGCHAIN, "llamaindex": LLAMAINDEX}
TO_HOST: dict[str, Callable[[Sequence[Any]], list[Any]]] = {
    "langchain": langchain.to_host,
    "llamaindex": llamaindex.to_host,
}
OTHER = {"langchain": "llamaindex", "llamaindex": "langchain"}


@pytest.fixture
def store(tmp_path: Any) -> Iterator[HistoryStore]:
    made = HistoryStore(tmp_path / "histories.db")
    yield made
    made.close()


# ---- both are message stores ---------------------------------------------------------------------
class TestLangChain(StoreConformance):
    """A thread as LangChain's history keeps the rules of a store."""

    @pytest.fixture(autouse=True)
    def _empty(self, store: HistoryStore) -> None:
        self.store = store

    def make(self) -> Any:
        return self.store

    def append(self, store: Any, key: str, messages: list[Any]) -> None:
        StoredMessageHistory(store, key, scope=ANN).add_messages(messages)

    def read(self, store: Any, key: str) -> list[Any]:
        return StoredMessageHistory(store, key, scope=ANN).messages  # type: ignore[return-value]

    def clear(self, store: Any, key: str) -> None:
        StoredMessageHistory(store, key, scope=ANN).clear()

    def message(self, text: str) -> Any:
        return HumanMessage(text)

    def text_of(self, message: Any) -> str:
        return str(message.content)

    def edit(self, message: Any, text: str) -> None:
        message.content = text


class TestFittedLangChain(TestLangChain):
    """A fitted history around it keeps them, too."""

    def read(self, store: Any, key: str) -> list[Any]:
        fitted = BudgetMessageHistory.around(
            lambda name: store.thread(name, scope=ANN), max_tokens=10**6, counter=WordCounter()
        )
        return fitted(key).messages


class TestLlamaIndex(StoreConformance):
    """A chat store keeps the rules of a store."""

    @pytest.fixture(autouse=True)
    def _empty(self, store: HistoryStore) -> None:
        self.store = store

    def make(self) -> Any:
        return StoredChatStore(store=self.store, user="ann")

    def append(self, store: Any, key: str, messages: list[Any]) -> None:
        for message in messages:
            store.add_message(key, message)

    def read(self, store: Any, key: str) -> list[Any]:
        return store.get_messages(key)  # type: ignore[no-any-return]

    def clear(self, store: Any, key: str) -> None:
        store.delete_messages(key)

    def message(self, text: str) -> Any:
        return ChatMessage(text)

    def text_of(self, message: Any) -> str:
        return str(message.content)

    def edit(self, message: Any, text: str) -> None:
        message.content = text


class TestLlamaIndexMemory(TestLlamaIndex):
    """The store of a `BudgetMemory` keeps them, too."""

    def make(self) -> Any:
        return StoredAsyncChatStore(chats=super().make())

    def append(self, store: Any, key: str, messages: list[Any]) -> None:
        asyncio.run(store.add_messages(key, messages))

    def read(self, store: Any, key: str) -> list[Any]:
        return asyncio.run(store.get_messages(key))

    def clear(self, store: Any, key: str) -> None:
        asyncio.run(store.delete_messages(key))


async def test_a_memory_reads_and_archives_in_the_database(store: HistoryStore) -> None:
    """A BudgetMemory on a stored conversation returns what fits; archived messages are kept beside it."""
    kept = StoredAsyncChatStore(chats=StoredChatStore(store=store, user="ann"))
    memory = BudgetMemory.from_defaults(
        session_id="t", token_limit=20, counter=WordCounter(), chat_store=kept
    )
    await memory.aput_messages([ChatMessage(f"question {number}") for number in range(9)])
    assert [m.content for m in await memory.aget()][-1] == "question 8"
    assert len(await memory.aget_all()) == 9 > len(await memory.aget())
    assert [m.content for m in await kept.archive_oldest_messages("t", 2)] == ["question 0", "question 1"]
    statuses = (MessageStatus.ACTIVE, MessageStatus.ARCHIVED, None)
    assert [await kept.count_messages("t", status) for status in statuses] == [7, 2, 9]
    assert await kept.get_keys() == ["t"]
    assert [m.content for m in await kept.get_messages("t", None, limit=2, offset=1)] == [
        "question 1",
        "question 2",
    ]


def test_a_buffer_travels_as_the_place_of_its_database(tmp_path: Any) -> None:
    """A buffer written as plain data finds its conversation in the database again."""
    chats = StoredChatStore(place=str(tmp_path / "chats.db"), user="ann")
    memory = BudgetChatMemoryBuffer.from_defaults(token_limit=99, chat_store=chats, chat_store_key="t")
    memory.put_messages([ChatMessage("one"), ChatMessage("two", role="assistant")])
    again = BudgetChatMemoryBuffer.from_dict(json.loads(json.dumps(memory.to_dict())))
    assert [m.content for m in again.get()] == ["one", "two"]
    assert [m.content for m in asyncio.run(again.aget())] == ["one", "two"]
    again.reset()
    assert memory.get_all() == []
    for buffer in (memory, again):
        buffer.chat_store.close()  # type: ignore[attr-defined]  # a `StoredChatStore`


@pytest.mark.parametrize("written", [lambda data: data, lambda data: json.loads(json.dumps(data))])
async def test_a_memory_is_written_as_the_place_of_its_database(tmp_path: Any, written: Any) -> None:
    """What a memory made of plain data is told, is in the database of the one that was written."""
    chats = StoredChatStore(place=str(tmp_path / "m.db"), user="ann")
    memory = BudgetMemory.from_defaults(session_id="t", sql_store=StoredAsyncChatStore(chats=chats))
    await memory.aput(ChatMessage("said first"))
    data = memory.to_dict()
    assert "said first" not in json.dumps(data)
    twin = BudgetMemory.from_dict(written(data))
    await twin.aput(ChatMessage("said next"))
    assert [m.content for m in chats.get_messages("t")] == ["said first", "said next"]
    assert [m.content for m in await memory.aget()] == ["said first", "said next"]
    twin.sql_store.chats.close()
    chats.close()


# ---- its own, exactly ----------------------------------------------------------------------------
@pytest.mark.parametrize("host", FORMS)
@draws(cases=2)
@given(application=applications())
def test_a_host_gets_its_own_messages_back(host: str, application: Application) -> None:
    """Media, calls in every form, chunks, artifacts and usage: what comes back equals what was stored."""
    messages = TO_HOST[host](application.fresh())
    if host == "langchain":
        messages = langchain.as_providers_answer(messages)
    database = HistoryStore(":memory:")
    thread = database.thread("t", scope=ANN, form=FORMS[host])
    thread.append(messages)
    found = thread.messages()
    assert found == messages
    assert [type(message) for message in found] == [type(message) for message in messages]
    assert thread.append(messages) == 0, "all of them have ids"
    database.close()


@pytest.mark.parametrize("store", ["history.db", None, MemoryStore], ids=["path", "none", "memories"])
def test_a_history_in_what_is_no_history_store_is_refused(store: Any) -> None:
    """A path or a store of memories in the place of the database is named at once."""
    with pytest.raises(BudgetError, match="store must be a HistoryStore"):
        StoredMessageHistory(store(":memory:") if store is MemoryStore else store, "t", scope=ANN)


def test_bytes_and_places_of_media_come_back() -> None:
    """Bytes, addresses and paths in LlamaIndex's blocks are what they were; no file has to be there."""
    message = ChatMessage(
        blocks=[
            TextBlock(text="look"),
            ImageBlock(image=b"\x89PNG"),
            ImageBlock(url="https://a.example/b.png"),
        ]
    )
    message.blocks.append(ImageBlock.model_construct(path="missing.png", url=None, image=None))
    database = HistoryStore(":memory:")
    thread = database.thread("t", scope=ANN, form=LLAMAINDEX_FORM)
    thread.append([message])
    assert thread.messages() == [message]
    database.close()


# ---- and the other's -----------------------------------------------------------------------------
def meaning(neutral: Any) -> Any:
    """What a message says to a model, however its host writes it."""
    content = neutral.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    said = [_part(part) for part in parts if part.get("type") != "tool_use"]
    texts = "\n".join([str(value) for kind, value in said if kind == "text"])
    calls = [
        (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in neutral.get("tool_calls") or ()
    ]
    others = [part for part in said if part[0] != "text"]
    named = neutral["role"], neutral.get("name"), neutral.get("tool_call_id")
    return named, texts, others, calls


def _part(part: Any) -> tuple[str, Any]:
    kind = part["type"]
    if kind in ("thinking", "reasoning", "redacted_thinking"):
        told = part.get("thinking") or part.get("reasoning") or ""
        return "thinking", (told, part.get("signature") or part.get("data") or "")
    if kind in ("file", "audio", "input_audio"):
        held = part.get(kind, part)
        data = held.get("base64") or held.get("data") or held["file_data"].partition("base64,")[2]
        return kind.removeprefix("input_"), (data, held.get("filename"))
    return kind, part[kind]


@pytest.mark.parametrize("host", FORMS)
@draws(cases=2)
@given(application=applications())
def test_the_other_host_reads_and_writes_back_the_same(host: str, application: Application) -> None:
    """Texts, calls, results, media and thinking say the same in the other host, and when they come back."""
    messages, other = TO_HOST[host](application.fresh()), OTHER[host]
    database = HistoryStore(":memory:")
    database.thread("t", scope=ANN, form=FORMS[host]).append(messages)
    seen = database.thread("t", scope=ANN, form=FORMS[other]).messages()
    written = database.thread("back", scope=ANN, form=FORMS[other])
    written.append(seen)
    back = database.thread("back", scope=ANN, form=FORMS[host]).messages()
    expected = [meaning(CODECS[host].to_dict(message)) for message in messages]
    assert [meaning(CODECS[other].to_dict(message)) for message in seen] == expected
    assert [meaning(CODECS[host].to_dict(message)) for message in back] == expected
    for codec, listed in ((CODECS[other], seen), (CODECS[host], back)):
        assert codec.roles(listed) == CODECS[host].roles(messages)
    database.close()


def test_a_file_without_a_name_has_the_hosts_own() -> None:
    """LlamaIndex names a document that nobody named, and so does what it reads of another host."""
    data = base64.b64encode(b"%PDF-1.4 hello").decode()
    part = {"type": "file", "base64": data, "mime_type": "application/pdf"}
    database = HistoryStore(":memory:")
    database.thread("t", scope=ANN, form=LANGCHAIN_FORM).append([HumanMessage([part])])
    [[block]] = [m.blocks for m in database.thread("t", scope=ANN, form=LLAMAINDEX_FORM).messages()]
    assert block == DocumentBlock(data=b"%PDF-1.4 hello", document_mimetype="application/pdf")
    database.close()


@pytest.fixture(scope="module")
def server() -> Iterator[StrictModelServer]:
    with StrictModelServer(default=Reply(text="ok"), context_window=10**6) as running:
        yield running


def _asks(application: Application) -> list[Any]:
    """Returns what comes up to the last question, or the last step with all its results: a model can be asked that."""
    said = [m for m in application.fresh() if m["role"] not in ("system", "developer")]
    while said and (said[-1]["role"] not in ("user", "tool") or _waits(said)):
        said.pop()
    return said if any(m["role"] == "user" for m in said) else []  # Claude must be asked by a user


def _waits(said: list[Any]) -> bool:
    """Whether the last step lacks results."""
    start = max((i for i, m in enumerate(said) if m["role"] != "tool"), default=0)
    calls = {call["id"] for call in said[start].get("tool_calls") or ()}
    return not calls <= {m.get("tool_call_id") for m in said[start + 1 :]}


@pytest.mark.parametrize("client", ["openai", "anthropic", "llamaindex"])
@draws(asynchronous=True)
@given(application=applications(systems=False, media=False))
def test_no_client_is_refused_what_the_other_host_wrote(
    server: StrictModelServer, client: str, application: Application
) -> None:
    """Drawn conversations that one host began are accepted when the other's client sends them, fitted."""
    host = "langchain" if client == "llamaindex" else "llamaindex"
    messages = TO_HOST[host](_asks(application))
    server.forget()
    database = HistoryStore(":memory:")
    database.thread("t", scope=ANN, form=FORMS[host]).append(messages)
    try:
        _send(database, client, server)
    except BudgetError:
        assert server.requests == []
    finally:
        database.close()
    assert [(sent.problems, sent.body) for sent in server.refused] == []


def _send(database: HistoryStore, client: str, server: StrictModelServer) -> None:
    if client == "llamaindex":
        memory = BudgetChatMemoryBuffer.from_defaults(
            token_limit=500,
            counter=WordCounter(),
            chat_store=StoredChatStore(store=database, user="ann"),
            chat_store_key="t",
        )
        llm = OpenAILike(
            model="openai", api_base=server.base_url, api_key="none", is_chat_model=True, max_retries=0
        )
        if kept := memory.get():
            llm.chat(kept)
        return
    history = BudgetMessageHistory(
        StoredMessageHistory(database, "t", scope=ANN), max_tokens=500, counter=WordCounter()
    )
    model: Any = ChatOpenAI(model="openai", base_url=server.base_url, api_key="none", max_retries=0)  # type: ignore[arg-type]
    if client == "anthropic":
        model = ChatAnthropic(  # type: ignore[call-arg]  # aliases
            model="claude-haiku-4-5", base_url=server.root_url, api_key="none", max_retries=0, max_tokens=9
        )
    if history.messages:
        model.invoke(history.messages)


# ---- in LangChain's own runs ---------------------------------------------------------------------
async def test_a_run_with_history_appends_once(store: HistoryStore, server: StrictModelServer) -> None:
    """A chain with message history stores questions and answers, in both forms, and reads them fitted."""
    model = ChatOpenAI(model="openai", base_url=server.base_url, api_key="none", max_retries=0)  # type: ignore[arg-type]
    fitted = BudgetMessageHistory.around(
        lambda name: store.thread(name, scope=ANN), max_tokens=40, counter=WordCounter()
    )
    chain = RunnableWithMessageHistory(model, fitted)
    config: Any = {"configurable": {"session_id": "t"}}
    for number in range(5):
        chain.invoke([HumanMessage(f"question {number}")], config)
    await chain.ainvoke([HumanMessage("question 5")], config)
    messages = StoredMessageHistory(store, "t", scope=ANN).messages
    assert [m.content for m in messages if m.type == "human"] == [f"question {n}" for n in range(6)]
    assert [m.type for m in messages] == ["human", "ai"] * 6
    StoredMessageHistory(store, "t", scope=ANN).add_messages(messages[-1:])
    assert len(StoredMessageHistory(store, "t", scope=ANN).messages) == 12


def test_thinking_that_nobody_signed_is_where_ollamas_client_keeps_it() -> None:
    """LangChain's client for Ollama refuses thinking in the content, and sends what is beside it."""
    thought = ThinkingBlock(content="A capital is asked for.")
    message = ChatMessage(role="assistant", blocks=[thought, TextBlock(text="Paris.")])
    database = HistoryStore(":memory:")
    database.thread("t", scope=ANN, form=LLAMAINDEX_FORM).append([message])
    [found] = database.thread("t", scope=ANN, form=LANGCHAIN_FORM).messages()
    [sent] = ChatOllama(model="qwen3")._convert_messages_to_ollama_messages([found])
    assert (sent["content"].strip(), sent["thinking"]) == ("Paris.", thought.content)
    database.close()
