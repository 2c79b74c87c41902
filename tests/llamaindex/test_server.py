"""A real query engine, chat engines and a function agent over HTTP, against a server that refuses what providers refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine, SimpleChatEngine
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

from llamaindex_budget import (
    BudgetChatMemoryBuffer,
    BudgetFunctionAgent,
    BudgetMemory,
    BudgetNodePostprocessor,
    ProjectMemoryBlock,
    budget_for,
    budget_model,
)
from rankbudget import BudgetSession
from rankbudget.testing.server import Reply, StrictModelServer
from tests.llamaindex.models import FixedRetriever, ListStore, calls, exchanges, nodes, result, say, words

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore::pydantic.warnings.PydanticDeprecationWarning"
    ),  # the host's own, of its workflows
]
WINDOW, REPLY = 4096, 512
PAST = [
    say("system", "RULE"),
    *exchanges(40),
    calls("c1", "c2"),
    result("c1", words(400)),
    result("c2", "two"),
    say("assistant", "found"),
]


@pytest.fixture
def server() -> Iterator[StrictModelServer]:
    """Serves one window for prompt and answer together."""
    with StrictModelServer(default=Reply(text="The answer."), context_window=WINDOW) as running:
        yield running


def _llm(server: StrictModelServer) -> OpenAILike:
    plain = OpenAILike(
        model="strict", api_base=server.base_url, api_key="none", is_chat_model=True, is_function_calling_model=True,
        context_window=WINDOW, max_tokens=REPLY, max_retries=0,
    )  # fmt: skip
    return budget_model(plain, counter="o200k_base")


def _accepted(server: StrictModelServer, at_least: int) -> None:
    assert len(server.requests) >= at_least
    assert [r.problems for r in server.requests if r.problems] == []
    assert all(r.status == 200 for r in server.requests)


@pytest.mark.parametrize("engine_class", [ContextChatEngine, CondensePlusContextChatEngine])
async def test_context_engines_are_accepted_turn_after_turn(
    server: StrictModelServer, engine_class: Any
) -> None:
    """Blocking, streaming and async turns over a long past with tool calls and more nodes than fit: no request is refused."""
    llm = _llm(server)
    session = BudgetSession(budget_for(llm), counter="o200k_base")
    engine = engine_class.from_defaults(
        retriever=FixedRetriever(nodes(20)),
        llm=llm,
        memory=BudgetChatMemoryBuffer.from_defaults(session=session, chat_history=PAST),
        system_prompt="Be brief.",
        node_postprocessors=[BudgetNodePostprocessor(session=session)],
    )
    assert str(engine.chat("one?")) == "The answer."
    assert "".join(engine.stream_chat("two?").response_gen) == "The answer."
    assert str(await engine.achat("three?")) == "The answer."
    streamed = await engine.astream_chat("four?")
    assert "".join([piece async for piece in streamed.async_response_gen()]) == "The answer."
    _accepted(server, 4)


def test_a_simple_engine_is_accepted(server: StrictModelServer) -> None:
    """A memory alone, limited by a budget, with a large system prompt in front."""
    llm = _llm(server)
    memory = BudgetChatMemoryBuffer.from_defaults(
        budget=budget_for(llm), counter="o200k_base", chat_history=PAST
    )
    engine = SimpleChatEngine.from_defaults(llm=llm, memory=memory, system_prompt=words(1500))
    for turn in range(3):
        engine.chat(f"question {turn}")
    _accepted(server, 3)


async def test_a_query_engine_is_accepted(server: StrictModelServer) -> None:
    """A query engine over 40 large nodes makes one request per question, blocking and async."""
    llm = _llm(server)
    engine = RetrieverQueryEngine.from_args(
        FixedRetriever(nodes(40)),
        llm=llm,
        node_postprocessors=[BudgetNodePostprocessor(llm=llm, counter="o200k_base")],
    )
    engine.query("What does item 105 weigh?")
    await engine.aquery("What does item 205 weigh?")
    _accepted(server, 2)
    assert len(server.requests) == 2


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_function_agent_is_accepted(server: StrictModelServer, streaming: bool) -> None:
    """Ten turns of parallel calls with large results: every request fits, pairs stay whole, tools are counted."""
    server.script(
        *(
            Reply(text="", tool_calls=[("search", {"q": f"{turn}.{i}"}) for i in range(1 + turn % 3)])
            for turn in range(10)
        )
    )
    tool = FunctionTool.from_defaults(
        lambda q: f"{q}: {words(1200)}", name="search", description="Searches the archive."
    )
    llm = _llm(server)
    agent = BudgetFunctionAgent(
        tools=[tool], llm=llm, system_prompt="Find it.", counter="o200k_base", streaming=streaming
    )
    memory = BudgetChatMemoryBuffer.from_defaults(llm=llm, chat_history=PAST)
    answer = await agent.run("What is in the archive?", memory=memory, max_iterations=50)
    assert str(answer) == "The answer."
    _accepted(server, 11)


def test_a_memory_of_blocks_is_accepted(server: StrictModelServer) -> None:
    """Ranked blocks, history and nodes in one prompt."""
    llm = _llm(server)
    memory = BudgetMemory.from_defaults(
        llm=llm,
        counter="o200k_base",
        chat_history=PAST,
        chat_store=ListStore(),
        memory_blocks=[ProjectMemoryBlock(text=words(900))],
    )
    engine = ContextChatEngine.from_defaults(
        retriever=FixedRetriever(nodes(20)),
        llm=llm,
        memory=memory,
        node_postprocessors=[BudgetNodePostprocessor(memory=memory)],
    )
    for turn in range(3):
        engine.chat(f"question {turn}")
    _accepted(server, 3)
