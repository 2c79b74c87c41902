"""The function agent: every request of a run fits and is valid, where a memory is not asked any more."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.bridge.pydantic import BaseModel, Field
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers.base import BaseEventHandler
from llama_index.core.memory import Memory
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context

from llamaindex_budget import BudgetChatMemoryBuffer, BudgetFunctionAgent, BudgetMemory, budget_model
from llamaindex_budget._codec import CODEC
from llamaindex_budget._events import BudgetEvent
from rankbudget import BudgetExceededError, BudgetReport, TokenBudget, counter_for
from rankbudget.testing import check_laws
from tests.llamaindex.models import PlayLLM, calls, exchanges, say, tokens, words

pytestmark = pytest.mark.filterwarnings(
    "ignore::pydantic.warnings.PydanticDeprecationWarning"
)  # the host's own, of its workflows

WINDOW, REPLY = 8192, 256
COUNTER = counter_for("cl100k_base")


def _llm(steps: list[ChatMessage], **fields: Any) -> PlayLLM:
    return PlayLLM(**{"requests": [], "steps": steps, "window": WINDOW, "reply": REPLY, **fields})


def _tool(size: int = 3000) -> FunctionTool:
    def search(q: str) -> str:
        return f"{q}: {words(size, 'fact')}"

    return FunctionTool.from_defaults(search, name="search", description="Searches the archive.")


def _turns(n: int) -> list[ChatMessage]:
    return [calls(*(f"t{turn}c{i}" for i in range(2 + turn % 2)), q=f"item {turn}") for turn in range(n)]


def _check(llm: PlayLLM, limit: int) -> None:
    for messages, schemas in llm.requests:
        assert schemas
        check_laws(
            messages, messages, limit=limit, counter=COUNTER, codec=CODEC, tools=schemas, identity=False
        )


@pytest.mark.parametrize(("turns", "streaming"), [(40, True), (8, False)])
async def test_forty_turns_of_parallel_calls_fit_a_small_window(turns: int, streaming: bool) -> None:
    """Two or three parallel calls of 3,000 tokens in each of 40 turns: every request fits 8,192 and is a valid conversation."""
    llm = _llm(_turns(turns))
    agent = BudgetFunctionAgent(tools=[_tool()], llm=llm, system_prompt="Find it.", streaming=streaming)
    memory = BudgetChatMemoryBuffer.from_defaults(llm=llm)
    answer = await agent.run("What is in the archive?", memory=memory, max_iterations=100)
    assert str(answer) == "done"
    assert len(llm.requests) == turns + 1
    _check(llm, WINDOW - REPLY)
    assert all(any(m.content == "What is in the archive?" for m in messages) for messages, _ in llm.requests)
    stored = memory.get_all()
    assert len(stored) == 1 + turns + sum(2 + turn % 2 for turn in range(turns)) + 1
    assert stored[2].content is not None
    assert len(stored[2].content) > 14_000  # the memory has the whole result


async def test_the_stock_agent_overflows_where_ours_does_not() -> None:
    """The same run through a stock agent sends far more than its window: this is what the subclass is for."""
    sizes = {}
    for kind in (FunctionAgent, BudgetFunctionAgent):
        llm = _llm(_turns(6))
        await kind(tools=[_tool()], llm=llm).run(
            "question", memory=BudgetChatMemoryBuffer.from_defaults(llm=llm)
        )
        sizes[kind] = max(llm.sizes())
    assert sizes[FunctionAgent] > 2 * WINDOW
    assert sizes[BudgetFunctionAgent] <= WINDOW - REPLY


async def test_history_and_scratchpad_share_the_window() -> None:
    """A long past leaves when the steps of the run need its room; the question and the newest step stay."""
    llm = _llm(_turns(3))
    memory = BudgetChatMemoryBuffer.from_defaults(token_limit=7000, chat_history=exchanges(80))
    await BudgetFunctionAgent(tools=[_tool(1500)], llm=llm).run("question", memory=memory)
    _check(llm, WINDOW - REPLY)
    kept = [
        sum(m.content is not None and m.content.startswith("u") for m in messages)
        for messages, _ in llm.requests
    ]
    assert kept[0] > kept[-1]
    assert [m for m in llm.requests[-1][0] if CODEC.role(m) == "tool"]


async def test_a_budget_is_the_limit_when_there_is_one() -> None:
    """`budget=` sets window, reserve and message cap of every request."""
    llm = _llm(_turns(4))
    budget = TokenBudget(context_window=3000, reserve=500, max_system_ratio=None)
    await BudgetFunctionAgent(tools=[_tool(900)], llm=llm, budget=budget).run("question")
    _check(llm, budget.limit())


async def test_what_cannot_fit_is_a_typed_error_before_anything_is_sent() -> None:
    """A system prompt larger than the window is refused with the numbers, and no request is made."""
    llm = _llm([])
    with pytest.raises(BudgetExceededError, match=r"the limit is 5,735"):
        await BudgetFunctionAgent(tools=[_tool()], llm=llm).fit(
            [say("system", words(9000)), say("user", "hi")], []
        )
    assert llm.requests == []


async def test_a_question_that_cannot_stay_whole_is_cut_and_says_so() -> None:
    """A question larger than the window raises; with `shorten_question` a marked copy keeps its start."""
    question = say("user", words(9000))
    with pytest.raises(BudgetExceededError, match="shorten_question=True"):
        await BudgetFunctionAgent(tools=[_tool()], llm=_llm([])).fit([question])
    budget = TokenBudget(context_window=WINDOW, reserve=REPLY, shorten_question=True)
    [cut] = await BudgetFunctionAgent(tools=[_tool()], llm=_llm([]), budget=budget).fit([question])
    assert tokens([cut]) <= WINDOW - REPLY
    assert cut.additional_kwargs == {"rankbudget": "edited"}
    assert question.content == words(9000)


async def test_summaries_come_from_any_model() -> None:
    """With a summarizer the steps that no longer fit are summarized, and the request still fits."""
    llm, writer = _llm(_turns(6)), _llm([], answer="found facts so far")
    await BudgetFunctionAgent(tools=[_tool()], llm=llm, summarizer=writer).run("question")
    _check(llm, WINDOW - REPLY)
    assert writer.requests
    assert max(writer.sizes()) <= WINDOW


async def test_early_stopping_answers_fit_too() -> None:
    """The final answer after too many turns is asked for with a request that fits."""
    llm = _llm(_turns(20))
    agent = BudgetFunctionAgent(tools=[_tool()], llm=llm, early_stopping_method="generate", streaming=False)
    await agent.run(
        "question",
        max_iterations=5,
        memory=BudgetChatMemoryBuffer.from_defaults(token_limit=20_000, chat_history=exchanges(150)),
    )
    assert max(llm.sizes()) <= WINDOW - REPLY


async def test_an_agent_workflow_takes_it() -> None:
    """Inside an `AgentWorkflow` it works as a stock agent does."""
    llm = _llm(_turns(3))
    agent = BudgetFunctionAgent(name="finder", description="Finds.", tools=[_tool()], llm=llm)
    await AgentWorkflow(agents=[agent], root_agent="finder").run(
        "question", memory=BudgetChatMemoryBuffer.from_defaults(llm=llm)
    )
    _check(llm, WINDOW - REPLY)


class _Listener(BaseEventHandler):
    seen: list[Any] = Field(default_factory=list)

    def handle(self, event: Any, **_: Any) -> None:
        if isinstance(event, BudgetEvent):
            self.seen.append(event)


async def test_every_request_is_reported() -> None:
    """An event with the report of each fit goes to the host's handlers, as plain data."""
    listener = _Listener()
    get_dispatcher().add_event_handler(listener)
    try:
        await BudgetFunctionAgent(tools=[_tool()], llm=_llm(_turns(4))).run("question")
    finally:
        get_dispatcher().event_handlers.remove(listener)
    assert len(listener.seen) == 5
    assert all(event.report.total_tokens <= WINDOW - REPLY for event in listener.seen)
    assert (
        json.loads(listener.seen[-1].model_dump_json(include={"report"}))["report"]["total_tokens"]
        == listener.seen[-1].report.total_tokens
    )


