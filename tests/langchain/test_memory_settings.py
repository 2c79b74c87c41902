"""A memory's settings: a wrong one is refused, a changed one counts, and copies of memories, histories and middlewares are independent."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain_classic.memory import ConversationTokenBufferMemory
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableLambda

from langchain_budget import BudgetMemory, BudgetMessageHistory, BudgetMiddleware, pre_model_hook
from rankbudget.errors import BudgetConfigError
from rankbudget.testing import WordCounter

WORDS = WordCounter(framing=1, priming=0)


def words(text: str) -> int:
    """Counts as a function of a module does: it is pickled by its name."""
    return len(text.split())


class Writer:
    """Writes the same summary for everything, and counts how often."""

    calls: list[str] = []  # noqa: RUF012 - shared by all copies, so that no call goes unseen

    def __init__(self) -> None:
        type(self).calls.clear()

    def __call__(self, text: str, max_tokens: int) -> str:
        type(self).calls.append(text)
        return "They counted."


class Scorer:
    """Ranks nothing."""

    def score(self, query: str, segments: Any) -> list[float]:
        return [0.0 for _ in segments]


def talk(memory: Any, turns: int) -> None:
    for i in range(turns):
        memory.save_context({"input": f"question {i}"}, {"output": f"answer {i}"})


def chat(turns: int) -> list[Any]:
    return [m for i in range(turns) for m in (HumanMessage(f"question {i}"), AIMessage(f"answer {i}"))]


def again(made: Any) -> Any:
    return pickle.loads(pickle.dumps(made))


# ---------------------------------------------------------------- settings
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_token": 50}, "BudgetMemory has no option 'max_token'; did you mean 'max_tokens'"),
        ({"max_token_limit": 50, "llm": None}, "no option 'max_token_limit'"),
        ({"max_tokens": "many"}, r"max_tokens must be .*'many'"),
        ({"retriever": RunnableLambda(str)}, r"retriever must be .*RunnableLambda"),
        ({"tools": [3]}, r"each tool must be .*got 3"),
        ({"prompt": "Talk. {history} {input}"}, "prompt must be a prompt template .*str"),
        ({"tools": "look"}, "tools must be a list .*str"),
    ],
)
def test_a_wrong_setting_is_a_typed_error(options: Any, message: str) -> None:
    """What would leave a memory without its limit, or break it later, is refused by name when it is made."""
    with pytest.raises(BudgetConfigError, match=message):
        BudgetMemory(**options)


def test_what_is_no_tool_is_refused_wherever_tools_go() -> None:
    """Histories and hooks say so when they are made."""
    for make in (BudgetMessageHistory, pre_model_hook):
        with pytest.raises(BudgetConfigError, match=r"each tool must be .*got 3"):
            make(max_tokens=100, tools=[3])


def test_a_factory_and_a_hook_say_at_once_what_cannot_work() -> None:
    """A wrong option is an error where it is written, not when the first conversation comes."""
    with pytest.raises(BudgetConfigError, match="'max_token'; did you mean 'max_tokens'"):
        BudgetMessageHistory.around(InMemoryChatMessageHistory, max_token=50)
    with pytest.raises(BudgetConfigError, match=r"max_tokens must be .*got 0"):
        BudgetMessageHistory.around(InMemoryChatMessageHistory, max_tokens=0)
    with pytest.raises(BudgetConfigError, match=r"into must be .*'mesages'"):
        pre_model_hook(max_tokens=100, into="mesages")  # type: ignore[arg-type]  # the mistake


def test_a_changed_setting_counts_from_the_next_load_on() -> None:
    """A lower limit cuts, a higher one restores what the store has; one that cannot work changes nothing."""
    memory = BudgetMemory(max_tokens=1000, counter=WORDS, return_messages=True)
    talk(memory, 30)
    assert len(memory.load_memory_variables({})["history"]) == 60
    memory.max_tokens = 30
    assert memory.fit().report.limit == 30
    assert 0 < len(memory.load_memory_variables({})["history"]) <= 10
    with pytest.raises(BudgetConfigError, match=r"max_tokens must be .*got 0"):
        memory.max_tokens = 0
    assert (memory.max_tokens, memory.fit().report.limit) == (30, 30)
    lower = memory.model_copy(update={"max_tokens": 18})
    assert (lower.fit().report.limit, memory.fit().report.limit) == (18, 30)
    memory.return_messages, memory.human_prefix = False, "You"
    assert memory.load_memory_variables({})["history"].startswith("You: question")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory_key", "thread"),
        ("documents_key", "found"),
        ("input_key", "input"),
        ("output_key", "output"),
        ("return_docs", True),
        ("scorer", Scorer()),
    ],
)
def test_a_change_that_counts_nothing_keeps_the_cut_and_the_summary(name: str, value: Any) -> None:
    """Another name moves no cut and asks for no summary: the cached prefix stays."""
    memory = BudgetMemory(max_tokens=60, counter=WORDS, return_messages=True, summarizer=Writer())
    talk(memory, 20)
    memory.load_memory_variables({})
    talk(memory, 1)  # over the limit: cut down to half of it
    first = [m.content for m in memory.load_memory_variables({})["history"]][:2]
    calls = len(Writer.calls)
    assert calls > 0
    talk(memory, 1)
    setattr(memory, name, value)
    shown = memory.load_memory_variables({})[memory.memory_key]
    assert [m.content for m in shown][:2] == first
    assert len(Writer.calls) == calls
    memory.max_tokens = 30
    assert memory.fit().report.limit == 30


# ---------------------------------------------------------------- the names LangChain's memories have
@pytest.mark.parametrize("return_messages", [False, True])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_buffer_is_what_a_load_returns(return_messages: bool) -> None:
    """`buffer` and its two forms are there as LangChain's own memories have them, and hold what fits."""
    memory = BudgetMemory(max_tokens=40, counter=WORDS, return_messages=return_messages)
    talk(memory, 30)
    assert memory.buffer == memory.load_memory_variables({})["history"]
    assert memory.buffer == (memory.buffer_as_messages if return_messages else memory.buffer_as_str)
    assert memory.buffer_as_str.endswith("AI: answer 29")
    memory.buffer_as_messages[-1].content = "changed"
    assert memory.chat_memory.messages[-1].content == "answer 29"
    model = FakeListChatModel(
        responses=[""], custom_get_token_ids=lambda text: list(range(len(text.split())))
    )
    theirs = ConversationTokenBufferMemory(
        llm=model, chat_memory=InMemoryChatMessageHistory(messages=chat(3))
    )
    ours = BudgetMemory(max_tokens=1000, chat_memory=InMemoryChatMessageHistory(messages=chat(3)))
    for made in (ours, theirs):
        made.return_messages = return_messages
    assert (ours.buffer, ours.buffer_as_str, ours.buffer_as_messages) == (
        theirs.buffer,
        theirs.buffer_as_str,
        theirs.buffer_as_messages,
    )


