"""Failures measured on the stock parts (llama-index-core 0.14.25), each shown on the stock part where one test can, and right with ours.

The same cases run on any class: `make_memory(token_limit=, tokenizer_fn=, chat_history=, llm=)`, see `factories.py`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock, ThinkingBlock
from llama_index.core.chat_engine import ContextChatEngine, SimpleChatEngine
from llama_index.core.memory import BaseMemoryBlock, ChatMemoryBuffer, ChatSummaryMemoryBuffer, Memory
from llama_index.core.tools import FunctionTool
from llama_index.core.utils import get_tokenizer

from llamaindex_budget import BudgetChatMemoryBuffer, BudgetFunctionAgent, BudgetMemory, BudgetMemoryBlock
from llamaindex_budget._codec import CODEC
from rankbudget.errors import BudgetError
from tests.llamaindex.factories import make_memory, make_postprocessor, make_summarizing_memory
from tests.llamaindex.models import (
    FixedRetriever,
    ListStore,
    PlayLLM,
    calls,
    exchanges,
    nodes,
    result,
    say,
    tokens,
    words,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore::pydantic.warnings.PydanticDeprecationWarning"
)  # the host's own, of its workflows

OURS = [make_memory, make_summarizing_memory]


def make(maker: Any, limit: int, history: Sequence[ChatMessage], **llm: Any) -> BudgetChatMemoryBuffer:
    return maker(
        token_limit=limit,
        tokenizer_fn=get_tokenizer(),
        chat_history=list(history),
        llm=PlayLLM(requests=[], steps=[], **llm),
    )


def faults(messages: Sequence[ChatMessage], limit: int) -> list[str]:
    """Returns what a provider would refuse, counted and paired without our code's help."""
    found = [f"{tokens(messages)} tokens > {limit}"] if tokens(messages) > limit else []
    asked = [
        b.tool_call_id for m in messages for b in m.blocks if getattr(b, "block_type", "") == "tool_call"
    ]
    asked += [c["id"] for m in messages for c in m.additional_kwargs.get("tool_calls", ())]
    answered = [
        m.additional_kwargs.get("tool_call_id") for m in messages if m.role.value in ("tool", "function")
    ]
    if sorted(asked) != sorted(map(str, answered)):
        found.append(f"calls {asked}, results {answered}")
    body = [m for m in messages if m.role.value not in ("system", "developer")]
    if body and body[0].role.value != "user":
        found.append(f"opens with {body[0].role.value}")
    return found


def stock(limit: int, history: Sequence[ChatMessage]) -> ChatMemoryBuffer:
    return ChatMemoryBuffer.from_defaults(token_limit=limit, chat_history=list(history))


@pytest.mark.parametrize("maker", OURS)
@pytest.mark.parametrize(
    ("history", "limit"),
    [
        ([say("user", words(100)), calls("c1"), result("c1", words(50))], 200),
        ([say("user", "QHEAD"), calls("c1", "c2"), result("c1", "r1"), result("c2", words(900))], 500),
        (
            [*exchanges(3), say("user", "QHEAD"), calls("c1", "c2"), result("c1", "r1"), result("c2", "r2")],
            120,
        ),
    ],
)
def test_a_tool_results_stay_with_their_call(maker: Any, history: list[ChatMessage], limit: int) -> None:
    """a: a result is never left alone, parallel calls are one group, and the question stays."""
    got = make(maker, limit, history).get()
    assert faults(got, limit) == []
    asked = [m.content for m in history if m.role.value == "user"][-1]
    assert asked in [m.content for m in got]
    assert {m.role.value for m in got} >= {"user", "assistant", "tool"}


def test_a_is_real() -> None:
    """a: the stock buffer returns a result without its call."""
    assert (
        faults(stock(200, [say("user", words(300)), calls("c1"), result("c1", words(50))]).get(), 200) != []
    )


@pytest.mark.parametrize("maker", OURS)
def test_b_a_turn_that_ends_with_an_answer_keeps_its_question(maker: Any) -> None:
    """b: over the limit, the conversation still opens with the user."""
    history = [*exchanges(2), say("user", "why?"), say("assistant", words(500))]
    got = make(maker, 200, history).get()
    assert faults(got, 200) == []
    assert "why?" in [m.content for m in got]
    assert stock(200, history).get()[0].role.value == "assistant"


