"""Every wrong option of every class and function is a typed error that names it, and the nearest right name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, cast

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import ParrotFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.retrievers import BaseRetriever
from llama_index.core.llms import ChatMessage

from langchain_budget import (
    BudgetChatPromptTemplate,
    BudgetContextEdit,
    BudgetDocumentCompressor,
    BudgetExampleSelector,
    BudgetMemory,
    BudgetMessageHistory,
    BudgetMiddleware,
    BudgetRetriever,
    BudgetTrimmer,
    MemoryRetriever,
    StoredMessageHistory,
    StoredThreadMiddleware,
    budget_model,
    memory_tools,
    pre_model_hook,
    trim_messages,
)
from rankbudget import BudgetSession, Scope, TokenBudget
from rankbudget.errors import BudgetConfigError, BudgetError, MessageError
from rankbudget.memory import HistoryStore, MemoryStore


class Found(BaseRetriever):
    """Finds one text."""

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        return [Document("Tea is hot.")]


THREAD = [HumanMessage("one"), AIMessage("two"), HumanMessage("three")]
FOREIGN = [ChatMessage("hi", role="user")]
PROMPT = ChatPromptTemplate([MessagesPlaceholder("history"), ("human", "{question}")])
LIMITS = ("budget", "max_tokens", "counter")
MODEL = (*LIMITS, "model", "context_window")
SUMMARY = ("summarizer", "summary_timeout")
SLOTS = (
    *MODEL,
    *SUMMARY,
    *("tools", "cut", "scorer", "strict", "session", "min_exchanges", "last_turns"),
    *("history_key", "documents_key", "document_prompt", "example_prompt"),
)
COMPRESSOR = (*MODEL, "session", "scorer", "compress", "dedup", "order", "document_prompt", "separator")
Door = tuple[Callable[..., Any], dict[str, Any], tuple[str, ...]]
DOORS: dict[str, Door] = {
    "trimmer": (BudgetTrimmer, {}, (*SLOTS, "prompt", "report_key")),
    "template": (lambda **given: BudgetChatPromptTemplate(PROMPT, **given), {}, SLOTS),
    "memory": (BudgetMemory, {}, (*MODEL, *SUMMARY, "prompt", "tools", "scorer", "return_messages")),
    "history": (BudgetMessageHistory, {}, (*MODEL, *SUMMARY, "tools", "extra_tokens", "history")),
    "factory": (
        lambda **given: BudgetMessageHistory.around(lambda name: BudgetMessageHistory(), **given),
        {},
        (*MODEL, *SUMMARY, "tools", "extra_tokens", "keep"),
    ),
    "compressor": (BudgetDocumentCompressor, {}, COMPRESSOR),
    "retriever": (BudgetRetriever, {"retriever": Found()}, (*COMPRESSOR, "k", "retriever")),
    "selector": (
        BudgetExampleSelector,
        {},
        (
            *("max_tokens", "k", "example_prompt", "separator", "input_keys", "model", "counter"),
            *("embeddings", "diversity", "double_braces", "examples"),
        ),
    ),
    "middleware": (
        BudgetMiddleware,
        {},
        (*MODEL, *SUMMARY, "persist", "retry", "tool_result_tokens", "on_report", "keep"),
    ),
    "edit": (BudgetContextEdit, {}, ("trigger", "counter", "cut")),
    "hook": (pre_model_hook, {}, (*MODEL, *SUMMARY, "prompt", "tools", "into", "keep")),
    "model": (lambda **given: budget_model(ParrotFakeChatModel(), **given), {}, ("on_report", *LIMITS[1:])),
    "trim": (
        lambda **given: trim_messages(THREAD, **given),
        {"max_tokens": 9, "token_counter": len},
        (
            *("max_tokens", "token_counter", "strategy", "allow_partial", "end_on", "start_on"),
            *("include_system", "text_splitter"),
        ),
    ),
}
ODD = object()
WRONG: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("max_tokens", "context_window", "k", "tool_result_tokens"), (0, -1, 2.5, "7", True)),
    "last_turns": (0, -1, 2.5, "7", True),
    **dict.fromkeys(("keep", "trigger"), (0, -1, 2.5, "7", None)),
    "extra_tokens": (-500, "x", 1.5, None),
    "min_exchanges": (-1, "x", 1.5),
    "summary_timeout": (0, -1, "x", math.nan, math.inf),
    "diversity": (-1, 2, "x", math.nan),
    "budget": (5, "x", {"contxt_window": 5}, ODD, BudgetSession(500)),
    "model": (5, ODD),
    **dict.fromkeys(("counter", "token_counter"), (5, ODD)),
    "tools": ("search", 5, [5], {"name": 1}),
    "summarizer": (5, "gpt-4o", ODD, []),
    "session": (5, "x", TokenBudget()),
    "scorer": ("bm25", 5, ODD),
    **dict.fromkeys(("cut", "order", "into", "strategy"), ("fil", None, 5)),
    **dict.fromkeys(("strict", "compress", "dedup", "double_braces", "persist", "retry"), ("yes", 5, None)),
    **dict.fromkeys(("include_system", "allow_partial", "return_messages"), ("yes", 5, None)),
    "prompt": (5, ODD, ["x"]),
    "report_key": ("history", 5),
    "history_key": ("", 5, None, "documents"),
    "documents_key": ("", 5, None, "history"),
    "document_prompt": (5, "{x}"),
    "example_prompt": (5, "{x}"),
    "separator": (5, None),
    "input_keys": ("question", 5, [5]),
    "embeddings": (5, "x"),
    "examples": (5, "abc", [5]),
    "history": (5, []),
    "retriever": (5, None, ODD),
    "on_report": (5, "x"),
    "end_on": (5, "robot", [str]),
    "start_on": (5, "robot"),
    "text_splitter": (5, "x"),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_wrong_value_is_a_typed_error_that_names_its_option(door: str) -> None:
    """Whatever is wrong is refused when the object is made, or the function called, by the option's name."""
    make, fixed, options = DOORS[door]
    for name in options:
        for value in WRONG[name][: 1 if (door, name) == ("edit", "cut") else None]:  # None is its default
            with pytest.raises(BudgetError) as caught:
                make(**{**({} if door == "edit" else {"max_tokens": 500}), **fixed, name: value})
            told = str(caught.value)
            assert name in told or "tool" in told or "key" in told or "contxt_window" in told


