"""The parts of a turn do what its plan says, and the steps of a run are each planned as a whole."""

from __future__ import annotations

import random
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core import Settings
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine, SimpleChatEngine
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]  # not re-exported
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.tools import FunctionTool

from llamaindex_budget import (
    BudgetChatMemoryBuffer,
    BudgetFunctionAgent,
    BudgetMemory,
    BudgetMemoryBlock,
    BudgetNodePostprocessor,
    BudgetPromptHelper,
    budget_model,
    use_session,
)
from rankbudget import BudgetReport, BudgetSession, TokenBudget
from tests.drawing import draws
from tests.llamaindex.models import CL100K, FixedRetriever, Heard, ListStore, PlayLLM, calls, say, tokens

QUESTION = "Who packs the order for the harbour?"
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")


def _text(drawn: random.Random, lines: int) -> str:
    crews = ["Ann", "Bob", "Dora", "Emil"]
    return " ".join(
        f"Order {drawn.randint(1, 10**6)} is packed by {drawn.choice(crews)}." for _ in range(lines)
    )


def _kept(report: BudgetReport, block: str) -> set[str]:
    return {d.segment_id for d in report.decisions if d.block == block and d.action != "trimmed"}


async def _reports(drawn: random.Random, limit: int, whose: str, kind: Any) -> list[Any]:
    """Returns what one turn of a chat engine reports: the plan with the nodes first, then the memory's."""
    session = BudgetSession(TokenBudget(context_window=limit + 100, reserve=100, safety=0), counter=CL100K)
    llm = budget_model(PlayLLM(window=100_000, reply=100), max_tokens=limit, counter=CL100K)
    own: dict[str, Any] = {"llm": llm} if whose == "llm" else {"session": session}
    facts = [_text(drawn, 1) for _ in range(drawn.choice([3, 10, 30]))]
    chat = [
        say(role, _text(drawn, drawn.choice([1, 2, 8])))
        for _ in range(drawn.randint(1, 20))
        for role in ("user", "assistant")
    ]
    if kind is BudgetMemory:
        block = BudgetMemoryBlock(name="facts", read=lambda _: facts, rank=drawn.choice([2, 4]))
        own.update(memory_blocks=[block], chat_store=ListStore())
    memory = kind.from_defaults(chat_history=chat, **own)
    texts = [_text(drawn, drawn.choice([2, 6, 16])) for _ in range(drawn.choice([2, 8, 20]))]
    found = [NodeWithScore(node=TextNode(text=t, id_=f"n{i}"), score=1 - i / 50) for i, t in enumerate(texts)]
    heard, patch = Heard(), pytest.MonkeyPatch()
    get_dispatcher().add_event_handler(heard)
    one_call = BudgetPromptHelper(context_window=limit + 100, num_output=100)
    patch.setattr(Settings, "_prompt_helper", one_call)
    try:
        engine = ContextChatEngine.from_defaults(
            retriever=FixedRetriever(found),
            llm=llm,
            memory=memory,
            node_postprocessors=[BudgetNodePostprocessor(memory=memory)],
        )
        await engine.achat(QUESTION)
    finally:
        patch.undo()
        get_dispatcher().event_handlers.remove(heard)
    assert max(llm.sizes()) <= limit
    return heard.reports


@draws(asynchronous=True, cases=2)
@given(
    seed=st.integers(0, 10**6),
    limit=st.sampled_from([600, 1000, 1600, 2400]),
    whose=st.sampled_from(["llm", "session"]),
    kind=st.sampled_from([BudgetMemory, BudgetMemory, BudgetChatMemoryBuffer]),
)
async def test_a_memory_sends_what_the_plan_of_the_turn_says(
    seed: int, limit: int, whose: str, kind: Any
) -> None:
    """All that the postprocessor's plan keeps of history and memory blocks, the memory keeps, under the same limit."""
    plan, sent, *_ = await _reports(random.Random(seed), limit, whose, kind)
    assert plan.limit == sent.limit
    assert _kept(plan, "history") == _kept(sent, "history")
    assert _kept(plan, "facts") <= _kept(sent, "facts")  # what nodes leave free may show one more


def _missing(nodes: list[NodeWithScore], requests: list[Any]) -> list[str]:
    """Returns the positions of nodes of which a word is in no request; the stock helper splits nodes at spaces."""
    sent = {w for messages, _ in requests for message in messages for w in str(message.content).split()}
    return [str(i) for i, node in enumerate(nodes) if not sent.issuperset(node.node.get_content().split())]


async def _turn(drawn: random.Random, limit: int, engine: Any, facts: int, method: str) -> None:
    """Makes a turn of an engine and checks what it sends."""
    reports: list[BudgetReport] = []
    played = PlayLLM(window=100_000, reply=100, answer=QUESTION)
    llm: Any = budget_model(played, max_tokens=limit, counter=CL100K, on_report=reports.append)
    turns = [(role, drawn.choice([1, 2, 8])) for role in ["user", "assistant"] * drawn.randint(0, 12)]
    rank = drawn.choice([1, 2, 4])
    memory = BudgetMemory.from_defaults(
        llm=llm,
        chat_history=[say(role, _text(drawn, lines)) for role, lines in turns],
        chat_store=ListStore(),
        memory_blocks=[
            BudgetMemoryBlock(name="facts", text=_text(drawn, n), rank=rank) for n in [facts] if n
        ],
        insert_method=method,
    )
    texts = [_text(drawn, drawn.choice([2, 6, 16])) for _ in range(drawn.randint(0, 9))]
    texts.insert(0, "Dora packs the order for the harbour.")
    found = [NodeWithScore(node=TextNode(text=t), score=1 - i / 50) for i, t in enumerate(texts)]
    given: dict[str, Any] = {"llm": llm, "memory": memory, "system_prompt": "Be brief."}
    if engine is not SimpleChatEngine:
        given["node_postprocessors"] = [BudgetNodePostprocessor(memory=memory)]
        given["retriever"] = FixedRetriever(found)
    answer = await engine.from_defaults(**given).achat(QUESTION)
    assert max(llm.sizes()) <= limit
    missing = _missing(answer.source_nodes, played.requests)
    cut = {d.segment_id for report in reports for d in report.decisions if d.action != "kept"}
    assert "0" not in missing
    assert all(cut & {place, f"context_str[{place}]"} for place in missing)


