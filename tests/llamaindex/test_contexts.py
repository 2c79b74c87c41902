"""Memories in an agent's context: what the model is sent, turn after turn, over HTTP from a server that refuses what providers refuse."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.memory import FactExtractionMemoryBlock, Memory
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context, JsonPickleSerializer

from llamaindex_budget import (
    BudgetChatMemoryBuffer,
    BudgetFunctionAgent,
    BudgetMemory,
    HistorySummaryMemoryBlock,
    TaskMemoryBlock,
)
from rankbudget import BudgetSession, TokenBudget
from rankbudget.testing.server import Reply, StrictModelServer
from tests.llamaindex.models import ListStore, exchanges, strict_llm

pytestmark = [
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),  # the host's own
    pytest.mark.filterwarnings("ignore:is_running called from within a step:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Skipping serialization of known unserializable key"),
    pytest.mark.filterwarnings("ignore:.*summarizer.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:memory block .* is written without:UserWarning"),
]
Make = Callable[[Any], Any]


def _blocks(*blocks: Any, **options: Any) -> BudgetMemory:
    store = {} if "async_database_uri" in options else {"chat_store": ListStore()}
    return BudgetMemory.from_defaults(token_limit=2000, memory_blocks=list(blocks), **store, **options)


MEMORIES: dict[str, Make] = {
    "buffer": lambda _: BudgetChatMemoryBuffer.from_defaults(token_limit=2000),
    "lambda counter": lambda _: BudgetChatMemoryBuffer.from_defaults(
        token_limit=2000, counter=lambda text: len(text) // 4
    ),
    "summarizer": lambda llm: BudgetChatMemoryBuffer.from_defaults(token_limit=2000, summarizer=llm),
    "session": lambda _: BudgetChatMemoryBuffer.from_defaults(
        session=BudgetSession(TokenBudget(context_window=3000, reserve=500))
    ),
    "blocks": lambda _: _blocks(TaskMemoryBlock(text="Bake.")),
    "a block that reads": lambda _: _blocks(TaskMemoryBlock(read=lambda _: "Bake.")),
    "a block with a model": lambda llm: _blocks(FactExtractionMemoryBlock(name="facts", llm=llm)),
    "a block that summarizes": lambda llm: _blocks(HistorySummaryMemoryBlock(summarizer=llm)),
}
AGENTS: dict[str, Make] = {
    "ours": lambda llm: BudgetFunctionAgent(llm=llm, tools=[_noting()]),
    "stock": lambda llm: FunctionAgent(llm=llm, tools=[_noting()]),
    "react": lambda llm: ReActAgent(llm=llm, tools=[_noting()]),
    "workflow": lambda llm: AgentWorkflow(agents=[FunctionAgent(name="one", llm=llm, tools=[_noting()])]),
}


def _noting() -> FunctionTool:
    async def note(ctx: Any, q: str) -> str:
        """Notes."""
        async with ctx.store.edit_state() as state:
            state["state"] = {"noted": q}
        await ctx.store.set("state.twice", q)
        return "noted"

    note.__annotations__["ctx"] = Context  # the host reads no annotation that is a text
    return FunctionTool.from_defaults(note, name="note")


@pytest.fixture(scope="module")
def server() -> Iterator[StrictModelServer]:
    """Serves all tests of this file."""
    with StrictModelServer(
        default=Reply(text="Thought: I can answer.\nAnswer: fine"), context_window=4096
    ) as running:
        yield running


def _llm(server: StrictModelServer) -> Any:
    return strict_llm(server.base_url, context_window=4096, max_tokens=512)


def _asked(given: Any) -> list[str]:
    """Returns the questions in a request, of a server in its newest one."""
    request = given.requests[-1] if isinstance(given, StrictModelServer) else given
    assert request.problems == ()
    said = [str(m["content"]).split()[-1] for m in request.body["messages"] if m["role"] == "user"]
    return [word for word in said if word.startswith(("ann", "bob"))]


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("kind", MEMORIES)
async def test_a_context_goes_on_with_the_live_memory(
    server: StrictModelServer, kind: str, agent: str
) -> None:
    """Runs of one context, given the memory or not, read and write that very memory; a reset holds at once."""
    llm = _llm(server)
    runner, memory = AGENTS[agent](llm), MEMORIES[kind](llm)
    ctx = Context(runner)
    for number, shown in enumerate((memory, memory, None)):
        await runner.run(f"ann{number}", memory=shown, ctx=ctx)
        assert _asked(server) == [f"ann{i}" for i in range(number + 1)]
    assert len([m for m in await memory.aget_all() if m.role == "user"]) == 3
    assert await ctx.store.get("memory") is memory
    await memory.areset()
    await runner.run("ann9", memory=memory, ctx=ctx)
    assert _asked(server) == ["ann9"]


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("kind", MEMORIES)
async def test_a_run_uses_the_memory_that_it_is_given(
    server: StrictModelServer, kind: str, agent: str
) -> None:
    """Nothing of another person's memory in the same context is sent, whether it went on or was read from plain data."""
    llm = _llm(server)
    runner, ann, bob = AGENTS[agent](llm), MEMORIES[kind](llm), MEMORIES[kind](llm)
    ctx = Context(runner)
    await runner.run("ann0", memory=ann, ctx=ctx)
    written = json.loads(json.dumps(ctx.to_dict()))
    for context in (ctx, Context.from_dict(runner, written)):
        await bob.areset()
        await runner.run("bob0", memory=bob, ctx=context)
        assert _asked(server) == ["bob0"]
        stock = Memory.from_defaults(token_limit=2000, chat_store=ListStore())
        await runner.run("bob1", memory=stock, ctx=context)
        assert _asked(server) == ["bob1"]
    assert [m.content for m in await ann.aget_all() if m.role == "user"] == ["ann0"]
    again = Context.from_dict(runner, written)
    await runner.run("ann1", memory=ann, ctx=again)
    assert _asked(server) == ["ann0", "ann1"]


