"""Calls whose host gave them no id, or one id for several: any client goes on with them, stored or not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.llms.ollama import Ollama
from openai import OpenAI

from langchain_budget.stored_history import FORM as LANGCHAIN_FORM
from llamaindex_budget._clear_calls import with_clear_calls
from llamaindex_budget._codec import CODEC as LLAMAINDEX
from rankbudget import Scope
from rankbudget.memory import HistoryStore
from rankbudget.memory.forms import DICTS
from rankbudget.messages.call_ids import with_clear_ids
from rankbudget.testing.server import StrictModelServer
from tests.drawing import draws
from tests.memory.calls import (
    CLIENTS,
    CODECS,
    FORMS,
    IDS,
    Turn,
    check,
    conversations,
    dict_calls,
    sent,
    written,
)


@pytest.mark.parametrize("client", CLIENTS)
@draws(cases=6)
@given(turns=conversations(), kind=st.sampled_from(sorted(IDS)))
def test_a_bounded_model_sends_clear_ids(
    model_server: StrictModelServer, client: str, turns: list[Turn], kind: str
) -> None:
    """However a host names its calls, the request has ids that are unique, each shared by call and result."""
    host = CLIENTS[client][0]
    messages = written(host, turns, kind)
    before = CODECS[host].fingerprints(messages)
    check(sent(model_server, client, messages, bounded=True), turns)
    assert CODECS[host].fingerprints(messages) == before


@pytest.mark.parametrize("client", CLIENTS)
@draws(cases=6)
@given(
    turns=conversations(),
    kind=st.sampled_from(sorted(IDS)),
    begun=st.sampled_from(sorted(FORMS)),
    at_once=st.booleans(),
    bounded=st.booleans(),
)
def test_any_client_goes_on_with_a_stored_conversation(
    model_server: StrictModelServer,
    client: str,
    turns: list[Turn],
    kind: str,
    begun: str,
    at_once: bool,
    bounded: bool,
) -> None:
    """What one host stored is a valid request of another's client, and the first gets back what it wrote."""
    host, database = CLIENTS[client][0], HistoryStore(":memory:")
    thread = database.thread("t", scope=Scope(user="ann"), form=FORMS[begun])
    messages = written(begun, turns, kind)
    for part in [messages] if at_once else [[message] for message in messages]:
        thread.append(part)
    assert thread.messages() == messages
    thread.replace(messages)
    assert thread.replaced() == []
    there = database.thread("t", scope=Scope(user="ann"), form=FORMS[host]).messages()
    clear = kind == "own" or begun != host  # else a memory of the host or the bounded model makes it so
    check(sent(model_server, client, there, bounded=bounded or not clear), turns)
    database.close()


@pytest.mark.parametrize("host", FORMS)
@draws(cases=3)
@given(turns=conversations(), kind=st.sampled_from(sorted(IDS)))
def test_ids_stay_when_messages_are_added(host: str, turns: list[Turn], kind: str) -> None:
    """Clear messages are the same objects, and a longer conversation begins with the ids of the shorter one."""
    codec, messages = CODECS[host], written(host, turns, kind)
    clear = with_clear_ids(codec, messages)
    names = [name for turn in turns for name, _ in turn]
    said_once = kind == "name" and len(set(names)) == len(names)  # a name that is an id of its own
    assert (clear is messages) == (kind == "own" or said_once)
    assert with_clear_ids(codec, clear) is clear
    for size in range(len(messages)):
        shorter = with_clear_ids(codec, messages[:size])
        assert codec.fingerprints(shorter) == codec.fingerprints(clear)[:size]
    plain = [at for at, message in enumerate(messages) if codec.role(message) == "user"]
    assert all(clear[at] is messages[at] for at in plain)


def test_a_result_is_read_by_its_name_where_it_has_no_id() -> None:
    """Results that come in another order than their calls belong to the calls of their functions."""
    calls = dict_calls([(None, "search", "a"), (None, "read", "b")])
    results = [{"role": "tool", "tool_name": name, "content": name} for name in ("read", "search")]
    asked, *told = with_clear_ids(DICTS.codec, [calls, *results])
    ids = {call["function"]["name"]: call["id"] for call in asked["tool_calls"]}
    assert [result["tool_call_id"] for result in told] == [ids["read"], ids["search"]]


def test_the_older_form_of_a_call_stays() -> None:
    """A function call has no place for an id: it and its result are sent as they are."""
    called = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    thread = [called, {"role": "function", "name": "f", "content": "1"}]
    assert with_clear_ids(DICTS.codec, thread) == thread
    legacy = ChatMessage(role="assistant", additional_kwargs={"function_call": called["function_call"]})
    found = ChatMessage(role="tool", content="1", additional_kwargs={"name": "f"})
    assert with_clear_ids(LLAMAINDEX, [legacy, found]) == [legacy, found]


def test_the_calls_of_googles_client_keep_their_names() -> None:
    """LlamaIndex's client for Gemini sends the id of a result as the name of its function."""

    class Gemini(Ollama):
        __module__ = "llama_index.llms.google_genai.base"

    thread = written("llamaindex", [[("search", "a"), ("search", "b")]], "name")
    assert with_clear_calls(Gemini(model="g"), thread) is thread
    assert with_clear_calls(Ollama(model="g"), thread) is not thread


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('{"q": "a"}', {"q": "a"}),
        ("{bad", {"arguments": "{bad"}),
        ("[1]", {"arguments": "[1]"}),
        ("", {}),
        ("null", {}),
    ],
)
def test_a_client_gets_arguments_in_its_own_form(
    model_server: StrictModelServer, text: str, read: dict[str, str]
) -> None:
    """What OpenAI or LangChain left as a text is an object for Ollama and the same text for OpenAI, broken or not."""
    call = ToolCallBlock(tool_call_id="c1", tool_name="search", tool_kwargs=text)
    said = ChatMessage(role="assistant", blocks=[call])
    result = ChatMessage("found", role="tool", additional_kwargs={"tool_call_id": "c1"})
    thread = [ChatMessage("question"), said, result]
    for client, expected in (("llamaindex-ollama", read), ("llamaindex-openai", text)):
        body = sent(model_server, client, thread, bounded=True)
        assert body["messages"][1]["tool_calls"][0]["function"]["arguments"] == expected
    assert call.tool_kwargs == text


def test_plain_dicts_have_no_thinking_of_another_host(model_server: StrictModelServer) -> None:
    """OpenAI's chat API takes a conversation with Claude's thinking and calls that LangChain stored."""
    call = {"name": "look", "args": {"at": "sea"}, "id": "c1", "type": "tool_call"}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    picture = {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}
    database = HistoryStore(":memory:")
    database.thread("t", scope=Scope(user="ann"), form=LANGCHAIN_FORM).append(
        [
            HumanMessage("Look."),
            AIMessage([thought], tool_calls=[call]),
            ToolMessage([picture, {"type": "text", "text": "Blue."}], tool_call_id="c1"),
            AIMessage([thought, {"type": "text", "text": "It is blue."}]),
            HumanMessage("Thanks."),
        ]
    )
    seen = database.thread("t", scope=Scope(user="ann")).messages()
    model_server.forget()
    OpenAI(base_url=model_server.base_url, api_key="none", max_retries=0).chat.completions.create(
        model="openai", messages=seen
    )
    [request] = model_server.requests
    assert not request.problems
    said = json.dumps(request.body)
    assert "Hm." not in said
    assert "It is blue." in said
    assert "image/png, not sent" in said
    database.close()
