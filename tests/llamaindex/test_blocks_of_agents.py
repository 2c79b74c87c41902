"""Memory blocks of any size beside any agent: nothing is refused that fits without them, with an `output_cls` or not."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from llama_index.core.agent.utils import messages_to_xml_format
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock, ToolCallBlock
from llama_index.core.bridge.pydantic import BaseModel
from llama_index.core.memory import Memory, StaticMemoryBlock
from llama_index.core.memory.memory import InsertMethod
from llama_index.core.tools import FunctionTool

from llamaindex_budget import (
    BudgetFunctionAgent,
    BudgetMemory,
    BudgetMemoryBlock,
    RequestExceededError,
    budget_model,
)
from rankbudget import BudgetExceededError, TokenBudget
from tests.drawing import draws
from tests.llamaindex.models import CL100K, ListStore, PlayLLM, exchanges, say, tokens, words

QUESTION = "Who packs the order for the harbour?"
RESERVE = 200
TOOL = FunctionTool.from_defaults(lambda q: q, name="search", description="Searches.")
pytestmark = [
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),
    pytest.mark.filterwarnings("ignore:is_running called from within a step:DeprecationWarning"),
]


class Packer(BaseModel):
    """Who packs an order."""

    name: str


def _own(llm: Any, budget: TokenBudget, rule: str, output: Any) -> Any:
    return BudgetFunctionAgent(
        tools=[TOOL], llm=llm, budget=budget, counter=CL100K, system_prompt=rule, output_cls=output,
        streaming=False,
    )  # fmt: skip


def _bounded(kind: Any) -> Any:
    def made(llm: Any, budget: TokenBudget, rule: str, output: Any) -> Any:
        model: Any = budget_model(llm, budget, counter=CL100K)
        return kind(tools=[TOOL], llm=model, system_prompt=rule, output_cls=output, streaming=False)

    return made


def _workflow(llm: Any, budget: TokenBudget, rule: str, output: Any) -> Any:
    agent = _bounded(FunctionAgent)(llm, budget, rule, None)
    return AgentWorkflow(agents=[agent], root_agent=agent.name, output_cls=output)


AGENTS = {
    "own": _own,
    "own, bounded": _bounded(BudgetFunctionAgent),
    "stock": _bounded(FunctionAgent),
    "react": _bounded(ReActAgent),
    "workflow": _workflow,
}


def _memory(budget: TokenBudget, size: int, past: int, insert: InsertMethod, pictures: int) -> BudgetMemory:
    note = "The crew of the north quay packs order {}."
    text = " ".join(note.format(i) for i in range(size // 10))
    album = [ImageBlock(url=f"https://example.org/{i}.png", detail="low") for i in range(pictures)]
    blocks = [BudgetMemoryBlock(name="notes", text=text)]
    return BudgetMemory.from_defaults(
        budget=budget,
        counter=CL100K,
        memory_blocks=[*blocks, BudgetMemoryBlock(name="album", read=lambda _: album)] if album else blocks,
        insert_method=insert,
        chat_history=exchanges(past),
        chat_store=ListStore(),
    )


def _llm(kind: str) -> PlayLLM:
    said = "Thought: I can answer.\nAnswer: Ann" if kind == "react" else "Ann"
    found = [ToolCallBlock(tool_call_id="s", tool_name="Packer", tool_kwargs={"name": "Ann"})]
    return PlayLLM(
        window=100_000, steps=[say("assistant", said), ChatMessage(role="assistant", blocks=found)]
    )


@pytest.mark.parametrize("kind", AGENTS)
@draws(asynchronous=True, cases=len(AGENTS))
@given(
    limit=st.integers(1200, 6000),
    share=st.floats(0, 2),
    rule=st.floats(0, 0.2),
    past=st.integers(0, 6),
    ratio=st.sampled_from([0.25, None]),
    insert=st.sampled_from(list(InsertMethod)),
    pictures=st.integers(0, 2),
    output=st.sampled_from([None, Packer]),
)
@example(limit=2000, share=2, rule=0, past=3, ratio=None, insert=InsertMethod.USER, pictures=1, output=Packer)
@example(
    limit=2000, share=0.6, rule=0.1, past=1, ratio=0.25, insert=InsertMethod.SYSTEM, pictures=0, output=Packer
)
async def test_blocks_of_any_size_leave_room_for_what_must_stay(
    kind: str,
    limit: int,
    share: float,
    rule: float,
    past: int,
    ratio: float | None,
    insert: InsertMethod,
    pictures: int,
    output: Any,
) -> None:
    """Each request of a run is within the limit with system prompt and question, and the answer comes as the class asked for."""
    budget = TokenBudget(context_window=limit + RESERVE, reserve=RESERVE, max_system_ratio=ratio)
    prompt = f"Be brief. {words(int(limit * rule))}"
    llm = _llm(kind)
    memory = _memory(budget, int(limit * share), past, insert, pictures)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*structured output")
        answer = await AGENTS[kind](llm, budget, prompt, output).run(QUESTION, memory=memory)
    assert str(answer) == "Ann"
    assert answer.structured_response == (None if output is None else {"name": "Ann"})
    assert len(llm.requests) == (1 if output is None else 2)
    assert max(llm.sizes()) <= limit
    for messages, _ in llm.requests:
        text = "\n".join(str(m.content) for m in messages)
        assert text.count(QUESTION) == 1
        assert prompt in text


async def _sent(memory: Any, rule: str, limit: int) -> list[ChatMessage]:
    budget = TokenBudget(context_window=limit + RESERVE, reserve=RESERVE)
    llm = _llm("own")
    await _own(llm, budget, rule, None).run(QUESTION, memory=memory)
    [(messages, _)] = llm.requests
    found: list[ChatMessage] = messages
    return found


async def test_a_share_of_the_system_prompt_counts_the_prompt_alone() -> None:
    """What a stock memory shows is no system prompt; the agent's own prompt is refused above its share, with the numbers."""
    stock = StaticMemoryBlock(name="notes", static_content=[TextBlock(text=words(1200, "note"))])
    sent = await _sent(Memory.from_defaults(memory_blocks=[stock]), "Be brief.", 2000)
    assert any(words(1200, "note") in str(m.content) for m in sent)
    with pytest.raises(BudgetExceededError, match=r"at most 550 tokens, 25% of the window .* \(got 600\)"):
        await _sent(Memory.from_defaults(), words(600), 2000)


