"""A question that no thread is named for gets all of the room, through every door; the start rests while tools are called."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from llama_index.core.async_utils import asyncio_run

import langchain_budget as lc
import llamaindex_budget as li
from rankbudget.testing import WordCounter
from tests.drawing import draws
from tests.llamaindex.entries import LLM
from tests.llamaindex.models import PlayLLM, say

pytestmark = pytest.mark.filterwarnings(
    "ignore::pydantic.warnings.PydanticDeprecationWarning"
)  # the host's own, of its workflows
COUNTER = WordCounter()
ROOMY = 10**9


def _said(sizes: list[int]) -> list[tuple[str, str]]:
    """Exchanges of questions and answers with so many words each, and a last question."""
    turns = [
        (role, f"{n} " + "w " * (size - 1)) for n, size in enumerate(sizes) for role in ("user", "assistant")
    ]
    return [*turns, ("user", "and now")]


def _to_langchain(said: list[tuple[str, str]]) -> list[BaseMessage]:
    return [HumanMessage(text) if role == "user" else AIMessage(text) for role, text in said]


def _edited(said: list[tuple[str, str]], limit: int) -> list[Any]:
    messages: list[Any] = _to_langchain(said)
    lc.BudgetContextEdit(trigger=limit, counter=COUNTER).apply(messages, count_tokens=len)
    return messages


def _hooked(said: list[tuple[str, str]], limit: int) -> list[Any]:
    hook: Any = lc.pre_model_hook(max_tokens=limit, counter=COUNTER)
    kept: list[Any] = hook.invoke({"messages": _to_langchain(said)})["llm_input_messages"]
    return kept


def _sent_by_llamaindex(said: list[tuple[str, str]], limit: int) -> list[Any]:
    llm = PlayLLM(requests=[], window=ROOMY)
    li.budget_model(llm, max_tokens=limit, counter=COUNTER).chat([say(role, text) for role, text in said])
    sent: list[Any] = llm.requests[-1][0]
    return sent


def _sent_by_agent(said: list[tuple[str, str]], limit: int) -> list[Any]:
    agent = li.BudgetFunctionAgent(
        llm=LLM, tools=[], budget={"context_window": limit, "reserve": 0}, counter=COUNTER
    )
    kept: list[Any] = asyncio_run(agent.fit([say(role, text) for role, text in said]))
    return kept


DOORS = {
    "BudgetContextEdit": _edited,
    "pre_model_hook": _hooked,
    "LlamaIndex's budget_model": _sent_by_llamaindex,
    "BudgetFunctionAgent": _sent_by_agent,
}


@pytest.mark.parametrize("door", DOORS)
@draws(cases=len(DOORS))
@given(sizes=st.lists(st.integers(5, 40), min_size=4, max_size=40), share=st.floats(0.4, 0.99))
def test_a_question_without_a_thread_gets_all_of_the_room(door: str, sizes: list[int], share: float) -> None:
    """The newest messages that fit are kept, so that the exchange before them would have been too much."""
    said = _said(sizes)
    limit = max(int(COUNTER.count_messages([_neutral(one) for one in said]) * share), 200)
    kept = DOORS[door](said, limit)
    used = COUNTER.count_messages([_neutral(one) for one in said[-len(kept) :]])
    assert used <= limit
    if len(kept) < len(said):
        assert COUNTER.count_messages([_neutral(one) for one in said[-len(kept) - 2 :]]) > limit


def _neutral(said: tuple[str, str]) -> dict[str, Any]:
    return {"role": said[0], "content": said[1]}


def test_the_start_rests_while_tools_are_called() -> None:
    """Over forty steps of one question the first kept message changes a few times only."""
    thread = _to_langchain(_said([20] * 30))
    hook: Any = lc.pre_model_hook(max_tokens=1000, counter=COUNTER)
    starts = []
    for n in range(40):
        call = {"id": f"c{n}", "name": "read", "args": {"n": n}}
        thread += [AIMessage("", tool_calls=[call]), ToolMessage("w " * 12, tool_call_id=f"c{n}")]
        starts.append(hook.invoke({"messages": thread})["llm_input_messages"][0].content)
    assert sum(a != b for a, b in pairwise(starts)) <= 8
