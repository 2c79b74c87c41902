"""Calls whose host gave them no id, or one id for several: any client goes on with them, stored or not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock
from llama_index.llms.ollama import Ollama
from llama_index.llms.openai_like import OpenAILike
from openai import OpenAI

import langchain_budget
import llamaindex_budget
from langchain_budget._codec import CODEC as LANGCHAIN
from langchain_budget.stored_history import FORM as LANGCHAIN_FORM
from llamaindex_budget._clear_calls import with_clear_calls
from llamaindex_budget._codec import CODEC as LLAMAINDEX
from llamaindex_budget._stored import FORM as LLAMAINDEX_FORM
from rankbudget import Scope
from rankbudget.memory import HistoryStore
from rankbudget.memory.forms import DICTS
from rankbudget.messages.call_ids import with_clear_ids
from rankbudget.testing.server import Reply, StrictModelServer
from tests.drawing import draws

Turn = list[tuple[str, str]]
"""The calls of a turn, by function and argument; no two turns ask the same, so each result says whose it is."""
FORMS = {"langchain": LANGCHAIN_FORM, "llamaindex": LLAMAINDEX_FORM, "dicts": DICTS}
CODECS: dict[str, Any] = {"langchain": LANGCHAIN, "llamaindex": LLAMAINDEX, "dicts": DICTS.codec}
IDS = {
    "own": lambda turn, n, name: f"call_{turn}_{n}",  # OpenAI, Anthropic
    "none": lambda turn, n, name: None,  # Ollama
    "name": lambda turn, n, name: name,  # Gemini in LlamaIndex
    "again": lambda turn, n, name: f"call_{n}",  # a server that counts the calls of an answer
}
"""How hosts name the calls of a turn."""


@st.composite
def conversations(draw: Any) -> list[Turn]:
    """Two to four turns with one to three calls each, often of one function."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
    names = st.sampled_from(("search", "search", "read"))
    return [[(draw(names), f"w{t}x{n}") for n in range(size)] for t, size in enumerate(sizes)]


def written(host: str, turns: list[Turn], kind: str) -> list[Any]:
    """Returns the conversation as a host has it, with a last question."""
    made: list[Any] = []
    for number, turn in enumerate(turns):
        calls = [(IDS[kind](number, n, name), name, word) for n, (name, word) in enumerate(turn)]
        made += [_ASKED[host](f"question {number}"), _CALLED[host](calls)]
        made += [_FOUND[host](own or name, name, f"found {word}") for own, name, word in calls]
        made.append(_SAID[host](f"answer {number}"))
    return [*made, _ASKED[host]("and now?")]


def _li_calls(calls: Sequence[Any]) -> ChatMessage:
    blocks = [ToolCallBlock(tool_call_id=i, tool_name=n, tool_kwargs={"q": w}) for i, n, w in calls]
    return ChatMessage(role="assistant", blocks=[TextBlock(text=""), *blocks])