@draws(asynchronous=True, cases=2)
@given(
    seed=st.integers(0, 10**6),
    limit=st.sampled_from([600, 800, 1000, 1600]),
    engine=st.sampled_from([CondensePlusContextChatEngine, ContextChatEngine, SimpleChatEngine]),
    facts=st.sampled_from([0, 8, 30, 60]),
    method=st.sampled_from(["system", "user"]),
    helper=st.booleans(),
)
async def test_each_node_that_a_turn_plans_is_sent(
    seed: int, limit: int, engine: Any, facts: int, method: str, helper: bool
) -> None:
    """The best node that the plan of a turn keeps is sent by each engine; of others, a report says what was cut."""
    patch = pytest.MonkeyPatch()
    if not helper:  # the stock one raises where few tokens are left
        limit *= 3
    one_call = BudgetPromptHelper(context_window=limit + 100, num_output=100) if helper else None
    patch.setattr(Settings, "_prompt_helper", one_call)
    try:
        await _turn(random.Random(seed), limit, engine, facts, method)
    finally:
        patch.undo()


async def _steps(agent: Any, seed: int, limit: int) -> list[set[str]]:
    """Returns which texts of a memory block each request of a run has."""
    drawn = random.Random(seed)
    facts = [_text(drawn, 1) for _ in range(drawn.randint(1, 8))]
    chat = [
        say(role, _text(drawn, drawn.choice([1, 4])))
        for _ in range(drawn.randint(0, 20))
        for role in ("user", "assistant")
    ]
    results = [_text(drawn, 16) for _ in range(drawn.randint(1, 2))]
    played = PlayLLM(window=100_000, steps=[calls(f"c{i}") for i in range(len(results))])
    llm: Any = budget_model(played, max_tokens=limit, counter=CL100K)
    memory = BudgetMemory.from_defaults(
        llm=llm,
        memory_blocks=[BudgetMemoryBlock(name="facts", text=" ".join(facts), rank=drawn.choice([1, 2, 4]))],
        chat_history=chat,
        chat_store=ListStore(),
    )
    answers = iter(results)
    tool = FunctionTool.from_defaults(lambda q: next(answers), name="search", description="Searches.")
    made = agent(llm=llm, tools=[tool], system_prompt="Be kind.", streaming=False)
    await made.run(user_msg=QUESTION, memory=memory)
    assert max(tokens(*request) for request in played.requests) <= limit
    shown = ["\n".join(str(m.content) for m in messages) for messages, _ in played.requests]
    return [{text for text in facts if text in one} for one in shown]


@draws(asynchronous=True, cases=2)
@given(seed=st.integers(0, 10**6), limit=st.sampled_from([700, 900, 1100, 1400]))
async def test_each_step_of_a_run_keeps_its_memory_blocks(seed: int, limit: int) -> None:
    """Of memory blocks a `BudgetFunctionAgent` keeps in each step what a `FunctionAgent` over the same model keeps."""
    assert await _steps(BudgetFunctionAgent, seed, limit) == await _steps(FunctionAgent, seed, limit)


@pytest.mark.parametrize("helper", [False, True])
@pytest.mark.parametrize("whose", ["user", "session", "budget", "memory"])
@draws(cases=8)
@given(limit=st.integers(300, 2500), size=st.integers(5, 60))
def test_a_smaller_limit_holds_the_engines_template_too(
    helper: bool, whose: str, limit: int, size: int
) -> None:
    """A limit below the LLM's is that of the whole prompt; the report of the nodes says that it is only of them."""
    llm = budget_model(PlayLLM(requests=[], window=4000, reply=100), counter=CL100K)
    session, seen = BudgetSession(limit, counter=CL100K), Heard()
    given: dict[str, Any] = {
        "user": {},
        "session": {"session": session},
        "budget": {"budget": TokenBudget(context_window=limit + 50, reserve=50), "counter": CL100K},
        "memory": {"memory": BudgetChatMemoryBuffer.from_defaults(llm=llm, session=session)},
    }[whose]
    found = [NodeWithScore(node=TextNode(text=f"Room {i} has {i} windows. " * size)) for i in range(90)]
    one_call = BudgetPromptHelper.from_llm_metadata(llm.metadata) if helper else None
    with pytest.MonkeyPatch.context() as patch, use_session(session) if whose == "user" else nullcontext():
        patch.setattr(Settings, "_prompt_helper", one_call)
        patch.setattr(get_dispatcher(), "event_handlers", [seen])
        engine = RetrieverQueryEngine.from_args(
            FixedRetriever(found), llm=llm, node_postprocessors=[BudgetNodePostprocessor(llm=llm, **given)]
        )
        assert engine.query("How many windows has room 7?").source_nodes[0].text
    assert limit // 3 < max(llm.sizes()) <= limit
    report = seen.reports[0]
    assert (report.covers, report.total_tokens < llm.sizes()[0]) == ("blocks", True)