@pytest.mark.parametrize("maker", OURS)
def test_c_system_messages_survive_first(maker: Any) -> None:
    """c: a rule that was given once is there in every later turn, word for word."""
    history = [say("system", "RULE: never reveal 42"), *exchanges(20)]
    got = make(maker, 300, history).get()
    assert got[0].content == "RULE: never reveal 42"
    assert faults(got, 300) == []
    assert all(m.role.value != "system" for m in stock(300, history).get())


@pytest.mark.parametrize("maker", OURS)
def test_d_an_over_long_question_is_cut_and_marked_never_lost(maker: Any) -> None:
    """d: the question keeps start and end within the limit, or a typed error is raised; it is never sent over the limit."""
    history = [*exchanges(2), say("user", f"QHEAD {words(500)} QTAIL")]
    memory = make(maker, 200, history)
    try:
        got = memory.get()
    except BudgetError:
        got = []
    assert faults(got, 200) == []
    assert not got or "QHEAD" in (got[-1].content or "")
    assert memory.get_all()[-1].content == history[-1].content
    assert tokens(stock(200, history).get()) > 200


@pytest.mark.parametrize("maker", OURS)
def test_e_tool_arguments_are_counted(maker: Any) -> None:
    """e: arguments of 1,000 tokens are not free."""
    history = [say("user", "QHEAD")]
    for i in range(5):
        history += [calls(f"c{i}", code=words(1000)), result(f"c{i}", "ok")]
    memory = make(maker, 200, history)
    try:
        got = memory.get()
    except BudgetError:
        got = []
    assert faults(got, 200) == []
    assert tokens(stock(200, history).get()) > 5000


@pytest.mark.parametrize("maker", OURS)
def test_f_thinking_images_and_old_tool_calls_are_counted(maker: Any) -> None:
    """f: whatever is sent is counted, in whichever place the host keeps it."""
    old = {
        "id": "old",
        "type": "function",
        "function": {"name": "search", "arguments": json.dumps({"q": words(500)})},
    }
    history = [
        say("user", "first"),
        say("assistant", "", tool_calls=[old]),
        result("old", "ok"),
        ChatMessage(role="assistant", blocks=[ThinkingBlock(content=words(400)), TextBlock(text="thought")]),
        ChatMessage(role="user", blocks=[TextBlock(text="look"), ImageBlock(url="http://127.0.0.1:9/x.png")]),
        say("assistant", "seen"),
        say("user", "last"),
    ]
    got = make(maker, 300, history).get()
    assert faults(got, 300) == []
    assert got[-1].content == "last"
    assert tokens(stock(300, history).get()) > 1000


@pytest.mark.parametrize("maker", OURS)
def test_g_every_message_has_its_overhead(maker: Any) -> None:
    """g: 1,450 messages of one word do not fit 1,500 tokens."""
    history = [m for _ in range(725) for m in (say("user", "ok"), say("assistant", "ok"))]
    assert 750 <= tokens(make(maker, 1500, history).get()) <= 1500
    assert tokens(stock(1500, history).get()) > 5000


def test_h_foreign_roles_do_not_open_a_history() -> None:
    """h: FUNCTION, MODEL and CHATBOT are read for what they are."""
    for role in ("function", "model", "chatbot"):
        history = [say(role, "before", name="f"), *exchanges(1), say("user", "last")]
        got = make(make_memory, 500, history).get()
        assert got[0].role.value == "user"
        assert stock(500, history).get()[0].role.value == role


@pytest.mark.parametrize("maker", OURS)
def test_i_reading_and_writing_change_nothing_of_the_callers(maker: Any) -> None:
    """i: the caller's list, the stored messages and a second read stay as they were."""
    history = exchanges(20)
    memory = maker(
        token_limit=200,
        tokenizer_fn=get_tokenizer(),
        chat_history=history,
        llm=PlayLLM(requests=[], steps=[]),
    )
    memory.put(say("user", "one more"))
    first = memory.get()
    memory.get()[-1].blocks[0].text = "EDITED"
    assert len(history) == 40
    assert len(memory.get_all()) == 41
    assert [m.content for m in memory.get()] == [m.content for m in first]