@pytest.mark.parametrize("door", DOORS)
def test_a_misspelt_option_is_refused_with_the_nearest_name(door: str) -> None:
    """One letter that is missing or doubled leads to the right name, in all classes and functions alike."""
    make, fixed, options = DOORS[door]
    for name in options:
        for place in range(1, len(name)) if len(name) > 4 else ():
            for misspelt in (name[:place] + name[place + 1 :], name[:place] + name[place - 1 :]):
                with pytest.raises(BudgetConfigError) as caught:
                    make(**fixed, **{misspelt: 5})
                assert f"has no option '{misspelt}'; did you mean '{name}'" in str(caught.value)


@pytest.mark.parametrize("made", [None, "store", {}, [HumanMessage("hi")]])
def test_a_factory_of_no_history_is_named(made: Any) -> None:
    """At the first call, with what it returned."""
    make = BudgetMessageHistory.around(lambda session_id: made, max_tokens=50)
    with pytest.raises(BudgetConfigError, match=r"get_session_history returns must be a BaseChat"):
        make("ann")


@pytest.mark.parametrize("given", [None, [None], 5, [HumanMessage("hi"), 5], {"role": "user"}, [object()]])
async def test_a_history_stores_no_broken_message(given: Any) -> None:
    """It is refused when it is added, in both forms, and what was stored can be read."""
    history = BudgetMessageHistory(max_tokens=50)
    history.add_messages([HumanMessage("hi")])
    with pytest.raises(MessageError):
        history.add_messages(given)
    with pytest.raises(MessageError):
        await history.aadd_messages(given)
    assert [m.text for m in history.messages] == ["hi"]