def _dict_calls(calls: Sequence[Any]) -> dict[str, Any]:
    listed = [
        {**({"id": own} if own else {}), "function": {"name": name, "arguments": json.dumps({"q": word})}}
        for own, name, word in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": listed}


_ASKED: dict[str, Any] = {
    "langchain": HumanMessage,
    "llamaindex": ChatMessage,
    "dicts": lambda text: {"role": "user", "content": text},
}
_SAID: dict[str, Any] = {
    "langchain": AIMessage,
    "llamaindex": lambda text: ChatMessage(text, role="assistant"),
    "dicts": lambda text: {"role": "assistant", "content": text},
}
_CALLED: dict[str, Any] = {
    "langchain": lambda calls: AIMessage(
        "", tool_calls=[{"id": own, "name": name, "args": {"q": word}} for own, name, word in calls]
    ),
    "llamaindex": _li_calls,
    "dicts": _dict_calls,
}
_FOUND: dict[str, Any] = {
    "langchain": lambda own, name, text: ToolMessage(text, tool_call_id=own, name=name),
    "llamaindex": lambda own, name, text: ChatMessage(
        text, role="tool", additional_kwargs={"tool_call_id": own}
    ),
    "dicts": lambda own, name, text: {"role": "tool", "tool_call_id": own, "content": text},
}


@pytest.fixture(scope="module")
def server() -> Iterator[StrictModelServer]:
    with StrictModelServer(default=Reply(text="ok"), context_window=10**6) as running:
        yield running


CLIENTS: dict[str, tuple[str, Any]] = {
    "openai": (
        "langchain",
        lambda s: ChatOpenAI(model="openai", base_url=s.base_url, api_key="none", max_retries=0),  # type: ignore[arg-type]
    ),
    "anthropic": (
        "langchain",
        lambda s: ChatAnthropic(  # type: ignore[call-arg]  # aliases
            model="claude-haiku-4-5", base_url=s.root_url, api_key="none", max_retries=0, max_tokens=9
        ),
    ),
    "gemini": (
        "langchain",
        lambda s: ChatGoogleGenerativeAI(model="gemini-2.5-flash", base_url=s.root_url, api_key="none"),
    ),
    "ollama": ("langchain", lambda s: ChatOllama(model="llama3.2", base_url=s.root_url)),
    "llamaindex-openai": (
        "llamaindex",
        lambda s: OpenAILike(
            model="openai", api_base=s.base_url, api_key="none", is_chat_model=True, max_retries=0
        ),
    ),
    "llamaindex-ollama": (
        "llamaindex",
        lambda s: Ollama(model="llama3.2", base_url=s.root_url, context_window=10**6),
    ),
}


def sent(server: StrictModelServer, client: str, messages: list[Any], *, bounded: bool) -> Any:
    """Returns the body of the request that a client sends."""
    host, make = CLIENTS[client]
    model, door = make(server), langchain_budget if host == "langchain" else llamaindex_budget
    if bounded:
        limits: Any = {"context_window": 10**6} if host == "langchain" else {"max_tokens": 10**6}
        model = door.budget_model(model, counter="o200k_base", **limits)
    server.forget()
    (model.invoke if host == "langchain" else model.chat)(messages)
    assert [(one.problems, one.body) for one in server.refused] == []
    return server.requests[-1].body


def pairs(body: Any) -> tuple[list[Any], list[tuple[str, str]]]:
    """Returns the ids of all calls, and by its id what each asked for and was told; in order without ids."""
    calls: list[tuple[Any, str]] = []
    told: list[tuple[Any, str]] = []
    for message in body.get("messages") or body["contents"]:
        parts = message.get("parts") or message.get("content")
        for part in parts if isinstance(parts, list) else ():
            if part.get("type") == "tool_use":
                calls.append((part["id"], part["input"]["q"]))
            elif part.get("type") == "tool_result":
                told.append((part["tool_use_id"], part["content"]))
            elif "functionCall" in part:
                calls.append((part["functionCall"].get("id"), part["functionCall"]["args"]["q"]))
            elif "functionResponse" in part:
                answer = part["functionResponse"]
                told.append((answer.get("id"), next(iter(answer["response"].values()))))
        for call in message.get("tool_calls") or ():
            given = call["function"]["arguments"]
            calls.append((call.get("id"), (json.loads(given) if isinstance(given, str) else given)["q"]))
        if message.get("role") == "tool":
            told.append((message.get("tool_call_id"), message["content"]))
    by_id = dict(told)
    in_order = [said for _, said in told]
    found = [by_id[own] if own in by_id and own else in_order[at] for at, (own, _) in enumerate(calls)]
    return [own for own, _ in calls], [(word, said) for (_, word), said in zip(calls, found, strict=True)]


def check(body: Any, turns: list[Turn]) -> None:
    """Every call is there with an id of its own, or all are without, and each has its own result."""
    ids, told = pairs(body)
    words = [word for turn in turns for _, word in turn]
    assert told == [(word, f"found {word}") for word in words]
    assert set(ids) == {None} or (None not in ids and len(set(ids)) == len(words))


@pytest.mark.parametrize("client", CLIENTS)
@draws(cases=6)
@given(turns=conversations(), kind=st.sampled_from(sorted(IDS)))
def test_a_bounded_model_sends_clear_ids(
    server: StrictModelServer, client: str, turns: list[Turn], kind: str
) -> None:
    """However a host names its calls, the request has ids that are unique, each shared by call and result."""
    host = CLIENTS[client][0]
    messages = written(host, turns, kind)
    before = CODECS[host].fingerprints(messages)
    check(sent(server, client, messages, bounded=True), turns)
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
    server: StrictModelServer,
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
    clear = kind == "own" or (begun != host and kind != "again")  # else the bounded model makes it so
    check(sent(server, client, there, bounded=bounded or not clear), turns)
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
    calls = _dict_calls([(None, "search", "a"), (None, "read", "b")])
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
    server: StrictModelServer, text: str, read: dict[str, str]
) -> None:
    """What OpenAI or LangChain left as a text is an object for Ollama and the same text for OpenAI, broken or not."""
    call = ToolCallBlock(tool_call_id="c1", tool_name="search", tool_kwargs=text)
    said = ChatMessage(role="assistant", blocks=[call])
    result = ChatMessage("found", role="tool", additional_kwargs={"tool_call_id": "c1"})
    thread = [ChatMessage("question"), said, result]
    for client, expected in (("llamaindex-ollama", read), ("llamaindex-openai", text)):
        body = sent(server, client, thread, bounded=True)
        assert body["messages"][1]["tool_calls"][0]["function"]["arguments"] == expected
    assert call.tool_kwargs == text


def test_plain_dicts_have_no_thinking_of_another_host(server: StrictModelServer) -> None:
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
    server.forget()
    OpenAI(base_url=server.base_url, api_key="none", max_retries=0).chat.completions.create(
        model="openai", messages=seen
    )
    [request] = server.requests
    assert not request.problems
    said = json.dumps(request.body)
    assert "Hm." not in said
    assert "It is blue." in said
    assert "image/png, not sent" in said
    database.close()
