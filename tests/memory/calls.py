"""Conversations with calls as hosts write them, and what their clients send of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock
from llama_index.llms.ollama import Ollama
from llama_index.llms.openai_like import OpenAILike

import langchain_budget
import llamaindex_budget
from langchain_budget._codec import CODEC as LANGCHAIN
from langchain_budget.stored_history import FORM as LANGCHAIN_FORM
from llamaindex_budget._codec import CODEC as LLAMAINDEX
from llamaindex_budget._stored import FORM as LLAMAINDEX_FORM
from rankbudget.memory.forms import DICTS
from rankbudget.testing.server import StrictModelServer

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


def dict_calls(calls: Sequence[Any]) -> dict[str, Any]:
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
    "dicts": dict_calls,
}
_FOUND: dict[str, Any] = {
    "langchain": lambda own, name, text: ToolMessage(text, tool_call_id=own, name=name),
    "llamaindex": lambda own, name, text: ChatMessage(
        text, role="tool", additional_kwargs={"tool_call_id": own}
    ),
    "dicts": lambda own, name, text: {"role": "tool", "tool_call_id": own, "content": text},
}


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
