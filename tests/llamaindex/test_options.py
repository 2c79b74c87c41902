"""Options of every part: a misspelt name or a wrong value is the same typed error, which names the nearest option."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.llms.types import LLMMetadata
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.llms import ChatMessage, MockLLM
from llama_index.core.prompts import PromptTemplate
from pydantic import ValidationError

import langchain_budget
import llamaindex_budget as lb
from rankbudget import BudgetSession, Scope, TokenBudget
from rankbudget.errors import BudgetConfigError, MessageError
from rankbudget.memory import HistoryStore, MemoryStore
from tests.llamaindex.models import ListStore, PlayLLM

PARTS: dict[str, tuple[Callable[..., Any], dict[str, Any], list[str]]] = {
    "postprocessor": (
        lb.BudgetNodePostprocessor,
        {"max_tokens": 20},
        ["token_limit", "session", "memory", "scorer", "embed_model", "compress", "each_alone"],
    ),
    "buffer": (lb.BudgetChatMemoryBuffer, {"token_limit": 20}, ["session", "summarizer", "chat_store"]),
    "buffer from_defaults": (
        lb.BudgetChatMemoryBuffer.from_defaults,
        {},
        ["token_limit", "session", "summarizer", "chat_history", "prompt"],
    ),
    "memory": (lb.BudgetMemory, {"token_limit": 20}, ["session", "summarizer", "notice", "session_id"]),
    "memory from_defaults": (
        lb.BudgetMemory.from_defaults,
        {},
        ["token_limit", "session", "summarizer", "memory_blocks", "async_database_uri"],
    ),
    "block": (lb.BudgetMemoryBlock, {"name": "a"}, ["text", "rank", "pinned", "counter"]),
    "system": (lb.SystemMemoryBlock, {}, ["text"]),
    "project": (lb.ProjectMemoryBlock, {}, ["text"]),
    "task": (lb.TaskMemoryBlock, {}, ["text", "rank"]),
    "knowledge": (lb.KnowledgeMemoryBlock, {}, ["retriever"]),
    "stored": (lb.StoredMemoryBlock, {}, ["store", "scope"]),
    "summary block": (lb.HistorySummaryMemoryBlock, {}, ["summarizer", "max_tokens"]),
    "helper": (lb.BudgetPromptHelper, {}, ["context_window", "session", "budget", "chunk_size_limit"]),
    "helper from_llm_metadata": (
        lb.BudgetPromptHelper.from_llm_metadata,
        {"llm_metadata": LLMMetadata()},
        ["budget"],
    ),
    "agent": (lb.BudgetFunctionAgent, {"llm": PlayLLM()}, ["budget", "summarizer", "output_cls", "timeout"]),
    "few shot": (lb.few_shot_function, {"examples": []}, ["max_tokens", "max_examples", "embed_model"]),
    "model": (lb.budget_model, {"llm": MockLLM()}, ["max_tokens", "counter", "on_report"]),
    "summarizer": (lb.summarizer, {"llm": MockLLM()}, ["task"]),
    "embedding": (lb.OfflineEmbedding, {}, ["embed_batch_size"]),
    "chats": (lb.StoredChatStore, {}, ["place", "user", "project", "scope", "store"]),
    "async chats": (lb.StoredAsyncChatStore, {}, ["chats", "user", "project", "scope"]),
}
NO_COUNTER = ("summarizer", "embedding", "chats", "async chats")


@given(st.data())
def test_a_misspelt_option_is_refused_with_the_nearest_name(data: st.DataObject) -> None:
    """Drawn over all parts and their options, with a letter left out, doubled or swapped with the next."""
    make, needed, options = PARTS[data.draw(st.sampled_from(sorted(PARTS)))]
    option = data.draw(st.sampled_from(options))
    at = data.draw(st.integers(0, len(option) - 2))
    misspelt = data.draw(
        st.sampled_from(
            [
                option[:at] + option[at + 1 :],
                option[:at] + option[at] + option[at:],
                option[:at] + option[at + 1] + option[at] + option[at + 2 :],
            ]
        )
    )
    if misspelt == option:
        return
    with pytest.raises(BudgetConfigError, match=f"did you mean '{option}'"):
        make(**needed, **{misspelt: None})


@pytest.mark.parametrize("part", [name for name in PARTS if name not in NO_COUNTER])
@pytest.mark.parametrize("counter", [7, [len], object()])
def test_a_counter_that_counts_nothing_is_refused_at_once(part: str, counter: Any) -> None:
    """When the part is made, not in its first turn."""
    make, needed, _ = PARTS[part]
    with pytest.raises(BudgetConfigError, match="counter must be a model's name"):
        make(**needed, counter=counter)


def _ways() -> dict[str, Callable[[dict[str, Any]], Any]]:
    """Every way to make an object of a public class of both packages: a new class is one of them. Events and errors have no options."""
    found: dict[str, Callable[[dict[str, Any]], Any]] = {}
    for package in (langchain_budget, lb):
        for name in package.__all__:
            kind: Any = getattr(package, name)
            if not inspect.isclass(kind) or issubclass(kind, (Exception, BaseEvent)):
                continue
            called = f"{package.__name__}.{name}"
            found[called] = lambda options, kind=kind: kind(**options)
            if hasattr(kind, "from_defaults"):
                found[f"{called}.from_defaults"] = lambda options, kind=kind: kind.from_defaults(**options)
            for way in ("from_dict", "model_validate"):
                if hasattr(kind, way):
                    found[f"{called}.{way}"] = getattr(kind, way)
    return found


WAYS = _ways()


@pytest.mark.parametrize("way", WAYS)
@given(data=st.data())
def test_no_class_swallows_an_unknown_option(way: str, data: st.DataObject) -> None:
    """An option that is left unread may be a user or a limit. Pydantic wraps the error in its own, a ValueError too, where it validates."""
    own = ["user", "max_tokens", "place", *getattr(WAYS[way], "model_fields", ())]
    option = data.draw(
        st.from_regex(r"[a-z]{2,12}_[a-z]{2,12}q", fullmatch=True) | st.sampled_from(own).map("{}_q".format)
    )
    kinds = (BudgetConfigError, ValidationError) if way.endswith("model_validate") else BudgetConfigError
    with pytest.raises(kinds, match=rf"has no option '{option}'|unexpected keyword argument '{option}'"):
        WAYS[way]({option: "ann"})


@given(
    user=st.none() | st.text("ab", min_size=1),
    project=st.none() | st.text("xy", min_size=1),
    reader=st.none() | st.text("ab", min_size=1),
)
async def test_stores_keep_to_their_scope_however_it_is_given(
    user: str | None, project: str | None, reader: str | None
) -> None:
    """`scope=`, and `user=` with `project=`, name the same conversations, in both stores; others see none of them."""
    database, scope = HistoryStore(":memory:"), Scope(user=user, project=project)
    lb.StoredChatStore(store=database, scope=scope).add_message("t", ChatMessage("My PIN is 4711."))
    stores = [
        lb.StoredAsyncChatStore(store=database, user=user, project=project),
        lb.StoredAsyncChatStore(store=database, scope=scope),
        lb.StoredAsyncChatStore(chats=lb.StoredChatStore(store=database, user=user, project=project)),
    ]
    assert [await store.count_messages("t") for store in stores] == [1, 1, 1]
    other = lb.StoredAsyncChatStore(store=database, user=reader, project=project)
    assert await other.count_messages("t") == (reader == user)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("postprocessor", {"max_tokens": "20"}, "max_tokens must be a whole number from 1"),
    ("postprocessor", {"max_tokens": True}, "max_tokens must be a whole number from 1"),
    ("postprocessor", {"memory": 3}, "memory must be"),
    ("postprocessor", {"scorer": 3}, "scorer must be"),
    ("postprocessor", {"embed_model": "small"}, "embed_model must be"),
    ("postprocessor", {"llm": "gpt-4o"}, "llm must be a LlamaIndex LLM"),
    ("postprocessor", {"budget": 5000}, "budget must be a TokenBudget"),
    ("postprocessor", {"dedup": "maybe"}, "dedup must be valid"),
    ("buffer", {"session": 3}, "session must be a BudgetSession"),
    ("buffer", {"summarizer": 3}, "summarizer must be"),
    ("buffer", {"session": BudgetSession(50), "summarizer": str}, "summarizer must be None beside session="),
    ("buffer", {"chat_store": 3}, "chat_store must be valid"),
    ("memory", {"session": BudgetSession(50), "summarizer": str}, "summarizer must be None beside session="),
    *[("memory", {"memory_blocks": given}, "memory_blocks must be a list") for given in ("x", ["x"], 3, {})],
    *[("memory from_defaults", {"memory_blocks": given}, "memory_blocks must be") for given in ("x", [None])],
    ("memory from_defaults", {"token_limit": -1}, "token_limit must be a whole number from 1"),
    ("block", {"rank": 0}, "rank must be valid"),
    *[
        (part, {"rank": 0}, "rank must be valid")
        for part in ("summary block", "task", "knowledge", "stored", "system", "project")
    ],
    ("block", {"name": " "}, r"name must be valid \(got ' '\)"),
    ("knowledge", {"retriever": "x"}, "retriever must be a LlamaIndex retriever"),
    ("stored", {"store": "m.db"}, "store must be a MemoryStore"),
    ("stored", {"scope": "ann"}, "scope must be a Scope, or a function"),
    ("summary block", {"summarizer": 3}, "summarizer must be"),
    ("helper", {"context_window": -4}, "context_window must be a whole number from 1"),
    ("helper", {"session": 3}, "session must be a BudgetSession"),
    ("agent", {"summarizer": 3}, "summarizer must be"),
    ("few shot", {"max_examples": -1}, "max_examples must be a whole number from 0"),
    ("few shot", {"examples": 3}, "examples must be a list of mappings"),
    ("few shot", {"examples": [{"input": "a"}, 1]}, r"examples must be a list of mappings \(got 1\)"),
    ("model", {"max_tokens": 0}, "max_tokens must be a whole number from 1"),
    ("model", {"budget_or_session": True}, "budget_or_session must be"),
    ("model", {"on_report": 3}, "on_report must be a blocking callable"),
    ("summarizer", {"llm": 3}, "llm must be a LlamaIndex LLM"),
    ("chats", {"place": ":memory:", "user": 5}, "user must be valid"),
    ("chats", {"store": 5}, r"store must be a HistoryStore \(got 5\)"),
    ("chats", {"store": MemoryStore(":memory:")}, "store must be a HistoryStore"),
    ("chats", {"store": HistoryStore(":memory:"), "place": "m.db"}, "store must be given alone"),
    ("chats", {"place": ":memory:", "scope": "ann"}, "scope must be a Scope"),
    ("chats", {"place": ":memory:", "scope": Scope(user="a"), "user": "b"}, "scope must be given alone"),
    ("async chats", {"chats": "m.db"}, "chats must be a StoredChatStore"),
    ("async chats", {}, "place must be a path, a database URL"),
    (
        "async chats",
        {"chats": lb.StoredChatStore(place=":memory:"), "user": "ann"},
        "chats must be given alone",
    ),
    ("helper from_llm_metadata", {"llm_metadata": None}, "llm_metadata must be"),
]


@pytest.mark.parametrize(("part", "wrong", "message"), WRONG)
def test_a_wrong_value_is_refused(part: str, wrong: dict[str, Any], message: str) -> None:
    """The error names the option that was written, and what it must be."""
    make, needed, _ = PARTS[part]
    with pytest.raises(BudgetConfigError, match=message):
        make(**{**needed, **wrong})


AN_OPTION = {
    "postprocessor": "max_tokens",
    "buffer": "token_limit",
    "memory": "token_limit",
    "block": "text",
    "summary block": "summarizer",
    "agent": "summarizer",
    "offline embedding": "model_name",
    "chats": "place",
    "async chats": "chats",
}


@pytest.mark.parametrize(("part", "option"), AN_OPTION.items())
def test_options_by_position_are_refused(part: str, option: str) -> None:
    """The error says what was given and which names there are."""
    make = lb.OfflineEmbedding if part == "offline embedding" else PARTS[part][0]
    with pytest.raises(BudgetConfigError, match=rf"options by name \(got 100\). Its options: .*{option}"):
        make(100)


@pytest.mark.parametrize(
    ("make", "first"),
    [
        (lb.BudgetPromptHelper, "context_window"),
        (lb.BudgetChatMemoryBuffer.from_defaults, "chat_history"),
        (lb.BudgetMemory.from_defaults, "session_id"),
    ],
)
def test_positions_are_those_of_the_stock_function(make: Callable[..., Any], first: str) -> None:
    """What the stock function takes by position is taken; one value too many, or one given twice, is refused."""
    by_position = lb.BudgetPromptHelper(4000, 100)
    assert (by_position.context_window, by_position.num_output) == (4000, 100)
    with pytest.raises(BudgetConfigError, match="too many positional arguments"):
        make(*[None] * 20)
    with pytest.raises(BudgetConfigError, match=f"multiple values for argument '{first}'"):
        make(None, **{first: None})


@pytest.mark.parametrize("kind", [lb.BudgetChatMemoryBuffer, lb.BudgetMemory])
@pytest.mark.parametrize(
    "wrong", ["hi", 3, ["hi"], [None], [{"role": "user", "content": "hi"}], {"role": "user"}]
)
def test_a_chat_history_of_something_else_is_refused(kind: Any, wrong: Any) -> None:
    """As in `put`."""
    with pytest.raises(MessageError, match="Give ChatMessage"):
        kind.from_defaults(chat_history=wrong, token_limit=100)


@pytest.mark.parametrize("wrong", ["hi", 3, None, ["hi"], [{"role": "user"}]])
async def test_what_is_no_message_is_refused(wrong: Any) -> None:
    """A text or a dict where messages belong: the error says what to give, and nothing is stored or sent."""
    sent = PlayLLM()
    llm = lb.budget_model(sent, max_tokens=500)
    for ask in (llm.chat, llm.stream_chat):
        with pytest.raises(MessageError, match="Give ChatMessage"):
            ask(wrong)
    for aask in (llm.achat, llm.astream_chat):
        with pytest.raises(MessageError, match="Give ChatMessage"):
            await aask(wrong)
    for kind in (lb.BudgetChatMemoryBuffer, lb.BudgetMemory):
        store = {"chat_store": ListStore()} if kind is lb.BudgetMemory else {}
        memory = kind.from_defaults(token_limit=500, **store)
        for put in (memory.put, memory.put_messages, memory.set):
            with pytest.raises(MessageError, match="Give ChatMessage"):
                put(wrong)
        for aput in (memory.aput, memory.aput_messages, memory.aset):
            with pytest.raises(MessageError, match="Give ChatMessage"):
                await aput(wrong)
        assert memory.get_all() == []
    assert sent.requests == []


@pytest.mark.parametrize("wrong", ["text", None, 3, {"a": "b"}, [None], [3, object()]])
async def test_what_is_no_list_of_nodes_or_texts_is_refused(wrong: Any) -> None:
    """A text is not read letter by letter; the error names the argument."""
    post, helper = lb.BudgetNodePostprocessor(max_tokens=9), lb.BudgetPromptHelper()
    with pytest.raises(BudgetConfigError, match="nodes must be a list of NodeWithScore"):
        post.postprocess_nodes(wrong)
    with pytest.raises(BudgetConfigError, match="nodes must be a list of NodeWithScore"):
        await post.apostprocess_nodes(wrong)
    for chunks in (helper.repack, helper.truncate):
        with pytest.raises(BudgetConfigError, match="text_chunks must be a list of texts"):
            chunks(PromptTemplate("{context_str} {query_str}"), wrong)
    for part in (lb.BudgetChatMemoryBuffer, lb.BudgetMemory, lb.BudgetNodePostprocessor):
        if not isinstance(wrong, dict):
            with pytest.raises(BudgetConfigError, match="data must be a mapping that to_dict wrote"):
                part.from_dict(wrong)


def test_functions_check_their_values() -> None:
    """`budget_for`, `use_session` and a memory that is not ours are refused alike."""
    with pytest.raises(BudgetConfigError, match="llm must be a LlamaIndex LLM"):
        lb.budget_for(3)  # type: ignore[arg-type]
    with pytest.raises(BudgetConfigError, match="did you mean 'reserve'"):
        lb.budget_for(MockLLM(), reserv=3)
    with pytest.raises(BudgetConfigError, match="session must be a BudgetSession"), lb.use_session(3):  # type: ignore[arg-type]
        pass
    from llama_index.core.memory import ChatMemoryBuffer

    with pytest.raises(BudgetConfigError, match="memory must be a BudgetChatMemoryBuffer or a BudgetMemory"):
        lb.BudgetNodePostprocessor(memory=ChatMemoryBuffer.from_defaults())
    with pytest.raises(BudgetConfigError, match=r"a BudgetChatMemoryBuffer or a BudgetMemory \(got 3\)"):
        lb.BudgetNodePostprocessor(memory=3)
    assert lb.BudgetNodePostprocessor(budget=TokenBudget()).budget == TokenBudget()
