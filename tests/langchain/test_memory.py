"""BudgetMemory is a BaseMemory that loads what fits and keeps everything; BudgetMessageHistory the same around any store."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from langchain_classic.base_memory import BaseMemory
from langchain_classic.chains.conversation.base import ConversationChain
from langchain_classic.memory import CombinedMemory, ReadOnlySharedMemory
from langchain_core.chat_history import BaseChatMessageHistory, InMemoryChatMessageHistory
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder, PromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnableWithMessageHistory

from langchain_budget import BudgetMemory, BudgetMessageHistory
from langchain_budget._codec import CODEC
from rankbudget import TokenBudget, counter_for
from rankbudget.errors import BudgetExceededError
from rankbudget.testing import WordCounter

WORDS = WordCounter(framing=1, priming=0)  # a message costs its words and one
EXACT = counter_for("o200k_base")


class Rows(BaseChatMessageHistory):
    """A store like a database: every read is a new list, every row a new object."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, Any]] = []
        self.awaited = 0

    @property
    def messages(self) -> list[Any]:
        return [
            (HumanMessage if row["type"] == "human" else AIMessage)(
                **{k: v for k, v in row.items() if k != "type"}
            )
            for row in self.rows
        ]

    async def aget_messages(self) -> list[Any]:
        self.awaited += 1
        return self.messages

    def add_messages(self, messages: Any) -> None:
        self.rows += [{"type": m.type, "content": m.content, "id": m.id} for m in messages]

    async def aadd_messages(self, messages: Any) -> None:
        self.awaited += 1
        self.add_messages(messages)

    def clear(self) -> None:
        self.rows = []

    async def aclear(self) -> None:
        self.awaited += 1
        self.clear()


class Found(BaseRetriever):
    """Finds the same facts for everything."""

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [
            Document(id=f"d{i}", page_content=f"Fact {i} about {s}: it is number {i}.")
            for i, s in enumerate(["tea", "rain", "cats"] * 10)
        ]


def talk(memory: Any, turns: int, words: str = "word") -> None:
    for i in range(turns):
        memory.save_context({"input": f"question {i} {words}"}, {"output": f"answer {i} {words}"})


# ---------------------------------------------------------------- load, save, clear
def test_a_load_is_within_the_limit_and_a_save_keeps_everything() -> None:
    """Twenty turns of eight tokens load as the newest turns within 30; the store holds all forty messages."""
    memory = BudgetMemory(max_tokens=30, counter=WORDS, return_messages=True)
    talk(memory, 20)
    loaded = memory.load_memory_variables({})["history"]
    assert sum(WORDS.count_message(CODEC.to_dict(m)) for m in loaded) <= 30
    assert (loaded[0].type, loaded[-1].content) == ("human", "answer 19 word")
    assert len(memory.chat_memory.messages) == 40


def test_a_text_is_counted_as_it_reads() -> None:
    """Without return_messages the conversation is one text within the limit, in LangChain's own form."""
    memory = BudgetMemory(max_tokens=40, counter=EXACT, human_prefix="Friend", ai_prefix="Bot")
    talk(memory, 20)
    text = memory.load_memory_variables({})["history"]
    assert text.startswith("Friend: question")
    assert text.endswith("Bot: answer 19 word")
    assert 20 <= EXACT.count(text) <= 40


def test_a_cut_is_remembered_until_it_must_move() -> None:
    """Saving a turn that still fits leaves the start of the loaded conversation where it was."""
    memory = BudgetMemory(max_tokens=60, counter=WORDS, return_messages=True)
    talk(memory, 20)
    starts = []
    for i in range(6):
        memory.load_memory_variables({})
        memory.save_context({"input": f"new {i}"}, {"output": "yes"})
        starts.append(memory.load_memory_variables({})["history"][0].content)
    assert len(set(starts)) <= 3


def test_loaded_messages_are_copies() -> None:
    """Changing what was loaded does not reach the store."""
    memory = BudgetMemory(max_tokens=100, counter=WORDS, return_messages=True)
    talk(memory, 1)
    memory.load_memory_variables({})["history"][0].content = "changed"
    assert memory.chat_memory.messages[0].content == "question 0 word"


