"""Copies, pickles and plain data: what comes back counts, limits and remembers as what was written, or says that it cannot."""

from __future__ import annotations

import copy
import functools
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms import MockLLM
from llama_index.core.memory import FactExtractionMemoryBlock

from llamaindex_budget import (
    BudgetChatMemoryBuffer,
    BudgetMemory,
    BudgetMemoryBlock,
    BudgetNodePostprocessor,
    HistorySummaryMemoryBlock,
    KnowledgeMemoryBlock,
    StoredMemoryBlock,
    TaskMemoryBlock,
    summarizer,
)
from rankbudget import BudgetConfigError, BudgetSession, Scope, TokenBudget, counter_for
from rankbudget.memory import MemoryStore
from tests.llamaindex.models import FixedRetriever, ListStore, PlayLLM, exchanges, nodes, say, words

CHAT = exchanges(30)
LEAVE: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "dict": lambda m: type(m).from_dict(json.loads(json.dumps(m.to_dict()))),
}
ways = pytest.mark.parametrize("leave", LEAVE.values(), ids=LEAVE)


def shorten(text: str, max_tokens: int) -> str:
    """Writes a summary: the first words."""
    return " ".join(text.split()[: max_tokens // 4])


def _contents(found: Any) -> list[Any]:
    return [m.content for m in found]


def _in_a_list(memory: BudgetMemory) -> BudgetMemory:
    """Loads plain data into a store without a database, which keeps no connection open."""
    data = json.loads(json.dumps(memory.to_dict()))
    made = BudgetMemory.from_dict(data, sql_store=ListStore())
    made.set([ChatMessage.model_validate(m) for m in data["messages"]])
    return made


@pytest.mark.parametrize(
    ("block", "lost"),
    [
        (BudgetMemoryBlock(name="own", read=lambda _: "Ann is allergic to nuts."), "read="),
        (HistorySummaryMemoryBlock(name="own", summarizer=shorten), "summarizer="),
        (KnowledgeMemoryBlock(name="own", retriever=FixedRetriever(nodes(3))), "retriever="),
        (TaskMemoryBlock(name="own", text="Bake.", counter=len), "counter="),
    ],
)
def test_plain_data_says_what_a_block_leaves_out(block: Any, lost: str) -> None:
    """A block's function or model is no plain data: a warning names block and option; the rest is written."""
    memory = BudgetMemory.from_defaults(token_limit=900, memory_blocks=[block], chat_store=ListStore())
    with pytest.warns(UserWarning, match=f"'own' is written without {lost}: .* Pass memory_blocks="):
        data = json.loads(json.dumps(memory.to_dict()))
    again = BudgetMemory.from_dict(data, memory_blocks=[block], sql_store=ListStore())
    assert again.memory_blocks == [block]


@pytest.mark.filterwarnings("ignore:memory block .* is written without:UserWarning")
@pytest.mark.parametrize(
    ("block", "lost"),
    [
        (KnowledgeMemoryBlock(name="own", retriever=FixedRetriever(nodes(3))), "retriever="),
        (
            StoredMemoryBlock(
                name="own", store=MemoryStore(":memory:", embed=False), scope=Scope(user="ann")
            ),
            "store= and scope=",
        ),
    ],
)
@pytest.mark.parametrize("times", [1, 2])
def test_a_restored_block_does_not_answer_without_what_it_reads(block: Any, lost: str, times: int) -> None:
    """A block whose source plain data cannot hold raises a typed error that says what to pass, and where."""
    memory = BudgetMemory.from_defaults(token_limit=900, memory_blocks=[block], chat_store=ListStore())
    for _ in range(times):
        memory = _in_a_list(memory)
    with pytest.raises(BudgetConfigError, match=rf"'own' must have {lost} .*memory_blocks=.* memory="):
        memory.get(input="What does Ann eat?")


@pytest.mark.filterwarnings("error::UserWarning")
def test_plain_data_keeps_the_names_in_a_block() -> None:
    """What is a name or a text comes back without a warning."""
    block = HistorySummaryMemoryBlock(counter="gpt-4o", summarizer="extractive", text="They met.")
    memory = BudgetMemory.from_defaults(token_limit=900, memory_blocks=[block], chat_store=ListStore())
    data = json.loads(json.dumps(memory.to_dict()))
    assert BudgetMemory.from_dict(data, sql_store=ListStore()).memory_blocks == [block]


def test_a_block_with_a_model_asks_for_the_block() -> None:
    """LlamaIndex's own block holds an LLM, which its plain data does not bring back."""
    blocks = [FactExtractionMemoryBlock(name="facts", llm=PlayLLM())]
    memory = BudgetMemory.from_defaults(token_limit=900, memory_blocks=blocks, chat_store=ListStore())
    data = json.loads(json.dumps(memory.to_dict()))
    with pytest.raises(BudgetConfigError, match=r"'facts' .*Pass memory_blocks="):
        BudgetMemory.from_dict(data)
    assert BudgetMemory.from_dict(data, memory_blocks=blocks, sql_store=ListStore()).memory_blocks == blocks


@ways
@pytest.mark.parametrize(
    "fields",
    [
        {"token_limit": 300, "counter": len},
        {"token_limit": 300, "counter": "gpt-4o"},
        {"token_limit": 300, "counter": counter_for("gpt-4o")},
        {"budget": TokenBudget(context_window=700, reserve=300), "counter": len},
    ],
)
@pytest.mark.parametrize("kind", [BudgetChatMemoryBuffer, BudgetMemory])
def test_a_copy_counts_as_its_original(
    leave: Callable[[Any], Any], fields: dict[str, Any], kind: Any
) -> None:
    """With a counter of its own a copy returns the same messages, and both stay usable apart."""
    more = {"chat_store": ListStore()} if kind is BudgetMemory else {}
    memory = kind.from_defaults(chat_history=CHAT, **fields, **more)
    before = _contents(memory.get())
    assert 0 < len(before) < len(CHAT)
    made = _in_a_list(memory) if kind is BudgetMemory and leave is LEAVE["dict"] else leave(memory)
    assert _contents(made.get()) == before == _contents(memory.get())
    made.put(say("user", "only there"))
    assert (len(made.get_all()), len(memory.get_all())) == (61, 60)


@ways
def test_a_copy_of_a_memory_with_a_session_has_a_session_like_it(leave: Callable[[Any], Any]) -> None:
    """Budget, counter and tools of a shared session come back, in a session of the copy's own."""
    tools = [{"type": "function", "function": {"name": "find", "description": words(50), "parameters": {}}}]
    session = BudgetSession(TokenBudget(context_window=1000, reserve=300), counter="gpt-4o", tools=tools)
    memory = BudgetChatMemoryBuffer.from_defaults(chat_history=CHAT, session=session)
    before = _contents(memory.get())
    made = leave(memory)
    assert _contents(made.get()) == before
    assert made.session is not session
    assert (made.session.budget, made.session.counter, list(made.session.tools)) == (
        session.budget,
        session.counter,
        tools,
    )
    made.put(say("user", "only there"))
    assert _contents(memory.get()) == before


def test_a_counter_that_does_not_travel_says_so() -> None:
    """A lambda cannot be found again: pickling and loading raise; with `counter=` the plain data loads, and a copy keeps it."""
    memory = BudgetChatMemoryBuffer.from_defaults(
        chat_history=CHAT, token_limit=300, counter=lambda text: len(text) // 2
    )
    assert _contents(copy.deepcopy(memory).get()) == _contents(memory.get())
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(memory)
    with pytest.raises(BudgetConfigError, match=r"counter '<lambda>' cannot be found"):
        BudgetChatMemoryBuffer.from_dict(memory.to_dict())
    assert _contents(BudgetChatMemoryBuffer.from_dict(memory.to_dict(), counter=len).get())
    shared = BudgetChatMemoryBuffer.from_defaults(session=BudgetSession(300, counter=len))
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(shared)
    with pytest.raises(BudgetConfigError, match="'len' cannot be found"):
        BudgetChatMemoryBuffer.from_dict(shared.to_dict())


def test_a_summarizer_comes_along_or_says_that_it_does_not() -> None:
    """A function travels by pickle, a closure and plain data warn; the conversation is complete in each case."""
    memory = BudgetChatMemoryBuffer.from_defaults(chat_history=CHAT, token_limit=400, summarizer=shorten)
    before = _contents(memory.get())
    assert any("u0" in (text or "") for text in before)
    for leave in (LEAVE["pickle"], LEAVE["deepcopy"]):
        assert _contents(leave(memory).get()) == before
    with pytest.warns(UserWarning, match="summarizer is not picklable"):
        data = memory.to_dict()
    assert _contents(BudgetChatMemoryBuffer.from_dict(data, summarizer=shorten).get()) == before
    closed = BudgetChatMemoryBuffer.from_defaults(
        chat_history=CHAT, token_limit=400, summarizer=lambda text, n: shorten(text, n // 2)
    )
    with pytest.warns(UserWarning, match="summarizer is not picklable"):
        assert len(pickle.loads(pickle.dumps(closed)).get_all()) == 60


@pytest.mark.parametrize(
    "part",
    [
        BudgetChatMemoryBuffer.from_defaults,
        functools.partial(BudgetMemory.from_defaults, chat_store=ListStore()),
        BudgetNodePostprocessor,
    ],
)
def test_a_sessions_summarizer_is_not_left_out_silently(part: Any) -> None:
    """Plain data with a session that summarizes warns as plain data with `summarizer=` does; `summarizer=` brings it back."""
    session = BudgetSession(400, counter="gpt-4o", summarizer=shorten)
    made = part(session=session)
    with pytest.warns(UserWarning, match="summarizer is not picklable or cannot be plain data"):
        data = made.to_dict()
    assert type(made).from_dict(data, summarizer=shorten).session.summarizer is shorten


_SUMMARIZED: list[str] = []


def _noted(text: str, max_tokens: int) -> str:
    _SUMMARIZED.append(text)
    return shorten(text, max_tokens)


@pytest.mark.parametrize("leave", [LEAVE["deepcopy"], LEAVE["pickle"]])
@pytest.mark.parametrize("kind", [BudgetChatMemoryBuffer, BudgetMemory])
@pytest.mark.parametrize(
    "limits", [{"token_limit": 400}, {"llm": MockLLM()}, {"session": BudgetSession(400, summarizer=_noted)}]
)
def test_a_copy_remembers_where_the_history_was_cut(leave: Any, kind: Any, limits: Any) -> None:
    """Cut and summary of a growing chat are the same after a copy, whatever limits it; nothing is summarized again."""
    more: dict[str, Any] = {} if "session" in limits else {"summarizer": _noted}
    if kind is BudgetMemory:
        more["chat_store"] = ListStore()
    memory = kind.from_defaults(**limits, **more)
    for turn in range(60):
        memory.put(say("user", f"question {turn} " + "and so on " * 30))
        memory.get()
        memory.put(say("assistant", f"answer {turn}"))
    before, summarized = _contents(memory.get()), len(_SUMMARIZED)
    made = leave(memory)
    assert _contents(made.get()) == before
    assert len(_SUMMARIZED) == summarized
    made.reset()
    assert made.get() == []
    assert _contents(memory.get()) == before


def test_pickling_a_model_that_summarizes_leaves_it_whole() -> None:
    """The host deletes what it cannot pickle from the model itself; ours works on a copy."""
    llm = PlayLLM(requests=[], steps=[lambda: None])
    with pytest.raises(Exception, match=r"."):
        pickle.dumps(llm.steps)
    pickle.dumps(summarizer(llm))
    assert len(llm.steps) == 1


IN_SQL = """
import copy, json, pickle, sys
from llama_index.core.llms import ChatMessage
from llamaindex_budget import BudgetMemory, ProjectMemoryBlock

def contents(found):
    return [m.content for m in found]

for leave in (copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), lambda m: type(m).from_dict(json.loads(json.dumps(m.to_dict())))):
    memory = BudgetMemory.from_defaults(
        token_limit=400,
        chat_history=[ChatMessage(role=role, content=f"part {n}") for n in range(3) for role in ("user", "assistant")],
        memory_blocks=[ProjectMemoryBlock(name="p", text="Tea is green.")],
        counter="gpt-4o",
    )
    made = leave(memory)
    assert contents(made.get("Tea?")) == contents(memory.get("Tea?"))
    assert len(made.get_all()) == len(memory.get_all()) == 6
    made.put(ChatMessage(role="user", content="only there"))
    assert len(memory.get_all()) == 6

for leave in (copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))):
    memory = BudgetMemory.from_defaults(token_limit=400, async_database_uri="sqlite+aiosqlite:///" + sys.argv[1])
    memory.reset()
    memory.put(ChatMessage(role="user", content="first"))
    leave(memory).put(ChatMessage(role="assistant", content="second"))
    assert contents(memory.get_all()) == ["first", "second"]
print("all hold")
"""


def test_a_block_memory_keeps_messages_blocks_and_its_live_self(tmp_path: Path) -> None:
    """In the stock database the copy has all messages and blocks, and the original goes on; in a file both are the same conversation."""
    # In a process of its own: the host's store leaves connections of closed event loops behind.
    ran = subprocess.run(
        [sys.executable, "-c", IN_SQL, str(tmp_path / "chat.db")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.stdout == "all hold\n", ran.stderr


@ways
def test_a_postprocessor_counts_after_the_journey_as_before(leave: Callable[[Any], Any]) -> None:
    """Its counter and its session come along."""
    found = nodes(9, 60)
    for post in (
        BudgetNodePostprocessor(max_tokens=600, counter=len),
        BudgetNodePostprocessor(
            session=BudgetSession(TokenBudget(context_window=700, reserve=400), counter="gpt-4o")
        ),
        BudgetNodePostprocessor(budget=TokenBudget(context_window=700, reserve=400)),
    ):
        kept = [n.text for n in post.postprocess_nodes(found, query_str="item?")]
        assert 0 < len(kept) < 9
        assert [n.text for n in leave(post).postprocess_nodes(found, query_str="item?")] == kept


@ways
@pytest.mark.parametrize("kind", [BudgetChatMemoryBuffer, BudgetMemory])
def test_a_copy_leaves_the_synthesizer_what_the_original_left(leave: Callable[[Any], Any], kind: Any) -> None:
    """A memory made with an LLM keeps free what a synthesizer needs for one call; so does its copy, and a copy of that."""
    more = {"chat_store": ListStore()} if kind is BudgetMemory else {}
    memory = kind.from_defaults(llm=PlayLLM(requests=[], window=3000, reply=300), **more)
    kept = [len(BudgetNodePostprocessor(memory=memory).postprocess_nodes(nodes(90, 60), query_str="item?"))]
    for _ in range(2):
        in_a_list = kind is BudgetMemory and leave is LEAVE["dict"]
        memory = _in_a_list(memory) if in_a_list else leave(memory)
        post = BudgetNodePostprocessor(memory=memory)
        kept.append(len(post.postprocess_nodes(nodes(90, 60), query_str="item?")))
    assert 0 < kept[0] < 90
    assert len(set(kept)) == 1


@pytest.mark.parametrize("leave", [LEAVE["deepcopy"], LEAVE["pickle"]])
def test_parts_that_share_a_session_still_share_one(leave: Callable[[Any], Any]) -> None:
    """Memory and postprocessor that leave together share one session afterwards, and not the old one."""
    session = BudgetSession(TokenBudget(context_window=1000, reserve=300), counter="gpt-4o")
    pair = (BudgetChatMemoryBuffer.from_defaults(session=session), BudgetNodePostprocessor(session=session))
    memory, post = leave(pair)
    alone = len(post.postprocess_nodes(nodes(9, 60), query_str="item?"))
    memory.set(CHAT)
    assert len(post.postprocess_nodes(nodes(9, 60), query_str="item?")) < alone
    assert pair[0].get_all() == []


@pytest.mark.parametrize("given", [False, True])
async def test_a_loaded_memory_keeps_its_summary_whatever_blocks_it_is_given(given: bool) -> None:
    """What left the conversation is handed to no block again: its summary goes on in the block of its name."""

    def block() -> HistorySummaryMemoryBlock:
        return HistorySummaryMemoryBlock(summarizer=shorten, max_tokens=300)

    memory = BudgetMemory.from_defaults(token_limit=300, memory_blocks=[block()], chat_store=ListStore())
    for message in CHAT:
        await memory.aput(message)
        await memory.aget()
    written = memory.memory_blocks[0].text  # type: ignore[attr-defined]  # a summary block
    assert written
    with pytest.warns(UserWarning, match="'summary' is written without summarizer="):
        data = json.loads(json.dumps(memory.to_dict()))
    if given:
        again = BudgetMemory.from_dict(data, memory_blocks=[block()], sql_store=ListStore())
    else:
        with pytest.warns(UserWarning, match="'summary' is loaded with summarizer='extractive' instead"):
            again = BudgetMemory.from_dict(data, sql_store=ListStore())
        with pytest.warns(UserWarning, match="'summary' is written without summarizer="):
            assert again.to_dict()["memory_blocks"][0]["lost"] == ["summarizer"]
    assert again.memory_blocks[0].text == written  # type: ignore[attr-defined]  # the same


async def test_facts_that_were_taken_go_on_in_the_empty_block_of_their_name() -> None:
    """A block with a model is always given anew; one that holds something keeps it, and the data stay as they are."""

    def block(*facts: str) -> FactExtractionMemoryBlock:
        return FactExtractionMemoryBlock(name="facts", llm=MockLLM(), facts=list(facts))

    memory = BudgetMemory.from_defaults(token_limit=300, memory_blocks=[block("a")], chat_store=ListStore())
    data = json.loads(json.dumps(memory.to_dict()))
    for given, held in (((), ["a"]), (("b",), ["b"])):
        again = BudgetMemory.from_dict(data, memory_blocks=[block(*given)], sql_store=ListStore())
        found: Any = again.memory_blocks[0]
        assert found.facts == held
        found.facts.append("c")
    assert data["memory_blocks"][0]["facts"] == ["a"]
