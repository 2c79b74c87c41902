"""What can be stored: whatever the door takes, every host reads, and it refuses all that no host could read."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_budget import BudgetMessageHistory, StoredMessageHistory
from langchain_budget.stored_history import FORM as LANGCHAIN
from llamaindex_budget import BudgetChatMemoryBuffer, StoredChatStore
from rankbudget import Scope
from rankbudget.errors import MessageError
from rankbudget.memory import HistoryStore, StoredThread
from rankbudget.testing import WordCounter
from tests.drawing import draws

ANN = Scope(user="ann")
ROOM = 10**6
NONE_HAS = [float("nan"), 5, 21.5, True, b"x", {"a": 1}, [5], [[]], [float("nan")]]
NONE_SAYS = [[{"type": kind, kind: value}] for kind in ("text", "thinking") for value in (b"x", 5, True)]
DOORS: dict[str, Callable[[StoredThread, list[Any]], Any]] = {
    "append": StoredThread.append,
    "insert": lambda thread, given: thread.insert(0, given),
    "edit": StoredThread.edit,
    "replace": StoredThread.replace,
}


def reads(store: HistoryStore, name: str = "t") -> dict[str, list[Any]]:
    """Returns a conversation as each reader has it; LangChain's and LlamaIndex's messages are stored again, too."""
    chats, thread = StoredChatStore(store=store, user="ann"), store.thread(name, scope=ANN)
    history = StoredMessageHistory.of(thread)
    fitted = BudgetMessageHistory(history, max_tokens=ROOM, counter=WordCounter())
    buffer = BudgetChatMemoryBuffer.from_defaults(
        chat_store=chats, chat_store_key=name, token_limit=ROOM, counter=WordCounter()
    )
    found = {
        "dicts": thread.messages(),
        "langchain": history.messages,
        "llamaindex": chats.get_messages(name),
    }
    _ = thread.fit(ROOM, WordCounter()), fitted.messages, buffer.get()
    StoredMessageHistory(store, "of langchain", scope=ANN).add_messages(found["langchain"])
    chats.set_messages("of llamaindex", found["llamaindex"])
    return found


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("role", ["user", "assistant", "tool", "system"])
def test_content_that_no_message_has_is_refused(door: str, role: str) -> None:
    """Each way in raises MessageError and stores nothing, so that the conversation stays readable."""
    store = HistoryStore(":memory:")
    thread = store.thread("t", scope=ANN)
    before = [{"role": "user", "content": "Where?", "id": "m0"}]
    thread.append(before)
    for content in (*NONE_HAS, *NONE_SAYS):
        bad = {"role": role, "content": content, "id": "m0", "tool_call_id": "c"}
        with pytest.raises(MessageError, match=r"content must be a text or a list .* in message 1, role"):
            DOORS[door](thread, [{"role": "user", "content": "Fine."}, bad])
    assert thread.messages() == before
    store.close()


@pytest.mark.parametrize("content", NONE_SAYS, ids=repr)
@pytest.mark.parametrize("kind", [HumanMessage, AIMessage, lambda held: ToolMessage(held, tool_call_id="c")])
def test_so_is_that_of_another_host(kind: Any, content: Any) -> None:
    """LangChain's messages, which hold any block, are checked as dicts are."""
    store = HistoryStore(":memory:")
    with pytest.raises(MessageError, match="content must be a text"):
        store.thread("t", scope=ANN, form=LANGCHAIN).append([kind(content)])
    assert store.threads(scope=ANN) == []
    store.close()


SCALARS = st.sampled_from([float("nan"), 5, True, b"x", None, "said", "", {}, [], {"a": 1}, ["said"]])
BLOCKS = st.builds(
    lambda kind, held: {"type": kind, kind: held},
    st.sampled_from(
        ["text", "thinking", "reasoning", "refusal", "image_url", "file", "input_audio", "odd", "source"]
    ),
    SCALARS,
) | st.sampled_from([{"text": "said"}, {"type": "thinking", "thinking": [{"type": "text", "text": "said"}]}])
CONTENTS = SCALARS | BLOCKS | st.lists(SCALARS | BLOCKS, max_size=3)
CALLS = st.fixed_dictionaries(
    {},
    optional={
        "id": SCALARS,
        "name": SCALARS,
        "args": SCALARS,
        "function": st.fixed_dictionaries({}, optional={"name": SCALARS, "arguments": SCALARS}),
        "custom": st.just({"name": "f", "input": "said"}),
    },
)
ROLES = ["user", "assistant", "tool", "system", "developer", "human", "ai", "model", "function", "chatbot"]
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(ROLES)},
    optional={
        "content": CONTENTS,
        "parts": CONTENTS,
        "name": SCALARS,
        "tool_call_id": SCALARS,
        "refusal": SCALARS,
        "tool_calls": SCALARS | st.lists(CALLS, max_size=2),
    },
)


