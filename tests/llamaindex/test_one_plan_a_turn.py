"""The parts of a turn do what its plan says, and the steps of a run are each planned as a whole."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core import Settings
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]  # not re-exported
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
