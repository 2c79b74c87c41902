"""A store's memories in both frameworks: what their reader may see, chosen for the question, within the limit."""

from __future__ import annotations

import asyncio
import html
import json
import re
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.store.memory import InMemoryStore
from llama_index.core.base.llms.types import ChatMessage

from langchain_budget import BudgetChatPromptTemplate, GraphBackend, MemoryRetriever, memory_tools
from llamaindex_budget import BudgetMemory, StoredMemoryBlock
from rankbudget import Scope, counter_for
from rankbudget.errors import BudgetConfigError, StoreUnsupportedError
from rankbudget.memory import MemoryStore, levels_of
from rankbudget.testing import MemoryConformance


def by_user(config):
    return Scope(user=config["configurable"]["user_id"])


def as_user(name):
    return {"configurable": {"user_id": name}}


@pytest.fixture
def store():
    made = MemoryStore(":memory:")
    made.put("Ann likes jasmine tea.", scope=Scope(user="ann"), key="drink", kind="explicit", confidence=0.8)
    made.put("Bob likes black coffee.", scope=Scope(user="bob"), key="drink")
    made.put("Visitors like lemonade.", scope=Scope())
    yield made
    made.close()


def test_a_retriever_finds_what_its_reader_may_see(store):
    """The run's config says who reads, sync and async; kind, confidence, date and source are metadata."""
    retriever = MemoryRetriever(store=store, scope=by_user)
    found = retriever.invoke("What drink?", config=as_user("ann"))
    assert {d.page_content for d in found} == {"Ann likes jasmine tea.", "Visitors like lemonade."}
    tea = next(d for d in found if "tea" in d.page_content)
    assert (tea.metadata["kind"], tea.metadata["confidence"]) == ("explicit", 0.8)
    assert tea.metadata["source"] == "drink"
    assert asyncio.run(retriever.ainvoke("What drink?", config=as_user("ann"))) == found
    chain = RunnableLambda(lambda asked: asked["q"]) | retriever
    assert any("coffee" in d.page_content for d in chain.invoke({"q": "drink"}, config=as_user("bob")))


def test_a_retriever_leaves_out_what_is_too_little_known():
    """What goes into a prompt has the store's least confidence, by this door as by `fit`."""
    store, ann = MemoryStore(":memory:", least_confidence=0.5), Scope(user="ann")
    for text, known in (("Ann may like tea.", 0.2), ("Ann likes coffee.", 0.9), ("Ann likes water.", None)):
        store.put(text, scope=ann, confidence=known)
    found = MemoryRetriever(store=store, scope=ann).invoke("What does Ann like?")
    kept = store.fit("What does Ann like?", scope=ann, max_tokens=500).segments
    assert (
        {d.page_content for d in found} == {s.text for s in kept} == {"Ann likes coffee.", "Ann likes water."}
    )
    assert len(store.search("What does Ann like?", scope=ann)) == len(kept) + 1


def test_a_retriever_refuses_a_reader_that_is_none(store):
    """A forgotten user id is an error, and shows nobody's memories."""
    retriever = MemoryRetriever(
        store=store, scope=lambda config: config.get("configurable", {}).get("user_id")
    )
    with pytest.raises(BudgetConfigError, match="scope must be a Scope"):
        retriever.invoke("drink")


def test_memories_of_a_template_are_ranked_and_counted(store):
    """What the retriever finds goes into the memory slot and is fitted with the rest."""
    for n in range(40):
        store.put(f"Ann visited town {n} in {1980 + n}.", scope=Scope(user="ann"), kind="experience")
    template = BudgetChatPromptTemplate.from_messages(
        [("system", "You know:\n{memory}"), ("human", "{question}")], max_tokens=120, counter="gpt-4o"
    )
    question = "Which tea does Ann like?"
    found = MemoryRetriever(store=store, scope=Scope(user="ann")).invoke(question)
    made = template.fit(memory=found, question=question)
    assert "jasmine" in str(made.messages)
    assert made.report.total_tokens <= 120


def test_an_agent_remembers_for_its_own_user(store):
    """The model chooses text and key; whose memory it is comes from the config alone."""
    call = {"name": "remember", "args": {"text": "Ann lives in Oslo.", "key": "home"}, "id": "c1"}
    model = _Scripted(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("Noted.")]))
    agent = create_agent(model, memory_tools(store, by_user))
    done = agent.invoke({"messages": [HumanMessage("I live in Oslo.")]}, config=as_user("ann"))
    assert done["messages"][-1].content == "Noted."
    assert store.get("home", scope=Scope(user="ann")).text == "Ann lives in Oslo."
    assert store.get("home", scope=Scope(user="bob")) is None