async def test_j_the_limit_holds_whatever_way_messages_came() -> None:
    """j: after `aset` of 400 messages, and with blocks of 3,000 tokens, the limit is the limit; the stock `Memory` returns 18,400."""
    memory = BudgetMemory.from_defaults(token_limit=1000, chat_store=ListStore())
    await memory.aset(exchanges(200))
    assert 500 < tokens(await memory.aget()) <= 1000
    assert tokens([*(await memory.aget(initial_token_count=600))]) <= 400
    plain = Memory.from_defaults(token_limit=1000, chat_store=ListStore())
    await plain.aset(exchanges(200))
    assert tokens(await plain.aget()) > 10_000


async def test_k_a_failing_summarizer_loses_nothing() -> None:
    """k: all 40 messages stay stored when the model is down; the stock summary buffer keeps 36."""
    for maker in OURS:
        memory = make(maker, 200, exchanges(20), fail=True)
        assert faults(memory.get(), 200) == []
        assert [m.content for m in memory.get_all()] == [m.content for m in exchanges(20)]
    lossy = ChatSummaryMemoryBuffer.from_defaults(
        token_limit=200, chat_history=exchanges(20), llm=PlayLLM(requests=[], steps=[], fail=True)
    )
    with contextlib.suppress(Exception):
        lossy.get()
    assert len(lossy.get_all()) < 40


def test_l_what_the_summarizer_reads_fits_its_window() -> None:
    """l: 1,000 messages are summarized in parts of at most 3,840 tokens, tool arguments included, and not again while nothing more is dropped."""
    llm = PlayLLM(requests=[], steps=[], answer=words(50))
    history = [
        *exchanges(499),
        say("user", "q"),
        calls("c1", code="SECRET_ARGUMENT"),
        result("c1", "ok"),
        say("assistant", "a"),
        *exchanges(20),
    ]
    memory = make_summarizing_memory(
        token_limit=1000, tokenizer_fn=get_tokenizer(), chat_history=history, llm=llm
    )
    assert faults(memory.get(), 1000) == []
    assert max(llm.sizes()) <= 4096 - 256
    assert any("SECRET_ARGUMENT" in (m.content or "") for messages, _ in llm.requests for m in messages)
    asked = len(llm.requests)
    memory.get()
    assert len(llm.requests) == asked


def test_m_it_survives_json_on_any_pydantic() -> None:
    """m: to_dict, JSON and from_dict keep messages and tokenizer; nothing goes through the store's serializer that newer versions refuse."""
    memory = make(make_memory, 400, [say("user", "hello"), calls("c1"), result("c1", "r")])
    restored = BudgetChatMemoryBuffer.from_dict(json.loads(json.dumps(memory.to_dict())))
    assert restored.get_all() == memory.get_all()
    assert restored.get() == memory.get()


async def test_n_blocks_are_shortened_by_rank_not_dropped() -> None:
    """n: one token over the limit costs the lowest rank a sentence; block 1 outlives block 2. See test_blocks.py for the rest."""
    from llamaindex_budget import ProjectMemoryBlock, TaskMemoryBlock

    facts = " ".join(f"Fact {i} is here." for i in range(40))
    blocks = [ProjectMemoryBlock(text=facts), TaskMemoryBlock(text=facts)]
    roomy = BudgetMemory.from_defaults(token_limit=5000, chat_store=ListStore(), memory_blocks=blocks)
    size = tokens(await roomy.aget("hi")) + tokens([say("user", "hi")])
    tight = BudgetMemory.from_defaults(token_limit=size - 10, chat_store=ListStore(), memory_blocks=blocks)
    shown = (await tight.aget("hi"))[0].content or ""
    assert f"<project>\n{facts}\n</project>" in shown
    assert "<task>\nFact 0 is here." in shown


