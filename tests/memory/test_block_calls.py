"""Calls and results in content blocks, as Anthropic, Gemini and OpenAI's Responses API have them, in other hosts."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, convert_to_openai_messages
from llama_index.core.storage.chat_store.base_db import MessageStatus

from langchain_budget import BudgetMessageHistory, StoredMessageHistory
from langchain_budget._codec import CODEC as LANGCHAIN
from langchain_budget.stored_history import FORM as LANGCHAIN_FORM
from langchain_budget.stored_history import NamedMessageHistory
from llamaindex_budget import BudgetChatMemoryBuffer, StoredAsyncChatStore, StoredChatStore
from llamaindex_budget._codec import CODEC as LLAMAINDEX
from llamaindex_budget._stored import FORM as LLAMAINDEX_FORM
from rankbudget import Scope
from rankbudget.errors import BudgetError, MessageError
from rankbudget.memory import HistoryStore
from rankbudget.messages.codec import DictCodec
from rankbudget.testing import WordCounter
from rankbudget.testing.server.providers import problems_of
from rankbudget.testing.shapes import SHAPES
from tests.drawing import draws

ANN, ROOM = Scope(user="ann"), 10**6
FORMS = {"langchain": LANGCHAIN_FORM, "llamaindex": LLAMAINDEX_FORM}
CODECS: dict[str, Any] = {"langchain": LANGCHAIN, "llamaindex": LLAMAINDEX}
STEPS = ("chat", "call", "twice", "parallel", "hosted")
_BLOCKS = "is not one of|signature"
"""Problems of media and thinking, which each client sends in its provider's form."""
_WORD = re.compile(r"\bn\d+\b")
"""The words that a shape writes once each, in texts, arguments and results."""


@st.composite
def conversations(draw: Any, shape: str) -> list[Any]:
    """Two to four turns of a provider's messages; what is said beside Anthropic's results is in their message."""
    made = SHAPES[shape]()
    for _ in range(draw(st.integers(2, 4))):
        kept = [step for step in STEPS if (shape, step) != ("anthropic", "hosted")]
        step, start = draw(st.sampled_from(kept)), len(made.messages)
        made.write(step, draw(st.sampled_from(("sea", '"quoted"'))), draw(st.integers(0, 2)))
        later = made.messages[start + 1 :]
        answered = next((m for m in later if m.get("role") == "user"), None)
        if answered is not None and draw(st.booleans()):
            part = {"text": f"{made.fresh()} beside"}
            answered.get("parts", answered.get("content")).append(part)
    return made.messages


def told(neutrals: list[Any]) -> list[tuple[str, str, str]]:
    """Returns each call's function, the words it asks for and the words of its result."""
    calls, results = dict[str, tuple[str, str]](), dict[str, str]()
    for message in neutrals:
        for call in message.get("tool_calls") or ():
            function = call["function"]
            calls[call["id"]] = function["name"], " ".join(_WORD.findall(function["arguments"]))
        if message["role"] == "tool":
            results[message["tool_call_id"]] = " ".join(_WORD.findall(json.dumps(message["content"])))
    assert calls.keys() == results.keys()
    return [(*call, results[one]) for one, call in calls.items()]


def words(held: Any) -> Counter[str]:
    return Counter(_WORD.findall(json.dumps(held)))


def checked(neutrals: list[Any]) -> list[Any]:
    """Returns a conversation that OpenAI takes."""
    plain = [
        {**m, "content": ""} if m.get("content") is None and not m.get("tool_calls") else m for m in neutrals
    ]
    assert [problem for problem in problems_of(plain) if not re.search(_BLOCKS, problem)] == []
    return neutrals


@pytest.mark.parametrize("host", FORMS)
@pytest.mark.parametrize("shape", SHAPES)
@draws(cases=len(SHAPES) * 2)
@given(data=st.data())
def test_every_host_reads_every_providers_calls(shape: str, host: str, data: Any) -> None:
    """A valid conversation with each call, argument, result and text once; the writer gets back what it wrote."""
    messages = data.draw(conversations(shape))
    store, twin = HistoryStore(":memory:"), HistoryStore(":memory:")
    thread, other = store.thread("t", scope=ANN), store.thread("t", scope=ANN, form=FORMS[host])
    for part in [messages] if data.draw(st.booleans()) else [[message] for message in messages]:
        thread.append(part)
    seen = other.messages()
    neutrals = checked([CODECS[host].to_dict(message) for message in seen])
    assert words(neutrals) == words(messages)
    called = [call for call in told(neutrals) if call[0] in ("find", "sort")]
    assert [name for name, _, _ in called] == _names(messages)
    assert all(len(asked.split()) == len(result.split()) == 1 for _, asked, result in called)
    assert sorted(called, key=_place) == sorted(called, key=lambda call: _number(call[2]))
    if host == "langchain" and not any(getattr(message, "invalid_tool_calls", ()) for message in seen):
        checked(convert_to_openai_messages(seen, pass_through_unknown_blocks=True))
    stored = other.conversation()
    assert (len(other), len(stored), stored[:]) == (len(seen), len(seen), seen)
    assert stored.roles(0, len(seen)) == CODECS[host].roles(seen)
    assert other.fit(ROOM, WordCounter()).messages == seen
    again = twin.thread("t", scope=ANN, form=FORMS[host])
    again.append(seen)
    assert words(checked(twin.thread("t", scope=ANN).messages())) == words(messages)
    assert thread.messages() == messages
    store.close()
    twin.close()


