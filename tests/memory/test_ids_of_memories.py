"""Calls that a host stored without ids of their own, read through the memories of LlamaIndex: any client goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import MessageRole
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.llms.ollama import Ollama

from langchain_budget._codec import CODEC as LANGCHAIN
from langchain_budget.stored_history import FORM as LANGCHAIN_FORM
from llamaindex_budget import (
    BudgetChatMemoryBuffer,
    BudgetFunctionAgent,
    BudgetMemory,
    StoredAsyncChatStore,
    StoredChatStore,
)
from llamaindex_budget._codec import CODEC as LLAMAINDEX
from rankbudget import Scope, counter_for
from rankbudget.testing.server import StrictModelServer
from tests.drawing import draws
from tests.memory.calls import (
    CLIENTS,
    IDS,
    Turn,
    check,
    conversations,
    pairs,
    sent,
    written,
)

HOSTS_OWN = pytest.mark.filterwarnings("ignore::DeprecationWarning")
"""LlamaIndex's workflows look at deprecated names of pydantic."""
MEMORIES: dict[str, Any] = {
    "buffer": lambda chats, **kw: BudgetChatMemoryBuffer.from_defaults(**kw),
    "stored buffer": lambda chats, **kw: BudgetChatMemoryBuffer.from_defaults(
        chat_store=chats, chat_store_key="t", **kw
    ),
    "memory": lambda chats, **kw: BudgetMemory.from_defaults(session_id="t", **kw),
    "stored memory": lambda chats, **kw: BudgetMemory.from_defaults(
        session_id="t", sql_store=StoredAsyncChatStore(chats=chats), **kw
    ),
}


@pytest.mark.parametrize("named", MEMORIES)
@draws(cases=6)
@given(
    turns=conversations(),
    kind=st.sampled_from(sorted(IDS)),
    at_once=st.booleans(),
    limit=st.sampled_from((60, 120, 10**5)),
)
def test_what_a_memory_returns_has_clear_ids(
    model_server: StrictModelServer, named: str, turns: list[Turn], kind: str, at_once: bool, limit: int
) -> None:
    """Whatever fits is a request of any client, within the limit, with the same ids at each read; what is stored stays."""
    chats = StoredChatStore(place=":memory:", user="ann")
    memory = MEMORIES[named](chats, token_limit=limit, counter="o200k_base")
    messages = written("llamaindex", turns, kind)
    before, seen = [m.model_copy(deep=True) for m in messages], list[Any]()
    for part in [messages] if at_once else [[message] for message in messages]:
        memory.put_messages(part)
        if limit > 10**4:
            grown = memory.get()
            assert grown[: len(seen)] == seen  # of what is sent, nothing changes when messages are added
            seen = grown if part[-1].role != MessageRole.TOOL and not LLAMAINDEX.call_ids(part[-1]) else seen
    got = memory.get()
    assert memory.get() == got == asyncio.run(memory.aget())
    assert counter_for("o200k_base").count_messages([LLAMAINDEX.to_dict(m) for m in got]) <= limit
    assert memory.get_all() == before == asyncio.run(memory.aget_all())
    for client in ("llamaindex-openai", "llamaindex-ollama"):
        body = sent(model_server, client, got, bounded=False)
        if limit > 10**4:
            check(body, turns)
        ids, told = pairs(body)
        assert all(said == f"found {word}" for word, said in told)
        assert client == "llamaindex-ollama" or (None not in ids and len(set(ids)) == len(ids))
    if named.startswith("stored") and limit > 10**4:
        others = chats.thread("t").store.thread("t", scope=Scope(user="ann"), form=LANGCHAIN_FORM).messages()
        assert [LANGCHAIN.call_ids(m) for m in others] == [LLAMAINDEX.call_ids(m) for m in got]
    chats.close()


@HOSTS_OWN
@pytest.mark.parametrize("named", MEMORIES)
@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("agent", [BudgetFunctionAgent, FunctionAgent])
def test_an_agent_goes_on_with_any_memory(
    model_server: StrictModelServer, agent: Any, kind: str, named: str
) -> None:
    """A run of OpenAI's client goes on with what others left in a memory."""
    turns = [[("search", "w0"), ("search", "w1")], [("search", "w2"), ("read", "w3")]]
    memory = MEMORIES[named](StoredChatStore(place=":memory:", user="ann"), token_limit=10**5)
    memory.put_messages(written("llamaindex", turns, kind)[:-1])
    _run(model_server, agent, memory)
    check(model_server.requests[-1].body, turns)


@HOSTS_OWN
@pytest.mark.parametrize("kind", IDS)
def test_an_agent_goes_on_with_a_stock_memory(model_server: StrictModelServer, kind: str) -> None:
    """Our agent gives ids where the memory gives none."""
    turns = [[("search", "w0"), ("search", "w1")], [("search", "w2")]]
    _run(
        model_server,
        BudgetFunctionAgent,
        ChatMemoryBuffer.from_defaults(written("llamaindex", turns, kind)[:-1]),
    )
    check(model_server.requests[-1].body, turns)


def _run(model_server: StrictModelServer, agent: Any, memory: Any) -> None:
    llm = CLIENTS["llamaindex-openai"][1](model_server)
    llm.is_function_calling_model, llm.context_window = True, 10**6
    model_server.forget()
    asyncio.run(_asked(agent(llm=llm, tools=[lookup], streaming=False), memory))
    assert [(one.problems, one.body) for one in model_server.refused] == []


async def _asked(agent: Any, memory: Any) -> None:
    await agent.run("and now?", memory=memory)


def lookup(word: str) -> str:
    """Looks a word up."""
    return word


@pytest.mark.parametrize("named", MEMORIES)
def test_a_memory_of_googles_llm_keeps_the_names(named: str) -> None:
    """Older clients of Google's send the id of a result as the name of its function."""

    class Gemini(Ollama):
        __module__ = "llama_index.llms.google_genai.base"

    llm = Gemini(model="g", context_window=10**5)
    memory = MEMORIES[named](StoredChatStore(place=":memory:", user="ann"), llm=llm, token_limit=10**4)
    thread = written("llamaindex", [[("search", "a"), ("search", "b")]], "name")
    memory.put_messages(thread)
    assert [LLAMAINDEX.call_ids(message) for message in memory.get()] == [*map(LLAMAINDEX.call_ids, thread)]
    assert [message.additional_kwargs for message in memory.get()] == [m.additional_kwargs for m in thread]