class _Answer(BaseModel):
    """What was found."""

    facts: list[str] = Field(default_factory=list)


@pytest.mark.parametrize("in_workflow", [False, True])
async def test_structured_output_is_asked_for_with_a_request_that_fits(in_workflow: bool) -> None:
    """The request for an `output_cls` holds the newest of the conversation, and fits beside the class's schema."""
    wanted = [ToolCallBlock(tool_call_id="s", tool_name="_Answer", tool_kwargs={"facts": ["tea"]})]
    llm = _llm(
        [say("assistant", "the last answer"), ChatMessage(role="assistant", blocks=wanted)], window=1000
    )
    reports = list[BudgetReport]()
    agent = BudgetFunctionAgent(
        name="finder",
        description="Finds.",
        tools=[],
        llm=budget_model(llm, on_report=reports.append),
        system_prompt="Find it.",
        output_cls=_Answer,
        streaming=False,
    )
    memory = BudgetChatMemoryBuffer.from_defaults(token_limit=4000, chat_history=exchanges(60))
    runner = AgentWorkflow(agents=[agent], root_agent="finder") if in_workflow else agent
    answer = await runner.run("question", memory=memory)
    assert answer.structured_response == {"facts": ["tea"]}
    assert len(llm.requests) == 2
    assert llm.requests[1][1]
    assert {llm.sizes()[0], llm.sizes()[1]} <= {report.total_tokens for report in reports}
    assert max(llm.sizes()) <= 1000 - REPLY
    assert any("the last answer" in str(m.content) for m in llm.requests[1][0])