def _names(messages: list[Any]) -> list[str]:
    """Returns the names of the two tools in the calls that a provider's messages hold, in order."""
    text = json.dumps([m for m in messages if m.get("role") in (None, "assistant", "model")])
    return re.findall(r'"name": "(find|sort)"', text)


def _number(word: str) -> int:
    return int(word[1:])


def _place(call: tuple[str, str, str]) -> int:
    return _number(call[1])


@st.composite
def interrupted(draw: Any, shape: str) -> list[Any]:
    """A conversation of which messages behind a question were never written: results, calls and answers.

    A request for approval is left out: providers accept one without an answer.
    """
    written = draw(conversations(shape))
    messages = [m for m in written if not str(m.get("type")).startswith("mcp_approval_")]
    kept = [draw(st.booleans()) or draw(st.booleans()) for _ in messages]
    left = [m for m, keep in zip(messages, kept, strict=True) if keep or _is_question(m)]
    return [*left, {"role": "user", "content": "Thanks."}]


def _is_question(message: Any) -> bool:
    return DictCodec().role(message) == "user" and not DictCodec().answers(message)


@pytest.mark.parametrize("host", FORMS)
@pytest.mark.parametrize("shape", SHAPES)
@draws(cases=len(SHAPES) * 2)
@given(data=st.data())
def test_every_host_keeps_what_the_writer_keeps(shape: str, host: str, data: Any) -> None:
    """A crash or a cancelled call anywhere: each text and each call with its result is in every host's prompt."""
    store = HistoryStore(":memory:")
    thread, other = store.thread("t", scope=ANN), store.thread("t", scope=ANN, form=FORMS[host])
    thread.append(data.draw(interrupted(shape)))
    written = words(thread.fit(ROOM, WordCounter()).messages)
    read = [CODECS[host].to_dict(message) for message in other.fit(ROOM, WordCounter()).messages]
    assert written - words(checked(read)) == Counter()
    store.close()


@pytest.mark.parametrize("host", FORMS)
@pytest.mark.parametrize("shape", SHAPES)
@draws(cases=len(SHAPES) * 2)
@given(data=st.data())
def test_what_is_appended_leaves_what_is_read_before_it(shape: str, host: str, data: Any) -> None:
    """A question, and calls in blocks behind it, change nothing of how a host reads the messages before them."""
    store = HistoryStore(":memory:")
    thread, other = store.thread("t", scope=ANN), store.thread("t", scope=ANN, form=FORMS[host])
    thread.append(data.draw(interrupted(shape)))
    before = other.messages()
    thread.append(TWO)
    assert other.messages()[: len(before)] == before
    store.close()


@pytest.mark.parametrize("item", [True, False])
def test_a_custom_tools_call_keeps_its_text(item: bool) -> None:
    """The free text that OpenAI's custom tools take is an argument of a call that each client sends."""
    store, patch = HistoryStore(":memory:"), "*** line 7"
    asked = {"type": "custom_tool_call", "id": "ct", "call_id": "c0", "name": "patch", "input": patch}
    called = {"id": "c0", "type": "custom", "custom": {"name": "patch", "input": patch}}
    answered = {"type": "custom_tool_call_output", "call_id": "c0", "output": "patched"}
    result = {"role": "tool", "tool_call_id": "c0", "content": "patched"}
    step = (
        [asked, answered]
        if item
        else [{"role": "assistant", "content": None, "tool_calls": [called]}, result]
    )
    store.thread("t", scope=ANN).append([{"role": "user", "content": "Patch it."}, *step])
    _, call, found = StoredMessageHistory(store, "t", scope=ANN).messages
    assert isinstance(call, AIMessage)
    assert [(c["name"], c["args"], c["id"]) for c in call.tool_calls] == [("patch", {"input": patch}, "c0")]
    assert call.invalid_tool_calls == []
    assert (found.content, found.tool_call_id) == ("patched", "c0")  # type: ignore[attr-defined]
    [shown] = StoredChatStore(store=store, user="ann").get_messages("t")[1].blocks
    assert (shown.tool_name, shown.tool_kwargs) == ("patch", {"input": patch})  # type: ignore[union-attr]
    store.close()