def test_reading_twice_gives_the_same() -> None:
    """A second read in the same turn moves no cut."""
    memory = BudgetMemory(max_tokens=30, counter=WORDS)
    talk(memory, 20)
    assert memory.load_memory_variables({}) == memory.load_memory_variables({})


def test_an_empty_memory_loads_as_empty() -> None:
    """Nothing stored is an empty text, or an empty list."""
    assert BudgetMemory(memory_key="baz").load_memory_variables({}) == {"baz": ""}
    assert BudgetMemory(return_messages=True).load_memory_variables({}) == {"history": []}


async def test_every_method_has_a_real_async_form() -> None:
    """The async methods ask the store's async methods, and give what the sync ones give."""
    store = Rows()
    memory = BudgetMemory(max_tokens=30, counter=WORDS, chat_memory=store)
    for i in range(20):
        await memory.asave_context({"input": f"question {i}"}, {"output": f"answer {i}"})
    assert await memory.aload_memory_variables({}) == memory.load_memory_variables({})
    await memory.aclear()
    assert store.rows == []
    assert store.awaited == 22


def test_a_store_that_makes_new_objects_is_trimmed_alike() -> None:
    """A database-backed history loads what an in-memory one loads."""
    first, second = (
        BudgetMemory(max_tokens=30, counter=WORDS, chat_memory=s)
        for s in (Rows(), InMemoryChatMessageHistory())
    )
    for memory in (first, second):
        talk(memory, 20)
    assert first.load_memory_variables({}) == second.load_memory_variables({})


def test_agents_turns_are_stored_whole() -> None:
    """Outputs may be a message, or all messages of an agent's turn, calls and results included."""
    memory = BudgetMemory(max_tokens=200, counter=WORDS, return_messages=True)
    call = AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "c1"}])
    memory.save_context(
        {"input": "look it up"},
        {"output": [call, ToolMessage("found", tool_call_id="c1"), AIMessage("It is found.")]},
    )
    memory.save_context({"input": HumanMessage("thanks")}, {"output": AIMessage("welcome")})
    assert [m.type for m in memory.load_memory_variables({})["history"]] == [
        "human",
        "ai",
        "tool",
        "ai",
        "human",
        "ai",
    ]


def test_a_removal_is_carried_out() -> None:
    """A RemoveMessage in a store takes its message away instead of breaking the load."""
    memory = BudgetMemory(max_tokens=200, counter=WORDS, return_messages=True)
    memory.chat_memory.add_messages(
        [HumanMessage("a", id="1"), AIMessage("b", id="2"), HumanMessage("c", id="3"), RemoveMessage(id="3")]
    )
    assert [m.content for m in memory.load_memory_variables({})["history"]] == ["a", "b"]


def test_one_giant_turn_does_not_break_the_next() -> None:
    """A stored exchange that can never fit is left out; the question of this turn is not refused for it."""
    memory = BudgetMemory(max_tokens=30, counter=WORDS)
    memory.save_context({"input": "word " * 500}, {"output": "word " * 500})
    assert memory.load_memory_variables({"input": "and now?"}) == {"history": ""}


def test_a_prompt_too_large_without_any_memory_is_refused() -> None:
    """When prompt and question alone exceed the limit the load raises, with or without stored messages."""
    prompt = ChatPromptTemplate([MessagesPlaceholder("history"), ("human", "{input}")])
    for stored in (0, 5):
        for limits in ({"max_tokens": 8}, {"budget": TokenBudget(context_window=10, reserve=2)}):
            memory = BudgetMemory(**limits, counter=EXACT, prompt=prompt, return_messages=True)
            talk(memory, stored)
            with pytest.raises(BudgetExceededError):
                memory.load_memory_variables({"input": "Which of them is it that you mean, after all?"})


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ({"a": "x", "b": "y"}, {"out": "z"}, "One input key expected"),
        ({"history": "x"}, {"out": "z"}, r"One input key expected got \[\]"),
        ({"a": "x"}, {}, "Got multiple output keys"),
        ({"a": "x"}, {"out": "z", "more": "w"}, "Got multiple output keys"),
    ],
)
def test_ambiguous_keys_are_refused_as_langchain_refuses_them(
    inputs: Any, outputs: Any, message: str
) -> None:
    """Which input and which output is meant must be clear, with the messages LangChain's own memories use."""
    with pytest.raises(ValueError, match=message):
        BudgetMemory().save_context(inputs, outputs)