@pytest.mark.parametrize("agent", ["ours", "stock", "workflow"])
@pytest.mark.parametrize("kind", MEMORIES)
async def test_a_tool_that_edits_the_state_leaves_the_memory(
    server: StrictModelServer, kind: str, agent: str
) -> None:
    """`edit_state` copies the whole state of a context; call, result and answer reach the memory that was given."""
    llm = _llm(server)
    runner, memory = AGENTS[agent](llm), MEMORIES[kind](llm)
    server.script(Reply(text="", tool_calls=[("note", {"q": "x"})]))
    await runner.run("ann0", memory=memory, ctx=Context(runner))
    roles = [m.role.value for m in await memory.aget_all()]
    assert roles == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize("serializer", [None, JsonPickleSerializer()])
@pytest.mark.parametrize("kind", ["buffer", "blocks", "session", "summarizer"])
async def test_plain_data_of_a_context_holds_the_conversation(
    server: StrictModelServer, kind: str, serializer: Any
) -> None:
    """Two contexts read from the same data go on apart, each with what was written, without a memory given."""
    llm = _llm(server)
    runner = FunctionAgent(llm=llm)
    memory = BudgetMemory.from_defaults(token_limit=2000) if kind == "blocks" else MEMORIES[kind](llm)
    ctx = Context(runner)
    await runner.run("ann0", memory=memory, ctx=ctx)
    written = json.loads(json.dumps(ctx.to_dict(serializer=serializer)))
    for name in ("ann1", "ann2"):
        again = Context.from_dict(runner, written, serializer=serializer)
        for _ in range(2):
            await runner.run(name, ctx=again)
        assert _asked(server) == ["ann0", name, name]
        assert await again.store.get("memory") is not memory
    assert len(await memory.aget_all()) == 2


DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.sampled_from([0, 1, None])),
        st.tuples(st.just("reset"), st.sampled_from([0, 1])),
        st.tuples(st.just("edit"), st.none()),
        st.tuples(st.just("leave"), st.none()),
    ),
    max_size=8,
)


