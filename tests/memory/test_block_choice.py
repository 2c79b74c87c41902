"""A LlamaIndex memory, and a slot of LangChain's, show of a store's memories what `MemoryStore.fit` keeps of them, best for the question first."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import Memory

from langchain_budget import BudgetChatPromptTemplate, BudgetTrimmer, MemoryRetriever
from llamaindex_budget import BudgetMemory, StoredMemoryBlock
from rankbudget import Scope
from rankbudget.memory import MemoryStore
from tests.drawing import draws

ANN = Scope(user="ann")
TOPICS = ("gate", "server", "tea", "invoice", "garden", "train")
SHOWN = re.compile(r"(.+) \(source [^()]+\)")
DATE = datetime(2026, 11, 1, tzinfo=timezone.utc)


def by_topic(texts: list[str]) -> list[list[float]]:
    """Vectors in which each topic is an axis; what shares no word may be near by a synonym."""
    return [[float(topic in text.lower()) for topic in TOPICS] + [0.1 + len(text) % 7 / 50] for text in texts]


MEMORIES = st.lists(
    st.tuples(
        st.sampled_from(TOPICS),
        st.integers(1, 30),
        st.sampled_from(["fact", "core", "preference", "experience"]),
        st.sampled_from([None, 0, 50, 100]),
        st.sampled_from([None, 0.2, 0.9]),
        st.integers(0, 25),
    ),
    min_size=2,
    max_size=25,
    unique_by=lambda drawn: drawn[:2],
)
HOSTS: dict[str, Callable[..., Memory]] = {
    "a budget's memory": BudgetMemory.from_defaults,
    "a stock memory": Memory.from_defaults,
}


def stored(memories: list[Any], **options: Any) -> MemoryStore:
    """A store in which each memory has its own day."""
    days = iter([DATE + timedelta(days=drawn[-1]) for drawn in memories])
    now = [DATE]
    store = MemoryStore(":memory:", clock=lambda: now[0], **options)
    for topic, number, kind, priority, confidence, _ in memories:
        now[0] = next(days)
        known = {"kind": kind, "priority": priority, "confidence": confidence}
        store.put(f"What the {topic} of number {number} has is {number * 37}", scope=ANN, **known)
    now[0] = DATE + timedelta(days=26)
    return store


def shown(host: Callable[..., Memory], store: MemoryStore, question: str, limit: int) -> list[str]:
    """The texts in a host's prompt."""
    memory = host(
        session_id="s", token_limit=limit, memory_blocks=[StoredMemoryBlock(store=store, scope=ANN)]
    )
    memory.put(ChatMessage(question))
    lines = "\n".join(str(message.content) for message in memory.get(question)).splitlines()
    return [found[1] for line in lines if (found := SHOWN.fullmatch(line.strip()))]


asked_of = given(
    memories=MEMORIES,
    topic=st.sampled_from(TOPICS),
    number=st.integers(1, 30),
    limit=st.integers(80, 700),
    least=st.sampled_from([0.0, 0.5]),
)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("embed", [by_topic, False], ids=["by meaning", "by words"])
@draws(asynchronous=True, cases=4)
@asked_of
def test_a_block_shows_what_fit_keeps(
    host: str, embed: Any, memories: list[Any], topic: str, number: int, limit: int, least: float
) -> None:
    """At any limit the whole texts are those that `fit` keeps first, by the store's own ranking; no date is a word."""
    store = stored(memories, embed=embed, least_confidence=least)
    question = f"Which one has the {topic} of number {number}?"
    texts = {memory.text for memory in store.search(question, scope=ANN)}
    whole = [text for text in shown(HOSTS[host], store, question, limit) if text in texts]
    assert whole == kept_first(store, question, len(whole))


def kept_first(store: MemoryStore, question: str, count: int) -> list[str]:
    """So many whole texts that `fit` keeps first, the oldest first."""
    texts = {memory.text for memory in store.search(question, scope=ANN)}

    def kept(tokens: int) -> list[str]:
        found = store.fit(question, scope=ANN, max_tokens=tokens)
        return [segment.text for segment in found.segments if segment.text in texts]

    return kept(bisect_left(range(3000), count, key=lambda tokens: len(kept(tokens))))


def in_a_template(found: Any, question: str, limit: int) -> Any:
    """What a template shows in its system message."""
    parts = [("system", "You know:\n{memory}"), ("human", "{question}")]
    template = BudgetChatPromptTemplate.from_messages(parts, max_tokens=limit, counter="o200k_base")
    return template.fit(memory=found, question=question).messages[0].content.splitlines()


def in_a_trimmer(found: Any, question: str, limit: int) -> Any:
    """The texts of what a trimmer hands on."""
    trimmer = BudgetTrimmer(max_tokens=limit, counter="o200k_base")
    return [kept.page_content for kept in trimmer.invoke({"memory": found, "question": question})["memory"]]


@pytest.mark.parametrize("slot", [in_a_template, in_a_trimmer])
@pytest.mark.parametrize("embed", [by_topic, False], ids=["by meaning", "by words"])
@draws(cases=8)
@asked_of
def test_a_slot_shows_what_fit_keeps(
    slot: Any, embed: Any, memories: list[Any], topic: str, number: int, limit: int, least: float
) -> None:
    """What a retriever finds is chosen by the store's own ranking, too."""
    store = stored(memories, embed=embed, least_confidence=least)
    question = f"Which one has the {topic} of number {number}?"
    found = MemoryRetriever(store=store, scope=ANN).invoke(question)
    texts = {memory.text for memory in store.search(question, scope=ANN)}
    whole = [text for text in slot(found, question, limit) if text in texts]
    assert sorted(whole) == sorted(kept_first(store, question, len(whole)))


@pytest.mark.parametrize("slot", [in_a_template, in_a_trimmer])
def test_a_preference_is_kept_among_many_nearer_memories(slot: Any) -> None:
    """What always matters has a place behind twenty nearer memories at most."""
    store = MemoryStore(":memory:", clock=lambda: DATE)
    for number in range(90):
        store.put(f"The gate of number {number} has the code {number * 37}.", scope=ANN)
    store.put("Never suggest peanuts.", scope=ANN, kind="preference")
    question = "Which code has the gate of number 77?"
    found = MemoryRetriever(store=store, scope=ANN).invoke(question)
    assert "Never suggest peanuts." in slot(found, question, 900)


def test_what_is_cut_of_a_memory_keeps_its_source() -> None:
    """A text that is cut still says whole where it comes from and when it was written."""
    store = MemoryStore(":memory:", clock=lambda: DATE, embed=False)
    store.put("The gate is opened with a code. " + "The garden is wide and old. " * 40, scope=ANN, key="code")
    for host in HOSTS.values():
        found = shown(host, store, "Which code opens the gate?", 150)
        assert len(found) == 1
        assert "opened with a code." in found[0]
        assert len(found[0]) < 700


def test_two_blocks_of_one_store() -> None:
    """A memory that two readers see is in both blocks."""
    store = MemoryStore(":memory:", clock=lambda: DATE, embed=False)
    store.put("The gate is closed at night.", scope=Scope())
    readers = {"ann": ANN, "bob": Scope(user="bob")}
    blocks = [StoredMemoryBlock(name=name, store=store, scope=scope) for name, scope in readers.items()]
    memory = BudgetMemory.from_defaults(token_limit=300, memory_blocks=blocks)
    memory.put(ChatMessage("When is the gate closed?"))
    assert str(memory.get()[0].content).count("closed at night. (source conversation, written") == 2
