"""Placeholders of messages: whole turns where they have `n_messages`, and a name where they are no slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnablePassthrough

from langchain_budget import BudgetChatPromptTemplate, BudgetTrimmer
from langchain_budget._codec import CODEC
from rankbudget.errors import BudgetConfigError, BudgetExceededError
from rankbudget.testing import WordCounter
from tests.drawing import draws

ASKED = HumanMessage("And now?", id="now")
turns = st.lists(st.lists(st.integers(1, 2), max_size=2), max_size=6)


def turn(number: int, steps: Sequence[int]) -> list[BaseMessage]:
    """Returns a question, some steps with so many calls each, and an answer."""
    made: list[BaseMessage] = [HumanMessage("Where is it?", id=f"q{number}")]
    for step, count in enumerate(steps):
        ids = [f"c{number}.{step}.{i}" for i in range(count)]
        made.append(
            AIMessage("", tool_calls=[{"name": "find", "args": {}, "id": i} for i in ids], id=f"s{ids[0]}")
        )
        made += [ToolMessage("in Oslo", tool_call_id=i, id=f"r{i}") for i in ids]
    return [*made, AIMessage("In Oslo.", id=f"a{number}")]


def kept_of(form: str, messages: list[Any], history: list[BaseMessage], most: int, **options: Any) -> Any:
    """Returns what is sent and its report, by one way into the library."""
    options = {"counter": WordCounter(), "max_tokens": most, **options}
    if form == "template":
        made = BudgetChatPromptTemplate.from_messages(messages, **options).fit(
            history=history, question="And now?"
        )
        return made.messages, made.report
    prompt: Any = ChatPromptTemplate(messages)
    if form == "list":
        prompt = ChatPromptTemplate([m for m in messages if m != ("human", "{question}")])
    chain = RunnablePassthrough() | prompt if form == "chain" else prompt
    fitted = BudgetTrimmer(prompt=chain, report_key="report", **options)
    found = fitted.invoke(history if form == "list" else {"history": history, "question": "And now?"})
    sent = prompt.invoke(found["history"] if form == "list" else found).to_messages()
    assert [m for m in sent if m in found["history"]] == found["history"]
    return sent, found["report"]


@draws()
@given(
    turns=turns,
    most=st.integers(1, 12),
    room=st.integers(30, 600),
    form=st.sampled_from(["template", "trimmer", "chain", "list"]),
    rule=st.booleans(),
    optional=st.booleans(),
    nested=st.booleans(),
    last_turns=st.none() | st.integers(1, 4),
)
def test_a_placeholder_shows_whole_turns(
    turns: list[list[int]],
    most: int,
    room: int,
    form: str,
    rule: bool,
    optional: bool,
    nested: bool,
    last_turns: int | None,
) -> None:
    """What is sent opens with a question, has each call's results, and at most `n_messages`; the report keeps the same."""
    history = [message for number, steps in enumerate(turns) for message in turn(number, steps)]
    history = [*([SystemMessage("Be brief.", id="rule")] if rule and most > 1 else []), *history]
    history += [ASKED] if form == "list" else []
    place: Any = MessagesPlaceholder("history", n_messages=most, optional=optional and form != "list")
    place = ChatPromptTemplate([place]) if nested else place
    asked = [] if form == "list" else [("human", "{question}")]
    sent, report = kept_of(
        form, [("system", "Be kind."), place, *asked], history, room, last_turns=last_turns
    )
    shown = [message for message in sent if message in history]
    assert len(shown) <= most
    conversation = [message for message in shown if message.type != "system"]
    assert conversation == [] or conversation[0].type == "human"
    called = [call["id"] for message in conversation for call in getattr(message, "tool_calls", ())]
    assert called == [message.tool_call_id for message in conversation if message.type == "tool"]
    if room > 300:  # in less room, steps of an older turn may go
        assert conversation == history[len(history) - len(conversation) :]
    assert any(message.content == "And now?" for message in sent[-1:])
    told = [
        d.segment_id
        for d in report.decisions
        if d.block in ("history", "system", "query") and d.action == "kept"
    ]
    assert len(told) == len(sent)
    assert report.total_tokens == WordCounter().count_messages([CODEC.to_dict(m) for m in sent]) <= room


@pytest.mark.parametrize("form", ["template", "trimmer"])
def test_a_turn_that_the_placeholder_would_cut_is_refused(form: str) -> None:
    """The error names the option and how many messages the turn has."""
    history = [*turn(0, [])[:1], *turn(1, [2])[:-1]]
    place = [("system", "Be kind."), MessagesPlaceholder("history", n_messages=2)]
    with pytest.raises(BudgetConfigError, match=r"n_messages .* at least 4.*got 2"):
        kept_of(form, place, history, 500)


@pytest.mark.parametrize("form", ["template", "trimmer"])
def test_an_error_names_the_messages_that_no_slot_has(form: str) -> None:
    """A prompt that is too large because of its own placeholder says which option makes that a slot; other keys it leaves out."""
    parts = [("system", "Be kind."), MessagesPlaceholder("messages"), ("human", "{question}")]
    given: dict[str, Any] = {"messages": turn(0, []) * 50, "question": "And now?", "unseen": turn(1, [])}
    options: dict[str, Any] = {"counter": WordCounter(), "max_tokens": 60}
    fit: Any = BudgetTrimmer(prompt=ChatPromptTemplate(parts), **options).invoke
    if form == "template":
        fit = BudgetChatPromptTemplate.from_messages(parts, **options).invoke
    with pytest.raises(BudgetExceededError, match=r"never cut.*history_key='messages'") as raised:
        fit(given)
    assert "unseen" not in str(raised.value)
    assert raised.value.needed > raised.value.limit == 60
