"""`last_turns` at the doors of both frameworks: the current question counts as one turn wherever a host keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from llama_index.core.base.llms.types import ChatMessage

import langchain_budget as lc
import llamaindex_budget as li
from rankbudget import TokenBudget
from tests.llamaindex.models import PlayLLM

TURNS = [("Which bed?", "The second."), ("And the roses?", "They are fine."), ("The ferns?", "Dry.")]
THREAD = [m for asked, said in TURNS for m in (HumanMessage(asked), AIMessage(said))]
CHAT = [ChatMessage(t, role=r) for turn in TURNS for t, r in zip(turn, ("user", "assistant"), strict=True)]
QUESTION, BUDGET = "Why?", TokenBudget(last_turns=2)


def trimmer() -> Any:
    return lc.BudgetTrimmer(budget=BUDGET).invoke([*THREAD, HumanMessage(QUESTION)])[:-1]


def trimmer_option() -> Any:
    return lc.BudgetTrimmer(max_tokens=500, last_turns=2).invoke([*THREAD, HumanMessage(QUESTION)])[:-1]


def trimmer_slots() -> Any:
    given = {"history": THREAD, "question": QUESTION}
    return lc.BudgetTrimmer(max_tokens=500, last_turns=2).invoke(given)["history"]


def template() -> Any:
    made = lc.BudgetChatPromptTemplate.from_messages(
        [("placeholder", "{history}"), ("human", "{question}")], max_tokens=500, last_turns=2
    )
    return made.invoke({"history": THREAD, "question": QUESTION}).to_messages()[:-1]


def memory() -> Any:
    kept = lc.BudgetMemory(budget=BUDGET, return_messages=True)
    for asked, said in TURNS:
        kept.save_context({"input": asked}, {"output": said})
    return kept.load_memory_variables({"input": QUESTION})["history"]


def message_history() -> Any:
    kept = lc.BudgetMessageHistory(budget=BUDGET)
    kept.add_messages(THREAD)
    return kept.messages


def buffer() -> Any:
    kept = li.BudgetChatMemoryBuffer.from_defaults(chat_history=CHAT, budget=BUDGET, token_limit=500)
    return kept.get(QUESTION)


def buffer_with_the_question() -> Any:
    kept = li.BudgetChatMemoryBuffer.from_defaults(chat_history=CHAT, budget=BUDGET, token_limit=500)
    kept.put(ChatMessage(QUESTION))
    return kept.get()[:-1]


DOORS = [
    trimmer,
    trimmer_option,
    trimmer_slots,
    template,
    memory,
    message_history,
    buffer,
    buffer_with_the_question,
]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_each_door_keeps_the_last_turns(door: Callable[[], Any]) -> None:
    """Two turns are the last answered one and the question that is asked now."""
    assert [m.content for m in door()] == ["The ferns?", "Dry."]


def test_a_bounded_model_sends_what_fits() -> None:
    """The turns of a finished request may be examples of its prompt: a budget's number leaves them alone."""
    asked = [*THREAD, HumanMessage(QUESTION)]
    seen: list[Any] = []

    class Told(GenericFakeChatModel):
        def _generate(self, messages: Any, *args: Any, **options: Any) -> Any:
            seen[:] = messages
            return super()._generate(messages, *args, **options)

    lc.budget_model(Told(messages=iter([AIMessage("So.")])), BUDGET).invoke(asked)
    assert seen == asked
    llm = PlayLLM()
    li.budget_model(llm, BUDGET).chat([*CHAT, ChatMessage(QUESTION)])
    assert len(llm.requests[0][0]) == len(asked)
