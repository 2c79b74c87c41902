"""`StoredThreadMiddleware` among other middleware: nothing that was said is lost, doubled, cut or out of order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, SummarizationMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import Field

from langchain_budget import BudgetMiddleware, StoredMessageHistory, StoredThreadMiddleware
from rankbudget import BudgetConfigError, Scope
from rankbudget.errors import StoreConflictError
from rankbudget.memory import HistoryStore
from rankbudget.testing import WordCounter
from tests.drawing import draws

ANN = Scope(user="ann")
THREAD: Any = {"configurable": {"thread_id": "t"}}


@tool
def find(name: str) -> str:
    """Finds a file."""
    return f"found {name} " + "word " * 20


class Scripted(BaseChatModel):
    """Answers with what it was given, raises what is an exception, and notes what it was sent."""

    script: list[Any] = Field(default_factory=list)
    seen: list[list[BaseMessage]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self.bind(tools=[], **options)

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        self.seen.append(list(messages))
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return ChatResult(generations=[ChatGeneration(message=answer)])


class Removing(AgentMiddleware[Any, Any, Any]):
    """Removes all but the question and the newest step from the state, before or after each model call."""

    def __init__(self, hook: str) -> None:
        super().__init__()
        self.hook = hook

    def before_model(self, state: Any, runtime: Any) -> Any:
        return self._removed(state) if self.hook == "before" else None

    def after_model(self, state: Any, runtime: Any) -> Any:
        return self._removed(state) if self.hook == "after" else None

    def _removed(self, state: Any) -> Any:
        messages = state["messages"]
        asked = max(i for i, m in enumerate(messages) if m.type == "human")
        step = max([i for i, m in enumerate(messages) if m.type == "ai"], default=asked)
        return {"messages": [RemoveMessage(id=m.id) for m in messages[:step] if m is not messages[asked]]}


def budgeted(**options: Any) -> BudgetMiddleware:
    return BudgetMiddleware(max_tokens=150, counter=WordCounter(), persist=True, **options)


def summarizing() -> Any:
    writer = Scripted(script=[AIMessage("SUMMARY") for _ in range(99)])
    return SummarizationMiddleware(model=writer, trigger=("messages", 5), keep=("messages", 2))


OTHERS: dict[str, Callable[[], Any]] = {
    "persist": budgeted,
    "persist and summarize": lambda: budgeted(summarizer=lambda text, most: "SUMMARY"),
    "shorten": lambda: budgeted(tool_result_tokens=9),
    "summarize": summarizing,
    "remove before": lambda: Removing("before"),
    "remove after": lambda: Removing("after"),
}


def calls(turn: int, step: int, count: int) -> AIMessage:
    made = [
        {"name": "find", "args": {"name": f"{turn}.{step}.{i}"}, "id": f"c{turn}.{step}.{i}"}
        for i in range(count)
    ]
    return AIMessage(f"step {turn}.{step}", tool_calls=made)


def said_in(turn: int, script: list[AIMessage]) -> list[str]:
    """Returns how the messages of a run begin."""
    texts = [f"question {turn}"]
    for answer in script:
        texts += [answer.text, *(f"found {call['args']['name']}" for call in answer.tool_calls)]
    return texts


def beginnings(messages: list[BaseMessage]) -> list[str]:
    return [" ".join(m.text.split()[:2]) for m in messages]


@draws(asynchronous=True)
@given(
    runs=st.lists(st.tuples(st.lists(st.integers(1, 3), max_size=3), st.booleans()), min_size=2, max_size=6),
    other=st.sampled_from([None, *OTHERS]),
    asynchronous=st.booleans(),
)
def test_what_was_said_is_stored_whatever_is_removed(
    runs: list[tuple[list[int], bool]], other: str | None, asynchronous: bool
) -> None:
    """Each message is stored once, whole and in order, no summary is; a model sees the stored order; a failed run leaves nothing."""
    store, model = HistoryStore(":memory:"), Scripted(script=[], seen=[])
    stored = StoredThreadMiddleware(store, scope=ANN, max_tokens=120, counter=WordCounter())
    others = [] if other is None else [OTHERS[other]()]
    agent = create_agent(model, [find], middleware=[stored, *others])
    expected = list[str]()
    for turn, (steps, fails) in enumerate(runs):
        script = [*(calls(turn, n, count) for n, count in enumerate(steps)), AIMessage(f"answer {turn}")]
        said = said_in(turn, script[:-1] if fails else script)
        model.script[:] = [*script[:-1], OSError()] if fails else script
        asked: Any = {"messages": [HumanMessage(f"question {turn}", id=f"q{turn}")]}
        try:
            asyncio.run(agent.ainvoke(asked, THREAD)) if asynchronous else agent.invoke(asked, THREAD)
        except OSError:
            order = [*expected, *said]
        else:
            order = expected = [*expected, *said]
        for request in model.seen:
            places = [order.index(text) for text in beginnings(request) if text in order]
            assert places == sorted(set(places))
        assert f"question {turn}" in beginnings(model.seen[-1]) or other == "summarize"
        model.seen.clear()
        whole = StoredMessageHistory(store, "t", scope=ANN).messages
        assert beginnings(whole) == expected
        assert all(len(m.text.split()) == 22 for m in whole if m.type == "tool") or other == "shorten"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_checkpointer_beside_it_is_refused(asynchronous: bool) -> None:
    """Two keepers of one conversation would differ after an edit or a fork; nothing is stored, no model is asked."""
    store, model = HistoryStore(":memory:"), Scripted(script=[AIMessage("fine")], seen=[])
    stored = StoredThreadMiddleware(store, scope=ANN, max_tokens=90, counter=WordCounter())
    agent = create_agent(model, [find], middleware=[stored], checkpointer=InMemorySaver())
    asked: Any = {"messages": [HumanMessage("question")]}
    with pytest.raises(BudgetConfigError, match="must run without a checkpointer"):
        asyncio.run(agent.ainvoke(asked, THREAD)) if asynchronous else agent.invoke(asked, THREAD)
    assert not model.seen
    assert not StoredMessageHistory(store, "t", scope=ANN).messages


@pytest.mark.parametrize("asynchronous", [False, True])
def test_only_what_a_run_says_is_streamed(asynchronous: bool) -> None:
    """An application that prints what it is streamed prints no old message."""
    model = Scripted(script=[AIMessage(f"answer {i}") for i in range(3)])
    stored = StoredThreadMiddleware(
        HistoryStore(":memory:"), scope=ANN, max_tokens=100, counter=WordCounter()
    )
    agent = create_agent(model, [], middleware=[stored])

    async def streamed(asked: Any) -> list[Any]:
        return [part async for part in agent.astream(asked, THREAD, stream_mode="messages")]

    for number in range(3):
        asked: Any = {"messages": [HumanMessage(f"question {number}")]}
        found = (
            asyncio.run(streamed(asked))
            if asynchronous
            else list(agent.stream(asked, THREAD, stream_mode="messages"))
        )
        texts = [message.text for message, _ in found if message.text]
        assert texts == [f"answer {number}"]
        assert len(model.seen[-1]) == 2 * number + 1


def test_a_client_that_sends_the_whole_conversation_again_adds_only_what_is_new() -> None:
    """What is stored is known by its id, also where it is older than what is loaded."""
    store, model = HistoryStore(":memory:"), Scripted(script=[], seen=[])
    stored = StoredThreadMiddleware(store, scope=ANN, max_tokens=12, counter=WordCounter())
    agent = create_agent(model, [], middleware=[stored])
    whole: list[BaseMessage] = []
    for turn in range(6):
        model.script[:] = [AIMessage(f"answer {turn}", id=f"a{turn}")]
        asked = [*whole, HumanMessage(f"question {turn}", id=f"q{turn}")]
        agent.invoke({"messages": asked}, THREAD)
        whole = StoredMessageHistory(store, "t", scope=ANN).messages
        assert beginnings(whole) == [
            f"{kind} {n}" for n in range(turn + 1) for kind in ("question", "answer")
        ]
        assert beginnings(model.seen[-1])[-1] == f"question {turn}"
        assert len(model.seen[-1]) < 8


class Held(Scripted):
    """Says that it was asked, and answers when it is let go."""

    asked: Any = None
    let_go: Any = None

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        self.asked.set()
        await self.let_go.wait()
        return self._generate(messages)


class Run:
    """One run of an agent on a stored conversation, begun and ended at moments of the test's choice."""

    def __init__(self, store: HistoryStore, number: int, question: str, edit: str, steps: int) -> None:
        script = [*(calls(number, n, 1) for n in range(steps)), AIMessage(f"answer {number}")]
        self.model = Held(script=script, asked=asyncio.Event(), let_go=asyncio.Event())
        stored = StoredThreadMiddleware(store, scope=ANN, max_tokens=500, counter=WordCounter())
        self.agent: Any = create_agent(self.model, [find], middleware=[stored])
        self.question = HumanMessage(f"{question} {edit}", id=question)
        self.turn = [f"{question} {edit}", *said_in(number, script)[1:]]
        self.task: asyncio.Task[Any] | None = None

    async def go_on(self) -> bool:
        """Begins the run, or ends it, and returns whether its result should be stored now."""
        if self.task is None:
            self.task = asyncio.create_task(self.agent.ainvoke({"messages": [self.question]}, THREAD))
            await self.model.asked.wait()
            return False
        self.model.let_go.set()
        try:
            await self.task
        except StoreConflictError:
            return False
        return True