def test_no_tool_lets_the_model_choose_whose_memories_it_reads(store):
    """The schemas that the model sees have neither scope nor user."""
    seen = json.dumps([tool.tool_call_schema.model_json_schema() for tool in memory_tools(store, by_user)])
    assert "scope" not in seen
    assert "user" not in seen.replace("user's", "")


def test_what_a_model_fills_in_wrongly_is_told_to_it(store):
    """An empty key is no key, so no memory replaces another; a wrong one is the tool's answer and no error of the run."""
    remember, recall, forget_memory = memory_tools(store, Scope(user="ann"))
    for text in ("Ann's cat is Tom.", "Ann's dog is Rex."):
        remember.invoke({"text": text, "key": ""})
    told = recall.invoke({"query": "Which pets?"})
    assert "Tom" in told
    assert "Rex" in told
    assert remember.invoke({"text": " "}).startswith("Not remembered: text of a memory must be")
    refused = remember.invoke({"text": "x", "key": "k" * 201})
    assert refused.startswith("Not remembered: key of a memory")
    assert refused.endswith("Put a hash of it.")
    assert forget_memory.invoke({"key": ""}) == "Nothing is remembered as ''."
    assert forget_memory.invoke({"key": "a\x00b"}).startswith("Nothing forgotten: name must hold no NUL")
    kinds = remember.tool_call_schema.model_json_schema()["properties"]["kind"]
    assert "preference" in json.dumps(kinds)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("project", [None, "shop"])
def test_what_recall_shows_can_be_forgotten_or_is_said_to_be_shared(graph, project):
    """Each source that `recall` gives names one memory for `forget_memory`, with a key or without, within the budget."""
    store = MemoryStore(GraphBackend(InMemoryStore())) if graph else MemoryStore(":memory:", embed=False)
    reader, shared = Scope(user="ann", project=project), 0
    for scope in levels_of(reader):
        for number, fields in enumerate(
            ({}, {"key": f"k{scope.user}{scope.project}"}, {"sources": ("mail",)})
        ):
            store.put(f"Tea {number} of {scope.user} and {scope.project}.", scope=scope, **fields)
    remember, recall, forget_memory = memory_tools(store, reader, max_tokens=2000)
    remember.invoke({"text": "Ann drinks tea."})
    told = recall.invoke({"query": "tea"})
    names = re.findall('source="([^"]+)"', told)
    assert len({*names}) == len(names) == 3 * len(levels_of(reader)) + 1
    for name in names:
        answer = forget_memory.invoke({"key": name})
        assert answer.startswith((f"Forgot '{name}'.", f"Not forgotten: '{name}' is remembered "))
        assert forget_memory.invoke({"key": name}) != f"Forgot '{name}'."
        shared += answer.startswith("Not")
    assert shared == 3 * len(levels_of(reader)) - 3
    assert len(re.findall("source=", recall.invoke({"query": "tea"}))) == shared
    _, short, _ = memory_tools(store, reader, max_tokens=60)
    assert counter_for("o200k_base").count(short.invoke({"query": "tea"})) <= 60


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("key", [None, "budget", "R&D <budget>", 'a"b', "x &amp; y"])
@pytest.mark.parametrize("printed", [False, True])
def test_what_recall_shows_can_be_replaced_and_forgotten(graph, key, printed):
    """A source, as it is printed or unescaped, names its memory for `remember`, however often, and `forget_memory`."""
    store = MemoryStore(GraphBackend(InMemoryStore())) if graph else MemoryStore(":memory:", embed=False)
    ann = Scope(user="ann")
    store.put("Ann's tea is green.", scope=Scope(user="bob"), key=key)
    remember, recall, forget_memory = memory_tools(store, ann)
    remember.invoke({"text": "Ann's tea is green.", "key": key})
    (name,) = re.findall('source="([^"]+)"', recall.invoke({"query": "tea"}))
    name = name if printed else html.unescape(name)
    for colour in ("black", "black", "white"):
        assert remember.invoke({"text": f"Ann's tea is {colour}.", "key": name}).startswith("Remembered as ")
        assert [memory.text for memory in store.search("tea", scope=ann)] == [f"Ann's tea is {colour}."]
    assert (
        forget_memory.invoke({"key": name})
        == f"Forgot {html.unescape(name) if key != 'x &amp; y' else key!r}."
    )
    assert store.search("tea", scope=ann) == []
    assert graph or store.versions(key or name, scope=ann) == []
    assert len(store.search("tea", scope=Scope(user="bob"))) == 1