@draws()
@given(st.lists(MESSAGES, min_size=1, max_size=3))
def test_what_is_taken_is_read_by_every_host(odd: list[Any]) -> None:
    """A conversation of any shape is refused with MessageError, or every host reads it, and stores it again."""
    store = HistoryStore(":memory:")
    given = [{"role": "user", "content": "Where?"}, *odd, {"role": "user", "content": "Go on."}]
    try:
        store.thread("t", scope=ANN).append(given)
    except MessageError:
        assert store.threads(scope=ANN) == []
    else:
        assert set(map(len, reads(store).values())) == {len(given)}
    store.close()


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ({"function": {"name": "f", "arguments": {"a": 1}}}, {"a": 1}),  # Ollama
        ({"name": "f", "args": {"a": 1}, "type": "tool_call"}, {"a": 1}),  # LangChain
        ({"function": {"name": "f"}}, {}),
        ({"type": "custom", "custom": {"name": "f", "input": "go"}}, {"input": "go"}),  # OpenAI
        ({"function": {"name": "f", "arguments": "[1]"}}, "[1]"),
    ],
)
def test_calls_of_every_provider_reach_every_host(call: dict[str, Any], arguments: Any) -> None:
    """Each host has its call with name, id and arguments; where these are no object, as a text that is none."""
    store = HistoryStore(":memory:")
    asked = {"role": "model", "content": "", "tool_calls": [{"id": "c", **call}]}
    store.thread("t", scope=ANN).append([asked, {"role": "function", "content": "17", "tool_call_id": "c"}])
    found = reads(store)
    langchain, llamaindex = found["langchain"][0], found["llamaindex"][0].blocks[-1]
    own = [*langchain.tool_calls, *langchain.invalid_tool_calls][0]
    assert (own["name"], own["id"], own["args"]) == ("f", "c", arguments)
    assert bool(langchain.tool_calls) == isinstance(arguments, dict)
    held = (llamaindex.tool_name, llamaindex.tool_call_id, llamaindex.tool_kwargs)
    assert held == ("f", "c", arguments)
    again = store.thread("of langchain", scope=ANN).messages()[0]["tool_calls"][0]["function"]["arguments"]
    assert again == (arguments if isinstance(arguments, str) else json.dumps(arguments))
    assert (type(found["langchain"][1]), found["langchain"][1].tool_call_id) == (ToolMessage, "c")
    store.close()


@pytest.mark.parametrize("held", [str, lambda data: {"url": data}], ids=["text", "url"])
def test_an_image_as_bare_base64_is_an_image(held: Callable[[str], Any]) -> None:
    """What ChatOllama sends as a picture is one in LlamaIndex, and no text of thousands of tokens."""
    store, data = HistoryStore(":memory:"), base64.b64encode(bytes(range(256)) * 100).decode()
    pictured = HumanMessage(
        [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": held(data)}]
    )
    StoredMessageHistory(store, "t", scope=ANN).add_messages([pictured])
    text, image = StoredChatStore(store=store, user="ann").get_messages("t")[0].blocks
    assert (text.text, image.block_type, image.image) == ("Look.", "image", data.encode())
    store.close()


def test_images_of_ollama_are_images_for_every_reader() -> None:
    """They are beside the text there: base64, bytes, or a path, which no other machine can read."""
    data = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()
    store = HistoryStore(":memory:")
    images = [data, base64.b64decode(data), "pictures/a.png"]
    store.thread("t", scope=ANN).append([{"role": "user", "content": "What is it?", "images": images}])
    [seen] = StoredMessageHistory(store, "t", scope=ANN).messages
    text, first, second, lost = seen.content
    assert text["text"] == "What is it?"
    assert first["base64"] == second["base64"] == data
    assert "only on the machine" in lost["text"]
    [other] = StoredChatStore(store=store, user="ann").get_messages("t")
    assert [block.block_type for block in other.blocks] == ["text", "image", "image", "text"]
    store.database.close()


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"type": "search_result", "title": "T", "source": "s", "content": [{"type": "text", "text": "45 days"}]}, "45 days"),
        ({"type": "json", "json": {"days": 45}}, '{"days":45}'),
    ],
    ids=["search_result", "json"],
)  # fmt: skip
def test_results_in_other_blocks_are_texts_in_plain_dicts(block: dict[str, Any], said: str) -> None:
    """What a tool returned to LangChain is not lost for who reads OpenAI's messages."""
    store = HistoryStore(":memory:")
    call = {"name": "kb", "args": {}, "id": "k1", "type": "tool_call"}
    told = [
        HumanMessage("How long?"),
        AIMessage("", tool_calls=[call]),
        ToolMessage([block], tool_call_id="k1"),
    ]
    StoredMessageHistory(store, "t", scope=ANN).add_messages(told)
    [part] = store.thread("t", scope=ANN).messages()[-1]["content"]
    assert said in part["text"]
    store.database.close()