@given(deeds=DEEDS, kind=st.sampled_from(["buffer", "blocks"]), agent=st.sampled_from(sorted(AGENTS)))
def test_any_order_of_turns_sends_what_was_said_to_that_memory(
    server: StrictModelServer, deeds: list[Any], kind: str, agent: str
) -> None:
    """Two people's memories, one context: each request has the questions of the memory given, else of the one before."""

    async def play() -> None:
        llm = _llm(server)
        runner, memories = AGENTS[agent](llm), [MEMORIES[kind](llm), MEMORIES[kind](llm)]
        said: list[list[str]] = [[], []]
        ctx, left, current = Context(runner), None, None
        for number, (deed, which) in enumerate([("run", 0), *deeds]):
            if deed == "run":
                current = said[which] if which is not None else current
                current.append(f"ann{number}")
                given_one = None if which is None else memories[which]
                await runner.run(f"ann{number}", memory=given_one, ctx=ctx)
                assert _asked(server) == current
                left = None
            elif deed == "reset":
                await memories[which].areset()
                said[which].clear()
            elif deed == "edit":
                async with ctx.store.edit_state() as state:
                    state["other"] = number
            elif ctx is not left:  # older workflows write no context that has not run
                ctx = left = Context.from_dict(runner, json.loads(json.dumps(ctx.to_dict())))
                current = [*current]
        for memory, questions in zip(memories, said, strict=True):
            stored = [m.content for m in await memory.aget_all() if m.role == "user"]
            assert stored == questions

    asyncio.run(play())


async def test_two_people_ask_one_agent_at_the_same_time(server: StrictModelServer) -> None:
    """Each with an own memory and context: nobody reads what the other said."""
    llm = _llm(server)
    runner = BudgetFunctionAgent(llm=llm)
    memories = {name: BudgetChatMemoryBuffer.from_defaults(token_limit=2000) for name in ("ann", "bob")}
    contexts = {name: Context(runner) for name in memories}
    before = len(server.requests)

    async def talk(name: str) -> None:
        for number in range(4):
            await runner.run(f"{name}{number}", memory=memories[name], ctx=contexts[name])

    await asyncio.gather(*map(talk, memories))
    for request in server.requests[before:]:
        said = " ".join(str(m["content"]) for m in request.body["messages"])
        assert ("ann" in said) != ("bob" in said)
    assert all(len(memory.get_all()) == 8 for memory in memories.values())


THERE = """
import asyncio, json, sys
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.workflow import Context
from llamaindex_budget import BudgetChatMemoryBuffer
from tests.llamaindex.models import strict_llm

async def main():
    agent = FunctionAgent(llm=strict_llm(sys.argv[1], context_window=4096, max_tokens=512))
    for written in json.loads(sys.stdin.read()):
        given = BudgetChatMemoryBuffer.from_defaults(token_limit=2000)
        for memory in (given, None):
            ctx = Context.from_dict(agent, written)
            await agent.run("ann1", ctx=ctx, memory=memory)
            await agent.run("ann2", ctx=ctx, memory=memory)

asyncio.run(main())
"""


async def test_another_process_goes_on(server: StrictModelServer, tmp_path: Path) -> None:
    """What plain data hold goes on there, a database as the same conversation; a memory that is given there is used instead."""
    llm = _llm(server)
    agent = FunctionAgent(llm=llm)
    memories = [make(llm) for make in MEMORIES.values()]
    memories.append(_blocks(async_database_uri=f"sqlite+aiosqlite:///{tmp_path}/chat.db"))
    written = []
    for memory in memories:
        ctx = Context(agent)
        await agent.run("ann0", memory=memory, ctx=ctx)
        written.append(ctx.to_dict())
    before = len(server.requests)
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-W", "ignore", "-c", THERE, server.base_url],
        input=json.dumps(written),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    sent = [_asked(request) for request in server.requests[before:]]
    for kind, turns in zip([*MEMORIES, "database"], zip(*[iter(sent)] * 4, strict=True), strict=True):
        assert turns[:2] == (["ann1"], ["ann1", "ann2"])
        if kind in {"lambda counter", "a block with a model"}:  # no plain data: the host has to be given it
            assert "ann0" not in turns[2] + turns[3]
        else:
            assert turns[2:] == (["ann0", "ann1"], ["ann0", "ann1", "ann2"])
    stored = [m.content for m in await memories[-1].aget_all() if m.role == "user"]
    assert stored == ["ann0", "ann1", "ann2"]
    await memories[-1].sql_store._async_engine.dispose()


def test_a_memory_is_true_outside_of_a_run() -> None:
    """A memory is never false to anyone but a run with another one, even when it holds nothing."""
    memory = BudgetChatMemoryBuffer.from_defaults(token_limit=2000, chat_history=exchanges(0))
    assert bool(memory)
    assert memory.get_all() == []
