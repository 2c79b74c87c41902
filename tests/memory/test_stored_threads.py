"""`StoredThreadMiddleware` among other middleware: nothing that was said is lost, doubled, cut or out of order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware, SummarizationMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import Field

from langchain_budget import BudgetMiddleware, StoredMessageHistory, StoredThreadMiddleware
from rankbudget import Scope
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
    checkpointed=st.booleans(),
    asynchronous=st.booleans(),
)
def test_what_was_said_is_stored_whatever_is_removed(
    runs: list[tuple[list[int], bool]], other: str | None, checkpointed: bool, asynchronous: bool
) -> None:
    """Each message is stored once, whole and in order, no summary is; a model sees the stored order; a failed run waits."""
    store, model = HistoryStore(":memory:"), Scripted(script=[], seen=[])
    stored = StoredThreadMiddleware(store, scope=ANN, max_tokens=120, counter=WordCounter())
    saver = InMemorySaver() if checkpointed else None
    others = [] if other is None else [OTHERS[other]()]
    agent = create_agent(model, [find], middleware=[stored, *others], checkpointer=saver)
    expected, waiting = list[str](), list[str]()
    for turn, (steps, fails) in enumerate(runs):
        script = [*(calls(turn, n, count) for n, count in enumerate(steps)), AIMessage(f"answer {turn}")]
        said = said_in(turn, script[:-1] if fails else script)
        model.script[:] = [*script[:-1], OSError()] if fails else script
        asked: Any = {"messages": [HumanMessage(f"question {turn}", id=f"q{turn}")]}
        try:
            asyncio.run(agent.ainvoke(asked, THREAD)) if asynchronous else agent.invoke(asked, THREAD)
        except OSError:
            waiting += said if checkpointed else []
        else:
            expected, waiting = [*expected, *waiting, *said], []
        order = [*expected, *waiting, *said]
        for request in model.seen:
            places = [order.index(text) for text in beginnings(request) if text in order]
            assert places == sorted(set(places))
        assert f"question {turn}" in beginnings(model.seen[-1]) or other == "summarize"
        model.seen.clear()
        whole = StoredMessageHistory(store, "t", scope=ANN).messages
        assert beginnings(whole) == expected
        assert all(len(m.text.split()) == 22 for m in whole if m.type == "tool") or other == "shorten"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_run_that_waits_for_a_human_goes_on(asynchronous: bool) -> None:
    """With a checkpointer an interrupted run resumes, and the conversation is stored in its order."""
    store, model = HistoryStore(":memory:"), Scripted(script=[], seen=[])
    stored = StoredThreadMiddleware(store, scope=ANN, max_tokens=90, counter=WordCounter())
    human = HumanInTheLoopMiddleware(interrupt_on={"find": True})
    agent = create_agent(model, [find], middleware=[stored, human], checkpointer=InMemorySaver())

    def run(given: Any) -> None:
        asyncio.run(agent.ainvoke(given, THREAD)) if asynchronous else agent.invoke(given, THREAD)

    expected: list[str] = []
    for turn in range(5):
        model.script[:] = script = [calls(turn, 0, 2), AIMessage(f"answer {turn}")]
        expected += said_in(turn, list(script))
        run({"messages": [HumanMessage(f"question {turn}")]})
        assert len(model.script) == 1
        run(Command(resume={"decisions": [{"type": "approve"}] * 2}))
        sent = [expected.index(text) for text in beginnings(model.seen[-1])]
        assert sent == sorted(sent)
    assert beginnings(StoredMessageHistory(store, "t", scope=ANN).messages) == expected


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


OPERATIONS = st.one_of(
    st.just(("ask", 0)),
    st.tuples(st.sampled_from(["fork", "delete", "again", "edit", "change"]), st.integers(0, 9)),
)


class Branching:
    """An agent with a checkpointer, whose conversation is forked and edited as LangGraph's users do."""

    def __init__(self, middleware: list[Any], *, asynchronous: bool) -> None:
        self.model = Scripted(script=[], seen=[])
        self.agent = create_agent(self.model, [], middleware=middleware, checkpointer=InMemorySaver())
        self.asynchronous = asynchronous
        self.ends: list[Any] = []

    def does(self, operation: str, which: int, number: int) -> list[str]:
        """Returns what the model was sent after one operation."""
        asked: Any = {"messages": [HumanMessage(f"question {number}", id=f"q{number}")]}
        config = THREAD
        if operation == "change" and self.ends:
            state = self.agent.get_state(THREAD).values["messages"]
            said = [m for m in state if m.id[0] in "qa"]
            changed = said[which % len(said)].model_copy(update={"content": f"changed {number}"})
            self.agent.update_state(THREAD, {"messages": [changed]})
        elif operation in ("fork", "delete") and self.ends:
            config = self.ends[which % len(self.ends)] if operation == "fork" else THREAD
            said = [m.id for m in self.agent.get_state(THREAD).values["messages"] if m.id[0] in "qa"]
            turn = which % (len(said) // 2) * 2 if said else 0
            removed = [RemoveMessage(id=name) for name in said[turn : turn + 2]]
            if operation == "delete":
                self.agent.update_state(THREAD, {"messages": removed})
        elif operation in ("again", "edit") and self.ends:
            asked, config = None, self._before_an_answer(which)
            if operation == "edit":
                question = self.agent.get_state(config).values["messages"][-1]
                changed = question.model_copy(update={"content": f"edited {number}"})
                config = self.agent.update_state(config, {"messages": [changed]}, as_node="__start__")
        self.model.script[:] = [AIMessage(f"answer {number}", id=f"a{number}")]
        if self.asynchronous:
            asyncio.run(self.agent.ainvoke(asked, config))
        else:
            self.agent.invoke(asked, config)
        self.ends.append(self.agent.get_state(THREAD).config)
        return beginnings(self.model.seen[-1])

    def _before_an_answer(self, which: int) -> Any:
        """Returns the first place after a question; a user goes on from there."""
        found = {
            state.values["messages"][-1].id: state.config
            for state in self.agent.get_state_history(THREAD)
            if state.next and state.values.get("messages")
        }
        asked = sorted(name for name in found if name.startswith("q"))
        return found[asked[which % len(asked)]]


@draws(asynchronous=True)
@given(
    operations=st.lists(OPERATIONS, min_size=2, max_size=7),
    older=st.integers(0, 3),
    asynchronous=st.booleans(),
)
def test_beside_a_checkpointer_the_branch_of_its_state_is_the_conversation(
    operations: list[tuple[str, int]], older: int, asynchronous: bool
) -> None:
    """Forked, edited, asked again, with messages removed: sent is what an agent without the store sends, after older history."""
    store = HistoryStore(":memory:")
    stored = StoredThreadMiddleware(store, scope=ANN, max_tokens=10_000, counter=WordCounter())
    before = [
        kind(f"older {n}", id=f"o{n}{kind.__name__}")
        for n in range(older)
        for kind in (HumanMessage, AIMessage)
    ]
    StoredMessageHistory(store, "t", scope=ANN).add_messages(before)
    ours, plain = (Branching(each, asynchronous=asynchronous) for each in ([stored], []))
    for number, (operation, which) in enumerate(operations):
        expected = plain.does(operation, which, number)
        assert ours.does(operation, which, number) == [*beginnings(before), *expected]
