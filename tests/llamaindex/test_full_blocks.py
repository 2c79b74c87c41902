"""Memory blocks that fill the limit give room to what agents and engines add around them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine, SimpleChatEngine
from llama_index.core.memory.memory import InsertMethod
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.tools import FunctionTool

from llamaindex_budget import (
    BudgetFunctionAgent,
    BudgetMemory,
    BudgetNodePostprocessor,
    KnowledgeMemoryBlock,
    StoredMemoryBlock,
    SystemMemoryBlock,
    budget_model,
)
from rankbudget import BudgetSession, Scope
from rankbudget.memory import MemoryStore
from tests.drawing import draws
from tests.llamaindex.models import CL100K, FixedRetriever, ListStore, PlayLLM, exchanges, words

ANN = Scope(user="ann")
RULE = "Never promise a date."
ORDERS = [
    f"Order {i} of part {i * 7 % 300} goes to shop {i % 9}, packed by crew {i % 5}. " for i in range(120)
]
AGENTS: list[Any] = [FunctionAgent, BudgetFunctionAgent, ReActAgent, AgentWorkflow]
ENGINES: list[Any] = [SimpleChatEngine, ContextChatEngine, CondensePlusContextChatEngine]
pytestmark = [
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),  # the host's own
    pytest.mark.filterwarnings("ignore:is_running called from within a step:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def orders() -> Iterator[MemoryStore]:
    store = MemoryStore(":memory:", embed=False)
    for text in ORDERS:
        store.put(text * 3, scope=ANN)
    yield store
    store.close()


def _found(size: int = 1) -> FixedRetriever:
    return FixedRetriever(
        [NodeWithScore(node=TextNode(text=text * size), score=1 - i / 300) for i, text in enumerate(ORDERS)]
    )


def look(part: str) -> str:
    """Looks up a part in the warehouse and returns the number of pieces in stock, by shop and by crew."""
    return part


def _blocks(kind: str, orders: MemoryStore) -> list[Any]:
    block = (
        StoredMemoryBlock(store=orders, scope=ANN, k=100)
        if kind == "stored"
        else KnowledgeMemoryBlock(retriever=_found(5))
    )
    return [SystemMemoryBlock(text=RULE), block]


def _parts(limit: int, how: str, orders: MemoryStore, **options: Any) -> tuple[Any, Any, BudgetMemory]:
    """Returns a model, what plays it, and a memory whose blocks could fill any of these limits."""
    played = PlayLLM(window=100_000, answer="Thought: I know it.\nAnswer: done")
    session = BudgetSession(limit, counter=CL100K)
    given = session if how == "session" else limit
    llm: Any = budget_model(played, given, counter=CL100K)
    shared = {"session": session} if how == "session" else {"llm": llm}
    kind = options.pop("kind")
    memory = BudgetMemory.from_defaults(
        **shared, **options, memory_blocks=_blocks(kind, orders), chat_store=ListStore()
    )
    return llm, played, memory


def _check(played: PlayLLM, limit: int, turns: int) -> None:
    assert len(played.requests) >= turns
    for messages, tools in played.requests:
        assert CL100K.count_messages(_plain(messages), tools or None) <= limit
        assert RULE in str(messages), "what is pinned stays"


def _plain(messages: Any) -> list[Any]:
    return [{"role": m.role.value, "content": m.content or ""} for m in messages]


CASES = {
    "kind": st.sampled_from(["stored", "knowledge"]),
    "how": st.sampled_from(["llm", "session"]),
    "insert": st.sampled_from(list(InsertMethod)),
    "limit": st.sampled_from([2500, 4000]),
    "share": st.floats(0, 0.5),
    "turns": st.integers(0, 9),
}


@pytest.mark.parametrize("kind_of_agent", AGENTS, ids=lambda kind: kind.__name__)
@draws(asynchronous=True)
@given(tools=st.integers(0, 3), **CASES)
async def test_no_agent_is_refused_for_its_memory(
    orders: MemoryStore, kind_of_agent: Any, tools: int, share: float, turns: int, **case: Any
) -> None:
    """Any agent's first and second turn are sent, whatever its system prompt, its tools and its blocks need."""
    limit, system = case["limit"], words(1 + int(case["limit"] * share))
    llm, played, memory = _parts(
        limit,
        case["how"],
        orders,
        kind=case["kind"],
        insert_method=case["insert"],
        chat_history=exchanges(turns),
    )
    given: dict[str, Any] = {
        "tools": [FunctionTool.from_defaults(look, name=f"look{i}") for i in range(tools)]
    }
    given |= {"llm": llm, "system_prompt": system, "streaming": False}
    if kind_of_agent is AgentWorkflow:
        agent: Any = AgentWorkflow(agents=[FunctionAgent(name="a", description="b", **given)])
    else:
        agent = kind_of_agent(**given)
    for number in (17, 18):
        await agent.run(user_msg=f"Where does order {number} go?", memory=memory)
    _check(played, limit, 2)


@pytest.mark.parametrize("kind_of_engine", ENGINES, ids=lambda kind: kind.__name__)
@draws(asynchronous=True)
@given(**CASES)
def test_no_chat_engine_is_refused_for_its_memory(
    orders: MemoryStore, kind_of_engine: Any, share: float, turns: int, **case: Any
) -> None:
    """Any chat engine's turns are sent, also where its template is one text that holds all the conversation."""
    limit, system = case["limit"], words(1 + int(case["limit"] * share))
    # Without a session the host's own `PromptHelper` refuses a template that leaves nodes no room.
    how = case["how"] if kind_of_engine is SimpleChatEngine else "session"
    llm, played, memory = _parts(
        limit, how, orders, kind=case["kind"], insert_method=case["insert"], chat_history=exchanges(turns)
    )
    finder: dict[str, Any] = {
        "retriever": _found(),
        "node_postprocessors": [BudgetNodePostprocessor(memory=memory)],
    }
    if kind_of_engine is SimpleChatEngine:
        finder = {}
    engine = kind_of_engine.from_defaults(llm=llm, memory=memory, system_prompt=system, **finder)
    for number in (17, 18):
        engine.chat(f"Where does order {number} go?")
    _check(played, limit, 2)