# ---------------------------------------------------------------- copies
@pytest.mark.parametrize(
    "twin_of",
    [copy.deepcopy, again, lambda m: m.model_copy(deep=True)],
    ids=["deepcopy", "pickle", "model_copy"],
)
@pytest.mark.parametrize("counter", [WORDS, words, "o200k_base"], ids=["counter", "function", "name"])
def test_a_copied_memory_is_independent(twin_of: Any, counter: Any) -> None:
    """A copy loads what its original loads; what is saved to one is not in the other."""
    memory = BudgetMemory(max_tokens=60, counter=counter)
    talk(memory, 20)
    before = memory.load_memory_variables({})
    twin = twin_of(memory)
    assert twin.load_memory_variables({}) == before
    talk(twin, 20)
    assert len(twin.chat_memory.messages) == 80
    assert memory.load_memory_variables({}) == before
    twin.max_tokens = 20
    assert (twin.fit().report.limit, memory.fit().report.limit) == (20, 60)


@pytest.mark.parametrize(
    "twin_of",
    [copy.deepcopy, again, lambda m: m.model_copy(deep=True)],
    ids=["deepcopy", "pickle", "model_copy"],
)
@pytest.mark.parametrize("counter", [WORDS, words], ids=["counter", "function"])
def test_a_copy_remembers_the_cut_and_the_summary(twin_of: Any, counter: Any) -> None:
    """What was summarized is not summarized again by a copy, and its prompt starts as the original's does."""
    memory = BudgetMemory(max_tokens=60, counter=counter, return_messages=True, summarizer=Writer())
    talk(memory, 20)
    memory.load_memory_variables({})
    talk(memory, 1)  # over the limit: cut down to half of it
    memory.load_memory_variables({})
    twin = twin_of(memory)
    calls = []
    for each in (memory, twin):
        Writer.calls.clear()
        talk(each, 1)
        shown = [m.content for m in each.load_memory_variables({})["history"]]
        assert "They counted." in shown[0]
        calls.append((shown, list(Writer.calls)))
    assert calls[0] == calls[1]