async def test_structured_output_without_a_memory_sends_the_question() -> None:
    """Where the stock memory drops the question, the structured request still holds it."""
    wanted = [ToolCallBlock(tool_call_id="s", tool_name="_Answer", tool_kwargs={"facts": ["tea"]})]
    steps = [*_turns(2), say("assistant", words(300)), ChatMessage(role="assistant", blocks=wanted)]
    llm = _llm(steps, window=1000)
    agent = BudgetFunctionAgent(tools=[_tool(400)], llm=llm, output_cls=_Answer, streaming=False)
    answer = await agent.run("What is in the archive?")
    assert answer.structured_response == {"facts": ["tea"]}
    assert max(llm.sizes()) <= 1000 - REPLY
    assert any("What is in the archive?" in str(m.content) for m in llm.requests[-1][0])


def _orders(customer: str) -> str:
    """Returns all orders of a customer."""
    return "\n".join(
        f"Order {customer[0]}{1000 + i}: {i * 7 % 90} euro, sent in week {i % 52}." for i in range(120)
    )


@pytest.mark.filterwarnings("ignore:Skipping serialization")  # of the host's own memory
@pytest.mark.parametrize(
    ("kind", "own", "one_context"),
    [
        (BudgetFunctionAgent, Memory, True),
        (BudgetFunctionAgent, Memory, False),
        (FunctionAgent, BudgetMemory, True),
        (FunctionAgent, BudgetChatMemoryBuffer, True),
    ],
)
async def test_a_row_of_an_earlier_run_comes_with_the_question_that_names_it(
    kind: Any, own: Any, *, one_context: bool
) -> None:
    """As it does with `budget_model` alone: an agent that cannot see the row answers that there is none."""
    steps: list[Any] = []
    for number, customer in enumerate(("Olga", "Bert")):
        block = ToolCallBlock(
            tool_call_id=f"c{number}", tool_name="orders", tool_kwargs={"customer": customer}
        )
        steps += [ChatMessage(role="assistant", blocks=[block]), say("assistant", "I have it.")]
    play = _llm(steps, window=3000, reply=1)
    llm = budget_model(play, max_tokens=3000)
    memory = own.from_defaults(token_limit=10**6) if own is Memory else own.from_defaults(llm=llm)
    agent = kind(
        tools=[FunctionTool.from_defaults(_orders, name="orders")], llm=llm, system_prompt="Be brief."
    )
    context = Context(agent)
    for question in ("Load the orders of Olga", "Load the orders of Bert", "When was order O1061 sent?"):
        await agent.run(question, memory=memory, ctx=context if one_context else None)
    sent = "\n".join(str(message.content) for message in play.requests[-1][0])
    assert _orders("Olga").splitlines()[61] in sent
    assert "Order B1000" in sent


async def test_reports_of_one_request_count_what_is_sent() -> None:
    """Some clients name the calls of a step alike; `budget_model` gives them ids of their own, which are counted."""
    reports: list[BudgetReport] = []
    play = _llm([calls("search", "search", q=f"item {turn}") for turn in range(3)], window=3000)
    llm = budget_model(play, on_report=reports.append)
    await BudgetFunctionAgent(tools=[_tool(900)], llm=llm, system_prompt="Find it.").run("question")
    assert len(reports) > len(play.requests) == 4
    assert {report.total_tokens for report in reports} == set(play.sizes())


async def test_a_budget_of_the_llm_shortens_a_long_question() -> None:
    """Of a `budget_model` the agent takes all of its budget, as a memory does that is given the LLM."""
    budget = TokenBudget(context_window=1500, reserve=200, shorten_question=True)
    play = _llm([], window=1500)
    llm = budget_model(play, budget)
    agent = BudgetFunctionAgent(tools=[], llm=llm, system_prompt="Be brief.")
    question = "A note about things. " * 2000 + "When was K17 replaced?"
    for memory in (None, BudgetMemory.from_defaults(llm=llm), BudgetChatMemoryBuffer.from_defaults(llm=llm)):
        assert str(await agent.run(question, memory=memory)) == "done"
        assert "When was K17 replaced?" in str(play.requests[-1][0][-1].content)