async def test_a_history_stores_what_is_read_as_messages() -> None:
    """Tuples, dicts and texts, one message alone, and an iterator."""
    history = BudgetMessageHistory(max_tokens=50)
    dicts = [("human", "one"), {"role": "assistant", "content": "two"}, "three"]
    for given in (dicts, HumanMessage("four"), iter([HumanMessage("five")])):
        history.add_messages(given)  # type: ignore[arg-type]
    await history.aadd_messages(AIMessage("six"))  # type: ignore[arg-type]
    assert [m.text for m in history.history.messages[3:]] == ["four", "five", "six"]
    assert "one" in "\n".join(m.text for m in history.messages)


def test_a_wrong_call_is_a_typed_error() -> None:
    """What is called with something else than its interface asks for says what it wants."""
    trimmer, compressor = BudgetTrimmer(max_tokens=50), BudgetDocumentCompressor(max_tokens=50)
    memory, hook = BudgetMemory(max_tokens=50), pre_model_hook(max_tokens=50)
    selector = BudgetExampleSelector(max_tokens=50)
    calls: list[Callable[[], Any]] = [
        *(lambda value=value: trimmer.invoke(value) for value in (5, None, [5], b"x", {}, {"history": 5})),
        lambda: trimmer.invoke({"documents": [5], "question": "q"}),
        lambda: trimmer.invoke({"history": THREAD, "question": 5}),
        *(
            lambda value=value: trimmer.invoke(value)
            for value in (FOREIGN, [*THREAD, *FOREIGN], {"history": FOREIGN})
        ),
        lambda: hook.invoke({"messages": FOREIGN}),
        lambda: trim_messages(FOREIGN, max_tokens=50, token_counter=len),
        lambda: setattr(trimmer, "max_tokns", 5),
        lambda: trimmer.model_copy(update={"max_tokens": "x"}),
        lambda: compressor.compress_documents([Document("a")], 5),  # type: ignore[arg-type]  # the mistake
        lambda: compressor.compress_documents([5], "q"),  # type: ignore[list-item]  # the mistake
        lambda: BudgetRetriever(retriever=Found(), max_tokens=9).invoke("q", k=0),
        lambda: memory.save_context({"a": "1", "b": "2"}, {"output": "x"}),
        lambda: memory.save_context({"input": "1"}, {"a": "x", "b": "y"}),
        lambda: hook.invoke({}),
        lambda: hook.invoke({"messages": 5}),
        *(lambda value=value: compressor.fit(value, "q") for value in (5, None, "x", [5])),
        *(lambda value=value: selector.select_examples(value) for value in (5, None, "x", ["x"])),
        lambda: selector.add_example(5),  # type: ignore[arg-type]  # the mistake
        lambda: trim_messages(THREAD, max_tokens=5),  # type: ignore[call-arg]  # the mistake
        lambda: BudgetMessageHistory.around(5, max_tokens=5),  # type: ignore[arg-type]  # the mistake
    ]
    for call in calls:
        with pytest.raises(BudgetError):
            call()


@pytest.mark.parametrize("messages", [THREAD, [], None])
def test_trim_messages_needs_a_limit(messages: Any) -> None:
    """None is no limit there, though it is one for classes that take it from a model; as a Runnable, too."""
    given: Any = {"max_tokens": None, "token_counter": len}
    with pytest.raises(BudgetConfigError, match=r"^max_tokens must be a whole number from 1 \(got None\)"):
        trim_messages(messages, **given)


@pytest.mark.parametrize("given", [["a"], [HumanMessage("a")], "a", None, [Document("a"), None], 5])
async def test_a_compressor_takes_documents_alone(given: Any) -> None:
    """Anything else raises what every wrong option raises."""
    compressor = BudgetDocumentCompressor(max_tokens=20)
    with pytest.raises(BudgetConfigError, match="documents must be a list of Documents"):
        compressor.compress_documents(given, "q")
    with pytest.raises(BudgetConfigError, match="documents must be a list of Documents"):
        await compressor.acompress_documents(given, "q")
    assert compressor.compress_documents([], "q") == []


