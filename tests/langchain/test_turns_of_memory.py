"""One plan for a load: conversation, documents and prompt together, and two loads are equal."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder, PromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import ConfigurableFieldSpec, RunnableLambda, RunnableWithMessageHistory

from langchain_budget import BudgetMemory, BudgetMessageHistory, StoredMessageHistory
from langchain_budget._codec import CODEC
from rankbudget import Scope, counter_for
from rankbudget.errors import BudgetExceededError
from rankbudget.memory import HistoryStore
from rankbudget.testing import check_refusal
from rankbudget.testing.repairs import repaired
from tests.drawing import draws

EXACT = counter_for("o200k_base")


class Facts(BaseRetriever):
    """Finds thirty facts."""

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        return [Document(f"Fact {i}: number {i} of tea and cats is {i * 7}.") for i in range(30)]


def chat(turns: int) -> list[BaseMessage]:
    return [
        m
        for i in range(turns)
        for m in (HumanMessage(f"What is {i} and why?"), AIMessage(f"It is {i}, of course."))
    ]


@pytest.mark.parametrize("return_messages", [False, True])
@pytest.mark.parametrize("limit", range(120, 400, 7))
def test_the_finished_prompt_is_never_one_over(limit: int, return_messages: bool) -> None:
    """History and documents are in one prompt: counted as it is sent it is within the limit, and nearly all is used."""
    if return_messages:
        parts = [("system", "Answer.\n{documents}"), MessagesPlaceholder("history"), ("human", "{input}")]
        prompt: Any = ChatPromptTemplate(parts)
    else:
        prompt = PromptTemplate.from_template("Answer.\n{documents}\n{history}\nHuman: {input}\nAI:")
    memory = BudgetMemory(
        max_tokens=limit, counter=EXACT, prompt=prompt, retriever=Facts(), return_messages=return_messages
    )
    memory.chat_memory.add_messages(chat(30))
    loaded = memory.load_memory_variables({"input": "What is number 7 of tea?"})
    assert memory.load_memory_variables({"input": "What is number 7 of tea?"}) == loaded
    made = prompt.format_prompt(**loaded, input="What is number 7 of tea?").to_messages()
    total = EXACT.count_messages([{"role": _ROLES[m.type], "content": m.content} for m in made])
    assert limit // 2 <= total <= limit


_ROLES = {"human": "user", "ai": "assistant", "system": "system"}


def test_the_report_is_of_what_was_loaded() -> None:
    """Its documents, in the same figures; without a search nothing is said about one."""
    prompt = ChatPromptTemplate(
        [("system", "You know:\n{documents}"), MessagesPlaceholder("history"), ("human", "{input}")]
    )
    memory = BudgetMemory(
        max_tokens=150, counter=EXACT, prompt=prompt, retriever=Facts(), return_messages=True
    )
    memory.chat_memory.add_messages(chat(40))
    for report in (memory.report, memory.fit().report):
        assert report.covers == "history"
        assert not any("knowledge" in text for text in (*report.warnings, report.table()))
    inputs = {"input": "What about cats?"}
    loaded = memory.load_memory_variables(inputs)
    sent = prompt.format_messages(**inputs, **loaded)
    for report in (memory.report, copy.deepcopy(memory).report):
        assert report.total_tokens == EXACT.count_messages(
            [{"role": _ROLES[m.type], "content": m.content} for m in sent]
        )
        assert report.block("knowledge").kept == len(loaded["documents"].splitlines())
        assert report.covers == "prompt"
    assert pickle.loads(pickle.dumps(memory)).report.covers == "history"
    memory.load_memory_variables({})
    assert not any("knowledge" in warning for warning in memory.report.warnings)
    memory.clear()
    assert memory.report.total_tokens < 20


def test_documents_that_the_prompt_does_not_show_take_no_room() -> None:
    """They are not even looked for; the history keeps the whole room, and a warning says so."""
    prompt = ChatPromptTemplate([MessagesPlaceholder("history"), ("human", "{input}")])
    options: dict[str, Any] = {
        "max_tokens": 150, "counter": EXACT, "prompt": prompt, "return_messages": True,
    }  # fmt: skip
    alone, beside = BudgetMemory(**options), BudgetMemory(**options, retriever=Facts())
    for memory in (alone, beside):
        memory.chat_memory.add_messages(chat(40))
    inputs = {"input": "What about cats?"}
    loaded = beside.load_memory_variables(inputs)
    assert loaded == {**alone.load_memory_variables(inputs), "documents": ""}
    assert any("'documents' is neither counted" in warning for warning in beside.report.warnings)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_agents_scratchpad_may_be_unknown() -> None:
    """When the memory is loaded nothing has been written into the scratchpad yet."""
    slots = [MessagesPlaceholder("history"), ("human", "{input}"), MessagesPlaceholder("agent_scratchpad")]
    prompt = ChatPromptTemplate([("system", "Use tools."), *slots])
    memory = BudgetMemory(
        max_tokens=60, counter=EXACT, prompt=prompt, input_key="input", return_messages=True
    )
    memory.chat_memory.add_messages(chat(30))
    loaded = memory.load_memory_variables({"input": "And now?"})["history"]
    assert 0 < len(loaded) < 20


def test_a_summarizer_that_raises_once_stores_nothing_twice() -> None:
    """The host reads the history twice a turn and compares lengths: both reads are equal, whatever the summarizer does."""
    failures = [ConnectionError("down")]

    def write(text: str, max_tokens: int) -> str:
        if failures:
            raise failures.pop()
        return "They talked."

    store = InMemoryChatMessageHistory()
    store.add_messages(chat(40))
    around = BudgetMessageHistory.around(lambda session_id: store, max_tokens=150, summarizer=write)
    chain = RunnableWithMessageHistory(FakeListChatModel(responses=["fine"]), around)
    config: Any = {"configurable": {"session_id": "ann"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(3):
            chain.invoke([HumanMessage(f"Question {i}")], config)
    assert [m.content for m in store.messages[80:]] == [
        t for i in range(3) for t in (f"Question {i}", "fine")
    ]
    assert around.forget("ann")  # type: ignore[attr-defined]  # documented


@draws()
@given(
    turns=st.lists(st.tuples(st.sampled_from([1, 2, 20, 40]), st.integers(1, 20)), min_size=3, max_size=12),
    looks=st.lists(
        st.sampled_from(["report", "buffer", "buffer_as_str", "buffer_as_messages"]), min_size=1, max_size=3
    ),
    limit=st.integers(220, 500),
    whole=st.booleans(),
)
def test_a_look_changes_no_load(
    turns: list[tuple[int, int]], looks: list[str], limit: int, whole: bool
) -> None:
    """What a conversation is shown as, between its loads, changes nothing of them."""
    prompt = ChatPromptTemplate(
        [("system", "Be brief."), MessagesPlaceholder("history"), ("human", "{input}")]
    )
    made = [
        BudgetMemory(
            max_tokens=limit, counter="o200k_base", return_messages=True, prompt=prompt if whole else None
        )
        for _ in range(2)
    ]
    for number, (question, answer) in enumerate(turns):
        inputs = {"input": f"{number}? " + "why so late? " * question}
        loads = [memory.load_memory_variables(inputs)["history"] for memory in made]
        assert loads[0] == loads[1]
        assert made[0].report == made[1].report
        for look in looks:
            getattr(made[1], look)
        for memory in made:
            memory.save_context(inputs, {"output": "It is late. " * answer})


def steps(turn: int, calls: int, answered: int) -> list[BaseMessage]:
    """Returns a question and a call of tools, with results for the first of them."""
    made = [{"name": "find", "args": {"n": n}, "id": f"c{turn}.{n}"} for n in range(calls)]
    results = [ToolMessage(f"found {n}", tool_call_id=f"c{turn}.{n}") for n in range(answered)]
    return [HumanMessage(f"Find {turn}" + " please" * (turn % 40)), AIMessage("", tool_calls=made), *results]


def histories(stored: list[BaseMessage], limit: int, **options: Any) -> list[Any]:
    """Returns histories of all kinds that hold the same conversation."""
    listed = InMemoryChatMessageHistory(messages=list(stored))
    in_database = StoredMessageHistory(HistoryStore(":memory:"), "t", scope=Scope(user="ann"))
    in_database.add_messages(stored)
    around = BudgetMessageHistory.around(lambda kept: kept, max_tokens=limit, counter=EXACT, **options)
    return [around(listed), around(in_database)]


@draws()
@given(
    turns=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3), st.booleans()), min_size=1, max_size=6),
    limit=st.integers(60, 400),
)
def test_a_question_can_follow_whatever_is_read(turns: list[tuple[int, int, bool]], limit: int) -> None:
    """A call without all its results is not handed out, so that no provider refuses what is asked next."""
    stored: list[BaseMessage] = []
    for turn, (calls, answered, ended) in enumerate(turns):
        stored += steps(turn, calls, min(calls, answered))
        stored += [AIMessage(f"Done {turn}")] if ended else []
    waits = not turns[-1][2] and turns[-1][1] < turns[-1][0]
    asked = HumanMessage("No, stop. Where is order 8?")
    for history in histories(stored, limit):
        try:
            found = history.messages
        except BudgetExceededError as error:
            check_refusal(stored, error, limit=limit, counter=EXACT, codec=CODEC)
            return
        assert history.messages == found
        assert repaired([*found, asked], CODEC) == [*found, asked]
        assert history.history.messages == stored
        left_out = [d for d in history.report.decisions if d.reason == "unanswered_call"]
        assert bool(left_out) or not waits
    memory = BudgetMemory(max_tokens=limit, counter=EXACT, return_messages=True)
    memory.chat_memory.add_messages(stored)
    for inputs in ({"input": asked.content}, {"input": asked.content, "other": 1}):  # or it is not clear
        loaded = memory.load_memory_variables(inputs)["history"]
        assert repaired([*loaded, asked], CODEC) == [*loaded, asked]


@draws()
@given(
    calls=st.integers(1, 3), answered=st.integers(0, 2), limit=st.integers(100, 400), turns=st.integers(0, 9)
)
def test_results_can_follow_where_they_are_next(calls: int, answered: int, limit: int, turns: int) -> None:
    """With `results_next` the call at the end is handed out for an input of its results."""
    given_results = min(answered, calls - 1)
    stored = [*chat(turns), *steps(turns, calls, given_results)]
    results = [ToolMessage("late", tool_call_id=f"c{turns}.{n}") for n in range(given_results, calls)]
    for history in histories(stored, limit, results_next=True):
        found = history.messages
        assert found[-1 - given_results :] == stored[-1 - given_results :]
        assert repaired([*found, *results], CODEC) == [*found, *results]


def test_a_thread_goes_on_after_a_call_that_was_not_approved() -> None:
    """The next question is asked and stored, also where the question of that call does not fit."""
    sent: list[list[BaseMessage]] = []

    def model(messages: list[BaseMessage]) -> AIMessage:
        sent.append(messages)
        return AIMessage("Order 8 is on its way.")

    picture = {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}
    for history in histories([*chat(2), HumanMessage([picture]), steps(7, 1, 0)[1]], limit=100):
        chain = RunnableWithMessageHistory(RunnableLambda(model), lambda session_id, kept=history: kept)
        chain.invoke([HumanMessage("No, stop.")], {"configurable": {"session_id": "ann"}})
        assert [m.content for m in sent[-1]] == [*(m.content for m in chat(2)), "No, stop."]
        assert [m.content for m in history.history.messages[-2:]] == ["No, stop.", "Order 8 is on its way."]


@pytest.mark.parametrize(
    ("args", "kwargs"), [(("ann", "c"), {}), (("ann",), {}), ((), {"conv": "c", "user": "ann"})]
)
def test_a_conversation_is_forgotten_however_it_is_named(args: Any, kwargs: Any) -> None:
    """Arguments by place, by name and by default name the same conversation, as a chain with several ids gives them."""
    stored = InMemoryChatMessageHistory(messages=chat(40))

    def find(user: str, conv: str = "c") -> InMemoryChatMessageHistory:
        return stored

    options: dict[str, Any] = {"max_tokens": 150, "counter": EXACT, "summarizer": lambda text, most: "Gist."}
    around: Any = BudgetMessageHistory.around(find, **options)
    fields = [ConfigurableFieldSpec(id=name, annotation=str) for name in ("user", "conv")]
    chain = RunnableWithMessageHistory(
        FakeListChatModel(responses=["fine"]), around, history_factory_config=fields
    )
    chain.invoke([HumanMessage("And now?")], {"configurable": {"user": "ann", "conv": "c"}})
    assert not around.forget("ann", "d")
    assert not around.forget()
    assert around.forget(*args, **kwargs)
    assert not around.forget(user="ann", conv="c")
