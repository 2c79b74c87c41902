"""An agent's older steps: shortened before one is dropped, at every door and however the cut is chosen."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from llama_index.core.llms import ChatMessage, MockLLM

import langchain_budget
import llamaindex_budget
from rankbudget import BudgetSession, counter_for, fit_messages
from tests.drawing import draws

COUNTER = counter_for("gpt-4o")
ASKED = "What is the value of row 17 in each table?"


def results(sizes: list[int]) -> list[str]:
    return [
        "\n".join(f"row {i} of table{n}: val {n}-{i}" for i in range(size)) for n, size in enumerate(sizes)
    ]


def neutral(sizes: list[int]) -> list[dict[str, Any]]:
    thread: list[dict[str, Any]] = [{"role": "user", "content": ASKED}]
    for n, text in enumerate(results(sizes)):
        call = {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": "read", "arguments": json.dumps({"n": n})},
        }
        thread.append({"role": "assistant", "content": None, "tool_calls": [call]})
        thread.append({"role": "tool", "tool_call_id": f"c{n}", "content": text})
    return thread


def filled(sizes: list[int], limit: int) -> list[str]:
    return [
        str(m["content"]) for m in fit_messages(neutral(sizes), max_tokens=limit, counter=COUNTER).messages
    ]


def stable(sizes: list[int], limit: int) -> list[str]:
    found = fit_messages(neutral(sizes), max_tokens=limit, counter=COUNTER, cut="stable")
    return [str(message["content"]) for message in found.messages]


def session(sizes: list[int], limit: int) -> list[str]:
    """The thread as an agent sends it: after each step once more."""
    thread, own = neutral(sizes), BudgetSession(limit, counter=COUNTER)
    for end in range(1, len(thread), 2):
        own.fit(thread[:end])
    return [str(message["content"]) for message in own.fit(thread).messages]


def langchain(sizes: list[int], limit: int) -> list[str]:
    sent: list[Any] = []

    class Model(GenericFakeChatModel):
        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            sent[:] = messages
            return super()._generate(messages, *args, **kwargs)

    thread: list[Any] = [HumanMessage(ASKED)]
    for n, text in enumerate(results(sizes)):
        call = {"id": f"c{n}", "name": "read", "args": {"n": n}}
        thread += [AIMessage("", tool_calls=[call]), ToolMessage(text, tool_call_id=f"c{n}")]
    model = Model(messages=iter([AIMessage("Yes.")]))
    langchain_budget.budget_model(model, max_tokens=limit, counter=COUNTER).invoke(thread)
    return [str(message.content) for message in sent]


def llamaindex(sizes: list[int], limit: int) -> list[str]:
    sent: list[Any] = []

    class Model(MockLLM):
        def chat(self, messages: Any, **kwargs: Any) -> Any:
            sent[:] = messages
            return super().chat(messages, **kwargs)

    thread = [ChatMessage(ASKED)]
    for n, text in enumerate(results(sizes)):
        call = {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": "read", "arguments": json.dumps({"n": n})},
        }
        thread.append(ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [call]}))
        thread.append(ChatMessage(role="tool", content=text, additional_kwargs={"tool_call_id": f"c{n}"}))
    model = llamaindex_budget.budget_model(Model(is_chat_model=True), max_tokens=limit, counter=COUNTER)
    model.chat(thread)
    return [str(message.content) for message in sent]


@pytest.mark.parametrize("door", [filled, stable, session, langchain, llamaindex])
@draws(cases=5)
@given(sizes=st.lists(st.integers(25, 200), min_size=2, max_size=6), spare=st.integers(0, 2000))
def test_older_steps_keep_what_the_question_names(
    door: Callable[[list[int], int], list[str]], sizes: list[int], spare: int
) -> None:
    """Where the newest result fits whole and each older one has 260 tokens, no step is lost, nor what was asked."""
    newest = COUNTER.count(results(sizes)[-1])
    limit = newest + 260 * (len(sizes) - 1) + 60 + spare
    shown = "\n".join(door(sizes, limit))
    assert [n for n in range(len(sizes)) if f"row 17 of table{n}: val {n}-17\n" not in shown + "\n"] == []