@pytest.mark.parametrize("key", ["history", "documents", "examples", "memory"])
@pytest.mark.parametrize("text", [True, False])
async def test_none_is_an_empty_slot_of_a_template(key: str, text: bool) -> None:
    """None is formatted as an empty list is, inside a text and in a placeholder, sync and async."""
    slot = ("system", f"x {{{key}}}") if text else MessagesPlaceholder(key)
    prompt = BudgetChatPromptTemplate.from_messages([slot, ("human", "{question}")], max_tokens=50)
    none, empty = {key: None, "question": "q"}, {key: [], "question": "q"}
    assert prompt.invoke(none) == await prompt.ainvoke(none) == prompt.invoke(empty)


@pytest.mark.parametrize("key", ["history", "documents", "question"])
def test_a_trimmer_says_that_a_key_holds_nothing(key: str) -> None:
    """A key that is there is not said to be missing."""
    with pytest.raises(BudgetConfigError, match=rf"must have a value for .*got {key}=None"):
        BudgetTrimmer(max_tokens=50).invoke({key: None})


@pytest.mark.parametrize(
    "scope",
    [
        lambda config: Scope(user=config["configurable"]["thread_id"]),
        lambda config: Scope(user=config.get("configurable")["thread_id"]),
        lambda runtime: runtime.context,
    ],
)
def test_a_scope_that_reads_a_config_says_what_it_is_given(scope: Any) -> None:
    """A function of the config, and one that returns no scope, is a typed error where a run's Runtime is given."""
    stored = StoredThreadMiddleware(HistoryStore(":memory:"), scope=scope, max_tokens=99)
    agent = create_agent(ParrotFakeChatModel(), middleware=[stored])
    with pytest.raises(BudgetConfigError, match="scope must be a Scope, or a function of the run's Runtime"):
        agent.invoke({"messages": [("human", "hi")]}, {"configurable": {"thread_id": "t"}})


@pytest.mark.parametrize("scope", [None, "ann", {"user": "ann"}, 5])
@pytest.mark.parametrize(
    "make",
    [
        lambda scope: StoredThreadMiddleware(HistoryStore(":memory:"), scope=scope, max_tokens=99),
        lambda scope: StoredMessageHistory(HistoryStore(":memory:"), "t", scope=scope),
        lambda scope: MemoryRetriever(store=MemoryStore(":memory:"), scope=scope),
        lambda scope: memory_tools(MemoryStore(":memory:"), scope),
    ],
)
def test_a_wrong_scope_is_named_at_construction(make: Any, scope: Any) -> None:
    """Not when the first user comes."""
    with pytest.raises(BudgetConfigError, match=rf"scope must be a Scope.* \(got {re.escape(repr(scope))}"):
        make(scope)


@pytest.mark.parametrize("store", [None, "app.db", {}, HumanMessage("hi")])
def test_a_wrong_store_is_named_at_construction(store: Any) -> None:
    """A path, a store of another kind and nothing are no store."""
    ann = Scope(user="ann")
    makers: list[Any] = [
        lambda given: StoredThreadMiddleware(given, scope=ann, max_tokens=99),
        lambda given: StoredMessageHistory(given, "t", scope=ann),
        lambda given: MemoryRetriever(store=given, scope=ann),
        lambda given: memory_tools(given, ann),
    ]
    kinds = ["HistoryStore", "HistoryStore", "MemoryStore", "MemoryStore"]
    for make, kind in zip(makers, kinds, strict=True):
        with pytest.raises(BudgetConfigError, match=rf"store must be a {kind} \(got "):
            make(store)
    with pytest.raises(BudgetConfigError, match="store must be a HistoryStore"):
        StoredThreadMiddleware(cast("Any", MemoryStore(":memory:")), scope=ann, max_tokens=99)
