"""Tool results in the content of human messages, as ChatAnthropic takes them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, convert_to_messages

from langchain_budget import BudgetTrimmer, trim_messages
from langchain_budget._codec import CODEC
from rankbudget import BudgetExceededError, fit_messages
from rankbudget.testing import Application, WordCounter, applications, check_outcome, snapshot
from tests.drawing import draws

COUNTER = WordCounter()


def call(*ids: str) -> AIMessage:
    blocks: list[str | dict[str, Any]] = [
        {"type": "tool_use", "id": i, "name": "f", "input": {}} for i in ids
    ]
    return AIMessage(blocks, tool_calls=[{"id": i, "name": "f", "args": {}} for i in ids])


def results(*ids: str, text: str = "found") -> HumanMessage:
    return HumanMessage([{"type": "tool_result", "tool_use_id": i, "content": text} for i in ids])


def test_a_valid_conversation_stays_as_it_is() -> None:
    """Calls answered in a human message are answered: nothing is repaired away where all fits."""
    chat: list[BaseMessage] = [
        HumanMessage("q"),
        call("a", "b"),
        results("a", "b"),
        AIMessage("done"),
        HumanMessage("q2"),
    ]
    assert BudgetTrimmer(max_tokens=600).invoke(chat) == chat
    assert trim_messages(chat, max_tokens=600, token_counter=lambda ms: 10 * len(ms)) == chat
    found = fit_messages(chat, max_tokens=600, codec=CODEC, strict=True)
    assert {d.action for d in found.report.decisions} == {"kept"}


def test_a_call_goes_with_its_results() -> None:
    """Where there is no room for the batch, neither half of it stays."""
    chat: list[BaseMessage] = [
        HumanMessage("q"),
        call("a"),
        results("a", text="word " * 500),
        AIMessage("done"),
        HumanMessage("q2"),
    ]
    assert BudgetTrimmer(max_tokens=60).invoke(chat) == [chat[0], chat[3], chat[4]]


def test_the_newest_step_is_never_dropped_silently() -> None:
    """A call too long for the limit is an error at the end of a thread: a model that does not see its result asks again, for ever."""
    chat: list[BaseMessage] = [
        HumanMessage("look"),
        AIMessage("", tool_calls=[{"id": "a", "name": "write", "args": {"text": "word " * 900}}]),
    ]
    chat += convert_to_messages([{"role": "tool", "tool_call_id": "a", "content": "written"}])
    with pytest.raises(BudgetExceededError, match=r"newest tool call with its results \d+") as caught:
        BudgetTrimmer(max_tokens=400).invoke(chat)
    assert caught.value.blocks["question"] < 10
    assert caught.value.blocks["newest tool call with its results"] > 900
    assert (
        BudgetTrimmer(max_tokens=400).invoke([*chat, AIMessage("done"), HumanMessage("thanks")])[-1].content
        == "thanks"
    )


def test_the_calls_a_message_answers() -> None:
    """Only content blocks that are tool results answer calls."""
    assert CODEC.answers(results("a", "b")) == ("a", "b")
    assert (
        CODEC.answers(HumanMessage("a")) == CODEC.answers(HumanMessage([{"type": "text", "text": "a"}])) == ()
    )


@draws()
@given(applications(user_results=True))
def test_the_laws_hold_with_results_in_human_messages(application: Application) -> None:
    """The core keeps its laws on LangChain's messages wherever their tool results stand."""
    chat = convert_to_messages(application.fresh())
    limit, before = application.limit(COUNTER), snapshot(chat)
    found: Any
    try:
        found = fit_messages(
            chat, max_tokens=limit, counter=COUNTER, codec=CODEC, cut=application.cut
        ).messages
    except BudgetExceededError as error:
        found = error
    check_outcome(chat, found, limit=limit, counter=COUNTER, codec=CODEC, before=before)
