"""A question beside the history counts for what is kept of it as it does at the end of the history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import convert_to_messages
from langchain_core.prompts import MessagesPlaceholder

from langchain_budget import BudgetChatPromptTemplate, BudgetTrimmer
from rankbudget import Assembler, TokenBudget, build_constrained_prompt, counter_for, fit_messages
from rankbudget.batch import FitPrompt
from rankbudget.messages.texts import content_text
from tests.drawing import draws

COUNTER = counter_for("gpt-4o")
TEMPLATE = [MessagesPlaceholder("history"), ("human", "{question}")]
ROOM = "in room 777"
CALL = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}

Thread = list[dict[str, Any]]


def inside(thread: Thread, question: str, limit: int) -> Any:
    asked = {"role": "user", "content": question}
    return fit_messages([*thread, asked], max_tokens=limit, counter=COUNTER).messages


def assembler(thread: Thread, question: str, limit: int) -> Any:
    return Assembler(limit, counter=COUNTER).assemble({"history": thread}, query=question).messages


def column(thread: Thread, question: str, limit: int) -> Any:
    return FitPrompt(limit, counter=COUNTER).row({"history": thread, "question": question})["messages"]


def constrained(thread: Thread, question: str, limit: int) -> Any:
    return build_constrained_prompt("", question, thread, [], limit, "gpt-4o", 0)


def template(thread: Thread, question: str, limit: int) -> Any:
    fit = BudgetChatPromptTemplate.from_messages(TEMPLATE, max_tokens=limit, counter="gpt-4o")
    return fit.invoke({"history": convert_to_messages(thread), "question": question}).to_messages()


def trimmer(thread: Thread, question: str, limit: int) -> Any:
    fit = BudgetTrimmer(max_tokens=limit, counter="gpt-4o")
    return fit.invoke({"history": convert_to_messages(thread), "question": question})["history"]


def drawn(size: int, at: int, later: int, *, by_tool: bool) -> tuple[Thread, str]:
    """Writes a conversation whose first turn reads many records, and the question for one of them."""
    rooms = "".join(f"Review name{i}\n{ROOM if i == at else f'in room {i % 20}'}\n\n" for i in range(size))
    thread: Thread = [{"role": "user", "content": "Read the file."}]
    if by_tool:
        thread.append({"role": "assistant", "content": None, "tool_calls": [CALL]})
        thread.append({"role": "tool", "tool_call_id": "c", "content": rooms})
    thread.append({"role": "assistant", "content": "Done." if by_tool else rooms})
    for _ in range(later):
        thread += [{"role": "user", "content": "Thanks."}, {"role": "assistant", "content": "Welcome."}]
    return thread, f"Where is the review name{at}?"


def said(messages: Any) -> str:
    return "\n".join(content_text(m["content"] if isinstance(m, dict) else m.content) for m in messages)


@pytest.mark.parametrize("door", [assembler, column, constrained, template, trimmer])
@draws(cases=5)
@given(st.integers(80, 160), st.integers(0, 159), st.integers(0, 1), st.integers(35, 95), st.booleans())
def test_the_record_that_a_question_beside_the_history_names_stays(
    door: Callable[[Thread, str, int], Any], size: int, at: int, later: int, share: int, by_tool: bool
) -> None:
    """Of an earlier tool result or answer stays the record that the current question names, wherever it is asked."""
    thread, question = drawn(size, at % size, later, by_tool=by_tool)
    whole = COUNTER.count_messages([*thread, {"role": "user", "content": question}])
    limit = whole * share // 100
    assert ROOM in said(inside(thread, question, limit))
    assert ROOM in said(door(thread, question, limit)), "the record that was asked for is gone"


@draws()
@given(at=st.integers(0, 99), size=st.integers(150, 400), asks=st.sampled_from(("front", "end")))
def test_a_long_question_keeps_what_answers_it_wherever_it_is(at: int, size: int, asks: str) -> None:
    """In a slot of its own, as the last message of the history, alone or beside documents."""
    pasted = [f"The lift was cleaned on Monday by crew {i}." for i in range(100)]
    pasted[at] = "The access code of the boiler room is 4711."
    asked = "What is the access code of the boiler room?"
    text = "\n\n".join([asked, " ".join(pasted)] if asks == "front" else [" ".join(pasted), asked])
    budget = TokenBudget(
        context_window=size, reserve=0, safety=0, shorten_question=True, max_system_ratio=None
    )
    assembler = Assembler(budget, counter=COUNTER)
    for blocks, query in (
        ({}, text),
        ({"knowledge": ["One fact."]}, text),
        ({"history": [{"role": "user", "content": text}]}, None),
    ):
        shown = str(assembler.assemble(blocks, query=query).messages)
        assert pasted[at] in shown
        assert asked in shown