@pytest.mark.parametrize("twin_of", [copy.deepcopy, again], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("counter", [WORDS, words, len], ids=["counter", "function", "len"])
def test_a_copied_history_is_independent(twin_of: Any, counter: Any) -> None:
    """A copy reads what its original reads, and goes on from its cut, in a store of its own."""
    history = BudgetMessageHistory(max_tokens=20, counter=counter)
    history.add_messages(chat(20))
    assert history.messages
    twin = twin_of(history)
    for _ in range(3):
        for each in (history, twin):
            each.add_messages(chat(1))
        assert twin.messages == history.messages
    before = history.messages
    twin.clear()
    assert (twin.messages, history.messages) == ([], before)


@pytest.mark.parametrize("twin_of", [copy.deepcopy, again], ids=["deepcopy", "pickle"])
def test_a_copied_middleware_is_independent(twin_of: Any) -> None:
    """A copy sends what its original sends, and has its settings."""
    sent: list[int] = []

    def handler(asked: ModelRequest[Any]) -> ModelResponse[Any]:
        sent.append(len(asked.messages))
        return ModelResponse(result=[AIMessage("ok")])

    request = ModelRequest(model=FakeListChatModel(responses=[""]), messages=[*chat(40), HumanMessage("now")])
    middleware = BudgetMiddleware(max_tokens=60, counter=words, tool_result_tokens=9, summarizer=None)
    for _ in range(2):
        middleware.wrap_model_call(request, handler)
    twin = twin_of(middleware)
    twin.wrap_model_call(request, handler)
    assert sent[0] == sent[1] == sent[2] < 41
    assert twin.tool_result_tokens == 9


def test_what_was_seen_elsewhere_does_not_keep_a_memory_here() -> None:
    """A message class of a function cannot be pickled; that one was read in this process does not affect another memory."""

    class Local(HumanMessage):
        pass

    reading = BudgetMessageHistory(max_tokens=100, counter=WORDS)
    reading.add_messages([Local("hello")])
    assert reading.messages[0].content == "hello"
    history = BudgetMessageHistory(max_tokens=20, counter=WORDS)
    history.add_messages(chat(20))
    before = history.messages
    assert again(history).messages == before


# ---------------------------------------------------------------- factories
def test_a_factory_may_be_called_with_anything() -> None:
    """A conversation named by a dict or a list keeps its cut; what cannot be compared is served without one, and never by another's."""
    stores: dict[str, InMemoryChatMessageHistory] = {}

    def find(key: Any, **more: Any) -> InMemoryChatMessageHistory:
        return stores.setdefault(repr((key, more)), InMemoryChatMessageHistory(messages=chat(20)))

    class Odd:
        __hash__ = None  # type: ignore[assignment]  # as many a model of pydantic's

    make = BudgetMessageHistory.around(find, max_tokens=30, counter=WORDS)
    readers = [
        make(key)._session
        for key in ({"a": 1}, {"a": 1}, {"a": 2}, ["a", 1], ("a", 1), {"a": [1, {"b"}]}, "a")
    ]
    assert readers[0] is readers[1]
    assert len({id(reader) for reader in readers}) == 6
    odd = Odd()
    assert make(odd)._session is not make(odd)._session
    assert make("a", user={"id": 3})._session is make("a", user={"id": 3})._session
    assert 0 < len(make([odd]).messages) <= 10
    assert [make.forget("a", user={"id": 3}) for _ in range(2)] == [True, False]  # type: ignore[attr-defined]  # documented


def test_a_memory_says_what_its_prompt_and_its_keys_must_be() -> None:
    """A placeholder shows messages alone; one input is the user's, one output the model's."""
    prompt = ChatPromptTemplate([MessagesPlaceholder("history"), ("human", "{input}")])
    with pytest.raises(BudgetConfigError, match="return_messages must be True"):
        BudgetMemory(max_tokens=100, prompt=prompt)
    memory = BudgetMemory(max_tokens=100, prompt=prompt, return_messages=True)
    with pytest.raises(BudgetConfigError, match="return_messages must be True"):
        memory.return_messages = False
    assert memory.load_memory_variables({"input": "hi"}) == {"history": []}
    wrong: list[tuple[dict[str, str], dict[str, str]]] = [
        ({}, {"a": "x", "b": "y"}),
        ({"input_key": "question"}, {"a": "x", "b": "y"}),
        ({"output_key": "answer"}, {"a": "x"}),
    ]
    for settings, inputs in wrong:
        option = next(iter(settings), "input_key")
        with pytest.raises(BudgetConfigError, match=f"^{option} must name .* \\(got .*\\)"):
            BudgetMemory(**settings).save_context(inputs, {"out": "z"})  # type: ignore[arg-type]  # by name
