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
    """Where the newest result fits whole and each older one has 260 tokens, no step is lost, nor what was asked.

    In a session that was so at each step before: what it once had to drop does not come back.
    """
    counts = [COUNTER.count(text) for text in results(sizes)]
    wanted = [newest + 260 * older + 60 for older, newest in enumerate(counts)]
    limit = (max(wanted) if door is session else wanted[-1]) + spare
    shown = "\n".join(door(sizes, limit))
    assert [n for n in range(len(sizes)) if f"row 17 of table{n}: val {n}-17\n" not in shown + "\n"] == []


@pytest.mark.parametrize("door", [filled, stable, session, langchain, llamaindex])
@draws(cases=5)
@given(short=st.lists(st.integers(1, 14), min_size=1, max_size=3), newest=st.integers(100, 2000))
def test_a_long_newest_result_leaves_room_for_short_steps(
    door: Callable[[list[int], int], list[str]], short: list[int], newest: int
) -> None:
    """Where older results of up to 200 tokens have a quarter of the limit, they are whole; so is the row asked for."""
    sizes = [*short, newest]
    limit = 4 * sum(COUNTER.count(text) + 40 for text in results(short)) + 60
    shown = "\n".join(door(sizes, limit))
    assert [n for n, text in enumerate(results(short)) if text not in shown] == []
    assert f"row 17 of table{len(short)}: val {len(short)}-17" in shown


def said(*texts: str) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


@draws()
@given(long=st.integers(300, 3000), limit=st.integers(900, 4000), where=st.sampled_from(["step", "exchange"]))
def test_long_last_exchanges_leave_room_for_what_is_short(long: int, limit: int, where: str) -> None:
    """A short step or exchange before them stays where each of them has hundreds of tokens."""
    fact, words = "The pump Zanzibar has number QX-99183.", "The valves are fine today. " * long
    step = [neutral([1])[1], {"role": "tool", "tool_call_id": "c0", "content": fact}]
    if where == "step":
        thread = [*said("Tell of it.", words, "Look it up."), *step, *said("", "I have it.")[1:]]
    else:
        thread = [*said("Tell of the pump.", fact, "Go on.", words, "And?", "All said.")]
    thread += said("Which number has pump Zanzibar?")
    kept = fit_messages(thread, max_tokens=limit, counter=COUNTER).messages
    assert fact in [message["content"] for message in kept]


def test_a_session_gives_the_current_question_whole_after_another_one_was_asked() -> None:
    """What another question shortened of the one before it stays short for that question only."""
    thread = said("First? " * 150, "Yes.", "Is item 7 fine? " * 70)
    own = BudgetSession(600, counter=COUNTER)
    whole = own.fit(thread).messages
    own.fit([*thread, *said("And now?")])
    assert own.fit(thread).messages == whole == [thread[-1]]