# ---- places, ids and counts are those that the host sees -----------------------------------------------
TWO = [
    {"role": "user", "content": "Which?"},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "Both."},
            {"type": "tool_use", "id": "t1", "name": "find", "input": {"at": "sea"}},
            {"type": "tool_use", "id": "t2", "name": "sort", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "one"},
            {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "two"}]},
            {"type": "text", "text": "And now?"},
        ],
    },
    {"role": "assistant", "content": "Done."},
]
"""Anthropic's messages, of which others have six: two results, and a question beside them."""


@pytest.fixture
def store() -> Any:
    made = HistoryStore(":memory:")
    made.thread("t", scope=ANN).append(TWO)
    yield made
    made.close()


@pytest.mark.parametrize("place", range(-6, 6))
def test_a_message_is_taken_out_where_the_host_sees_it(store: HistoryStore, place: int) -> None:
    """The place of a message in what a host reads is its place when that host edits; all others stay."""
    chats = StoredChatStore(store=store, user="ann")
    seen = chats.get_messages("t")
    assert asyncio.run(StoredAsyncChatStore(chats=chats).count_messages("t")) == len(seen) == 6
    assert chats.delete_message("t", place) == seen.pop(place)
    assert chats.get_messages("t") == seen
    assert len(chats.conversation("t")) == len(seen)


@pytest.mark.parametrize("place", [0, 3, 4, 5, 6])
def test_a_message_is_put_where_the_host_sees_it(store: HistoryStore, place: int) -> None:
    """So is one that a host inserts."""
    history = StoredMessageHistory(store, "t", scope=ANN)
    expected = history.messages
    expected.insert(place, HumanMessage("New."))
    history.thread.insert(place, [HumanMessage("New.")])
    assert history.messages == expected


@pytest.mark.parametrize("count", range(7))
def test_the_oldest_are_archived_as_the_host_sees_them(store: HistoryStore, count: int) -> None:
    """An archive and the conversation have together what was read before, and no message twice."""
    chats = StoredAsyncChatStore(chats=StoredChatStore(store=store, user="ann"))
    seen = asyncio.run(chats.get_messages("t"))
    assert asyncio.run(chats.archive_oldest_messages("t", count)) == seen[:count]
    assert asyncio.run(chats.get_messages("t", MessageStatus.ARCHIVED)) == seen[:count]
    assert asyncio.run(chats.get_messages("t")) == seen[count:]
    assert asyncio.run(chats.get_messages("t", None)) == seen


def test_the_ids_are_those_of_the_stored_messages(store: HistoryStore) -> None:
    """What one stored message says has its id, after which a host goes on, and by which sources are forgotten."""
    history = StoredMessageHistory(store, "t", scope=ANN)
    one, two, three, four = store.thread("t", scope=ANN).ids()
    assert history.thread.ids() == [one, two, three, three, three, four]
    history.thread.append([AIMessage("Else.")], after=history.thread.ids()[3])
    assert [m.content for m in history.messages[4:]] == [[{"type": "text", "text": "And now?"}], "Else."]


def test_what_the_writer_archives_is_read_as_calls(store: HistoryStore) -> None:
    """An archive keeps the note of its blocks."""
    store.thread("t", scope=ANN).take_oldest(3, archive=True)
    chats = StoredChatStore(store=store, user="ann")
    found = asyncio.run(StoredAsyncChatStore(chats=chats).get_messages("t", MessageStatus.ARCHIVED))
    assert [message.role.value for message in found] == ["user", "assistant", "tool", "tool", "user"]


def test_what_is_added_leaves_the_writers_messages(store: HistoryStore) -> None:
    """A host that only goes on changes nothing of what the first one wrote."""
    history = StoredMessageHistory(store, "t", scope=ANN)
    fitted = BudgetMessageHistory(history, max_tokens=ROOM, counter=WordCounter())
    fitted.add_messages([HumanMessage("More."), AIMessage("Yes.")])
    assert fitted.messages == history.messages
    assert [message.content for message in history.messages[-2:]] == ["More.", "Yes."]
    assert store.thread("t", scope=ANN).messages()[:4] == TWO


@pytest.mark.parametrize("limit", range(1, 40, 3))
def test_a_part_of_it_is_valid(store: HistoryStore, limit: int) -> None:
    """What fits of it is what fits of the same messages that the host wrote itself."""
    chats = StoredChatStore(store=store, user="ann")
    chats.set_messages("own", chats.get_messages("t"))
    assert store.thread("t", scope=ANN).messages() == TWO
    kept: list[Any] = []
    for key in ("t", "own"):
        buffer = BudgetChatMemoryBuffer.from_defaults(
            chat_store=chats, chat_store_key=key, token_limit=limit, counter=WordCounter()
        )
        try:
            kept.append(buffer.get())
        except BudgetError as error:
            kept.append(str(error))
    assert kept[0] == kept[1]