async def check_runs_at_once(before: list[BaseMessage], runs: list[Any], order: list[int]) -> None:
    store = HistoryStore(":memory:")
    history = StoredMessageHistory(store, "t", scope=ANN)
    history.add_messages(before)
    begun = [Run(store, number, *run) for number, run in enumerate(runs)]
    turns = [beginnings(before[n : n + 2]) for n in range(0, len(before), 2)]
    for number in order:
        run = begun[number]
        questions = [turn[0].split()[0] for turn in turns]
        if await run.go_on():
            end = questions.index(str(run.question.id)) if run.question.id in questions else len(turns)
            turns = [*turns[:end], run.turn]
        elif run.task is not None and run.task.done():
            assert run.question.id not in questions
    assert beginnings(history.messages) == [text for turn in turns for text in turn]


@draws(asynchronous=True)
@given(
    stored=st.integers(0, 4),
    runs=st.lists(
        st.tuples(st.sampled_from(["q0", "q1"]), st.sampled_from(["old", "new"]), st.integers(0, 1)),
        min_size=2,
        max_size=3,
    ),
    data=st.data(),
)
def test_a_question_that_several_runs_answer_at_once_has_one_answer(
    stored: int, runs: list[tuple[str, str, int]], data: st.DataObject
) -> None:
    """Whatever begins and ends first: behind each question is the whole result of one run, the last that ended; a run whose question was replaced is a conflict."""
    before = [
        message
        for n in range(2)
        for message in (HumanMessage(f"q{n} old", id=f"q{n}"), AIMessage(f"a{n} old", id=f"a{n}"))
    ]
    order = data.draw(st.permutations([*range(len(runs)), *range(len(runs))]))
    asyncio.run(check_runs_at_once(before[:stored], runs, order))