def test_the_id_of_a_memory_with_a_key_is_no_second_key(store):
    """What is put under it replaces that memory under the key that it has."""
    old = store.get("drink", scope=Scope(user="ann"))
    new = store.put("Ann likes coffee.", scope=Scope(user="ann"), key=old.id)
    assert (new.key, store.get("drink", scope=Scope(user="ann")).text) == ("drink", "Ann likes coffee.")


def test_recall_says_whether_there_is_no_memory_or_no_room_for_one(store):
    """An agent is not told that nothing is remembered while memories are only too long for it."""
    empty = MemoryStore(":memory:", embed=False)
    for asked, told in (
        (store, "No memory fits into 1 token."),
        (empty, "Nothing is remembered about this."),
    ):
        _, recall, _ = memory_tools(asked, Scope(user="ann"), max_tokens=1)
        assert recall.invoke({"query": "What do I like to drink?"}) == told


class _Scripted(GenericFakeChatModel):
    def bind_tools(self, tools, **options):
        return self


def test_a_block_of_a_llamaindex_memory_reads_the_store(store):
    """Only the reader's memories are in the prompt of a memory, with source, confidence and date."""
    block = StoredMemoryBlock(store=store, scope=Scope(user="ann"))
    memory = BudgetMemory.from_defaults(token_limit=400, memory_blocks=[block])
    memory.put(ChatMessage("What do I like to drink?"))
    text = "\n".join(m.content or "" for m in memory.get())
    assert "Ann likes jasmine tea. (source drink, confidence 0.80, written " in text
    assert "coffee" not in text


def test_a_block_asks_by_the_session_whose_memories_it_reads(store):
    """With a function of the session id one kind of block serves all users; no Scope is an error."""
    users = {"s1": Scope(user="ann"), "s2": Scope(user="bob")}
    texts = {}
    for session in ("s1", "s2"):
        block = StoredMemoryBlock(store=store, scope=users.get)
        memory = BudgetMemory.from_defaults(session_id=session, token_limit=400, memory_blocks=[block])
        memory.put(ChatMessage("What do I like to drink?"))
        texts[session] = "\n".join(m.content or "" for m in memory.get())
    assert ("tea" in texts["s1"], "coffee" in texts["s1"]) == (True, False)
    assert ("tea" in texts["s2"], "coffee" in texts["s2"]) == (False, True)
    unknown = StoredMemoryBlock(store=store, scope=users.get)
    with pytest.raises(BudgetConfigError, match="scope must be a Scope"):
        asyncio.run(unknown.aget([ChatMessage("x")], session_id="s3"))