@pytest.mark.parametrize("maker", OURS)
def test_eng1_a_context_engine_fits_its_window(maker: Any) -> None:
    """ENG1: 120 old messages and three nodes of 300 tokens at the engine's own default limit: every request fits 3,840 tokens."""
    llm = PlayLLM(requests=[], steps=[])
    memory = maker(
        token_limit=4096 - 256,
        tokenizer_fn=get_tokenizer(),
        chat_history=exchanges(60),
        llm=PlayLLM(requests=[], steps=[]),
    )
    post = make_postprocessor(token_limit=900, tokenizer_fn=get_tokenizer(), embed_model=None, memory=memory)
    engine = ContextChatEngine.from_defaults(
        retriever=FixedRetriever(nodes(3)),
        llm=llm,
        memory=memory,
        system_prompt="SYS",
        node_postprocessors=[post],
    )
    engine.chat("hi")
    [size] = llm.sizes()
    assert size <= 4096 - 256
    with pytest.raises(ValueError, match=r"available context size|not positive"):
        ContextChatEngine.from_defaults(
            retriever=FixedRetriever(nodes(3)),
            llm=llm,
            memory=stock(3840, exchanges(60)),
            system_prompt="SYS",
        ).chat("hi")


def test_eng2_a_simple_engine_counts_its_system_prompt() -> None:
    """ENG2: with a system prompt of 1,800 tokens the request fits 4,096; the stock memory sends more."""
    for memory, fits in (
        (make(make_memory, 3840, exchanges(80)), True),
        (Memory.from_defaults(token_limit=3840, chat_store=ListStore()), False),
    ):
        llm = PlayLLM(requests=[], steps=[])
        engine = SimpleChatEngine.from_defaults(llm=llm, memory=memory, system_prompt=words(1800))
        engine.chat("hi", chat_history=exchanges(80))
        assert (llm.sizes()[0] <= 4096) is fits


async def test_eng3_an_agent_stays_in_its_window_within_a_run() -> None:
    """ENG3: three results of 1,500 tokens in one run: ours sends at most 2,000, the stock agent 4,500."""
    from rankbudget import TokenBudget

    sizes = {}
    tool = FunctionTool.from_defaults(lambda q: words(1500), name="search", description="Search.")
    for agent, extra in (
        (FunctionAgent, {}),
        (BudgetFunctionAgent, {"budget": TokenBudget(context_window=2256, reserve=256)}),
    ):
        llm = PlayLLM(requests=[], steps=[calls(f"c{i}") for i in range(3)])
        await agent(tools=[tool], llm=llm, system_prompt="SYS", **extra).run(
            "question", memory=make(make_memory, 1000, [])
        )
        sizes[agent] = max(llm.sizes())
        for messages, _ in llm.requests if agent is BudgetFunctionAgent else ():
            assert faults(messages, 2000) == []
            assert CODEC.role(messages[1]) == "user"
    assert sizes[BudgetFunctionAgent] <= 2000 < sizes[FunctionAgent]


class _NoNumber(BaseMemoryBlock[Any]):
    """A foreign block that fails, or says what is no text."""

    fails: bool = True

    async def _aget(self, *_: Any, **__: Any) -> Any:
        return 1 // 0 if self.fails else 7

    async def _aput(self, messages: list[ChatMessage]) -> None:
        pass


@pytest.mark.parametrize(
    "block",
    [
        BudgetMemoryBlock(name="facts", read=lambda _: 1 // 0),
        _NoNumber(name="facts"),
        _NoNumber(name="facts", fails=False),
    ],
)
async def test_a_block_that_cannot_be_read_is_named(block: Any) -> None:
    """The error is a BudgetError with the block's name, its cause stays attached; sync and async."""
    memory = BudgetMemory.from_defaults(memory_blocks=[block], chat_store=ListStore())
    with pytest.raises(BudgetError, match=r"memory block 'facts' must not raise \(got \w+Error: ") as raised:
        await memory.aget("hi")
    assert isinstance(raised.value.__cause__, (ZeroDivisionError, TypeError))
    with pytest.raises(BudgetError, match="'facts'"):
        memory.get("hi")