def test_a_failing_summarizer_loses_nothing() -> None:
    """When the summarizer raises, the load is a valid cut, the store is whole, and the report says so."""

    def down(text: str, max_tokens: int) -> str:
        raise ConnectionError

    memory = BudgetMemory(max_tokens=40, counter=WORDS, return_messages=True, summarizer=down)
    talk(memory, 20)
    first = memory.fit()
    assert any("summary_failed" in w for w in first.report.warnings)
    assert memory.load_memory_variables({})["history"] == list(first.messages)
    assert first.messages[0].type == "human"
    assert len(memory.chat_memory.messages) == 40


async def test_a_summary_comes_from_any_model() -> None:
    """A chat model writes the running summary, sync and async, and it is counted."""
    memory = BudgetMemory(
        max_tokens=120,
        counter=EXACT,
        return_messages=True,
        summarizer=FakeListChatModel(responses=["They spoke of numbers."]),
    )
    talk(memory, 40)
    for loaded in (
        memory.load_memory_variables({})["history"],
        (await memory.aload_memory_variables({}))["history"],
    ):
        assert "They spoke of numbers." in loaded[0].content
        assert EXACT.count_messages([CODEC.to_dict(m) for m in loaded]) <= 120


# ---------------------------------------------------------------- beside documents and in chains
def test_documents_get_what_the_conversation_leaves() -> None:
    """Conversation and documents together stay within the limit, and the best documents are the ones about the input."""
    memory = BudgetMemory(
        max_tokens=200, counter=EXACT, retriever=Found(), return_messages=True, return_docs=True
    )
    talk(memory, 4)
    assert memory.memory_variables == ["history", "documents"]
    loaded = memory.load_memory_variables({"input": "What about cats?"})
    texts = "\n".join(d.page_content for d in loaded["documents"])
    assert EXACT.count_messages([CODEC.to_dict(m) for m in loaded["history"]]) + EXACT.count(texts) <= 200
    assert "cats" in texts
    assert 0 < len(loaded["documents"]) < 30
    whole = BudgetMemory(max_tokens=200, counter=EXACT, retriever=Found())
    assert isinstance(whole.load_memory_variables({"input": "What about cats?"})["documents"], str)


def test_the_chains_prompt_is_counted() -> None:
    """With the prompt given, what is formatted from it fits to the token; documents included."""
    prompt = ChatPromptTemplate(
        [("system", "You know:\n{documents}"), MessagesPlaceholder("history"), ("human", "{input}")]
    )
    memory = BudgetMemory(
        max_tokens=150, counter=EXACT, prompt=prompt, retriever=Found(), return_messages=True
    )
    talk(memory, 40)
    inputs = {"input": "What about cats?"}
    sent = prompt.format_messages(**inputs, **memory.load_memory_variables(inputs))
    assert 75 <= EXACT.count_messages([CODEC.to_dict(m) for m in sent]) <= 150


async def test_a_conversation_chain_runs_on_it() -> None:
    """A ConversationChain of thirty turns never sees more history than fits, by invoke and by ainvoke."""
    prompt = PromptTemplate.from_template("Talk.\n{history}\nHuman: {input}\nAI:")
    memory = BudgetMemory(max_tokens=120, counter=EXACT, prompt=prompt)
    sizes: list[int] = []

    class Model(FakeListChatModel):
        def _call(self, messages: Any, *args: Any, **kwargs: Any) -> str:
            sizes.append(EXACT.count_messages([CODEC.to_dict(m) for m in messages]))
            return super()._call(messages, *args, **kwargs)

    chain = ConversationChain(llm=Model(responses=["I see."]), memory=memory, prompt=prompt)
    for i in range(30):
        inputs = {"input": f"This is sentence number {i}."}
        answer = chain.invoke(inputs) if i % 2 else await chain.ainvoke(inputs)
        assert answer["response"] == "I see."
    assert max(sizes) <= 120
    assert len(memory.chat_memory.messages) == 60