# ---- a LangGraph store as the backend ---------------------------------------------------------------------
def _letters(texts):
    return [[text.lower().count(letter) + 0.01 for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]


@pytest.fixture(params=["words", "vectors"])
def graph_store(request):
    index = {"dims": 26, "embed": _letters, "fields": ["text"]} if request.param == "vectors" else None
    return MemoryStore(GraphBackend(InMemoryStore(index=index)))


def test_a_graph_store_keeps_scopes_apart(graph_store):
    """Names that look like namespaces are names; a user's memories are no other's, nor a project's."""
    scopes = [Scope(user="a"), Scope(user="a", project="p"), Scope(project="a"), Scope(), Scope(user="-")]
    scopes += [Scope(user="a.b"), Scope(user="a%2Eb"), Scope(user="")]
    for n, scope in enumerate(scopes):
        graph_store.put(f"Secret number {n}.", scope=scope, key="secret")
    for n, scope in enumerate(scopes):
        assert graph_store.get("secret", scope=scope).text == f"Secret number {n}."
    seen = {m.text for m in graph_store.search("secret", scope=Scope(user="a"))}
    assert seen == {"Secret number 0.", "Secret number 3."}


@pytest.mark.parametrize("words", [True, False])
class TestGraphStore(MemoryConformance):
    """What a LangGraph store can promise it keeps, with an index and without; the rest is refused."""

    processes = False

    @pytest.fixture(autouse=True)
    def _kind(self, words: bool) -> None:
        self.index = None if words else {"dims": 26, "embed": _letters, "fields": ["text"]}

    def make(self, **options: Any) -> MemoryStore:
        return MemoryStore(GraphBackend(InMemoryStore(index=self.index)), **options)


def test_a_graph_store_holds_one_memory_of_a_key(graph_store):
    """What will hold later under a key that is taken is refused, and changes nothing."""
    ann, later = Scope(user="ann"), datetime(2999, 1, 1, tzinfo=timezone.utc)
    graph_store.put("Lives in Oslo.", scope=ann, key="home")
    with pytest.raises(StoreUnsupportedError, match="when it begins to hold"):
        graph_store.put("Lives in Rome.", scope=ann, key="home", valid_from=later)
    assert [m.text for m in graph_store.search("home", scope=ann)] == ["Lives in Oslo."]
    assert graph_store.delete("home", scope=ann) == 1


@pytest.mark.parametrize("past", [False, True])
def test_a_graph_store_keeps_what_is_planned(graph_store, past):
    """What holds now, or held before, is refused beside what is planned under its key, which still begins."""
    ann, later = Scope(user="ann"), datetime(2999, 1, 1, tzinfo=timezone.utc)
    planned = graph_store.put("The price will be 30.", scope=ann, key="price", valid_from=later)
    old = {"valid_from": datetime(2020, 1, 1), "valid_to": datetime(2021, 1, 1)} if past else {}  # noqa: DTZ001
    with pytest.raises(StoreUnsupportedError, match="what held before"):
        graph_store.put("It costs 5.", scope=ann, key="price", **old)
    graph_store._clock = lambda: later
    assert graph_store.get("price", scope=ann) == planned


def test_a_graph_store_has_no_place_for_the_past(graph_store):
    """What held before the present memory of its key is refused, but where it supersedes that one."""
    ann, old = Scope(user="ann"), datetime(2010, 1, 1, tzinfo=timezone.utc)
    graph_store.put("Lives in Oslo.", scope=ann, key="home")
    for ends in (None, old):
        with pytest.raises(StoreUnsupportedError, match="what held before"):
            graph_store.put("Lived in Bonn.", scope=ann, key="home", valid_from=old, valid_to=ends)
    assert graph_store.get("home", scope=ann).text == "Lives in Oslo."
    graph_store.put("Lives in Kiel.", scope=ann, key="home", valid_from=old, supersedes="home")
    assert graph_store.get("home", scope=ann).text == "Lives in Kiel."


def test_a_graph_store_never_returns_what_expired():
    """A clock that runs on hides a memory; one that was wrong and is set back shows it again."""
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    times = [now]
    store = MemoryStore(GraphBackend(InMemoryStore()), clock=lambda: times[0])
    store.put("Has a cold.", scope=Scope(user="ann"), key="health", ttl=60)
    times[0] = now + timedelta(minutes=2)
    assert store.get("health", scope=Scope(user="ann")) is None
    assert store.search("cold", scope=Scope(user="ann")) == []
    times[0] = now + timedelta(seconds=30)
    assert store.get("health", scope=Scope(user="ann")).text == "Has a cold."


def test_a_graph_store_refuses_what_it_cannot_promise(graph_store):
    """Compare-and-set and forgetting are typed errors, and change nothing."""
    ann = Scope(user="ann")
    graph_store.put("0", scope=ann, key="n")
    with pytest.raises(StoreUnsupportedError, match="cannot compare"):
        graph_store.update("n", lambda m: "1", scope=ann)
    with pytest.raises(StoreUnsupportedError, match="cannot delete all"):
        graph_store.forget(ann)
    assert graph_store.get("n", scope=ann).text == "0"


@pytest.mark.parametrize("graph", [False, True])
def test_dates_of_every_backend_can_be_compared(graph):
    """A date without a time zone is UTC, whatever keeps the memory, and whoever changes it."""
    store = MemoryStore(GraphBackend(InMemoryStore())) if graph else MemoryStore(":memory:", embed=False)
    naive, ann = datetime(2100, 1, 1), Scope(user="ann")  # noqa: DTZ001 - as callers write them
    made = store.put("Ann lives in Oslo.", scope=ann, valid_to=naive, review_at=naive)
    known = naive.replace(tzinfo=timezone.utc)
    assert (made.valid_to, made.review_at) == (known, known)
    assert made.valid_from < made.valid_to
    assert store.search("Oslo", scope=ann)[0].valid_to == known
