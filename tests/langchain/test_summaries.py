"""A summarizer is honoured at every door that takes one, beside a session too, and none waits for a slow one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import FakeListChatModel, ParrotFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langgraph.checkpoint.memory import InMemorySaver

from langchain_budget import (
    BudgetChatPromptTemplate,
    BudgetMemory,
    BudgetMessageHistory,
    BudgetMiddleware,
    BudgetTrimmer,
    budget_model,
    pre_model_hook,
)
from langchain_budget.message_history import Store
from rankbudget import BudgetSession
from rankbudget.testing import WordCounter

THREAD = [m for i in range(20) for m in (HumanMessage(f"question {i}"), AIMessage(f"answer {i}"))]
ASKED: list[BaseMessage] = [*THREAD, HumanMessage("last")]
CONFIG: Any = {"configurable": {"thread_id": "t"}}
WORDS = WordCounter(framing=1, priming=0)


class Recorder(ParrotFakeChatModel):
    """Remembers the last request."""

    sent: list[Any] = []  # noqa: RUF012 - a pydantic field

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self.sent[:] = messages
        return super()._generate(messages, *args, **kwargs)


def through_memory(**options: Any) -> list[BaseMessage]:
    store = Store()
    store.add_messages(THREAD)
    memory = BudgetMemory(chat_memory=store, return_messages=True, **options)
    return list(memory.load_memory_variables({"input": "last"})["history"])


def through_history(**options: Any) -> list[BaseMessage]:
    store = BudgetMessageHistory(**options)
    store.add_messages(THREAD)
    return store.messages


def through_template(**options: Any) -> list[BaseMessage]:
    prompt = ChatPromptTemplate([MessagesPlaceholder("history"), ("human", "{question}")])
    return BudgetChatPromptTemplate(prompt, **options).format_messages(history=THREAD, question="last")


def through_middleware(**options: Any) -> list[BaseMessage]:
    model = Recorder()
    create_agent(model, middleware=[BudgetMiddleware(**options)]).invoke({"messages": ASKED}, CONFIG)
    return model.sent


def through_hook(**options: Any) -> list[BaseMessage]:
    return list(pre_model_hook(**options).invoke({"messages": ASKED}, CONFIG)["llm_input_messages"])


DOORS: dict[str, Callable[..., list[BaseMessage]]] = {
    "trimmer": lambda **options: list(BudgetTrimmer(**options).invoke(ASKED)),
    "template": through_template,
    "memory": through_memory,
    "history": through_history,
    "middleware": through_middleware,
    "hook": through_hook,
}


@pytest.mark.parametrize("door", DOORS)
def test_a_summary_is_written_and_a_slow_one_is_not_waited_for(door: str) -> None:
    """With `summary_timeout` a summarizer that hangs costs so long and no longer; one that answers is in the prompt."""
    told = DOORS[door](max_tokens=60, counter=WORDS, summarizer=lambda text, most: "They met.")
    assert "They met." in "\n".join(m.text for m in told)
    let_go = threading.Event()

    def hangs(text: str, most: int) -> str:
        let_go.wait(20)
        return "Too late."

    untold = DOORS[door](max_tokens=60, counter=WORDS, summarizer=hangs, summary_timeout=0.05)
    let_go.set()
    assert untold
    assert "Too late." not in "\n".join(m.text for m in untold)


def session(said: str) -> BudgetSession:
    return BudgetSession(60, counter=WORDS, summarizer=lambda text, most: said)


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_bounded_model_keeps_the_summarizer_of_its_session(asynchronous: bool) -> None:
    """What the last door has to cut is in the session's summary, in both forms; a thread of its own has its own."""
    model = Recorder()
    bounded = budget_model(model, session("They met."))
    for config in (None, CONFIG):
        if asynchronous:
            await bounded.ainvoke(ASKED, config)
        else:
            bounded.invoke(ASKED, config)
        assert "They met." in model.sent[0].text
        assert model.sent[-1].text == "last"


def test_a_parts_own_summarizer_goes_before_the_sessions() -> None:
    """A trimmer writes the session's summary, unless it has a summarizer of its own."""
    own = BudgetTrimmer(session=session("Session."), summarizer=FakeListChatModel(responses=["Own."]))
    assert "Own." in own.invoke(ASKED)[0].text
    assert "Session." in BudgetTrimmer(session=session("Session.")).invoke(ASKED)[0].text


@pytest.mark.parametrize("failing", [1, 2])
def test_a_state_keeps_what_no_summary_holds(failing: int) -> None:
    """In a turn whose summary fails, the cut is sent and not written: the next summary has it all."""
    calls: list[str] = []

    def summarize(text: str, max_tokens: int) -> str:
        calls.append(text)
        if len(calls) == failing:
            raise ConnectionError
        return "Facts: " + " ".join(sorted({word for word in text.split() if word.startswith("fact")}))

    agent = create_agent(
        FakeListChatModel(responses=["ok"]),
        [],
        checkpointer=InMemorySaver(),
        middleware=[BudgetMiddleware(max_tokens=600, persist=True, summarizer=summarize)],
    )
    for i in range(20):
        asked = HumanMessage(f"fact{i}. " + "some words " * 25)
        state = agent.invoke({"messages": [asked]}, CONFIG)
        held = " ".join([m.text for m in state["messages"]])
        assert [n for n in range(i + 1) if f"fact{n}." not in held] == []
    assert len(calls) >= failing


def test_a_hook_leaves_the_state_whole_where_the_summary_failed() -> None:
    """What is dropped stays in the state, whichever key the hook writes."""

    def fails(text: str, max_tokens: int) -> str:
        raise ConnectionError

    hook = pre_model_hook(max_tokens=200, counter="gpt-4o", into="messages", summarizer=fails)
    assert list(hook.invoke({"messages": ASKED}, CONFIG)) == ["llm_input_messages"]