def test_messages_that_come_again_with_their_ids_are_not_added() -> None:
    """A host that stores what it read does not change it, however many messages a stored one was."""
    store = HistoryStore(":memory:")
    store.thread("t", scope=ANN).append([{**m, "id": f"m{n}"} for n, m in enumerate(TWO)])
    history = StoredMessageHistory(store, "t", scope=ANN)
    seen = history.messages
    history.add_messages([message for message in seen if message.id])
    assert history.messages == seen
    store.close()


def test_each_message_has_an_id_of_its_own_in_an_agents_state(store: HistoryStore) -> None:
    """LangGraph keeps one message of an id: a run reads each under another one, and edits it alone."""
    history = NamedMessageHistory(store, "t", scope=ANN)
    history.thread._take_over()
    seen = history.messages
    assert len({message.id for message in seen}) == len(seen) == 6
    changed = seen[3].model_copy(update={"content": "changed"})
    assert history.thread.changed([*seen[:3], changed, *seen[4:]]) == [changed]
    history.thread.edit([changed])
    assert [message.content for message in history.messages[2:5]] == ["one", "changed", seen[4].content]


ODD = st.sampled_from([None, 5, True, "said", "", {}, [], {"a": 1}, ["said"], [5, [None]], float("nan")])
KINDS = ["tool_use", "tool_result", "function_call", "function_call_output", "mcp_approval_response", "text"]
FIELDS = ["id", "call_id", "tool_use_id", "name", "input", "arguments", "content", "output", "text"]
BLOCKS = st.builds(
    lambda kind, fields: {"type": kind, **fields},
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from(FIELDS), ODD, max_size=4),
) | st.builds(
    lambda kind, fields: {kind: fields},
    st.sampled_from(["functionCall", "functionResponse", "function_call"]),
    st.dictionaries(st.sampled_from(["name", "id", "args", "response"]), ODD, max_size=3),
)
ITEMS = BLOCKS | st.builds(
    lambda role, key, blocks: {"role": role, key: blocks},
    st.sampled_from(["user", "assistant", "tool", "function", "model"]),
    st.sampled_from(["content", "parts"]),
    st.lists(BLOCKS, min_size=1, max_size=3),
)


@draws()
@given(odd=st.lists(ITEMS, min_size=1, max_size=4))
def test_odd_blocks_are_refused_or_read(odd: list[Any]) -> None:
    """Blocks without what they need are refused when they are stored, or every host reads the conversation."""
    store = HistoryStore(":memory:")
    thread = store.thread("t", scope=ANN)
    with suppress(MessageError):
        thread.append([TWO[0], *odd])
        assert len(thread.messages()) == 1 + len(odd)
        for form in FORMS.values():
            other = store.thread("t", scope=ANN, form=form)
            assert len(other) == len(other.messages()) > 0
            store.thread(form.name, scope=ANN, form=form).append(other.messages())
            other.fit(ROOM, WordCounter())
            assert store.thread(form.name, scope=ANN).messages()
    store.close()


# ---- the other way --------------------------------------------------------------------------------------
def test_langchains_blocks_are_calls_once() -> None:
    """Calls that LangChain has in the content and beside it are read once, and Anthropic's results as such."""
    store = HistoryStore(":memory:")
    blocks = [
        {"type": "text", "text": "Hm."},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
    ]
    call = {"name": "f", "args": {"a": 1}, "id": "c", "type": "tool_call"}
    result = {"type": "tool_result", "tool_use_id": "c", "content": "17"}
    for answer in (ToolMessage("17", tool_call_id="c"), HumanMessage([result])):
        told = [HumanMessage("Q"), AIMessage(blocks, tool_calls=[call]), answer]
        StoredMessageHistory(store, "t", scope=ANN).add_messages(told)
        _, asked, found = store.thread("t", scope=ANN).messages()
        assert [c["id"] for c in asked["tool_calls"]] == ["c"]
        assert asked["content"] == [{"type": "text", "text": "Hm."}]
        assert (found["role"], found["tool_call_id"], found["content"]) == ("tool", "c", "17")
        both = {"role": "assistant", "content": blocks, "tool_calls": asked["tool_calls"]}
        store.thread("both", scope=ANN).append([both])
        assert len(StoredMessageHistory(store, "both", scope=ANN).messages[0].tool_calls) == 1
        [shown] = StoredMessageHistory(store, "both", scope=ANN).messages[0].content
        assert shown["text"] == "Hm."
        for name in ("t", "both"):
            store.thread(name, scope=ANN).clear()
    store.close()