def test_it_combines_with_other_memories() -> None:
    """It works in CombinedMemory and behind ReadOnlySharedMemory, as every BaseMemory does."""
    first, second = BudgetMemory(memory_key="foo"), BudgetMemory(memory_key="bar")
    both = CombinedMemory(memories=[first, second])
    both.save_context({"input": "hi"}, {"output": "hello"})
    assert both.load_memory_variables({}) == {"foo": "Human: hi\nAI: hello", "bar": "Human: hi\nAI: hello"}
    assert ReadOnlySharedMemory(memory=first).load_memory_variables({}) == {"foo": "Human: hi\nAI: hello"}
    assert isinstance(first, BaseMemory)


def test_many_threads_may_use_one_memory() -> None:
    """Loads and saves at the same time lose no message and always load a valid conversation."""
    memory = BudgetMemory(max_tokens=60, counter=WORDS, return_messages=True)
    failures: list[Exception] = []

    def work() -> None:
        try:
            for _ in range(25):
                memory.save_context({"input": "question one"}, {"output": "answer one"})
                loaded = memory.load_memory_variables({})["history"]
                assert loaded[0].type == "human"
                assert sum(WORDS.count_message(CODEC.to_dict(m)) for m in loaded) <= 60
        except Exception as error:  # noqa: BLE001 - whatever a thread raises fails the test
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(memory.chat_memory.messages) == 400


# ---------------------------------------------------------------- message histories
def test_a_history_is_fitted_when_read_and_whole_where_it_is_stored() -> None:
    """The wrapper reads within its limit, writes through, and clears both."""
    store = Rows()
    history = BudgetMessageHistory(store, max_tokens=30, counter=WORDS)
    history.add_user_message("start")
    history.add_ai_message("yes")
    history.add_messages(
        [m for i in range(20) for m in (HumanMessage(f"question {i}"), AIMessage(f"answer {i}"))]
    )
    assert len(store.rows) == 42
    assert history.report.total_tokens <= 30
    assert len(history.messages) < 12
    history.clear()
    assert (store.rows, history.messages) == ([], [])


async def test_a_history_is_async_to_the_store() -> None:
    """Async reads and writes go through the store's async methods."""
    store = Rows()
    history = BudgetMessageHistory(store, budget=TokenBudget(context_window=100, reserve=20), counter=WORDS)
    await history.aadd_messages([HumanMessage("one"), AIMessage("two")])
    assert [m.content for m in await history.aget_messages()] == ["one", "two"]
    await history.aclear()
    assert store.awaited == 3


def test_a_runnable_with_message_history_sees_what_fits() -> None:
    """Around a factory, each session keeps its own cut, and the stored thread grows by exactly what was said."""
    stores: dict[str, Rows] = {}
    seen: list[int] = []

    def model(messages: list[Any]) -> AIMessage:
        seen.append(len(messages))
        return AIMessage("fine")

    def get_session_history(session_id: str) -> Rows:
        return stores.setdefault(session_id, Rows())

    chain = RunnableWithMessageHistory(
        RunnableLambda(model), BudgetMessageHistory.around(get_session_history, max_tokens=30, counter=WORDS)
    )
    for i in range(20):
        for user in ("ann", "bob"):
            chain.invoke([HumanMessage(f"question {i}")], config={"configurable": {"session_id": user}})
    assert [len(store.rows) for store in stores.values()] == [40, 40]
    assert max(seen) <= 13


def test_a_thread_that_starts_again_is_looked_at_from_its_beginning() -> None:
    """What is known of a thread ends with it: an order to remove, deep inside another and longer one, is still carried out."""
    memory = BudgetMemory(max_tokens=1000, return_messages=True)
    memory.chat_memory.add_messages([HumanMessage("a", id="1"), AIMessage("b", id="2")])
    memory.load_memory_variables({})
    memory.chat_memory.clear()
    memory.chat_memory.add_messages(
        [HumanMessage("c", id="3"), RemoveMessage(id="3"), HumanMessage("d", id="4"), AIMessage("e", id="5")]
    )
    assert [m.content for m in memory.load_memory_variables({})["history"]] == ["d", "e"]
