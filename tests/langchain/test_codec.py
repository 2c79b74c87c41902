"""LangChain messages as the core reads them: results in human messages, and what is no message yet."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, convert_to_messages

from langchain_budget import BudgetTrimmer, pre_model_hook, trim_messages
from langchain_budget._codec import CODEC, NeedsConversionError
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
    assert BudgetTrimmer(max_tokens=25).invoke(chat) == [chat[0], chat[3], chat[4]]


def test_the_newest_step_is_never_dropped_silently() -> None:
    """A call too long for the limit is an error at the end of a thread: a model that does not see its result asks again without end."""
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
    """The core keeps its laws on LangChain's messages wherever their tool results are."""
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


NO_MESSAGES = [
    ("human", "hi"),
    "hi",
    {"role": "user", "content": "hi"},
    None,
    3,
    Document(page_content="hi"),
    RemoveMessage(id="a"),
]
READERS: list[Any] = [
    CODEC.role,
    lambda item: CODEC.roles([item]),
    lambda item: CODEC.kinds([item], 0),
    CODEC.to_dict,
    CODEC.call_ids,
    CODEC.result_id,
    CODEC.answers,
    CODEC.message_id,
    lambda item: CODEC.fingerprints([item]),
    lambda item: CODEC.with_text(item, "a"),
    CODEC.copy,
]


@pytest.mark.parametrize("item", NO_MESSAGES, ids=lambda item: type(item).__name__)
@pytest.mark.parametrize("read", READERS)
def test_what_is_no_message_has_to_be_converted(read: Any, item: Any) -> None:
    """Every method says so in the same way, whichever the core calls first."""
    with pytest.raises(NeedsConversionError, match="must be converted"):
        read(item)


@draws()
@given(applications(user_results=True), st.data())
def test_tuples_and_dicts_among_messages_change_nothing(
    application: Application, data: st.DataObject
) -> None:
    """Some items of a list as tuples or dicts: the same contents as from the list of messages, or the same error."""
    chat = convert_to_messages(application.fresh())
    limit = application.limit(COUNTER)
    plain = [i for i, m in enumerate(chat) if m.type in ("human", "ai") and isinstance(m.content, str)]
    plain = [i for i in plain if not CODEC.call_ids(chat[i]) and not chat[i].name]  # a tuple has no name
    mixed: list[Any] = list(chat)
    for place in data.draw(st.sets(st.sampled_from(plain))) if plain else ():
        kind, text = chat[place].type, chat[place].content
        mixed[place] = data.draw(st.sampled_from([(kind, text), {"role": kind, "content": text}]))
    trimmer = BudgetTrimmer(max_tokens=limit, counter=COUNTER, cut=application.cut)
    hook = pre_model_hook(max_tokens=limit, counter=COUNTER)
    doors: list[Any] = [
        trimmer.invoke,
        lambda given: asyncio.run(trimmer.ainvoke(given)),
        lambda given: hook.invoke({"messages": given})["llm_input_messages"],
        lambda given: trimmer.invoke({"history": given})["history"],
    ]
    for door in doors:
        assert outcome(door, mixed) == outcome(door, chat)


def outcome(door: Any, messages: list[Any]) -> Any:
    """Returns the contents that a door lets through, or why it refuses the list."""
    try:
        return [(m.type, m.content) for m in door(messages)]
    except BudgetExceededError as error:
        return str(error)