def _flat(rule: str) -> list[ChatMessage]:
    """Returns a request for a structured answer, in which LlamaIndex repeats the system message."""
    return messages_to_xml_format([say("system", rule), *exchanges(2), say("user", QUESTION)])


@pytest.mark.parametrize("limit", [1000, 1500, 2500])
def test_a_system_prompt_is_sent_once_where_there_is_no_room_for_its_copy(limit: int) -> None:
    """A request that fits is sent as it is; of another the copy goes before anything else, and the report says so."""
    told: list[Any] = []
    llm = PlayLLM(window=100_000)
    given_one = _flat(words(900, "rule"))
    budget_model(llm, max_tokens=limit, counter=CL100K, on_report=told.append).chat(given_one)
    [(sent, _)] = llm.requests
    [report] = told
    assert report.total_tokens == tokens(sent) <= limit
    assert sent[0] == given_one[0]
    assert QUESTION in str(sent[-1].content)
    fits = limit == 2500
    assert (sent == given_one) is fits
    assert ("rule" in str(sent[-1].content)) is fits
    assert any("second copy" in warning for warning in report.warnings) is not fits
    assert all(str(m.content) in str(sent[-1].content) for m in exchanges(2)) is (limit > 1000)


@pytest.mark.parametrize("kind", AGENTS)
async def test_an_agent_is_not_told_of_a_reranker(kind: str) -> None:
    """A question that is too long for an agent is refused without advice for rerankers."""
    budget = TokenBudget(context_window=1000, reserve=RESERVE)
    with pytest.raises(BudgetExceededError, match="question") as found:
        await AGENTS[kind](_llm(kind), budget, "Be brief.", None).run(words(900))
    assert "rerank" not in str(found.value)


def test_a_structured_llm_is_not_told_of_a_reranker() -> None:
    """A question that is too long for a structured LLM is refused without advice for rerankers."""
    llm: Any = budget_model(_llm("own"), max_tokens=500, counter=CL100K)
    with pytest.raises(RequestExceededError, match="question") as found:
        llm.as_structured_llm(Packer).chat([say("user", words(600))])
    assert "rerank" not in str(found.value)
